"""The untouched base, before anything is spent: its tests, and every gate that has a command.

What is red there is known from then on and nobody's fault; what cannot run at all stops the run.
"""

from __future__ import annotations

from ratchet.core import events as ev
from ratchet.core.failure import Reason
from ratchet.core.gates import Gate, GateStatus
from ratchet.core.receipt import Artifact
from ratchet.process import ProgramMissing
from ratchet.steps import testing
from ratchet.steps.gates import Look, call_gate, file_name, known_gates
from ratchet.steps.gating import gates_of
from ratchet.steps.work import Doing, Done, Work, clip, cross


async def baseline(work: Work, doing: Doing) -> Done:
    return await _proved(work, doing, await testing.baseline(work, doing))


async def look(work: Work, doing: Doing) -> Done:
    return await _proved(work, doing, await testing.look(work, doing))


async def _proved(work: Work, doing: Doing, tested: Done) -> Done:
    if not isinstance(tested.events[-1], ev.BaselineTaken):
        return tested
    facts: list[ev.Event] = []
    kept: list[Artifact] = []
    for gate in gates_of(doing.state):
        if gate.kind in known_gates():
            continue
        proved = await _prove(work, doing, gate)
        if isinstance(proved, ev.RunFailed):
            return Done(events=[*facts, proved], artifacts=[*tested.artifacts, *kept])
        facts.append(proved)
        kept += [proved.output] if proved.output else []
    return Done(events=[*facts, *tested.events], artifacts=[*tested.artifacts, *kept])


async def _prove(work: Work, doing: Doing, gate: Gate) -> ev.GateProved | ev.RunFailed:
    try:
        why, said = await call_gate(Look(work=work, doing=doing, before=doing.started.tree), gate)
    except ProgramMissing as error:
        detail = f"gate {gate.name} cannot run: {error.message}; {error.hint}"
        return ev.RunFailed(reason=Reason.MISCONFIGURED, detail=detail)
    if not why:
        return ev.GateProved(step=doing.number, gate=gate.name, status=GateStatus.PASSED)
    name = f"gates/base-{file_name(gate)}.txt"
    output = await cross(work.directory.put, name, said.encode())
    return ev.GateProved(step=doing.number, gate=gate.name, status=GateStatus.FAILED, detail=clip(why), output=output)
