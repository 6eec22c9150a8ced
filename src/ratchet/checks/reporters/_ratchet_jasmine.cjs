// A reporter for jasmine that writes records as they happen.
'use strict';
const { say, clip, relative, frames, lineOf, start, end } = require('./_ratchet_records.cjs');

const suites = [];
const COMPARED = /^Expected (.*?) (not )?to (?:be|equal) (.*?)\.?$/s;

function idOf(spec, file) {
  return `${file}::${[...suites, spec.description].join(' > ')}`;
}

function fileOf(result) {
  const stack = result.failedExpectations?.[0]?.stack;
  return relative(result.filename ?? '') || frames(stack)[0]?.file || '';
}

function failure(found) {
  const message = clip(found.message);
  const compared = COMPARED.exec(message);
  const thrown = /^([A-Z]\w*(?:Error|Exception)): /.exec(message);
  return {
    type: thrown?.[1] ?? (found.matcherName ? 'AssertionError' : 'Error'),
    message: thrown ? message.slice(thrown[0].length) : message,
    frames: frames(found.stack),
    ...(compared ? { actual: compared[1], expected: compared[3], operator: compared[2] ? '!=' : '==' } : {}),
  };
}

class RatchetReporter {
  jasmineStarted() {
    start();
  }

  suiteStarted(suite) {
    suites.push(suite.description);
  }

  specStarted(spec) {
    say({ kind: 'test_start', id: idOf(spec, relative(spec.filename ?? '')) });
  }

  specDone(spec) {
    const file = fileOf(spec);
    // Jasmine reports specs that were not selected as excluded.
    if (spec.status !== 'excluded') {
      say({
        kind: 'phase', id: idOf(spec, file), when: 'call', last: true,
        outcome: { passed: 'passed', failed: 'failed' }[spec.status] ?? 'skipped',
        reason: clip(spec.pendingReason), duration: (spec.duration ?? 0) / 1000, file, line: lineOf(file, spec.description), name: spec.description,
        suite: [...suites], ...(spec.status === 'failed' ? failure(spec.failedExpectations[0] ?? {}) : {}),
      });
      if (spec.status === 'failed') console.log(`failed: ${spec.fullName}: ${clip(spec.failedExpectations[0]?.message)}`);
    }
    say({ kind: 'test_over', id: idOf(spec, relative(spec.filename ?? '')) });
  }

  suiteDone(suite) {
    this.#broken(suite, 'afterAll');
    suites.pop();
  }

  jasmineDone(result) {
    this.#broken(result, 'load');
    end();
  }

  // A failure outside of specs: a file that does not load, or a hook of a suite.
  #broken(result, name) {
    for (const found of result.failedExpectations ?? []) {
      const told = failure(found);
      const place = told.frames.at(-1) ?? {};
      const file = relative(found.filename ?? '') || place.file || '';
      say({
        kind: 'broken', tool: 'jasmine', file, line: found.lineno ?? place.line ?? 0, type: told.type,
        message: told.message || name,
      });
    }
  }
}

module.exports = RatchetReporter;
module.exports.default = RatchetReporter;
