"""Files that decide how tests are run, and files that run before them: a change there can fake any result."""

from __future__ import annotations

import re

from ratchet.core.cheats.found import Change, Cheat
from ratchet.core.runner_settings import says_how_tests_run, touches_runner

_RUNNER_FILES = re.compile(
    r"""(?:^|/)(?:
      conftest\.py | pytest\.ini | \.pytest\.ini | \.coveragerc | noxfile\.py
    | jest\.config\.\w+ | jest\.setup\.\w+ | vitest\.config\.\w+ | vitest\.workspace\.\w+ | \.mocharc(?:\.\w+)? | karma\.conf\.\w+
    | playwright\.config\.\w+ | \.nycrc(?:\.json)? | phpunit\.xml(?:\.dist)? | \.rspec | spec_helper\.rb | rails_helper\.rb
    | nextest\.toml | \.cargo/config(?:\.toml)? | tarpaulin\.toml | junit-platform\.properties | testng\.xml | \.gitlab-ci\.yml
    )$ | (?:^|/)\.github/workflows/""",
    re.VERBOSE,
)
_STARTS_FIRST = re.compile(r"(?:^|/)(?:sitecustomize\.py|usercustomize\.py|[^/]+\.pth)$")
# A module with a test tool's name beside the code is imported instead of it.
_SHADOWS = re.compile(r"^(?:src/)?(?:pytest|_pytest|unittest|pluggy|hypothesis|coverage|mypy|ruff)(?:/__init__)?\.py$")
_SNAPSHOT = re.compile(r"(?:\.snap|\.ambr|\.approved\.\w+|__snapshots__/.*|\.golden)$")
_MAKE_TEST = re.compile(r"^(?:test|check|tests|unit|verify)\s*:.*\n(?:\t.*\n?)*", re.MULTILINE)
_SUREFIRE = re.compile(
    r"skipTests|maven\.test\.skip|testFailureIgnore|ignoreFailures|<exclude>|exclude\s*\(|filter\s*\{"
)


def find(change: Change) -> list[Cheat]:
    return [
        Cheat(file=change.path, line=_first_line(change), rule=rule, detail=detail)
        for rule, detail, holds in (
            ("runner-configuration", "it decides how tests are run", _is_runner_file(change)),
            ("runner-configuration", "it has a part that decides how tests are run", _runner_part(change)),
            ("runs-before-tests", "Python runs it before anything else", bool(_STARTS_FIRST.search(change.path))),
            ("runs-before-tests", "it takes the place of a test tool", bool(_SHADOWS.search(change.path))),
            ("snapshot-edited", "a recorded answer was changed", _snapshot_edited(change)),
        )
        if holds
    ]


def _is_runner_file(change: Change) -> bool:
    return bool(_RUNNER_FILES.search(change.path))


def _runner_part(change: Change) -> bool:
    name = change.path.rsplit("/", 1)[-1]
    if says_how_tests_run(change.path):
        return touches_runner(change.path, _bytes(change.before), _bytes(change.after))
    if name in ("Makefile", "GNUmakefile", "justfile", "Justfile"):
        return _MAKE_TEST.findall(change.before or "") != _MAKE_TEST.findall(change.after or "") and bool(change.before)
    if name == "Cargo.toml":
        return _cargo(change.before) != _cargo(change.after)
    if name in ("pom.xml", "build.gradle", "build.gradle.kts", "build.sbt"):
        return any(_SUREFIRE.search(line) for _, line in change.added())
    return False


def _cargo(text: str | None) -> list[str]:
    return re.findall(r"^\s*(?:test|doctest|harness|autotests)\s*=.*|^\[\[test\]\]", text or "", re.MULTILINE)


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else text.encode()


def _snapshot_edited(change: Change) -> bool:
    """New snapshots come with new tests; one that said something before must go on saying it."""
    if not _SNAPSHOT.search(change.path) or not change.before:
        return False
    kept = set((change.after or "").splitlines())
    return any(line not in kept for line in change.before.splitlines() if line.strip())


def _first_line(change: Change) -> int:
    return next((line for line, _ in change.added()), 1)
