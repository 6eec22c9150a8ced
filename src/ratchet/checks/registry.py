"""The runners there are: ours and third parties', found the same way, by the entry points `ratchet.runners`."""

from __future__ import annotations

from functools import cache

from ratchet import plugins
from ratchet.checks import Runner
from ratchet.errors import ConfigError


@cache
def runners() -> dict[str, Runner]:
    """By name, in the order of their names."""
    return {name: entry.load()() for name, entry in sorted(plugins.found("runners").items())}


def runner(name: str) -> Runner:
    try:
        return runners()[name]
    except KeyError:
        raise ConfigError(f"there is no test runner {name!r}", hint=f"runners: {', '.join(runners())}") from None
