// A reporter for mocha that writes records as they happen.
'use strict';
const { say, clip, relative, frames, failure, lineOf, start, end } = require('./_ratchet_records.cjs');

function titles(test) {
  return test.titlePath ? test.titlePath() : [test.title];
}

function fileOf(test) {
  for (let each = test; each; each = each.parent) if (each.file) return relative(each.file);
  return '';
}

function idOf(test) {
  return `${fileOf(test)}::${titles(test).join(' > ')}`;
}

// The location of a test is known only while its file is loaded, which happens after this.
const lines = new WeakMap();
try {
  const loaded = Object.keys(require.cache).find((each) => /[\\/]mocha[\\/]lib[\\/]mocha\.c?js$/.test(each));
  const { prototype } = require(loaded).Suite;
  const { addTest } = prototype;
  prototype.addTest = function (test) {
    const at = frames(new Error().stack).filter((frame) => frame.file === fileOf(test)).at(-1);
    if (at) lines.set(test, at.line);
    return addTest.call(this, test);
  };
} catch {}

// A file that did not load or, when files run in parallel, ended its worker.
function broken(test, error) {
  const told = failure(error);
  const [, where, line] = /^(?:file:\/\/)?(\/.+|[A-Za-z]:.+):(\d+)$/m.exec(error.stack ?? '') ?? [];
  const at = where ? { file: relative(where), line: Number(line) } : told.frames.at(-1) ?? { file: fileOf(test) };
  say({ kind: 'broken', tool: 'mocha', ...at, type: told.type, message: told.message.split('\n')[0] });
}

module.exports = function RatchetReporter(runner) {
  start();
  const told = new WeakSet();
  const phase = (test, outcome, more) => {
    const record = {
      kind: 'phase', id: idOf(test), when: 'call', last: true, outcome, duration: (test.duration ?? 0) / 1000,
      file: fileOf(test), line: lines.get(test) || lineOf(fileOf(test), test.title) || (more?.frames?.at(-1)?.line ?? 0), name: test.title, suite: titles(test).slice(0, -1), ...more,
    };
    // Leftovers of a test can fail it after it passed: it is still the same test.
    say(told.has(test) && outcome === 'failed' ? { ...record, when: 'teardown', last: false } : record);
    told.add(test);
  };
  const safely = (act) => (...args) => {
    try {
      act(...args);
    } catch {}
  };
  runner.on('test', safely((test) => say({ kind: 'test_start', id: idOf(test) })));
  runner.on('retry', safely((test) => phase(test, 'rerun')));
  runner.on('pass', safely((test) => phase(test, 'passed')));
  runner.on('pending', safely((test) => phase(test, 'skipped')));
  runner.on('fail', safely((test, error) => {
    if (test.title === 'Uncaught error outside test suite') return broken(test, error);
    // Mocha reports a failed hook in place of its tests: as an error of the set-up, under the hook's own name.
    phase(test, 'failed', { ...failure(error), ...(test.type === 'hook' ? { when: 'setup' } : {}) });
    // The test of the hook was announced and never ends.
    if (test.type === 'hook' && test.ctx?.currentTest) say({ kind: 'test_over', id: idOf(test.ctx.currentTest) });
    console.log(`failed: ${titles(test).join(' > ')}: ${clip(error?.message)}`);
  }));
  runner.once('end', () => end());
};
