"""Run the tests and every gate command on the untouched base, before any agent is paid.

Failures of the base are recorded and not held against the agents. A command that cannot run at all fails the run.
"""

from __future__ import annotations

from ratchet.core import events as ev
from ratchet.core.failure import Reason
from ratchet.core.gates import Gate, GateStatus
from ratchet.core.receipt import Artifact
from ratchet.engine.blocking import run_blocking
from ratchet.engine.steps import run_tests
from ratchet.engine.steps.builtin_gates import GateInput, gate_file_name, gate_functions, run_gate_command
from ratchet.engine.steps.context import RunContext, StepContext, StepResult, truncate
from ratchet.engine.steps.gate_pipeline import gates_of
from ratchet.process.spawn import ProgramMissing


async def baseline(context: RunContext, step: StepContext) -> StepResult:
    return await _with_gates(context, step, await run_tests.baseline(context, step))


async def baseline_to_fix(context: RunContext, step: StepContext) -> StepResult:
    return await _with_gates(context, step, await run_tests.baseline_to_fix(context, step))


async def _with_gates(context: RunContext, step: StepContext, tested: StepResult) -> StepResult:
    if not isinstance(tested.events[-1], ev.BaselineTaken):
        return tested
    facts: list[ev.Event] = []
    kept: list[Artifact] = []
    for gate in gates_of(step.state):
        if gate.kind in gate_functions():
            continue
        proved = await _run_gate(context, step, gate)
        if isinstance(proved, ev.RunFailed):
            return StepResult(events=[*facts, proved], artifacts=[*tested.artifacts, *kept])
        facts.append(proved)
        kept += [proved.output] if proved.output else []
    return StepResult(events=[*facts, *tested.events], artifacts=[*tested.artifacts, *kept])


async def _run_gate(context: RunContext, step: StepContext, gate: Gate) -> ev.GateProved | ev.RunFailed:
    try:
        why, output = await run_gate_command(GateInput(context=context, step=step, before=step.started.tree), gate)
    except ProgramMissing as error:
        detail = f"gate {gate.name} cannot run: {error.message}; {error.hint}"
        return ev.RunFailed(reason=Reason.MISCONFIGURED, detail=detail)
    if not why:
        return ev.GateProved(step=step.number, gate=gate.name, status=GateStatus.PASSED)
    name = f"gates/base-{gate_file_name(gate)}.txt"
    artifact = await run_blocking(context.directory.put, name, output.encode())
    return ev.GateProved(
        step=step.number, gate=gate.name, status=GateStatus.FAILED, detail=truncate(why), output=artifact
    )
