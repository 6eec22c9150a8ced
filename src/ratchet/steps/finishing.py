"""The final verification: the base's own tests and runner configuration over the agent's source, in a fresh workspace;
then the accepted new tests, among tests that must fail. Whoever fakes green fakes those too, and is seen; and whoever
changed the runner itself is seen by its digest."""

from __future__ import annotations

import os
from collections.abc import Callable

import msgspec

from ratchet.checks.tools import compiled_anew
from ratchet.core import events as ev
from ratchet.core.cheats import Change
from ratchet.core.cheats.settings import decides_how_tests_run, is_plain_conftest
from ratchet.core.compare import judge_green
from ratchet.core.failure import Reason
from ratchet.core.receipt import Artifact
from ratchet.core.report import Report, ReportStatus
from ratchet.core.state import RunState
from ratchet.errors import EnvironmentCannot
from ratchet.process import confined
from ratchet.steps.canaries import Canaries, lay
from ratchet.steps.testing import report_in, runner_changed
from ratchet.steps.work import Doing, Done, Work, clip, cross, shown


async def finish(work: Work, doing: Doing) -> Done:
    async with work.fresh() as (workspace, sandboxes):
        return await _verified(msgspec.structs.replace(work, workspace=workspace, sandboxes=sandboxes), doing)


async def _verified(work: Work, doing: Doing) -> Done:
    tampered, env = await _tampered(work, doing.state)
    if tampered:
        return _refused(doing, tampered, [])
    why, old = await _old_tests(work, doing, env)
    if why:
        return _refused(doing, f"with the base's own tests: {why}", [old])
    known = await report_in(work, doing.state.reference)
    canaries = await cross(_lay_new, work, doing.state, known)
    report, new = await _run(work, doing, "new", env)
    if why := canaries.faked(report) or _not_green(doing.state, known, canaries.left_out_of(report)):
        return _refused(doing, f"with the accepted tests: {why}", [old, new])
    without = shown([*canaries.without, *canaries.unseen(report)])
    verified = ev.FinalVerified(step=doing.number, reports=[old, new], canaries=canaries.seen(report), without=without)
    return Done(events=[verified], artifacts=[old, new])


async def _tampered(work: Work, state: RunState) -> tuple[str, dict[str, str]]:
    """Whether the tests would be run with something else than on the untouched base. Byte code that is new may be
    honest or not, so none is believed: Python is told to look for it where there is none."""
    now = await cross(work.checks.tools, work.workspace.path)
    untrusted = {"PYTHONPYCACHEPREFIX": os.devnull} if compiled_anew(state.tools, now) else {}
    return runner_changed(state.tools, now), untrusted


def _refused(doing: Doing, why: str, reports: list[Artifact]) -> Done:
    refused: ev.Event = ev.FinalRefused(step=doing.number, why=clip(why), reports=reports)
    if ev.FinalRefused not in doing.step.outcomes:  # a workflow without a way back
        refused = ev.RunFailed(reason=Reason.NO_PROGRESS, detail=clip(f"refused in the end, {why}"))
    return Done(events=[refused], artifacts=reports)


async def _old_tests(work: Work, doing: Doing, env: dict[str, str]) -> tuple[str, Artifact]:
    """Everything that passed on the base passes again, with tests and settings nobody here could write."""
    state = doing.state
    await cross(_lay, work, state, lambda path: state.scope.is_test(path) or _decides(path, state))
    report, kept = await _run(work, doing, "base", env)
    baseline = await report_in(work, state.baseline)
    if report.status is ReportStatus.NO_TESTS and not baseline.tests:
        return "", kept
    return judge_green(baseline, report, []).why, kept


def _not_green(state: RunState, known: Report, report: Report) -> str:
    accepted = sorted({name for commit in state.commits for name in commit.tests})
    return judge_green(known, report, accepted).why


def _lay(work: Work, state: RunState, pristine: Callable[[str], bool]) -> list[str]:
    """The run's last green tree, with some of what it changed as it was on the base; returns all that it changed."""
    changed = work.workspace.changes(state.base_tree, state.green_tree)
    work.workspace.reset(state.green_tree)
    if put_back := [path for path in changed if pristine(path)]:
        work.workspace.restore(put_back, state.base_tree)
    return changed


def _decides(path: str, state: RunState) -> bool:
    return decides_how_tests_run(path) or state.scope.is_protected(path)


def _lay_new(work: Work, state: RunState, known: Report) -> Canaries:
    """The accepted tests too, with canaries among them; where none are new, among those the base had."""
    changed_here = _lay(work, state, lambda path: _decides(path, state) and not _brings_fixtures(path, work, state))
    new = [path for path in changed_here if state.scope.is_test(path) or path.endswith(".rs")]
    new = [path for path in new if (work.workspace.path / path).is_file()]
    return lay(work.workspace.path, new or {test.file for test in known.tests if test.file})


def _brings_fixtures(path: str, work: Work, state: RunState) -> bool:
    """A conftest that accepted tests need: who may write tests may give them fixtures."""
    if not path.endswith("conftest.py") or not state.scope.is_test(path):
        return False
    before, after = (work.workspace.read(tree, path) for tree in (state.base_tree, state.green_tree))
    texts = [None if side is None else side.decode(errors="replace") for side in (before, after)]
    return is_plain_conftest(Change(path=path, before=texts[0], after=texts[1]))


async def _run(work: Work, doing: Doing, name: str, env: dict[str, str]) -> tuple[Report, Artifact]:
    log = work.directory.log_path(f"step-{doing.number}-final-{name}.log")
    with confined(work.sandboxes.for_tests()):
        report = await work.checks.run(work.workspace.path, log=log, env=env)
    if report.output.startswith("bwrap: "):
        raise EnvironmentCannot(
            f"the sandbox did not start: {report.output.strip()[:300]}", hint='resume, or set sandbox.mode = "off"'
        )
    kept = f"reports/step-{doing.number}-{name}.json"
    return report, await cross(work.directory.put, kept, msgspec.json.encode(report))
