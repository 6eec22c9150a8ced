"""The command `gates`: what a step must pass here, and whether the untouched base does."""

from __future__ import annotations

import argparse

import msgspec

from ratchet.checks.gates import detect_gates
from ratchet.core import events as ev
from ratchet.core.gates import GateStatus, planned
from ratchet.core.state import RunStatus
from ratchet.factory import Factory
from ratchet.surfaces.cli.common import Arguments, Command, open_factory, show, show_json, wait_for
from ratchet.surfaces.live import silent

_EXIT = """exit codes: 0 all green; 1 something is red on the base, and known from then on; 3 a gate cannot run"""


def gates(arguments: Arguments) -> int:
    with open_factory(arguments) as factory:
        return _prove(factory, as_json=arguments.json) if arguments.prove else _show(factory, as_json=arguments.json)


def _show(factory: Factory, *, as_json: bool) -> int:
    detected, absent = detect_gates(factory.repo.root, factory.targets())
    plan = planned(detected, factory.config.gates)
    if as_json:
        show_json({"gates": msgspec.to_builtins(plan), "absent": msgspec.to_builtins(absent)})
        return 0
    for gate in plan:
        show(f"{gate.name:<14} {gate.on_fail:<7} {gate.command or '(built in)'}")
        show(f"{'':<14} {'':<7} {gate.why}")
    for missing in absent:
        show(f"{missing.name:<14} off     {missing.why}")
    return 0


def _prove(factory: Factory, *, as_json: bool) -> int:
    """A run like any other, with a ledger: what it proves is what a run under the same settings starts from."""
    item = factory.ask_for(
        "# Prove the gates\n\nThe tests and every gate, on the untouched base.\n",
        name="gates",
        workflow="prove",
        metadata={},
    )
    lease = factory.claim(item.id)
    state = wait_for(factory.work(lease, watch=silent, tell=lambda _said: None))
    events = factory.story(lease.run).events
    proved = [event for event in events if isinstance(event, ev.GateProved)]
    taken = next((event for event in events if isinstance(event, ev.BaselineTaken)), None)
    if as_json:
        show_json(
            {"run": lease.run, "status": state.status, "detail": state.detail, "gates": msgspec.to_builtins(proved),
             "tests": taken.tests if taken else 0, "failing": taken.failing if taken else []}
        )  # fmt: skip
    else:
        _tell(proved, taken, state.detail)
    if state.status is not RunStatus.COMPLETED:
        return 3
    red = any(gate.status is GateStatus.FAILED for gate in proved) or bool(taken and taken.failing)
    return 1 if red else 0


def _tell(proved: list[ev.GateProved], taken: ev.BaselineTaken | None, detail: str) -> None:
    if taken:
        known = f", {len(taken.failing)} of them red: known from now on, and nobody's fault" if taken.failing else ""
        show(f"{'unit':<14} {taken.tests} tests{known}")
    for gate in proved:
        show(f"{gate.gate:<14} {gate.status}{f': {gate.detail.splitlines()[0][:160]}' if gate.detail else ''}")
    if detail:
        show(detail)


def _declare(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--prove", action="store_true", help="run set-up, tests and gates on the untouched base")


COMMANDS = (
    Command(
        name="gates", help="show the gates a step must pass here, in order", handle=gates, declare=_declare, more=_EXIT
    ),
)
