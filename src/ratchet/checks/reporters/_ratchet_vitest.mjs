// A reporter for vitest that writes records as they happen.
import { createRequire } from 'node:module';
const { say, clip, show, relative, frames, start, end, ROOT } = createRequire(import.meta.url)('./_ratchet_records.cjs');

const ended = new Set();

// A file may belong to several projects, and its type tests are separate.
function keyOf(module) {
  return `${module.project?.name ?? ''} ${module.task?.meta?.typecheck ?? ''} ${module.moduleId}`;
}

function failure(error) {
  const stacks = (error.stacks ?? [])
    .map((frame) => ({ file: relative(frame.file), line: frame.line, function: frame.method ?? '' }))
    .filter((frame) => !frame.file.startsWith('..') && !frame.file.includes('node_modules'))
    .reverse();
  const found = { type: error.name ?? 'Error', message: clip(error.message), frames: stacks.length ? stacks : frames(error.stack) };
  // The first version writes this word twice when nothing was compared.
  const isCompared = (error.expected !== undefined || error.actual !== undefined) && !(error.expected === 'undefined' && error.actual === 'undefined');
  if (isCompared) {
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

// Before version 3 vitest reports plain tasks: convert them to the later form.
function testOf(task, file) {
  const { state, errors, duration, retryCount, note } = task.result ?? {};
  return {
    name: task.name, parent: suiteOf(task.suite, file), module: { moduleId: file.filepath, project: { name: file.projectName } }, location: task.location,
    options: { mode: task.mode }, diagnostic: () => ({ duration, retryCount }),
    result: () => ({ state: { pass: 'passed', fail: 'failed' }[state] ?? 'skipped', errors, note }),
  };
}

// Tests outside of suites are in an unnamed suite, or in the file.
function suiteOf(suite, file) {
  return suite && suite.name && suite !== file ? { type: 'suite', name: suite.name, parent: suiteOf(suite.suite, file) } : null;
}

function* below(task) {
  for (const each of task.tasks ?? []) {
    yield each;
    yield* below(each);
  }
}

const FINAL = new Set(['pass', 'fail', 'skip', 'todo']);

function moduleOf(file) {
  const errorsOf = (task) => ({ errors: () => task.result?.errors ?? [] });
  return {
    moduleId: file.filepath, project: { name: file.projectName }, ...errorsOf(file), state: () => (file.result?.state === 'fail' ? 'failed' : 'passed'),
    children: { allSuites: () => [...below(file)].filter((task) => task.type === 'suite').map(errorsOf) },
  };
}

export default class RatchetReporter {
  onInit(vitest) {
    start(vitest?.version);
    this.vitest = vitest;
    this.isOld = !(Number.parseInt(vitest?.version, 10) >= 3);
    // Locations of tests: not every version has a command-line option for them.
    for (const each of [vitest, ...(vitest?.projects ?? [])]) if (each?.config) each.config.includeTaskLocation = true;
  }

  onCollected(files) {
    for (const file of this.isOld ? files ?? [] : []) {
      say({ kind: 'test_start', id: relative(file.filepath) });
      if (file.result?.state === 'fail') this.tellFile(file);
    }
  }

  onTaskUpdate(packs) {
    for (const [id, result] of this.isOld ? packs ?? [] : []) {
      const task = this.vitest.state.idMap.get(id);
      if (task?.filepath && (result?.state === 'pass' || result?.state === 'fail')) this.tellFile(task);
    }
  }

  // A file whose worker died has no end, and nothing is known of its unfinished tests.
  tellFile(file) {
    if (ended.has(keyOf(moduleOf(file)))) return;
    if (!FINAL.has(file.result?.state ?? file.mode)) {
      for (const task of below(file)) if (task.type !== 'suite' && FINAL.has(task.result?.state)) this.onTestCaseResult(testOf(task, file));
      return;
    }
    for (const task of below(file)) if (task.type !== 'suite') this.onTestCaseResult(testOf(task, file));
    this.onTestModuleEnd(moduleOf(file));
  }

  onFinished(files, errors) {
    if (!this.isOld) return;
    for (const file of files ?? []) this.tellFile(file);
    this.onTestRunEnd([], errors);
  }

  onTestModuleCollected(module) {
    // Vitest 3 reports the end of a file that could not be loaded only at the end of the run, which may hang.
    if (module.state?.() === 'failed') this.onTestModuleEnd(module);
  }

  // A test that blocks its worker is announced only from inside, and not by every version; its file always is.
  // A file that could not be loaded ends before it starts.
  onTestModuleStart(module) {
    if (!ended.has(keyOf(module))) say({ kind: 'test_start', id: relative(module.moduleId) });
  }

  onTestModuleQueued(module) {
    this.onTestModuleStart(module);
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
        project: (test.project ?? test.module.project)?.name,
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
    if (ended.has(keyOf(module))) return;
    ended.add(keyOf(module));
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
      for (const module of modules ?? []) if (module.state?.() === 'failed') this.onTestModuleEnd(module);
      for (const error of errors ?? []) broken('', error);
    } catch {}
    end();
  }
}
