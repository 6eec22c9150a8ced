// A reporter for node:test that writes records as they happen.
import { createRequire } from 'node:module';
const { say, clip, relative, failure, lineOf, start, end } = createRequire(import.meta.url)('./_ratchet_records.cjs');

const path = []; // names of the current test and those around it, by nesting
const stderr = new Map();
const left = []; // errors after the end of their test, for which there is only a sentence in an event
const LEFT = /^\w+: (Test "(?:.*)"(?: at (.+?):(\d+):\d+)? generated asynchronous activity after the test ended)\. .*?created the error "(?:(\w+): )?(.*)" and would/s;

function idOf(data, names) {
  return `${relative(data.file)}::${names.join(' > ')}`;
}

// The line of a transpiled file may be that of the generated JavaScript.
function written(data) {
  return (/\.[cm]?tsx?$/.test(data.file ?? '') && lineOf(relative(data.file), data.name)) || (data.line ?? 0);
}

function told(data, outcome) {
  const error = data.details?.error;
  const cause = error?.cause ?? error;
  const names = [...path.slice(0, data.nesting), data.name];
  const record = {
    kind: 'phase', id: idOf(data, names), when: 'call', last: true, outcome,
    duration: (data.details?.duration_ms ?? 0) / 1000,
    file: relative(data.file), line: written(data), name: data.name, suite: names.slice(0, -1),
  };
  if (data.skip !== undefined && data.skip !== false) {
    record.outcome = 'skipped';
    record.reason = data.skip === true ? '' : clip(data.skip);
  } else if (data.todo !== undefined && data.todo !== false) {
    record.outcome = 'skipped';
    record.todo = true;
    record.reason = data.todo === true ? '' : clip(data.todo);
  } else if (outcome === 'failed') {
    Object.assign(record, failure(cause));
    if (error?.failureType === 'hookFailed') record.when = 'setup';
    if (cause === error || typeof cause === 'string') {
      record.type = error?.failureType ?? record.type;
      record.message = clip(typeof cause === 'string' ? cause : error?.message);
    }
  }
  return record;
}

// node reports a file that did not load or died as a failing test with the file's name.
function isFile(data) {
  const name = relative(data.name);
  return data.nesting === 0 && (data.file === undefined || name === relative(data.file)) && /\.[cm]?[jt]sx?$/.test(name);
}

function leftBehind(message) {
  const [found, how, file, line, type, said] = LEFT.exec(message) ?? [];
  if (found) left.push({ file: relative(file ?? ''), line: Number(line ?? 0), type: type ?? 'Error', message: clip(`${said} (${how})`) });
}

function broken(data) {
  const file = relative(data.name);
  const late = left.filter((each) => !each.file || each.file === file);
  for (const each of late) say({ kind: 'broken', tool: 'node', ...each, file });
  if (late.length) return;
  const said = (stderr.get(file) ?? []).join('');
  const message = /^(?:[A-Za-z]*Error[^\n]*|.*? is not defined)$/m.exec(said)?.[0] ?? '';
  const place = /^(?:file:\/\/)?(\/[^\n:]+|[A-Za-z]:[^\n:]+):(\d+)$/m.exec(said);
  const [type, ...rest] = message.split(': ');
  const code = data.details?.error?.exitCode ?? data.details?.error?.cause?.exitCode;
  const how = data.details?.error?.signal ? `ended by ${data.details.error.signal}` : `ended with ${code ?? 'an error'}`;
  say({
    kind: 'broken', tool: 'node', file: place ? relative(place[1]) : file, line: place ? Number(place[2]) : 0,
    type: message ? type : 'Crashed', message: message ? clip(rest.join(': ')) : `the file's process ${how}${said.trim() ? `: ${clip(said).trim().slice(-500)}` : ''}`,
  });
}

export default async function* reporter(source) {
  start();
  for await (const { type, data } of source) {
    try {
      if (type === 'test:start') {
        path.length = data.nesting;
        path[data.nesting] = data.name;
      } else if (type === 'test:diagnostic') {
        leftBehind(data.message);
      } else if (type === 'test:stderr') {
        const file = relative(data.file);
        stderr.set(file, [...(stderr.get(file) ?? []).slice(-200), data.message]);
      } else if (type === 'test:pass' || type === 'test:fail') {
        if (isFile(data)) {
          if (type === 'test:fail') broken(data);
        } else if (data.details?.type !== 'suite') {
          say(told(data, type === 'test:pass' ? 'passed' : 'failed'));
        } else if (type === 'test:fail' && data.details?.error?.failureType === 'hookFailed') {
          say(told(data, 'failed'));
        }
      }
    } catch {}
  }
  end();
}
