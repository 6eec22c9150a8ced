"""The registered runners, built-in and third-party, found by the entry points `ratchet.runners`."""

from __future__ import annotations

from functools import cache

from ratchet import plugins
from ratchet.checks.protocol import Runner
from ratchet.errors import ConfigError


@cache
def runners() -> dict[str, Runner]:
    """Return all runners by name, sorted."""
    return {name: entry.load()() for name, entry in sorted(plugins.entry_points("runners").items())}


def runner(name: str) -> Runner:
    try:
        return runners()[name]
    except KeyError:
        raise ConfigError(f"unknown test runner {name!r}", hint=f"runners: {', '.join(runners())}") from None
