"""Decide between a change and the sealed test that it fails: the auditor sees both, then a judge does."""

from __future__ import annotations

from msgspec.structs import replace

from ratchet.agents.protocol import Agent
from ratchet.core import events as ev
from ratchet.core.gates import OnFail
from ratchet.core.roles import Role, Writes
from ratchet.core.verdict import Decision, parse_review
from ratchet.core.workflows.workflow import PhaseAction
from ratchet.engine.blocking import run_blocking
from ratchet.engine.sealed_vault import seal
from ratchet.engine.steps.agent_call import Variant
from ratchet.engine.steps.ask import AskResult, ask_role
from ratchet.engine.steps.audit import variant_of
from ratchet.engine.steps.context import RunContext, StepContext, StepResult, first_line, truncate
from ratchet.engine.steps.gate_pipeline import gates_of
from ratchet.engine.steps.run_tests import judge_sealed_red
from ratchet.engine.steps.sealing import Sealing, fork_for, lay_over, sealed_files

ARBITRATE = PhaseAction(
    does="contest",
    role=Role.REVIEWER,
    action="gate.arbitrate",
    prompt="arbitrate",
    writes=Writes.NOTHING,
    history=False,
)


async def contest(context: RunContext, step: StepContext) -> StepResult:
    files = await sealed_files(context, step.state.sealed)
    asked, new = await _ask_auditor(context, step, files)
    await run_blocking(context.workspace.reset, step.started.tree)
    facts, artifacts = asked.facts, asked.artifacts
    why = "" if new and new != files else first_line(asked.text) or "the auditor changed no sealed test"
    if not why:
        verdict = await judge_sealed_red(context, step.state, new)
        why = "" if verdict.ok else f"the replaced sealed test is not accepted: {verdict.why}"
    if not why and (judge := _judge(context, step)):
        decided = await _ask_judge(context, step, judge, files, new)
        facts, artifacts = [*facts, *decided.facts], [*artifacts, *decided.artifacts]
        why = _refusal(decided)
    if why:
        upheld = ev.SealedUpheld(step=step.number, why=truncate(f"{_lost(step)} The sealed tests stand: {why}"))
        return StepResult(events=[*facts, upheld], artifacts=artifacts)
    sealed = await run_blocking(seal, context.directory, f"step-{step.number}", new)
    replaced = ev.SealedReplaced(step=step.number, why=truncate(first_line(asked.text)), sealed=sealed)
    return StepResult(events=[*facts, replaced], artifacts=[*artifacts, sealed])


def _lost(step: StepContext) -> str:
    state = step.state
    return f"{', '.join(state.red)} passed, but no change generalised in {state.attempts} attempts."


async def _ask_auditor(
    context: RunContext, step: StepContext, files: dict[str, bytes]
) -> tuple[AskResult, dict[str, bytes]]:
    """Let the auditor see the last change and the sealed tests side by side; returns the sealed tests it leaves."""
    proposal = step.state.proposal
    assert proposal
    sealing = Sealing(step.state.scope, [context.item.spec], files)
    async with fork_for(context, "-audit", proposal.tree) as fork:
        await run_blocking(lay_over, fork.workspace.path, files)
        there = replace(step, started=replace(step.started, tree=proposal.tree))
        asked = await ask_role(fork, there, variant_of(fork, step, sealing))
    return asked, sealing.left


def _judge(context: RunContext, step: StepContext) -> Agent | None:
    gate = next((gate for gate in gates_of(step.state) if gate.kind == "judge" and gate.on_fail is OnFail.REVERT), None)
    return context.agents.get(gate.agent or Role.REVIEWER) if gate else None


async def _ask_judge(
    context: RunContext, step: StepContext, judge: Agent, old: dict[str, bytes], new: dict[str, bytes]
) -> AskResult:
    sealing = Sealing(step.state.scope, [context.item.spec], {**old, **new})
    asking = replace(step, plan=replace(step.plan, act=ARBITRATE))
    turn = context.ledger.turn(step.plan.action)
    hint = f"Before:\n\n{_shown(old)}\n\nAfter:\n\n{_shown(new)}"
    return await ask_role(
        context, asking, Variant(agent=judge, turn=turn, label="-arbitrate", hint=hint, spent=[], sealing=sealing)
    )


def _shown(files: dict[str, bytes]) -> str:
    return "\n\n".join(f"{path}\n\n{content.decode(errors='replace')}" for path, content in files.items())


def _refusal(decided: AskResult) -> str:
    verdict = parse_review(decided.text)
    if isinstance(verdict, str):
        return verdict
    return "" if verdict.verdict is Decision.APPROVED else verdict.summary or "the judge did not accept the replacement"
