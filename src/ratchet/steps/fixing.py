"""What is to be fixed: the failures of the last kept tree, and how they are told to the fixer."""

from __future__ import annotations

from ratchet.core import events as ev
from ratchet.core.compare import failing, no_verdict
from ratchet.core.failure import Reason
from ratchet.core.packet import clusters, packet
from ratchet.core.report import RED, fingerprint
from ratchet.steps.testing import report_in
from ratchet.steps.work import Doing, Done, Work, cross

TARGETS_MAX = 1_000


async def analyse(work: Work, doing: Doing) -> Done:
    """The factory's own work: no model is asked what failed, the report says it."""
    state = doing.state
    assert state.reference
    report = await report_in(work, state.reference)
    red = failing(report)[:TARGETS_MAX]
    if not red and not no_verdict(report):
        return Done(events=[_green(work, doing)])
    told = packet(report)
    kept = await cross(work.directory.put, f"packets/step-{doing.number}.md", told.encode())
    analysed = ev.FailuresAnalysed(
        step=doing.number,
        tests=red,
        clusters=len(clusters(test for test in report.tests if test.status in RED)),
        fingerprint=fingerprint(report, red),
        report=state.reference,
        packet=kept,
    )
    return Done(events=[analysed], artifacts=[kept])


def _green(work: Work, doing: Doing) -> ev.Event:
    """A log that tells of failures nobody sees here is not answered by saying that all is well."""
    if doing.state.commits or not (named := work.item.metadata.get("log_failures", "")):
        return ev.TreeFoundGreen(step=doing.number)
    detail = f"the failures in the log are not seen here, all tests pass: {named}"
    return ev.RunFailed(reason=Reason.MISCONFIGURED, detail=detail)
