"""Gates: checks that a kept step must pass, in order of cost, and the comparison of results with the base."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import Annotated

import msgspec

from ratchet.core.diffs import read_diff
from ratchet.core.lines import every_line, has_other_ends, split_lines
from ratchet.core.roles import is_code


class OnFail(StrEnum):
    REVERT = "revert"
    WARN = "warn"


# In order of cost. A gate of any other name is a command, run after `types`.
ORDER = ("compile", "unit", "integration", "coverage", "lint", "types", "mutation", "cheats", "judge", "architecture")
_COMMANDS_AT = ORDER.index("mutation") - 0.5
Percent = Annotated[float, msgspec.Meta(ge=0, le=100)]


class Gate(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`command` must succeed (steps joined by `&&`, no shell); a gate named like a built-in one replaces it, and
    `on = false` turns it off. Coverage in percent: `threshold` overall, `changed` for the lines that a step changed.
    `agent` answers for `judge` and `architecture`. `root` is the folder it runs in, `why` its origin."""

    name: Annotated[str, msgspec.Meta(pattern=r"^[a-z0-9][a-z0-9_.@/-]{0,60}$")]
    command: str = ""
    on: bool = True
    on_fail: OnFail = OnFail.REVERT
    timeout_s: Annotated[float, msgspec.Meta(gt=0, le=86_400)] = 600.0
    threshold: Percent = 0.0
    changed: Percent = 0.0
    agent: str = ""
    root: str = "."
    why: str = "configured"

    @property
    def kind(self) -> str:
        """`lint@packages/a` is a lint gate."""
        return self.name.partition("@")[0]


class GateStatus(StrEnum):
    PASSED = "passed"
    FAILED = "failed"
    WARNED = "warned"
    SKIPPED = "skipped"  # nothing to check: the change is too small or has nothing to mutate
    MISCONFIGURED = "misconfigured"


def plan_gates(detected: Iterable[Gate], configured: Sequence[Gate]) -> list[Gate]:
    """Return the enabled gates in order of cost; configured gates override detected ones and inherit unset fields."""
    asked = {gate.name: gate for gate in configured}
    kept = [_override(gate, asked.pop(gate.name, None)) for gate in detected]
    return sorted([gate for gate in [*kept, *asked.values()] if gate.on], key=_cost)


def _override(found: Gate, asked: Gate | None) -> Gate:
    if asked is None:
        return found
    return msgspec.structs.replace(asked, command=asked.command or found.command, root=found.root)


def _cost(gate: Gate) -> float:
    return ORDER.index(gate.kind) if gate.kind in ORDER else _COMMANDS_AT


# --- output of a failing command, compared with the base -------------------------------------------------------------

_NOISE = re.compile(
    r"\x1b\[[0-9;]*m|(?<=[:(,])\s*\d+(?=[:,)]|$)|\b\d+(?:\.\d+)?\s*(?:ms|s|seconds|errors?|warnings?|files?|problems?)\b"
)


def finding_lines(output: str) -> Counter[str]:
    """Return the output's lines without volatile parts: line and column numbers, times and totals."""
    lines = (_NOISE.sub("", line).strip() for line in split_lines(output))
    return Counter(line for line in lines if re.search(r"[^\W\d_]{2}", line))


def new_findings(before: str, after: str) -> list[str]:
    """Return lines that are new or more frequent than before, in order, each once."""
    more = finding_lines(after) - finding_lines(before)
    return [line for line in finding_lines(after) if line in more]


# --- coverage -------------------------------------------------------------------------------------------------------


class Coverage(msgspec.Struct, frozen=True, kw_only=True):
    """Executable lines per file, and whether each was executed."""

    files: dict[str, dict[int, bool]]

    def percent(self, only: dict[str, set[int]] | None = None) -> float | None:
        """Return the coverage of all lines, or of `only` these; None if there are none."""
        seen = [
            hit
            for path, lines in self.files.items()
            for line, hit in lines.items()
            if only is None or line in only.get(path, ())
        ]
        return 100.0 * sum(seen) / len(seen) if seen else None

    def missed(self, only: dict[str, set[int]]) -> list[str]:
        return [
            f"{path}:{line}"
            for path, lines in sorted(self.files.items())
            for line, hit in sorted(lines.items())
            if not hit and line in only.get(path, ())
        ]


def uncovered(gate: Gate, coverage: Coverage, changed: dict[str, set[int]]) -> str:
    """Return why the coverage gate fails, or ''."""
    in_all, of_change = coverage.percent(), coverage.percent(changed)
    if in_all is None:
        return "no lines were measured for coverage"
    if in_all < gate.threshold:
        return f"coverage is {in_all:.1f} %, {gate.threshold:g} % is wanted"
    if of_change is not None and of_change < gate.changed:
        missed = coverage.missed(changed)
        more = f" and {len(missed) - 10} more" if len(missed) > 10 else ""
        return (
            f"{of_change:.1f} % of the changed lines are covered, {gate.changed:g} % are wanted; "
            f"never run: {', '.join(missed[:10])}{more}"
        )
    return ""


def changed_lines(diff: str) -> dict[str, set[int]]:
    """Return the lines that a unified diff adds, by file."""
    found: dict[str, set[int]] = {}
    for file in read_diff(diff):
        if file.hunks and not file.removed:
            found.setdefault(file.path, set()).update(file.added())
    return found


def whole_if_hidden(path: str, content: str, *, is_shown: bool) -> set[int]:
    """Return all lines of a changed file of which a diff does not tell which lines changed; else nothing.

    Attributes and a NUL keep a file out of a diff, and line ends of some languages are none for git.
    """
    is_binary = "\0" in content and not is_code(path)
    hidden = has_other_ends(content) or not is_shown
    return every_line(content) if hidden and not is_binary else set()


ARCHITECTURE_LINES = 100


def is_large(changed: dict[str, set[int]], created: Sequence[str]) -> bool:
    """Whether a change needs an architecture review: over a hundred lines, or a new module."""
    return sum(len(lines) for lines in changed.values()) > ARCHITECTURE_LINES or bool(created)
