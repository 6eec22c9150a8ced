"""Final verification in a fresh workspace.

First the last commit is compared with the tree that was tested. Then the base's own tests and runner configuration run
against the agents' source, and the accepted new tests together with canaries, which must fail: faked results would make
them pass. A changed test runner is found by digest. The `Verify:` commands of finished tasks run once more.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import PurePosixPath

import msgspec

from ratchet.checks.run.tool_digests import has_new_bytecode
from ratchet.core import events as ev
from ratchet.core.cheats import Change, inline_tests
from ratchet.core.cheats.config_files import decides_how_tests_run, is_plain_conftest
from ratchet.core.compare import judge_green
from ratchet.core.failure import Reason
from ratchet.core.receipt import Artifact
from ratchet.core.report import Report, ReportStatus
from ratchet.core.state import RunState
from ratchet.engine.blocking import run_blocking
from ratchet.engine.steps.canaries import Canaries, add_canaries
from ratchet.engine.steps.check_task import why_undone
from ratchet.engine.steps.context import (
    RunContext,
    StepContext,
    StepResult,
    abbreviate,
    fresh_context,
    ledger_paths,
    truncate,
)
from ratchet.engine.steps.failing_bodies import FailingBodies, add_failing_bodies
from ratchet.engine.steps.run_tests import load_report, runner_changed
from ratchet.engine.steps.user_sealed import why_not_all
from ratchet.process.spawn import confined
from ratchet.tree_files import is_file_inside, write_inside


async def finish(context: RunContext, step: StepContext) -> StepResult:
    async with fresh_context(context, "-final") as fresh:
        return await _verified(fresh, step)


async def _verified(context: RunContext, step: StepContext) -> StepResult:
    state = step.state
    if state.commits and (paths := await run_blocking(context.workspace.differing_paths, state.head, state.green_tree)):
        return _refused(step, f"the commit {state.head[:12]} is not what was tested: {abbreviate(paths)}", [])
    tampered, env = await _tampered(context, state)
    if tampered:
        return _refused(step, tampered, [])
    why, old = await _old_tests(context, step, env)
    if why:
        return _refused(step, f"with the base's own tests: {why}", [old])
    known = await load_report(context, step.state.reference)
    canaries = await run_blocking(_check_out_with_canaries, context, step.state, known)
    report, new = await _run(context, step, "new", env)
    if why := canaries.why_faked(report) or _not_green(step.state, known, canaries.without_canaries(report)):
        return _refused(step, f"with the accepted tests: {why}", [old, new])
    accepted = canaries.without_canaries(report)
    failing, failed = await _failing(context, step, known, env)
    base_files = {test.file for test in (await load_report(context, state.baseline)).tests}

    def is_test(path: str) -> bool:
        return path in base_files or state.scope.is_test(path)

    if why := await run_blocking(failing.why_faked, accepted, failed, is_test, _new_tests(state)):
        return _refused(step, f"with the accepted tests: {why}", [old, new])
    if why := await why_not_all(context, step):
        return _refused(step, why, [old, new], disclosed=1)
    if why := await why_undone(context, step):
        return _refused(step, why, [old, new])
    without = ledger_paths([*canaries.without, *canaries.not_run(report)])
    checked, unchecked = failing.count(accepted, failed)
    verified = ev.FinalVerified(
        step=step.number,
        reports=[old, new],
        canaries=canaries.count_run(report),
        without=without,
        failing=checked,
        unchecked=unchecked,
    )
    return StepResult(events=[verified], artifacts=[old, new])


async def _tampered(context: RunContext, state: RunState) -> tuple[str, dict[str, str]]:
    """Return why the test runner differs from the baseline's, and variables for the test run.

    New byte code may be honest or not, so none is used: Python is pointed at an empty cache.
    """
    now = await run_blocking(context.checks.tool_digests, context.workspace.path)
    untrusted = {"PYTHONPYCACHEPREFIX": os.devnull} if has_new_bytecode(state.tools, now) else {}
    return runner_changed(state.tools, now), untrusted


def _refused(step: StepContext, why: str, reports: list[Artifact], *, disclosed: int = 0) -> StepResult:
    refused: ev.Event = ev.FinalRefused(step=step.number, why=truncate(why), reports=reports, disclosed=disclosed)
    if ev.FinalRefused not in step.plan.outcomes:  # this workflow has no transition back
        refused = ev.RunFailed(reason=Reason.NO_PROGRESS, detail=truncate(f"final verification failed, {why}"))
    return StepResult(events=[refused], artifacts=reports)


async def _old_tests(context: RunContext, step: StepContext, env: dict[str, str]) -> tuple[str, Artifact]:
    """Run the base's own tests and settings: everything that passed on the base must pass again."""
    state = step.state
    await run_blocking(_check_out, context, state, lambda path: state.scope.is_test(path) or _decides(path, state))
    await run_blocking(_put_back_inline_tests, context, state)
    report, kept = await _run(context, step, "base", env)
    baseline = await load_report(context, state.baseline)
    if report.status is ReportStatus.NO_TESTS and not baseline.tests:
        return "", kept
    return judge_green(baseline, report, []).why, kept


