"""The gates a kept step must pass. One that cannot run stops the run: it never counts as passed."""

from __future__ import annotations

import shlex

import msgspec

from ratchet.config import Gate, OnFail
from ratchet.core import events as ev
from ratchet.core.failure import Reason
from ratchet.core.state import RunState
from ratchet.process import ProgramMissing, confined, supervise
from ratchet.steps.work import Doing, Done, Work, cross, fresh


class Gated(msgspec.Struct, frozen=True, kw_only=True):
    """What the gates said. Passed is only what has neither `refused` nor `misconfigured`."""

    passed: list[str] = []
    warnings: list[str] = []
    refused: str = ""
    misconfigured: str = ""


async def verify(work: Work, doing: Doing) -> Done:
    state = doing.state
    if state.commits and await cross(work.workspace.tip) == state.commits[-1].parent:
        return await _undo(work, doing, "a gate failed, and its worker was lost while undoing")
    gated = await run_gates(work, doing.started, state)
    if gated.misconfigured:
        return Done(events=[ev.RunFailed(reason=Reason.MISCONFIGURED, detail=gated.misconfigured)])
    if gated.refused:
        return await _undo(work, doing, gated.refused)
    verified = doing.step.one_of(ev.StepVerified, ev.RevisionVerified)
    return Done(events=[verified(step=doing.number, gates=gated.passed, warnings=gated.warnings)])


async def run_gates(work: Work, started: ev.StepStarted, state: RunState) -> Gated:
    """All of them on the tree the step was announced with, up to the first that refuses it."""
    passed: list[str] = []
    warnings: list[str] = []
    assert state.started
    for gate in [msgspec.json.decode(text, type=Gate) for text in state.started.gates]:
        try:
            why = await _gate(work, gate, started)
        except ProgramMissing as error:
            return Gated(misconfigured=f"gate {gate.name} cannot run: {error}")
        if not why:
            passed.append(gate.name)
        elif gate.on_fail is OnFail.WARN:
            warnings.append(why)
        else:
            return Gated(passed=passed, warnings=warnings, refused=why)
    return Gated(passed=passed, warnings=warnings)


async def _gate(work: Work, gate: Gate, started: ev.StepStarted) -> str:
    log = fresh(work.directory.log_path(f"step-{started.step}-{gate.name}.log"))
    with confined(work.sandboxes.for_gate()):
        ended = await supervise(
            shlex.split(gate.command),
            cwd=work.workspace.path,
            env=work.env,
            output=log,
            timeout_s=gate.timeout_s,
        )
    await cross(work.workspace.reset, started.tree)
    if ended.exit_code == 0 and not ended.timed_out:
        return ""
    said = log.read_bytes()[-500:].decode(errors="replace").strip()
    how = f"no end after {gate.timeout_s:.0f} s" if ended.timed_out else f"exit {ended.exit_code}"
    return f"gate {gate.name} failed ({how}): {said}"


async def _undo(work: Work, doing: Doing, why: str) -> Done:
    state = doing.state
    last, tree = state.commits[-1], state.before
    kind = doing.step.one_of(ev.StepReverted, ev.RefactorReverted, ev.RevisionReverted)
    await cross(work.workspace.undo_commit, commit=last.commit, parent=last.parent)
    await cross(work.workspace.reset, tree)
    paths = state.proposal.paths if state.proposal else []
    return Done(events=[kind(step=doing.number, why=why, paths=paths, tree=tree, commit=last.commit)])
