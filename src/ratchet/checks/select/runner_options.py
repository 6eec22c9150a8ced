"""Adds a person's own options to the command of a runner: a name filter, stop at the first failure, anything else."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from ratchet.checks.protocol import Target
from ratchet.errors import UsageError

# The words that come before the expression of `-k`, and those that `-x` stands for.
_KEYWORD = {
    "pytest": ["-k"], "unittest": ["-k"], "jest": ["-t"], "vitest": ["-t"], "mocha": ["--grep"], "go": ["-run"],
    "node": ["--test-name-pattern"], "playwright": ["--grep"], "rspec": ["-e"], "cargo": [], "deno": ["--filter"],
    "bun": ["-t"], "ava": ["--match"], "swift": ["--filter"], "dart": ["--name"], "phpunit": ["--filter"],
}  # fmt: skip
_STOP = {
    "pytest": ["-x"], "unittest": ["-f"], "jest": ["--bail"], "vitest": ["--bail=1"], "mocha": ["--bail"],
    "go": ["-failfast"], "playwright": ["-x"], "rspec": ["--fail-fast"], "deno": ["--fail-fast"], "bun": ["--bail"],
    "ava": ["--fail-fast"], "phpunit": ["--stop-on-failure"],
}  # fmt: skip
_PACKAGES_LAST = {"go"}  # options stand before the packages


def with_options(targets: Sequence[Target], *, keyword: str, stop: bool, args: Sequence[str]) -> list[Target]:
    """Return the targets with the options in their commands. Raises UsageError where a runner has no such option."""
    return [_with_options(target, keyword, stop, args) for target in targets]


def _with_options(target: Target, keyword: str, stop: bool, args: Sequence[str]) -> Target:
    words = [*_lookup(target, "-k", _KEYWORD), keyword] if keyword else []
    words += _lookup(target, "-x", _STOP) if stop else []
    words += args
    return replace(
        target,
        command=_insert(target, target.command, words),
        also=[_insert(target, command, words) for command in target.also],
    )


def _lookup(target: Target, option: str, table: dict[str, list[str]]) -> list[str]:
    if target.runner not in table:
        raise UsageError(
            f"{option} is not known for {target.runner}",
            hint="give the runner's own option after --: ratchet test -- …",
        )
    return table[target.runner]


def _insert(target: Target, command: list[str], words: list[str]) -> list[str]:
    at = command.index("test") + 1 if target.runner in _PACKAGES_LAST and "test" in command else len(command)
    return [*command[:at], *words, *command[at:]]
