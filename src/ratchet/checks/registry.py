"""The runners there are: ours and third parties', found the same way, by the entry points `ratchet.runners`."""

from __future__ import annotations

from functools import cache
from importlib.metadata import entry_points

from ratchet.checks import Runner
from ratchet.errors import ConfigError

GROUP = "ratchet.runners"


@cache
def runners() -> dict[str, Runner]:
    """By name, in the order of their names."""
    found = sorted(entry_points(group=GROUP), key=lambda point: point.name)
    return {point.name: point.load()() for point in found}


def runner(name: str) -> Runner:
    try:
        return runners()[name]
    except KeyError:
        raise ConfigError(f"there is no test runner {name!r}", hint=f"runners: {', '.join(runners())}") from None
