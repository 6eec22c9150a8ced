// A reporter for lab that writes records as they happen.
'use strict';
const inspector = require('node:inspector');
const { say, clip, relative, frames, failure, lineOf, start, end } = require('./_ratchet_records.cjs');

const scripts = new Map();
let session;

// Lab does not report the file of a test: the JavaScript engine knows where its function is.
function placeOf(act) {
  if (typeof act !== 'function') return {};
  const name = '_ratchet_function';
  let place = {};
  try {
    if (!session) {
      session = new inspector.Session();
      session.connect();
      session.on('Debugger.scriptParsed', ({ params }) => scripts.set(params.scriptId, params.url));
      session.post('Debugger.enable');
    }
    Object.defineProperty(globalThis, name, { value: act, configurable: true });
    session.post('Runtime.evaluate', { expression: `globalThis.${name}`, silent: true }, (_error, answer) => {
      session.post('Runtime.getProperties', { objectId: answer.result.objectId }, (_failed, found) => {
        const at = found.internalProperties.find((each) => each.name === '[[FunctionLocation]]')?.value.value;
        if (at) place = { file: relative(scripts.get(at.scriptId)), line: at.lineNumber + 1 };
      });
      session.post('Runtime.releaseObject', { objectId: answer.result.objectId });
    });
  } catch {}
  delete globalThis[name];
  return place;
}

module.exports = class RatchetReporter {
  start() {
    start();
    this.told = new Set(); // errors of failed tests, which lab lists again among the errors of the run
    this.file = '';
  }

  test(test) {
    try {
      const place = placeOf(test.fn);
      const file = place.file || frames(test.err?.stack).at(0)?.file || this.file;
      this.file = file;
      const names = [...test.path, test.relativeTitle];
      const outcome = test.err ? 'failed' : test.skipped || test.todo ? 'skipped' : 'passed';
      const thrown = test.err instanceof Error || (test.err && typeof test.err === 'object');
      if (test.err) this.told.add(test.err);
      say({
        kind: 'phase', id: `${file}::${names.join(' > ')}`, when: 'call', last: true, outcome, todo: Boolean(test.todo),
        duration: (test.duration ?? 0) / 1000, file, line: lineOf(file, test.relativeTitle) || place.line || 0,
        name: test.relativeTitle, suite: test.path,
        ...(test.err ? (thrown ? failure(test.err) : { type: 'Error', message: clip(test.err) }) : {}),
        // Lab reports a failed hook for each of its tests, as a sentence, and by itself.
        ...(test.err && !thrown ? (/after/.test(test.err) ? { when: 'teardown', last: false } : { when: 'setup' }) : {}),
      });
      if (test.err) this.report?.(`failed: ${names.join(' > ')}: ${clip(test.err?.message ?? test.err)}\n`);
    } catch {}
  }

  end(notebook) {
    for (const error of notebook.errors ?? []) this.broken(error);
    for (const name of notebook.leaks ?? []) say({ kind: 'broken', tool: 'lab', type: 'Leak', message: `a global variable leaked: ${String(name)}` });
    end();
  }

  broken(error) {
    if (this.told.has(error)) return;
    const told = failure(error);
    const place = told.frames.at(-1) ?? {};
    say({ kind: 'broken', tool: 'lab', file: place.file ?? '', line: place.line ?? 0, type: told.type, message: told.message });
  }
};
