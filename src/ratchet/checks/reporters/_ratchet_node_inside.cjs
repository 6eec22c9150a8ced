// Runs in the processes of node:test's files and reports which test begins and ends, in case the process dies.
'use strict';
try {
  if (process.env._RATCHET_REPORT && process.env.NODE_TEST_CONTEXT && process.argv[1] && require('node:worker_threads').isMainThread) {
    // Not in programs that the tests start: those with node:test would write reports to their stdout.
    process.env.NODE_OPTIONS = (process.env.NODE_OPTIONS ?? '').replace(`--require=${__filename}`, '').trim();
    if (!process.env.NODE_OPTIONS) delete process.env.NODE_OPTIONS;
    const { say, relative } = require('./_ratchet_records.cjs');
    const { beforeEach, afterEach } = require('node:test');
    const idOf = (test) => `${relative(process.argv[1])}::${test.fullName ?? test.name}`;
    beforeEach((test) => say({ kind: 'test_start', id: idOf(test) }));
    const ended = { true: 'passed', false: 'failed' }; // older versions do not report it
    afterEach((test) => say({ kind: 'test_over', id: idOf(test), outcome: ended[test.passed], whole: test.fullName !== undefined }));
  }
} catch {}
