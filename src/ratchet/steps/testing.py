"""Steps that run the tests: the baseline, and whether a new test is red for the right reason."""

from __future__ import annotations

import msgspec

from ratchet.checks.tools import changed
from ratchet.core import events as ev
from ratchet.core.compare import judge_red
from ratchet.core.failure import Reason
from ratchet.core.receipt import Artifact
from ratchet.core.report import RED, Report, ReportStatus, fingerprint
from ratchet.errors import EnvironmentCannot
from ratchet.process import confined
from ratchet.steps.work import Doing, Done, Work, clip, cross, some


async def run_tests(work: Work, started: ev.StepStarted, *, label: str = "") -> tuple[Report, Artifact]:
    """Run the whole suite, then take away whatever it left behind."""
    log = work.directory.log_path(f"step-{started.step}{label}-tests.log")
    # What an agent left that is ignored, cached or compiled is not in the tree, and must not take part.
    await cross(work.workspace.reset, started.tree)
    with confined(work.sandboxes.for_tests()):
        report = await work.checks.run(work.workspace.path, log=log)
    if report.output.startswith("bwrap: "):  # the platform's fault must not be taken for anybody else's
        raise EnvironmentCannot(
            f"the sandbox did not start: {report.output.strip()[:300]}",
            hint='resume the run; if it stays so, set sandbox.mode = "off"',
        )
    await cross(work.workspace.reset, started.tree)
    name = f"reports/step-{started.step}{label}.json"
    return report, await cross(work.directory.put, name, msgspec.json.encode(report))


async def report_in(work: Work, artifact: Artifact | None) -> Report:
    assert artifact, "the table lets no one compare before there is something to compare with"
    return msgspec.json.decode(await cross(work.directory.get, artifact), type=Report)


def runner_changed(before: dict[str, str], now: dict[str, str]) -> str:
    """Why nothing that the tests say can be believed any more; a ledger from before there were digests has none."""
    names = changed(before, now) if before else []
    return f"the installed test runner was changed during the run: {some(names)}" if names else ""


async def baseline(work: Work, doing: Doing) -> Done:
    report, kept = await run_tests(work, doing.started)
    if report.status not in ("passed", "failed", "no_tests"):
        return Done(events=[_misconfigured(report)], artifacts=[kept])
    return await _taken(work, doing, report, kept)


async def look(work: Work, doing: Doing) -> Done:
    """The baseline of who is to fix it: tests that cannot be run are a failure like any other, if a runner is there."""
    report, kept = await run_tests(work, doing.started)
    if report.status in (ReportStatus.ERROR, ReportStatus.NO_TESTS, ReportStatus.UNKNOWN):
        return Done(events=[_misconfigured(report)], artifacts=[kept])
    return await _taken(work, doing, report, kept)


async def _taken(work: Work, doing: Doing, report: Report, kept: Artifact) -> Done:
    taken = ev.BaselineTaken(
        step=doing.number,
        report=kept,
        tests=report.totals.tests,
        failing=[test.id for test in report.tests if test.status in RED][:1000],
        tree=doing.started.tree,
        tools=await cross(work.checks.tools, work.workspace.path),
    )
    return Done(events=[taken], artifacts=[kept])


def _misconfigured(report: Report) -> ev.RunFailed:
    why = f"the tests cannot be run on the untouched base ({report.status}): {'; '.join(report.notes)}"
    said = report.output.strip()
    last = said if len(said) <= _SAID_CHARS else said[-_SAID_CHARS:].partition("\n")[2]  # from the beginning of a line
    return ev.RunFailed(reason=Reason.MISCONFIGURED, detail=f"{why}\n{last}".strip())


_SAID_CHARS = 400


async def verify_red(work: Work, doing: Doing) -> Done:
    state = doing.state
    report, kept = await run_tests(work, doing.started)
    verdict = judge_red(await report_in(work, state.reference), report, state.scope)
    if not verdict.ok:
        await cross(work.workspace.reset, state.green_tree)
        refused = ev.RedRefused(step=doing.number, why=clip(verdict.why), tree=state.green_tree)
        return Done(events=[refused], artifacts=[kept])
    seen = fingerprint(report, verdict.tests)
    red = ev.RedConfirmed(step=doing.number, tests=verdict.tests, fingerprint=seen, report=kept)
    return Done(events=[red], artifacts=[kept])
