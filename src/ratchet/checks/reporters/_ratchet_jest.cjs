// A reporter for jest that writes records as they happen.
'use strict';
const { say, clip, show, relative, frames, start, end } = require('./_ratchet_records.cjs');

function idOf(test, result) {
  return `${relative(test.path)}::${[...(result.ancestorTitles ?? []), result.title].join(' > ')}`;
}

// Jest reports a failure as text with a stack, and its values separately; those that a matcher compared are best.
function failure(result) {
  const text = clip(result.failureMessages?.[0]);
  const detail = result.failureDetails?.[0] ?? {};
  const message = text.split(/\n\s+at /)[0];
  const found = { type: /^([A-Za-z]*Error)\b/.exec(text)?.[1] ?? detail.name ?? 'Error', frames: frames(text) };
  found.message = message.replace(/^[A-Za-z]*Error: /, '').trim();
  // Before version 27 jest ran on jasmine, which adds empty values to the error.
  const values = detail.matcherResult ?? detail.error?.matcherResult ?? ('passed' in detail ? {} : detail);
  if (values && ('expected' in values || 'actual' in values)) {
    found.expected = show(values.expected);
    found.actual = show(values.actual);
  }
  if (!('actual' in (values ?? {}))) {
    const expected = /^\s*Expected(?: \w+)*:\s+(.*)$/m.exec(message)?.[1];
    const actual = /^\s*Received(?: \w+)*:\s+(.*)$/m.exec(message)?.[1];
    if (expected !== undefined) found.expected = expected;
    if (actual !== undefined) found.actual = actual;
  }
  return found;
}

const COMPILED = /^\s*(?:\w+: )?\S+\.[cm]?tsx?:(\d+):(\d+) - error TS\d+: /m;
const OUTCOME = { passed: 'passed', failed: 'failed', pending: 'skipped', skipped: 'skipped', todo: 'skipped', disabled: 'skipped' };

class RatchetReporter {
  constructor(config) {
    // Jest reports the project of a test only with its file.
    this.waits = (config?.projects?.length ?? 0) > 1;
  }

  onRunStart() {
    start();
    this.told = new Map(); // outcomes of the tests by file and name: several tests, also of several projects, may have one name
  }

  onTestCaseStart(test, info) {
    say({ kind: 'test_start', id: idOf(test, info) });
  }

  onTestCaseResult(test, result) {
    try {
      if (this.waits) {
        const outcome = OUTCOME[result.status];
        say({ kind: 'test_over', id: idOf(test, result), outcome: outcome === 'skipped' ? undefined : outcome });
        return;
      }
      this.known(test, result).push(result.status);
      this.tell(test, result, false);
    } catch {}
  }

  known(test, result) {
    const key = idOf(test, result);
    if (!this.told.has(key)) this.told.set(key, []);
    return this.told.get(key);
  }

  tell(test, result, late) {
    try {
      const id = idOf(test, result);
      const record = {
        kind: 'phase', id, when: 'call', last: true, outcome: OUTCOME[result.status] ?? 'skipped',
        duration: (result.duration ?? 0) / 1000, file: relative(test.path), line: result.location?.line ?? 0,
        name: result.title, suite: result.ancestorTitles ?? [], todo: result.status === 'todo',
        project: this.waits ? test.context?.config?.displayName?.name : undefined,
      };
      for (let n = 1; n < (result.invocations ?? 1); n++) say({ ...record, outcome: 'rerun' });
      if (late) Object.assign(record, { when: 'teardown', last: false });
      say(record.outcome === 'failed' ? { ...record, ...failure(result) } : record);
    } catch {}
  }

  onTestFileResult(test, results) {
    try {
      // Only here: skipped and to-do tests, and tests that failed after they had passed, by leftovers of theirs.
      for (const result of results.testResults ?? []) {
        const known = this.known(test, result);
        const [before] = known.splice(Math.max(0, known.indexOf(result.status)), 1);
        const late = before === 'passed' && result.status === 'failed';
        if (before === undefined || late) this.tell(test, result, late);
      }
      const error = results.testExecError;
      if (error) {
        // The stack is that of the error; the file's message includes the failures of its tests.
        const stack = /\n\s+at /.test(error.stack ?? '') ? error.stack : '';
        const text = clip(stack || results.failureMessage || error.message || error);
        const at = /\((\d+):(\d+)\)/.exec(text) ?? COMPILED.exec(text);
        const frame = frames(text).at(-1);
        const line = at ? Number(at[1]) : frame?.line ?? 0;
        say({
          kind: 'broken', tool: 'jest', file: at ? relative(test.path) : frame?.file ?? relative(test.path), line,
          column: at ? Number(at[2]) : 0, type: /\b([A-Z]\w*Error)\b/.exec(text)?.[1] ?? error.name ?? 'Error',
          message: clip(error.message || text.split(/\n\s+at /)[0]).replace(/^[A-Z]\w*Error: /, '').split('\n\n')[0].trim(),
        });
      }
    } catch {}
  }

  onRunComplete() {
    end();
  }
}

module.exports = RatchetReporter;
