"""Run the gates on a committed step. A gate that cannot run fails the run: it never counts as passed."""

from __future__ import annotations

import asyncio

import msgspec

from ratchet.core import events as ev
from ratchet.core.failure import Reason, RevertOutcome
from ratchet.core.gates import Gate, GateStatus, OnFail
from ratchet.core.learning import failure_fingerprint
from ratchet.core.lines import split_lines
from ratchet.core.prompts import placeholders_in
from ratchet.core.receipt import Artifact
from ratchet.core.state import RunState
from ratchet.engine.blocking import run_blocking
from ratchet.engine.steps.builtin_gates import GateInput, GateResult, check_gate
from ratchet.engine.steps.completion import complete, completed_before
from ratchet.engine.steps.context import RunContext, StepContext, StepResult, truncate
from ratchet.process.spawn import ProgramMissing


class GateResults(msgspec.Struct, frozen=True, kw_only=True):
    """The results of the gates, up to the first that failed or could not run."""

    facts: list[ev.Event] = []
    artifacts: list[Artifact] = []
    doubts: list[str] = []  # findings that no judge decides

    @property
    def results(self) -> list[ev.GateRan]:
        return [fact for fact in self.facts if isinstance(fact, ev.GateRan)]

    def messages(self, status: GateStatus) -> list[str]:
        return [f"gate {ran.gate} {_WORDS[status]}: {ran.detail}" for ran in self.results if ran.status is status]

    @property
    def refused(self) -> str:
        return "".join(self.messages(GateStatus.FAILED))

    @property
    def misconfigured(self) -> str:
        return "".join(self.messages(GateStatus.MISCONFIGURED))


_WORDS = {GateStatus.MISCONFIGURED: "cannot run", GateStatus.FAILED: "failed", GateStatus.WARNED: "failed"}
_ENDS = (GateStatus.MISCONFIGURED, GateStatus.FAILED)


async def verify(context: RunContext, step: StepContext) -> StepResult:
    state = step.state
    if state.commits and await run_blocking(context.workspace.tip) == state.commits[-1].parent:
        return await _undo(context, step, "a gate failed, and the worker was lost while reverting", GateResults())
    gated = await run_gates(GateInput(context=context, step=step, before=state.commits[-1].tree))
    if completion := await completed_before(context, step):  # before a crash, and only after the gates had passed
        return _verified(step, gated, completion)
    if gated.misconfigured:
        failed = ev.RunFailed(reason=Reason.MISCONFIGURED, detail=truncate(gated.misconfigured))
        return StepResult(events=[*gated.facts, failed], artifacts=gated.artifacts)
    if gated.refused:
        return await _undo(context, step, gated.refused, gated)
    return _verified(step, gated, await complete(context, step, gated.doubts))


def _verified(step: StepContext, gated: GateResults, completion: ev.Completion | None) -> StepResult:
    verified = step.plan.one_of(ev.StepVerified, ev.RevisionVerified)(
        step=step.number,
        gates=[ran.gate for ran in gated.results if ran.status is GateStatus.PASSED],
        warnings=gated.messages(GateStatus.WARNED),
        completion=completion,
    )
    report = [completion.report] if completion and completion.report else []
    return StepResult(events=[*gated.facts, verified], artifacts=[*gated.artifacts, *report])


async def run_gates(inputs: GateInput) -> GateResults:
    # Functions and judges look at the workspace: not at ignored files that an agent or the tested code left there.
    await run_blocking(inputs.context.workspace.reset, inputs.tree)
    facts: list[ev.Event] = []
    kept: list[Artifact] = []
    doubts: list[str] = []
    planned = gates_of(inputs.step.state)
    inputs = msgspec.structs.replace(inputs, has_judge=_has_judge(inputs.context, planned))
    for gate in planned:
        ran, result = await _run(inputs, gate)
        if result.doubtful:
            inputs = msgspec.structs.replace(inputs, doubts=result.output)
            doubts += [] if inputs.has_judge else split_lines(result.output)
        facts += [*result.facts, ran]
        kept += [*result.artifacts, *([ran.report] if ran.report else [])]
        if ran.status in _ENDS:
            break
    return GateResults(facts=facts, artifacts=kept, doubts=doubts)


def _has_judge(context: RunContext, planned: list[Gate]) -> bool:
    """Whether a judge decides about doubtful findings: it must be able to reject, and its prompt must show them."""
    refuses = any(gate.kind == "judge" and gate.on_fail is OnFail.REVERT for gate in planned)
    return refuses and "hint" in placeholders_in(context.agents.prompts["judge"])


def gates_of(state: RunState) -> list[Gate]:
    assert state.started
    return [msgspec.json.decode(text, type=Gate) for text in state.started.gates]


async def _run(inputs: GateInput, gate: Gate) -> tuple[ev.GateRan, GateResult]:
    began = asyncio.get_running_loop().time()
    try:
        found = await check_gate(inputs, gate)
        status = _status(gate, found)
    except ProgramMissing as error:
        found, status = GateResult(why=f"{error.message}; {error.hint}"), GateStatus.MISCONFIGURED
    report = None
    if found.output:
        report = await run_blocking(
            inputs.context.directory.put, f"gates/{inputs.name(gate)}.txt", found.output.encode()
        )
    ran = ev.GateRan(
        step=inputs.step.number,
        gate=gate.name,
        status=status,
        detail=truncate(found.why),
        report=report,
        seconds=round(asyncio.get_running_loop().time() - began, 3),
    )
    return ran, found


def _status(gate: Gate, found: GateResult) -> GateStatus:
    if found.skipped:
        return GateStatus.SKIPPED
    if not found.why:
        return GateStatus.PASSED
    return GateStatus.WARNED if gate.on_fail is OnFail.WARN or found.doubtful else GateStatus.FAILED


async def _undo(context: RunContext, step: StepContext, why: str, gated: GateResults) -> StepResult:
    state = step.state
    last, tree = state.commits[-1], state.before
    kind = step.plan.one_of(ev.StepReverted, ev.RefactorReverted, ev.RevisionReverted)
    await run_blocking(context.workspace.undo_commit, commit=last.commit, parent=last.parent)
    await run_blocking(context.workspace.reset, tree)
    paths = state.proposal.paths if state.proposal else []
    undone = kind(
        step=step.number,
        why=truncate(why),
        paths=paths,
        tree=tree,
        commit=last.commit,
        outcome=RevertOutcome.GATE,
        failures=[failure_fingerprint("gate", why, "")],
    )
    return StepResult(events=[*gated.facts, undone], artifacts=gated.artifacts)
