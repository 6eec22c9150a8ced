"""The use case of `ratchet replay`: reads other policies from settings and replays a recorded run under them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

import msgspec

from ratchet.app.runs import RunService
from ratchet.core.gates import Gate
from ratchet.core.policy import Policy
from ratchet.core.prices import price_of
from ratchet.core.receipt import Price
from ratchet.core.replay import Alternative, GateChange, Replayed, Routing, replay
from ratchet.engine.workflow_registry import open_workflow
from ratchet.errors import UsageError

T = TypeVar("T")
_HINT = (
    "a bound (`tdd.attempts=1`), a gate (`gates.lint.on=false`, `gates.lint.on_fail=warn`), or routing "
    "(`agent=codex:gpt-5`, `roles.reviewer.model=…`, `roles.implementer.escalate_after=1`)"
)


class ReplayReport(msgspec.Struct, frozen=True, kw_only=True):
    run: str
    recorded: Replayed
    replayed: list[Replayed]


def replay_run(service: RunService, name: str, policies: Mapping[str, Sequence[str]]) -> ReplayReport:
    """Replay a run under each policy, which is a list of `key=value` settings."""
    history = service.history(name)
    workflow = open_workflow(service.store.item(history.row.item).workflow)
    others = [
        read_alternative(policy, settings, workflow.name, service.config.prices)
        for policy, settings in policies.items()
    ]
    recorded, replayed = replay(history.row.run, workflow, history.events, others)
    return ReplayReport(run=history.row.run, recorded=recorded, replayed=replayed)


def is_replayable(setting: str, workflow: str = "") -> bool:
    """Whether a setting changes what a replay decides, rather than where the run is found."""
    key = setting.partition("=")[0]
    section, _, last = key.rpartition(".")
    bound = last in Policy.__struct_fields__ and section in ("", workflow or section)
    return bound or key == "agent" or section.startswith(("gates.", "roles."))


def read_alternative(name: str, settings: Sequence[str], workflow: str, prices: Mapping[str, Price]) -> Alternative:
    """Build an alternative from `key=value` settings. Raises UsageError for a key that a replay cannot answer."""
    other = Alternative(name=name)
    for setting in settings:
        key, equals, value = (word.strip() for word in setting.partition("="))
        if not equals:
            raise UsageError(f"{setting!r} has no value", hint="write KEY=VALUE")
        if not is_replayable(setting, workflow):
            raise UsageError(f"a replay of this {workflow} run cannot vary {key!r}", hint=f"it can vary {_HINT}")
        other = _with_setting(other, key, value, prices)
    return other


def _with_setting(other: Alternative, key: str, value: str, prices: Mapping[str, Price]) -> Alternative:
    section, _, last = key.rpartition(".")
    if section.startswith("gates."):
        gate = section.removeprefix("gates.")
        changed = _with_gate(other.gates.get(gate, GateChange()), last, value)
        return msgspec.structs.replace(other, gates={**other.gates, gate: changed})
    if section.startswith("roles.") or key == "agent":
        return _with_routing(other, section.removeprefix("roles."), last, value, prices)
    bound = _convert({last: value}, Policy, key)
    return msgspec.structs.replace(other, bounds={**other.bounds, last: getattr(bound, last)})


def _with_gate(change: GateChange, field: str, value: str) -> GateChange:
    if field in ("on", "on_fail"):
        given = _convert({field: value}, GateChange, field)
        return msgspec.structs.replace(change, **{field: getattr(given, field)})
    if field not in Gate.__struct_fields__ or field == "name":
        raise UsageError(f"a gate has no setting {field!r}", hint=f"settings: {', '.join(Gate.__struct_fields__)}")
    return msgspec.structs.replace(change, other=[*change.other, field])


def _with_routing(other: Alternative, role: str, field: str, value: str, prices: Mapping[str, Price]) -> Alternative:
    if field == "escalate_after":
        after = _convert({role: value}, dict[str, int], f"roles.{role}.{field}")
        return msgspec.structs.replace(other, escalate_after={**other.escalate_after, **after})
    if field not in ("agent", "model"):
        raise UsageError(f"a replay cannot vary roles.{role}.{field}", hint=f"it can vary {_HINT}")
    model = value if field == "model" else value.partition(":")[2]
    known = other.agents.get(role)
    agent = f"{known.agent.partition(':')[0] if known else ''}:{model}".strip(":") if field == "model" else value
    routing = Routing(agent=agent, price=price_of(model, prices))
    return msgspec.structs.replace(other, agents={**other.agents, role: routing})


def _convert(values: dict[str, str], kind: type[T], key: str) -> T:
    try:
        return msgspec.convert(values, kind, strict=False)
    except msgspec.ValidationError as error:
        raise UsageError(f"invalid {key}: {str(error).partition(' - at')[0]}", hint=f"for example {_HINT}") from error
