"""The command `gates`: lists the gates of this project and checks whether the unchanged base passes them."""

from __future__ import annotations

import msgspec

from ratchet.app.runs import RunService
from ratchet.checks.detect.project_gates import detect_gates
from ratchet.core import events as ev
from ratchet.core.gates import GateStatus, plan_gates
from ratchet.core.state import RunStatus
from ratchet.interfaces.cli.common import Arguments, CliCommand, flag, open_runs, print_data, print_json, run_async
from ratchet.interfaces.terminal.live_view import ignore_event

_EXIT = """Exit codes: 0 all passed; 1 tests or gates fail on the base (recorded as
known failures); 3 a gate cannot run"""


def gates(arguments: Arguments) -> int:
    with open_runs(arguments) as service:
        return _prove(service, as_json=arguments.json) if arguments.prove else _show(service, as_json=arguments.json)


def _show(service: RunService, *, as_json: bool) -> int:
    detected, absent = detect_gates(service.repo.root, service.targets())
    plan = plan_gates(detected, service.config.gates)
    if as_json:
        print_json({"gates": msgspec.to_builtins(plan), "absent": msgspec.to_builtins(absent)})
        return 0
    for gate in plan:
        print_data(f"{gate.name:<14} {gate.on_fail:<7} {gate.command or '(built in)'}")
        print_data(f"{'':<14} {'':<7} {gate.why}")
    for missing in absent:
        print_data(f"{missing.name:<14} off     {missing.why}")
    return 0


def _prove(service: RunService, *, as_json: bool) -> int:
    """Start a run of the `prove` workflow: its results are the baseline of later runs with the same settings."""
    item = service.new_item(
        "# Prove the gates\n\nThe tests and every gate, on the unchanged base.\n",
        name="gates",
        workflow="prove",
        metadata={},
    )
    lease = service.start(item)
    state = run_async(service.work(lease, watch=ignore_event, on_agent_event=lambda _event: None))
    events = service.history(lease.run).events
    proved = [event for event in events if isinstance(event, ev.GateProved)]
    taken = next((event for event in events if isinstance(event, ev.BaselineTaken)), None)
    if as_json:
        print_json(
            {"run": lease.run, "status": state.status, "detail": state.detail, "gates": msgspec.to_builtins(proved),
             "tests": taken.tests if taken else 0, "failing": taken.failing if taken else []}
        )  # fmt: skip
    else:
        _print_proof(proved, taken, state.detail)
    if state.status is not RunStatus.COMPLETED:
        return 3
    red = any(gate.status is GateStatus.FAILED for gate in proved) or bool(taken and taken.failing)
    return 1 if red else 0


def _print_proof(proved: list[ev.GateProved], taken: ev.BaselineTaken | None, detail: str) -> None:
    if taken:
        known = f", {len(taken.failing)} failing: recorded as known failures" if taken.failing else ""
        print_data(f"{'unit':<14} {taken.tests} tests{known}")
    for gate in proved:
        print_data(f"{gate.gate:<14} {gate.status}{f': {gate.detail.splitlines()[0][:160]}' if gate.detail else ''}")
    if detail:
        print_data(detail)


COMMANDS = (
    CliCommand(
        "gates",
        "list the gates that every step must pass, in order",
        gates,
        flag("--prove", help="run set-up, tests and gates on the unchanged base"),
        more=_EXIT,
    ),
)
