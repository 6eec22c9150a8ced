// A reporter for playwright that writes records as they happen.
'use strict';
const { say, clip, relative, frames, start, end } = require('./_ratchet_records.cjs');

function names(test) {
  return test.titlePath().slice(3);
}

function idOf(test) {
  const project = test.titlePath()[1];
  const place = `${relative(test.location.file)}::${names(test).join(' > ')}`;
  return project ? `[${project}] ${place}` : place;
}

function failure(error) {
  const text = clip(error?.message ?? error?.value);
  const value = (word) => new RegExp(`^\\s*${word}(?: \\w+)*:\\s+(.*)$`, 'm').exec(text)?.[1];
  const type = /^([A-Z]\w*Error)\b/.exec(text)?.[1] ?? 'Error';
  const found = { type, message: text.replace(`${type}: `, ''), frames: frames(error?.stack) };
  if (value('Expected') !== undefined) found.expected = value('Expected');
  if (value('Received') !== undefined) found.actual = value('Received');
  return found;
}

module.exports = class RatchetReporter {
  onBegin() {
    start();
  }

  onTestBegin(test) {
    say({ kind: 'test_start', id: idOf(test) });
  }

  onTestEnd(test, result) {
    try {
      const record = {
        kind: 'phase', id: idOf(test), when: 'call', last: true, duration: result.duration / 1000,
        file: relative(test.location.file), line: test.location.line, name: test.title, suite: names(test).slice(0, -1),
      };
      const bad = result.status === 'failed' || result.status === 'timedOut' || result.status === 'interrupted';
      if (bad && result.retry < test.retries && test.expectedStatus === 'passed') {
        say({ ...record, outcome: 'rerun' });
      } else if (result.status === 'skipped') {
        const note = test.annotations.find((each) => each.type === 'skip' || each.type === 'fixme');
        say({ ...record, outcome: 'skipped', reason: clip(note?.description) });
      } else if (test.expectedStatus === 'failed') {
        say(bad ? { ...record, outcome: 'skipped', xfail: 'expected to fail' } : { ...record, outcome: 'failed', type: 'UnexpectedSuccess', message: 'passed although it was expected to fail' });
      } else {
        say(bad ? { ...record, outcome: 'failed', ...failure(result.error) } : { ...record, outcome: 'passed' });
      }
    } catch {}
  }

  onError(error) {
    const at = error.location ?? {};
    const told = failure(error);
    say({ kind: 'broken', tool: 'playwright', file: relative(at.file ?? told.frames.at(-1)?.file ?? ''), line: at.line ?? 0, column: at.column ?? 0, type: told.type, message: told.message });
  }

  onEnd() {
    end();
  }
};
