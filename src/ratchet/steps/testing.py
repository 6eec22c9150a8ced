"""Steps that run the tests: the baseline, and whether a new test is red for the right reason."""

from __future__ import annotations

import msgspec

from ratchet.core import events as ev
from ratchet.core.compare import judge_red
from ratchet.core.failure import Reason
from ratchet.core.receipt import Artifact
from ratchet.core.report import RED, Report, fingerprint
from ratchet.errors import EnvironmentCannot
from ratchet.process import confined
from ratchet.steps.work import Doing, Done, Work, clip, cross


async def run_tests(work: Work, started: ev.StepStarted) -> tuple[Report, Artifact]:
    """Run the whole suite, then take away whatever it left behind."""
    log = work.directory.log_path(f"step-{started.step}-tests.log")
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
    name = f"reports/step-{started.step}.json"
    return report, await cross(work.directory.put, name, msgspec.json.encode(report))


async def report_in(work: Work, artifact: Artifact | None) -> Report:
    assert artifact, "the table lets no one compare before there is something to compare with"
    return msgspec.json.decode(await cross(work.directory.get, artifact), type=Report)


async def baseline(work: Work, doing: Doing) -> Done:
    report, kept = await run_tests(work, doing.started)
    if report.status not in ("passed", "failed", "no_tests"):
        return Done(events=[_misconfigured(report)], artifacts=[kept])
    failing = [test.id for test in report.tests if test.status in RED][:1000]
    taken = ev.BaselineTaken(
        step=doing.number, report=kept, tests=report.totals.tests, failing=failing, tree=doing.started.tree
    )
    return Done(events=[taken], artifacts=[kept])


def _misconfigured(report: Report) -> ev.RunFailed:
    tail = report.output.strip()[-400:]
    return ev.RunFailed(
        reason=Reason.MISCONFIGURED,
        detail=f"the tests cannot be run on the untouched base ({report.status}): {'; '.join(report.notes)} {tail}",
    )


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
