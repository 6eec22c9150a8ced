// A guest in the processes of node:test's files: says which test begins and ends, for a process that dies tells no more.
'use strict';
try {
  if (process.env._RATCHET_REPORT && process.env.NODE_TEST_CONTEXT && process.argv[1] && require('node:worker_threads').isMainThread) {
    // Programs that the tests start are none of ours: with node:test in them, each would tell of itself on its stdout.
    process.env.NODE_OPTIONS = (process.env.NODE_OPTIONS ?? '').replace(`--require=${__filename}`, '').trim();
    if (!process.env.NODE_OPTIONS) delete process.env.NODE_OPTIONS;
    const { say, relative } = require('./_ratchet_records.cjs');
    const { beforeEach, afterEach } = require('node:test');
    const idOf = (test) => `${relative(process.argv[1])}::${test.fullName ?? test.name}`;
    beforeEach((test) => say({ kind: 'test_start', id: idOf(test) }));
    const ended = { true: 'passed', false: 'failed' }; // older ones do not say
    afterEach((test) => say({ kind: 'test_over', id: idOf(test), outcome: ended[test.passed], whole: test.fullName !== undefined }));
  }
} catch {}
