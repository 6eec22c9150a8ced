"""The gates a kept step must pass. One that cannot run stops the run: it never counts as passed."""

from __future__ import annotations

import shlex

import msgspec

from ratchet.config import Gate, OnFail
from ratchet.core import events as ev
from ratchet.core.failure import Reason
from ratchet.core.state import Phase
from ratchet.process import ProgramMissing, confined, supervise
from ratchet.steps.work import Doing, Done, Work, cross, fresh


async def verify(work: Work, doing: Doing) -> Done:
    state = doing.state
    assert state.started
    if state.commits and await cross(work.workspace.tip) == state.commits[-1].parent:
        return await _undo(work, doing, "a gate failed, and its worker was lost while undoing")
    passed: list[str] = []
    warnings: list[str] = []
    for gate in [msgspec.json.decode(text, type=Gate) for text in state.started.gates]:
        try:
            why = await _gate(work, gate, doing.started)
        except ProgramMissing as error:
            detail = f"gate {gate.name} cannot run: {error}"
            return Done(events=[ev.RunFailed(reason=Reason.MISCONFIGURED, detail=detail)])
        if not why:
            passed.append(gate.name)
        elif gate.on_fail is OnFail.WARN:
            warnings.append(why)
        else:
            return await _undo(work, doing, why)
    verified = ev.RevisionVerified if doing.phase is Phase.VERIFY_REVISION else ev.StepVerified
    return Done(events=[verified(step=doing.number, gates=passed, warnings=warnings)])


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
    return Done(events=[kind(step=doing.number, why=why, paths=paths, tree=tree, commit=last.commit)])
