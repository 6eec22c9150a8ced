"""Chooses the tests to run first after a change: affected ones and recent failures."""

from __future__ import annotations

from pathlib import Path

import msgspec

from ratchet.checks.protocol import Target
from ratchet.checks.select.affected import affected
from ratchet.checks.select.affected_by_trace import TraceMap
from ratchet.core.report import TestResult, TestStatus
from ratchet.core.watch import TestRecord

# Not worth a separate run if they take most of the time of all tests.
_WORTH = 0.7
_QUICK_S = 1.0


class SelectionInput(msgspec.Struct, frozen=True, kw_only=True):
    """Input of the choice. `top` is the repository's content, `subfolder` the watched folder in it, `changed` the paths
    that changed since the last full run."""

    top: Path
    subfolder: str
    changed: list[str]
    failing: list[TestResult]
    known: dict[str, TestRecord]

    def prefix(self, target: Target) -> str:
        """Return the prefix of the target's paths, seen from the top."""
        return "".join(f"{folder}/" for folder in (self.subfolder, target.root) if folder != ".")


def prioritise(
    targets: list[Target], impacts: dict[str, TraceMap], ground: SelectionInput
) -> dict[str, list[TestResult]]:
    """Return the tests to run first for each target; empty if unknown or not worthwhile."""
    chosen = {target.name: _of_target(target, impacts.get(target.name), ground, targets) for target in targets}
    if any(tests is None for tests in chosen.values()):
        return {}
    found = {name: tests for name, tests in chosen.items() if tests}
    return found if found and _is_worth_it(found, ground.known) else {}


def failed_tests(targets: list[Target], ground: SelectionInput) -> dict[str, list[TestResult]]:
    """Return the tests that failed last for each target."""
    found = {target.name: _present(target, _failed(target, ground, targets), ground) for target in targets}
    return {name: tests for name, tests in found.items() if tests}


def _of_target(
    target: Target, impact: TraceMap | None, ground: SelectionInput, targets: list[Target]
) -> list[TestResult] | None:
    """Return the tests with ids relative to the target; None means all."""
    if impact is not None:
        reached = impact.affected(ground.top, target, ground.changed, prefix=ground.prefix(target))
    else:
        reached = _by_imports(target, ground)
    return None if reached is None else _present(target, reached | _failed(target, ground, targets), ground)


def _by_imports(target: Target, ground: SelectionInput) -> set[str] | None:
    above = "" if ground.subfolder == "." else f"{ground.subfolder}/"
    moved = [path.removeprefix(above) for path in ground.changed if path.startswith(above)]
    found = affected(ground.top / ground.subfolder, [target], moved) if moved else {}
    files = {test.id for test in found.get(target.name, [])}
    return None if target.name in found and not files else files


def _failed(target: Target, ground: SelectionInput, targets: list[Target]) -> set[str]:
    own = "" if target.root == "." else f"{target.root}/"
    ours = [test for test in ground.failing if len(targets) == 1 or not test.target or target.owns(test)]
    return {test.id.removeprefix(own) for test in ours}


def _present(target: Target, names: set[str], ground: SelectionInput) -> list[TestResult]:
    """Drop tests that no longer exist, and tests of files that run as a whole."""
    files = {name: name.partition("::")[0] for name in names}
    whole = {file for name, file in files.items() if file == name}
    found = whole | {name for name, file in files.items() if file not in whole}
    if target.runner == "pytest":
        place = ground.top / ground.prefix(target)
        found = {name for name in found if (place / name.partition("::")[0]).is_file()}
    return [TestResult(id=name, file=name.partition("::")[0], status=TestStatus.TODO) for name in sorted(found)]


def _is_worth_it(chosen: dict[str, list[TestResult]], known: dict[str, TestRecord]) -> bool:
    """Decide by duration, or by number if the durations are too short to compare."""
    names = {test.id for tests in chosen.values() for test in tests}
    these = [row for name, row in known.items() if {name, name.partition("::")[0]} & names]
    all_s = sum(row.duration_s for row in known.values())
    if all_s < _QUICK_S:
        return len(these) < _WORTH * len(known) or not known
    return sum(row.duration_s for row in these) < _WORTH * all_s
