// Runs in vitest's workers and reports which test begins and ends, in case the worker dies or hangs.
'use strict';
try {
  const { isMainThread } = require('node:worker_threads');
  const isWorker = !isMainThread || /[\\/](?:vitest[\\/]dist[\\/]workers|tinypool[\\/]dist)[\\/]/.test(process.argv[1] ?? '');
  if (process.env._RATCHET_REPORT && isWorker) {
    // Not in programs that the tests start.
    process.env.NODE_OPTIONS = (process.env.NODE_OPTIONS ?? '').replace(`--require=${__filename}`, '').trim();
    if (!process.env.NODE_OPTIONS) delete process.env.NODE_OPTIONS;
    const { say, relative } = require('./_ratchet_records.cjs');
    const ended = { pass: 'passed', fail: 'failed' };

    const idOf = (test) => {
      const names = [test.name];
      let suite = test.suite;
      // Version 0 has no file on a test, and an unnamed suite around all tests.
      for (; suite && suite !== test.file && suite.name && !suite.filepath; suite = suite.suite) names.unshift(suite.name);
      return `${relative((test.file ?? suite?.file ?? suite)?.filepath)}::${names.join(' > ')}`;
    };

    const follow = (state) => {
      let current = state.current;
      define(state, 'current', {
        configurable: true,
        enumerable: true,
        get: () => current,
        set(next) {
          try {
            const outcome = ended[current?.result?.state];
            if (current?.type === 'test' && outcome) say({ kind: 'test_over', id: idOf(current), outcome });
            if (next?.type === 'test') say({ kind: 'test_start', id: idOf(next) });
          } catch {}
          current = next;
        },
      });
    };

    // The worker's state names the current test. The property is defined once.
    const define = Object.defineProperty;
    Object.defineProperty = (object, name, descriptor) => {
      if (name === '__vitest_worker__' && descriptor?.value) {
        Object.defineProperty = define;
        follow(descriptor.value);
      }
      return define(object, name, descriptor);
    };
  }
} catch {}
