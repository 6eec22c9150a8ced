// Reports from uvu, which has no reporters: wraps the tests of each suite while the suite waits in uvu's queue.
'use strict';
try {
  const isUvu = /[\\/]uvu[\\/]bin\.js$|[\\/]\.bin[\\/]uvu$/.test(process.argv[1] ?? '');
  if (process.env._RATCHET_REPORT && isUvu && require('node:worker_threads').isMainThread) {
    // Not in programs that the tests start.
    process.env.NODE_OPTIONS = (process.env.NODE_OPTIONS ?? '').replace(`--require=${__filename}`, '').trim();
    if (!process.env.NODE_OPTIONS) delete process.env.NODE_OPTIONS;
    const { say, frames, lineOf, failure, start, end } = require('./_ratchet_records.cjs');
    const only = new Set(JSON.parse(process.env._RATCHET_ONLY || '[]'));
    let met = 0;
    let left = 0;
    start();

    const follow = (suite, name) => {
      const file = frames(new Error().stack).at(-1)?.file ?? '';
      const tests = [];
      const around = name ? [name] : [];
      const tell = (own, outcome, more) => say({
        kind: 'phase', id: `${file}::${[...around, own].join(' > ')}`, when: 'call', last: true, outcome, file, name: own,
        suite: around, line: lineOf(file, own), ...more,
      });
      const isWanted = (test) => !only.size || only.has(`${file}::${[...around, test.name].join(' > ')}`) || only.has(file);
      let thrown;
      const heard = (act) => async (...args) => {
        try {
          return await act(...args);
        } catch (error) {
          thrown ??= { error };
          throw error;
        }
      };
      // Our hooks run before all other hooks of a test, and after them.
      const begin = (test) => {
        thrown = undefined;
        test.began = process.hrtime.bigint();
        say({ kind: 'test_start', id: `${file}::${[...around, test.name].join(' > ')}` });
      };
      const over = (test) => {
        if (!test?.began || test.told) return;
        test.told = true;
        const duration = Number(process.hrtime.bigint() - test.began) / 1e9;
        tell(test.name, thrown ? 'failed' : 'passed', { duration, ...(thrown ? failure(thrown.error) : {}) });
      };
      const chosen = suite.only.length ? suite.only : suite.tests;
      let current = -1;
      for (const each of chosen.filter(isWanted)) {
        const test = { name: each.name };
        tests.push(test);
        test.handler = heard(each.handler);
      }
      const next = async () => {
        over(tests[current]);
        current += 1;
        begin(tests[current]);
      };
      const skipped = suite.only.length ? suite.tests.filter(isWanted).map((test) => test.name) : [];
      if (!only.size) for (let n = 0; n < suite.skips; n++) skipped.push('(uvu does not name what it skips)');
      suite[suite.only.length ? 'only' : 'tests'] = tests;
      suite.bEach = [next, ...suite.bEach.map(heard)];
      suite.aEach = suite.aEach.map(heard);
      for (const key of ['before', 'after']) {
        // uvu swallows their errors, and then skips the tests.
        suite[key] = suite[key].map((act) => async (...args) => {
          try {
            return await act(...args);
          } catch (error) {
            const told = failure(error);
            const place = told.frames.at(-1) ?? {};
            say({ kind: 'broken', tool: 'uvu', file: place.file ?? file, line: place.line ?? 0, type: told.type, message: told.message });
            throw error;
          }
        });
      }
      return { skip: () => skipped.forEach((own) => tell(own, 'skipped')), over: () => over(tests[current]) };
    };

    const bind = Function.prototype.bind;
    Function.prototype.bind = function (...args) {
      const isSuite = this.name === 'runner' && args[0] === 0 && Array.isArray(args[1]?.bEach) && Array.isArray(args[1]?.only);
      if (!isSuite) return bind.apply(this, args);
      try {
        const { skip, over } = follow(args[1], args[2]);
        const run = bind.apply(this, args);
        met += 1;
        left += 1;
        return async () => {
          skip();
          const result = await run();
          over();
          left -= 1;
          return result;
        };
      } catch {
        return bind.apply(this, args);
      }
    };

    // If no file was loaded, only a successful end counts.
    process.on('exit', (code) => left === 0 && (met || code === 0) && end());
  }
} catch {}
