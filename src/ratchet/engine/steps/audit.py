"""The auditor writes tests for one requirement: an open file, and a sealed one with other examples."""

from __future__ import annotations

from msgspec.structs import replace

from ratchet.agents.protocol import TurnFailed
from ratchet.core import events as ev
from ratchet.core.failure import Reason
from ratchet.core.receipt import Artifact
from ratchet.core.verdict import requirements_complete
from ratchet.engine.blocking import run_blocking
from ratchet.engine.parked import Parked
from ratchet.engine.sealed_vault import seal
from ratchet.engine.steps.agent_call import Variant
from ratchet.engine.steps.ask import AskResult, ask_role, no_change
from ratchet.engine.steps.context import RunContext, StepContext, StepResult, first_line, ledger_paths, truncate
from ratchet.engine.steps.sealing import Sealing, fork_for
from ratchet.workspace.protocol import Workspace

SEAL_ACTION = "audit.sealed"


async def audit(context: RunContext, step: StepContext) -> StepResult:
    started = step.state.started
    if not (started and started.sealed):
        return _result(context, step, await ask_role(context, step))
    async with fork_for(context, "-audit", step.started.tree) as fork:
        asked, sealing = await _audit_sealed(fork, step)
    await run_blocking(context.workspace.reset, asked.tree)
    if not asked.paths or isinstance(asked.outcome, TurnFailed):
        return _result(context, step, asked)
    if not sealing.files:
        return _result(
            context, step, asked, unsealed=sealing.refused or "the auditor was asked twice and wrote no sealed test"
        )
    return _result(
        context, step, asked, await run_blocking(seal, context.directory, f"step-{step.number}", sealing.files)
    )


async def _audit_sealed(fork: RunContext, step: StepContext) -> tuple[AskResult, Sealing]:
    """Ask for both files; ask once more for the sealed one if there is none."""
    sealing = Sealing(step.state.scope, [fork.item.spec])
    asked = await ask_role(fork, step, variant_of(fork, step, sealing))
    if isinstance(asked.outcome, TurnFailed) or not asked.paths or sealing.files:
        return asked, sealing
    again = replace(step, plan=replace(step.plan, act=replace(step.plan.act, action=SEAL_ACTION, prompt="seal")))
    sealing.known += await run_blocking(_contents, fork.workspace, asked)
    try:
        second = await ask_role(fork, again, variant_of(fork, step, sealing, "-sealed"))
    except Parked as parked:
        raise Parked(parked.event, [*asked.facts, *parked.facts]) from parked
    merged = replace(asked, facts=[*asked.facts, *second.facts], artifacts=[*asked.artifacts, *second.artifacts])
    return merged, sealing


def _contents(workspace: Workspace, asked: AskResult) -> list[str]:
    return [(workspace.read(asked.tree, path) or b"").decode(errors="replace") for path in asked.paths]


def variant_of(context: RunContext, step: StepContext, sealing: Sealing, label: str = "") -> Variant:
    return Variant(
        agent=context.agent(step.plan.role, step.state),
        turn=context.ledger.turn(step.plan.action),
        label=label,
        spent=[],
        sealing=sealing,
    )


def _result(
    context: RunContext, step: StepContext, asked: AskResult, sealed: Artifact | None = None, unsealed: str = ""
) -> StepResult:
    number, summary = step.number, first_line(asked.text)
    if isinstance(asked.outcome, TurnFailed):
        return asked.result(
            ev.AuditFailed(step=number, reason=asked.outcome.reason, why=truncate(asked.outcome.detail))
        )
    if asked.paths:
        written = ev.TestWritten(
            step=number,
            paths=ledger_paths(asked.paths),
            tree=asked.tree,
            summary=summary,
            sealed=sealed,
            unsealed=unsealed,
        )
        result = asked.result(written)
        return replace(result, artifacts=[*result.artifacts, *([sealed] if sealed else [])])
    # The auditor's claim is not accepted while its own tests say otherwise.
    claimed = requirements_complete(asked.text)
    if claimed and not step.state.unmet:
        return asked.result(ev.RequirementsMet(step=number, summary=summary))
    why = step.state.unmet if claimed or step.state.given_back else ""
    why = why or no_change(asked, "wrote no test and did not answer REQUIREMENTS_COMPLETE", context, step)
    return asked.result(ev.AuditFailed(step=number, reason=Reason.NO_PROGRESS, why=why))
