// A guest in vitest: a reporter that writes records as they happen.
import { createRequire } from 'node:module';
const { say, clip, show, relative, frames, start, end, ROOT } = createRequire(import.meta.url)('./_ratchet_records.cjs');

const ended = new Set();

function failure(error) {
  const stacks = (error.stacks ?? [])
    .map((frame) => ({ file: relative(frame.file), line: frame.line, function: frame.method ?? '' }))
    .filter((frame) => !frame.file.startsWith('..') && !frame.file.includes('node_modules'))
    .reverse();
  const found = { type: error.name ?? 'Error', message: clip(error.message), frames: stacks.length ? stacks : frames(error.stack) };
  if (error.expected !== undefined || error.actual !== undefined) {
    found.expected = show(error.expected);
    found.actual = show(error.actual);
    if (error.operator) found.operator = String(error.operator);
  }
  return found;
}

function names(test) {
  const above = [];
  for (let each = test.parent; each && each.type === 'suite'; each = each.parent) above.unshift(each.name);
  return above;
}

function idOf(test) {
  return `${relative(test.module.moduleId)}::${[...names(test), test.name].join(' > ')}`;
}

function broken(file, error) {
  const told = failure(error);
  const at = told.frames.at(-1);
  const loc = error.loc ?? error.__vitest_rollup_error__?.loc;
  const place = loc ? { line: loc.line, column: loc.column } : { line: at?.line ?? 0 };
  say({ kind: 'broken', tool: 'vitest', file: at?.file ?? file, ...place, type: told.type, message: told.message });
}

export default class RatchetReporter {
  onInit(vitest) {
    start(vitest?.version);
  }

  // A test that never lets go of its worker is announced from inside only, and not by every vitest: the file always is.
  onTestModuleStart(module) {
    say({ kind: 'test_start', id: relative(module.moduleId) });
  }

  onTestModuleQueued(module) {
    say({ kind: 'test_start', id: relative(module.moduleId) });
  }

  onTestCaseReady(test) {
    say({ kind: 'test_start', id: idOf(test) });
  }

  onTestCaseResult(test) {
    try {
      const result = test.result();
      const told = test.diagnostic?.() ?? {};
      const record = {
        kind: 'phase', id: idOf(test), when: 'call', last: true, duration: (told.duration ?? 0) / 1000,
        file: relative(test.module.moduleId), line: test.location?.line ?? 0, name: test.name, suite: names(test),
        outcome: result.state === 'failed' ? 'failed' : result.state === 'passed' ? 'passed' : 'skipped',
      };
      for (let n = 0; n < (told.retryCount ?? 0); n++) say({ ...record, outcome: 'rerun' });
      if (record.outcome === 'skipped') {
        record.todo = test.options?.mode === 'todo';
        record.reason = clip(result.note);
      }
      if (record.outcome === 'failed') Object.assign(record, failure(result.errors?.[0] ?? {}));
      say(record);
    } catch {}
  }

  onTestModuleEnd(module) {
    if (ended.has(module.moduleId)) return;
    ended.add(module.moduleId);
    try {
      const file = relative(module.moduleId);
      say({ kind: 'test_over', id: file });
      for (const error of module.errors?.() ?? []) broken(file, error);
      for (const suite of module.children.allSuites()) {
        for (const error of suite.errors?.() ?? []) broken(file, error);
      }
    } catch {}
  }

  onTestRunEnd(modules, errors, reason) {
    try {
      // Vitest 3 does not tell the end of a file that could not be loaded.
      for (const module of modules ?? []) if (module.state?.() === 'failed') this.onTestModuleEnd(module);
      for (const error of errors ?? []) broken('', error);
    } catch {}
    end();
  }
}
