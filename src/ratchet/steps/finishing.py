"""The final verification: the base's own tests and runner configuration over the agent's source, in a fresh workspace;
then the accepted new tests, beside a test that must fail. Whoever fakes green fakes that one too, and is seen."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from pathlib import Path

import msgspec

from ratchet.core import events as ev
from ratchet.core.cheats.settings import decides_how_tests_run
from ratchet.core.compare import judge_green
from ratchet.core.failure import Reason
from ratchet.core.receipt import Artifact
from ratchet.core.report import RED, Report, ReportStatus
from ratchet.core.state import RunState
from ratchet.errors import EnvironmentCannot
from ratchet.process import confined
from ratchet.steps.testing import report_in
from ratchet.steps.work import Doing, Done, Work, clip, cross


async def finish(work: Work, doing: Doing) -> Done:
    async with work.fresh() as (workspace, sandboxes):
        return await _verified(msgspec.structs.replace(work, workspace=workspace, sandboxes=sandboxes), doing)


async def _verified(work: Work, doing: Doing) -> Done:
    why, old = await _old_tests(work, doing)
    if why:
        return _refused(doing, f"with the base's own tests: {why}", [old])
    why, new = await _new_tests(work, doing)
    if why:
        return _refused(doing, f"with the accepted tests: {why}", [old, new])
    verified = ev.FinalVerified(step=doing.number, reports=[old, new])
    return Done(events=[verified], artifacts=[old, new])


def _refused(doing: Doing, why: str, reports: list[Artifact]) -> Done:
    refused: ev.Event = ev.FinalRefused(step=doing.number, why=clip(why), reports=reports)
    if ev.FinalRefused not in doing.step.outcomes:  # a workflow without a way back
        refused = ev.RunFailed(reason=Reason.NO_PROGRESS, detail=clip(f"refused in the end, {why}"))
    return Done(events=[refused], artifacts=reports)


async def _old_tests(work: Work, doing: Doing) -> tuple[str, Artifact]:
    """Everything that passed on the base passes again, with tests and settings nobody here could write."""
    state = doing.state
    await cross(_lay, work, state, lambda path: state.scope.is_test(path) or _decides(path, state))
    report, kept = await _run(work, doing, "base")
    baseline = await report_in(work, state.baseline)
    if report.status is ReportStatus.NO_TESTS and not baseline.tests:
        return "", kept
    return judge_green(baseline, report, []).why, kept


async def _new_tests(work: Work, doing: Doing) -> tuple[str, Artifact]:
    state = doing.state
    changed = await cross(_lay, work, state, lambda path: _decides(path, state))
    canaries = [name for path in changed if state.scope.is_test(path) if (name := _canary(work.workspace.path, path))]
    report, kept = await _run(work, doing, "new")
    faked = [name for name in canaries if not _is_red(report, name)]
    if faked:
        return f"a test that cannot pass did not fail ({len(faked)} of {len(canaries)}): the results are faked", kept
    honest = msgspec.structs.replace(report, tests=[test for test in report.tests if test.file not in canaries])
    accepted = sorted({name for commit in state.commits for name in commit.tests})
    return judge_green(await report_in(work, state.reference), honest, accepted).why, kept


def _lay(work: Work, state: RunState, pristine: Callable[[str], bool]) -> list[str]:
    """The run's last green tree, with some of what it changed as it was on the base; returns all that it changed."""
    changed = work.workspace.changes(state.base_tree, state.green_tree)
    work.workspace.reset(state.green_tree)
    if put_back := [path for path in changed if pristine(path)]:
        work.workspace.restore(put_back, state.base_tree)
    return changed


def _decides(path: str, state: RunState) -> bool:
    return decides_how_tests_run(path) or state.scope.is_protected(path)


async def _run(work: Work, doing: Doing, name: str) -> tuple[Report, Artifact]:
    log = work.directory.log_path(f"step-{doing.number}-final-{name}.log")
    with confined(work.sandboxes.for_tests()):
        report = await work.checks.run(work.workspace.path, log=log)
    if report.output.startswith("bwrap: "):
        raise EnvironmentCannot(
            f"the sandbox did not start: {report.output.strip()[:300]}", hint='resume, or set sandbox.mode = "off"'
        )
    kept = f"reports/step-{doing.number}-{name}.json"
    return report, await cross(work.directory.put, kept, msgspec.json.encode(report))


_CANARIES = {
    ".py": "import unittest\n\n\ndef test_{name}():\n    assert 1 == 2\n\n\nclass Test{name}(unittest.TestCase):\n"
    "    def test_{name}(self):\n        self.assertEqual(1, 2)\n",
}


def _canary(folder: Path, beside: str) -> str:
    """A test that must fail, under a name nobody can know, beside one that was accepted."""
    text = _CANARIES.get(Path(beside).suffix)
    if text is None or not Path(beside).name.startswith("test"):
        return ""
    name = f"c{secrets.token_hex(6)}"
    path = Path(beside).parent / f"test_{name}.py"
    (folder / path).write_text(text.format(name=name))
    return path.as_posix()


def _is_red(report: Report, name: str) -> bool:
    tests = [test for test in report.tests if test.file == name]
    return bool(tests) and all(test.status in RED for test in tests)
