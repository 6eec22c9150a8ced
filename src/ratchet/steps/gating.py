"""The gauntlet a kept step must pass. A gate that cannot run stops the run: it never counts as passed."""

from __future__ import annotations

import asyncio

import msgspec

from ratchet.core import events as ev
from ratchet.core.failure import Reason
from ratchet.core.gates import Gate, GateStatus, OnFail
from ratchet.core.receipt import Artifact
from ratchet.core.state import Phase, RunState
from ratchet.process import ProgramMissing
from ratchet.steps.gates import Answer, answer, file_name
from ratchet.steps.work import Doing, Done, Work, clip, cross


async def verify(work: Work, doing: Doing) -> Done:
    state = doing.state
    if state.commits and await cross(work.workspace.tip) == state.commits[-1].parent:
        return await _undo(work, doing, "a gate failed, and its worker was lost while undoing", [], [])
    facts: list[ev.Event] = []
    kept: list[Artifact] = []
    for gate in gates_of(state):
        ran, said = await _run(work, doing, gate)
        facts += [*said.facts, ran]
        kept += [*said.artifacts, *([ran.report] if ran.report else [])]
        if ran.status is GateStatus.MISCONFIGURED:
            failed = ev.RunFailed(reason=Reason.MISCONFIGURED, detail=f"gate {gate.name} cannot run: {ran.detail}")
            return Done(events=[*facts, failed], artifacts=kept)
        if ran.status is GateStatus.FAILED:
            return await _undo(work, doing, f"gate {gate.name} failed: {ran.detail}", facts, kept)
    results = [fact for fact in facts if isinstance(fact, ev.GateRan)]
    verified = ev.RevisionVerified if doing.phase is Phase.VERIFY_REVISION else ev.StepVerified
    outcome = verified(
        step=doing.number,
        gates=[ran.gate for ran in results if ran.status is GateStatus.PASSED],
        warnings=[f"gate {ran.gate} failed: {ran.detail}" for ran in results if ran.status is GateStatus.WARNED],
    )
    return Done(events=[*facts, outcome], artifacts=kept)


def gates_of(state: RunState) -> list[Gate]:
    assert state.started
    return [msgspec.json.decode(text, type=Gate) for text in state.started.gates]


async def _run(work: Work, doing: Doing, gate: Gate) -> tuple[ev.GateRan, Answer]:
    began = asyncio.get_running_loop().time()
    try:
        found = await answer(work, doing, gate)
        status = _status(gate, found)
    except ProgramMissing as error:
        found, status = Answer(why=f"{error.message}; {error.hint}"), GateStatus.MISCONFIGURED
    report = None
    if found.said:
        name = f"gates/step-{doing.number}-{file_name(gate)}.txt"
        report = await cross(work.directory.put, name, found.said.encode())
    seconds = round(asyncio.get_running_loop().time() - began, 3)
    ran = ev.GateRan(
        step=doing.number, gate=gate.name, status=status, detail=clip(found.why), report=report, seconds=seconds
    )
    return ran, found


def _status(gate: Gate, found: Answer) -> GateStatus:
    if found.skipped:
        return GateStatus.SKIPPED
    if not found.why:
        return GateStatus.PASSED
    return GateStatus.WARNED if gate.on_fail is OnFail.WARN else GateStatus.FAILED


async def _undo(work: Work, doing: Doing, why: str, facts: list[ev.Event], kept: list[Artifact]) -> Done:
    state = doing.state
    last = state.commits[-1]
    kind, tree = (
        (ev.RevisionReverted, last.tree)
        if doing.phase is Phase.VERIFY_REVISION
        else (ev.StepReverted, state.red_tree)
        if state.red
        else (ev.RefactorReverted, last.tree)
    )
    await cross(work.workspace.undo_commit, commit=last.commit, parent=last.parent)
    await cross(work.workspace.reset, tree)
    paths = state.proposal.paths if state.proposal else []
    undone = kind(step=doing.number, why=clip(why), paths=paths, tree=tree, commit=last.commit)
    return Done(events=[*facts, undone], artifacts=kept)
