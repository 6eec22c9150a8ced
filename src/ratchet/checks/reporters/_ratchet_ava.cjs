// Reports from ava, which has no custom reporters: intercepts the messages of its workers.
'use strict';
try {
  const threads = require('node:worker_threads');
  const isAva = /[\\/]ava[\\/](?:entrypoints[\\/])?cli\.m?js$|[\\/]\.bin[\\/]ava$/.test(process.argv[1] ?? '');
  if (process.env._RATCHET_REPORT && isAva && threads.isMainThread) {
    // Report neither from its workers nor from programs that the tests start.
    process.env.NODE_OPTIONS = (process.env.NODE_OPTIONS ?? '').replace(`--require=${__filename}`, '').trim();
    if (!process.env.NODE_OPTIONS) delete process.env.NODE_OPTIONS;
    const { say, clip, relative, frames, lineOf, start, end } = require('./_ratchet_records.cjs');
    const children = require('node:child_process');
    const { spawnSync } = children;
    const { EventEmitter } = require('node:events');
    const files = new Map(); // by worker: its file, and the titles of the tests that have not ended
    start();

    const phase = (file, title, outcome, more) => say({
      kind: 'phase', id: `${file}::${title}`, when: 'call', last: true, outcome, file, name: title, suite: [], line: lineOf(file, title), ...more,
    });

    const TRUTH = /^Value is not (?:`(\w+)`|(truthy|falsy)):$/;
    const failure = (err) => {
      const details = err.formattedDetails ?? err.values ?? [];
      const plain = details.map(({ label, formatted }) => [clip(label), clip(formatted)]);
      const thrown = /^(?:Error thrown|Rejected promise)/.test(err.message ?? '') && /^(\w+(?:Error|Exception)): ([^]*?)(?:\n\s+at |$)/.exec(err.stack ?? '');
      const told = { type: thrown ? thrown[1] : err.name || 'Error', frames: frames(err.stack) };
      told.message = thrown ? clip(thrown[2]) : clip(err.message || err.assertion);
      const difference = plain.find(([label]) => label.includes('(- actual, + expected)'))?.[1].split('\n');
      const [truth, actual] = plain.find(([label]) => TRUTH.test(label)) ?? [];
      if (difference) {
        told.expected = difference.filter((row) => !row.startsWith('-')).map((row) => row.slice(2)).join('\n');
        told.actual = difference.filter((row) => !row.startsWith('+')).map((row) => row.slice(2)).join('\n');
      } else if (truth) {
        Object.assign(told, { expected: TRUTH.exec(truth)[1] ?? TRUTH.exec(truth)[2], actual });
      } else if (!thrown) {
        told.message = [told.message, ...plain.map((pair) => pair.join('\n'))].join('\n').trim();
      }
      return told;
    };

    // No stack locates a syntax error in a file or its imports. Node prints the location when it loads the file,
    // which without ava goes no further.
    const unreadable = (file) => {
      const said = String(spawnSync(process.execPath, [file], { timeout: 10_000 }).stderr);
      const [, where, line, caret] = /^((?:file:|\/).+):(\d+)\n.*\n( *)\^/m.exec(said) ?? [];
      return where ? { file: relative(where), line: Number(line), column: caret.length + 1 } : { file };
    };

    const broken = (file, err) => {
      const { type, message, frames: found } = failure(err);
      const at = found.at(-1) ?? (type === 'SyntaxError' ? unreadable(file) : { file });
      say({ kind: 'broken', tool: 'ava', ...at, type, message });
    };

    const hear = (worker, event) => {
      const { file, pending } = worker;
      const { title, err } = event;
      const over = (outcome, more) => {
        pending.delete(title);
        phase(file, title, outcome, { duration: (event.duration ?? 0) / 1000, ...more });
      };
      switch (event.type) {
        case 'selected-test':
          if (event.skip || event.todo) phase(file, title, 'skipped', { todo: event.todo });
          else pending.add(title);
          break;
        case 'test-passed':
          over(...(event.knownFailing ? ['skipped', { xfail: 'expected to fail' }] : ['passed']));
          break;
        case 'test-failed':
          over('failed', failure(err));
          break;
        case 'hook-failed':
          phase(file, title, 'failed', { ...failure(err), when: 'setup' });
          // The tests of a failed hook do not run.
          for (const each of pending) if (title.endsWith(` for ${each}`)) pending.delete(each);
          if (!/ for /.test(title)) pending.clear();
          break;
        case 'uncaught-exception':
        case 'unhandled-rejection':
          broken(file, err);
          break;
        case 'process-exit':
          worker.exited = { type: 'Exited', message: 'process.exit() was called', frames: frames(event.stack) };
          break;
        case 'worker-finished':
          worker.finished = true;
          say({ kind: 'test_over', id: file });
          break;
      }
    };

    // Of the unfinished tests, report the last one that began before the process ended; nothing is known of the others.
    const ending = ({ file, exited, pending }) => {
      const { line } = exited.frames.find((frame) => frame.file === file) ?? { line: 0 };
      const above = [...pending].filter((title) => lineOf(file, title) && lineOf(file, title) <= line);
      return above.length ? above.slice(-1) : [...pending].slice(0, 1);
    };

    const tell = (worker) => {
      const unended = worker.exited ? ending(worker) : [...worker.pending];
      const lost = { type: 'Unfinished', message: 'its process ended before it did', frames: [] };
      if (worker.finished && !unended.length) return;
      for (const title of unended) phase(worker.file, title, 'failed', { error: true, ...(worker.exited ?? lost) });
      say({ kind: 'test_over', id: worker.file });
    };

    const given = (worker, options) => {
      if (!options?.file) return;
      const file = relative(options.file);
      files.set(worker, { file, pending: new Set() });
      say({ kind: 'test_start', id: file });
    };
    const before = (object, name, act) => {
      const original = object[name];
      object[name] = function (...args) {
        try {
          act.apply(this, args);
        } catch {}
        return original.apply(this, args);
      };
    };
    threads.Worker = class Worker extends threads.Worker {
      constructor(path, options) {
        super(path, options);
        given(this, options?.workerData?.options);
      }
    };
    const { fork } = children;
    children.fork = (...args) => {
      const child = fork(...args);
      before(child, 'send', (message) => given(child, message?.ava?.options));
      return child;
    };
    require('node:module').syncBuiltinESMExports();
    before(EventEmitter.prototype, 'emit', function (event, message) {
      if (event === 'message' && message?.ava && files.has(this)) hear(files.get(this), message.ava);
    });
    process.on('exit', (code) => {
      for (const worker of files.values()) tell(worker);
      if (files.size || code === 0) end();
    });
  }
} catch {}