def _not_green(state: RunState, known: Report, report: Report) -> str:
    return judge_green(known, report, sorted(_new_tests(state))).why


def _new_tests(state: RunState) -> set[str]:
    return {name for commit in state.commits for name in commit.tests}


def _check_out(context: RunContext, state: RunState, pristine: Callable[[str], bool]) -> list[str]:
    """Check out the last green tree, with the `pristine` paths as they were on the base; returns all changed paths."""
    changed = context.workspace.changes(state.base_tree, state.green_tree)
    context.workspace.reset(state.green_tree)
    if put_back := [path for path in changed if pristine(path)]:
        context.workspace.restore(put_back, state.base_tree)
    return changed


def _put_back_inline_tests(context: RunContext, state: RunState) -> None:
    """Put the base's tests back into source files that hold tests too."""
    workspace = context.workspace
    changed = workspace.changes(state.base_tree, state.green_tree)
    mixed = [path for path in changed if not state.scope.is_test(path) and inline_tests.is_possible(path)]
    old, new = workspace.read_all(state.base_tree, mixed), workspace.read_all(state.green_tree, mixed)
    for path in mixed:
        base, now = ((side.get(path) or b"").decode(errors="surrogateescape") for side in (old, new))
        if now and inline_tests.has_tests(path, base):
            text = inline_tests.with_tests_of(path, now, base)
            write_inside(workspace.path, path, text.encode(errors="surrogateescape"))


def _decides(path: str, state: RunState) -> bool:
    return decides_how_tests_run(path) or state.scope.is_protected(path)


def _check_out_with_canaries(context: RunContext, state: RunState, known: Report) -> Canaries:
    """Check out the accepted tests too, and add canaries to them; to the base's tests when none are new."""
    changed_here = _check_out(
        context, state, lambda path: _decides(path, state) and not _brings_fixtures(path, context, state)
    )
    new = [path for path in changed_here if state.scope.is_test(path) or path.endswith(".rs")]
    new = [path for path in new if is_file_inside(context.workspace.path, path)]
    return add_canaries(context.workspace.path, new or {test.file for test in known.tests if test.file})


async def _failing(
    context: RunContext, step: StepContext, known: Report, env: dict[str, str]
) -> tuple[FailingBodies, Report]:
    """Run the accepted tests once more, under their own names, with bodies that must fail."""
    failing = await run_blocking(_with_failing_bodies, context, step.state, known)
    if not failing:
        return failing, Report(runner="", status=ReportStatus.NO_TESTS)
    report, _ = await _run(context, step, "failing", env)
    return failing, report


def _with_failing_bodies(context: RunContext, state: RunState, known: Report) -> FailingBodies:
    changed = _check_out(
        context, state, lambda path: _decides(path, state) and not _brings_fixtures(path, context, state)
    )
    changed_tests = [path for path in changed if state.scope.is_test(path)]
    files = changed_tests or sorted({test.file for test in known.tests if _is_plain(test.file)})
    # A file that the set-up made, say by compiling another, may be made again before the tests run.
    stored = context.workspace.read_all(state.green_tree, files)
    files = [path for path in files if stored.get(path) is not None]
    return add_failing_bodies(context.workspace.path, files, run=bool(changed_tests))


def _is_plain(path: str) -> bool:
    """Whether git can be asked for this path in a tree: it comes from a report, which may name anything."""
    return bool(path) and path.isprintable() and ".." not in path and str(PurePosixPath(path)) == path


def _brings_fixtures(path: str, context: RunContext, state: RunState) -> bool:
    """Whether a conftest only adds fixtures for accepted tests: a role that may write tests may write those."""
    if not path.endswith("conftest.py") or not state.scope.is_test(path):
        return False
    before, after = (context.workspace.read(tree, path) for tree in (state.base_tree, state.green_tree))
    texts = [None if side is None else side.decode(errors="replace") for side in (before, after)]
    return is_plain_conftest(Change(path=path, before=texts[0], after=texts[1]))


async def _run(context: RunContext, step: StepContext, name: str, env: dict[str, str]) -> tuple[Report, Artifact]:
    log = context.directory.log_path(f"step-{step.number}-final-{name}.log")
    with confined(context.sandboxes.for_tests()):
        report = await context.checks.run(context.workspace.path, log=log, env=env)
    kept = f"reports/step-{step.number}-{name}.json"
    return report, await run_blocking(context.directory.put, kept, msgspec.json.encode(report))
