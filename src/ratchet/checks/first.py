"""What runs first when a tree has moved: what the change can reach, and what failed last."""

from __future__ import annotations

from pathlib import Path

import msgspec

from ratchet.checks import Target
from ratchet.checks.affected import affected
from ratchet.checks.impact import Impact
from ratchet.core.report import TestResult, TestStatus
from ratchet.core.watching import Known

# When these tests take most of the time all of them take, they are not worth a run of their own.
_WORTH = 0.7
_QUICK_S = 1.0


class Ground(msgspec.Struct, frozen=True, kw_only=True):
    """What the choice is made from. `top` is the repository's content, `inside` the watched folder in it, `moved` the
    paths that changed since everything ran last."""

    top: Path
    inside: str
    moved: list[str]
    failing: list[TestResult]
    known: dict[str, Known]

    def prefix(self, target: Target) -> str:
        """What a path of the target starts with, seen from the top."""
        return "".join(f"{folder}/" for folder in (self.inside, target.root) if folder != ".")


def first_of(targets: list[Target], impacts: dict[str, Impact], ground: Ground) -> dict[str, list[TestResult]]:
    """For each target the tests to run first; empty when there is no telling, or no gain."""
    chosen = {target.name: _of_target(target, impacts.get(target.name), ground, targets) for target in targets}
    if any(tests is None for tests in chosen.values()):
        return {}
    found = {name: tests for name, tests in chosen.items() if tests}
    return found if found and _is_worth_it(found, ground.known) else {}


def _of_target(target: Target, impact: Impact | None, ground: Ground, targets: list[Target]) -> list[TestResult] | None:
    """None: everything. Ids and files are the target's own."""
    if impact is not None:
        reached = impact.reached(ground.top, target, ground.moved, prefix=ground.prefix(target))
    else:
        reached = _by_imports(target, ground)
    return None if reached is None else _present(target, reached | _failed(target, ground, targets), ground)


def _by_imports(target: Target, ground: Ground) -> set[str] | None:
    above = "" if ground.inside == "." else f"{ground.inside}/"
    moved = [path.removeprefix(above) for path in ground.moved if path.startswith(above)]
    found = affected(ground.top / ground.inside, [target], moved) if moved else {}
    files = {test.id for test in found.get(target.name, [])}
    return None if target.name in found and not files else files


def _failed(target: Target, ground: Ground, targets: list[Target]) -> set[str]:
    own = "" if target.root == "." else f"{target.root}/"
    ours = [test for test in ground.failing if len(targets) == 1 or not test.target or target.has(test)]
    return {test.id.removeprefix(own) for test in ours}


def _present(target: Target, names: set[str], ground: Ground) -> list[TestResult]:
    """Without what is not there any more, and without tests of files that run whole."""
    files = {name: name.partition("::")[0] for name in names}
    whole = {file for name, file in files.items() if file == name}
    found = whole | {name for name, file in files.items() if file not in whole}
    if target.runner == "pytest":
        place = ground.top / ground.prefix(target)
        found = {name for name in found if (place / name.partition("::")[0]).is_file()}
    return [TestResult(id=name, file=name.partition("::")[0], status=TestStatus.TODO) for name in sorted(found)]


def _is_worth_it(chosen: dict[str, list[TestResult]], known: dict[str, Known]) -> bool:
    """By their time, or by their number where the time is too short to tell."""
    names = {test.id for tests in chosen.values() for test in tests}
    these = [row for name, row in known.items() if {name, name.partition("::")[0]} & names]
    all_s = sum(row.duration_s for row in known.values())
    if all_s < _QUICK_S:
        return len(these) < _WORTH * len(known) or not known
    return sum(row.duration_s for row in these) < _WORTH * all_s
