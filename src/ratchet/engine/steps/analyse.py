"""Analyse the failures of the last kept tree and write the failure packet for the fixer."""

from __future__ import annotations

from ratchet.core import events as ev
from ratchet.core.compare import failing, why_inconclusive
from ratchet.core.failure import Reason
from ratchet.core.learning import FINGERPRINTS_MAX, report_fingerprints
from ratchet.core.packet import clusters, packet
from ratchet.core.report import RED, fingerprint
from ratchet.engine.blocking import run_blocking
from ratchet.engine.steps.context import RunContext, StepContext, StepResult, bounded_names
from ratchet.engine.steps.run_tests import load_report

TARGETS_MAX = 1_000


async def analyse(context: RunContext, step: StepContext) -> StepResult:
    """Read the failing tests from the report. No agent is asked."""
    state = step.state
    assert state.reference
    report = await load_report(context, state.reference)
    red = bounded_names(failing(report)[:TARGETS_MAX])
    if not red and not why_inconclusive(report):
        return StepResult(events=[_green(context, step)])
    text = packet(report)
    kept = await run_blocking(context.directory.put, f"packets/step-{step.number}.md", text.encode())
    analysed = ev.FailuresAnalysed(
        step=step.number,
        tests=red,
        clusters=len(clusters(test for test in report.tests if test.status in RED)),
        fingerprint=fingerprint(report, red),
        report=state.reference,
        packet=kept,
        failures=report_fingerprints(report, red)[:FINGERPRINTS_MAX],
    )
    return StepResult(events=[analysed], artifacts=[kept])


def _green(context: RunContext, step: StepContext) -> ev.Event:
    """Return the outcome of a green tree: success, or a failure when the item's log names failing tests."""
    if step.state.commits or not (named := context.item.metadata.get("log_failures", "")):
        return ev.TreeFoundGreen(step=step.number)
    detail = f"all tests pass here; the failures in the log cannot be reproduced: {named}"
    return ev.RunFailed(reason=Reason.MISCONFIGURED, detail=detail)
