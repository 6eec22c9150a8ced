"""The gauntlet a kept step must pass. A gate that cannot run stops the run: it never counts as passed."""

from __future__ import annotations

import asyncio

import msgspec

from ratchet.core import events as ev
from ratchet.core.failure import Reason
from ratchet.core.gates import Gate, GateStatus, OnFail
from ratchet.core.prompts import names_in
from ratchet.core.receipt import Artifact
from ratchet.core.state import RunState
from ratchet.process import ProgramMissing
from ratchet.steps.gates import Answer, Look, answer
from ratchet.steps.work import Doing, Done, Work, clip, cross


class Gated(msgspec.Struct, frozen=True, kw_only=True):
    """What the gates came to, up to the first that refused or could not run."""

    facts: list[ev.Event] = []
    artifacts: list[Artifact] = []

    @property
    def results(self) -> list[ev.GateRan]:
        return [fact for fact in self.facts if isinstance(fact, ev.GateRan)]

    def said(self, status: GateStatus) -> list[str]:
        return [f"gate {ran.gate} {_WORDS[status]}: {ran.detail}" for ran in self.results if ran.status is status]

    @property
    def refused(self) -> str:
        return "".join(self.said(GateStatus.FAILED))

    @property
    def misconfigured(self) -> str:
        return "".join(self.said(GateStatus.MISCONFIGURED))


_WORDS = {GateStatus.MISCONFIGURED: "cannot run", GateStatus.FAILED: "failed", GateStatus.WARNED: "failed"}
_ENDS = (GateStatus.MISCONFIGURED, GateStatus.FAILED)


async def verify(work: Work, doing: Doing) -> Done:
    state = doing.state
    if state.commits and await cross(work.workspace.tip) == state.commits[-1].parent:
        return await _undo(work, doing, "a gate failed, and its worker was lost while undoing", Gated())
    gated = await run_gates(Look(work=work, doing=doing, before=state.commits[-1].tree))
    if gated.misconfigured:
        failed = ev.RunFailed(reason=Reason.MISCONFIGURED, detail=clip(gated.misconfigured))
        return Done(events=[*gated.facts, failed], artifacts=gated.artifacts)
    if gated.refused:
        return await _undo(work, doing, gated.refused, gated)
    verified = doing.step.one_of(ev.StepVerified, ev.RevisionVerified)(
        step=doing.number,
        gates=[ran.gate for ran in gated.results if ran.status is GateStatus.PASSED],
        warnings=gated.said(GateStatus.WARNED),
    )
    return Done(events=[*gated.facts, verified], artifacts=gated.artifacts)


async def run_gates(look: Look) -> Gated:
    facts: list[ev.Event] = []
    kept: list[Artifact] = []
    planned = gates_of(look.doing.state)
    look = msgspec.structs.replace(look, judged=_judged(look.work, planned))
    for gate in planned:
        ran, said = await _run(look, gate)
        look = msgspec.structs.replace(look, doubts=said.said) if said.doubtful else look
        facts += [*said.facts, ran]
        kept += [*said.artifacts, *([ran.report] if ran.report else [])]
        if ran.status in _ENDS:
            break
    return Gated(facts=facts, artifacts=kept)


def _judged(work: Work, planned: list[Gate]) -> bool:
    """Whether somebody decides on doubts: a judge that can refuse, and that a project's own prompt tells of them."""
    refuses = any(gate.kind == "judge" and gate.on_fail is OnFail.REVERT for gate in planned)
    return refuses and "hint" in names_in(work.prompts("judge"))


def gates_of(state: RunState) -> list[Gate]:
    assert state.started
    return [msgspec.json.decode(text, type=Gate) for text in state.started.gates]


async def _run(look: Look, gate: Gate) -> tuple[ev.GateRan, Answer]:
    began = asyncio.get_running_loop().time()
    try:
        found = await answer(look, gate)
        status = _status(gate, found)
    except ProgramMissing as error:
        found, status = Answer(why=f"{error.message}; {error.hint}"), GateStatus.MISCONFIGURED
    report = None
    if found.said:
        report = await cross(look.work.directory.put, f"gates/{look.name(gate)}.txt", found.said.encode())
    ran = ev.GateRan(
        step=look.doing.number,
        gate=gate.name,
        status=status,
        detail=clip(found.why),
        report=report,
        seconds=round(asyncio.get_running_loop().time() - began, 3),
    )
    return ran, found


def _status(gate: Gate, found: Answer) -> GateStatus:
    if found.skipped:
        return GateStatus.SKIPPED
    if not found.why:
        return GateStatus.PASSED
    return GateStatus.WARNED if gate.on_fail is OnFail.WARN or found.doubtful else GateStatus.FAILED


async def _undo(work: Work, doing: Doing, why: str, gated: Gated) -> Done:
    state = doing.state
    last, tree = state.commits[-1], state.before
    kind = doing.step.one_of(ev.StepReverted, ev.RefactorReverted, ev.RevisionReverted)
    await cross(work.workspace.undo_commit, commit=last.commit, parent=last.parent)
    await cross(work.workspace.reset, tree)
    paths = state.proposal.paths if state.proposal else []
    undone = kind(step=doing.number, why=clip(why), paths=paths, tree=tree, commit=last.commit)
    return Done(events=[*gated.facts, undone], artifacts=gated.artifacts)
