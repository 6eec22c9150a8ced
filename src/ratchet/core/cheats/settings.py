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
_SHADOWS = re.compile(
    r"^(?:(?:.*/)?(?:src|lib|python)/)?(?:pytest|_pytest|unittest|pluggy|hypothesis|coverage|mypy|ruff)(?:/__init__)?\.py$"
)
_SNAPSHOT = re.compile(r"(?:\.snap|\.ambr|\.approved\.\w+|__snapshots__/.*|\.golden)$")
_MAKE_TEST = re.compile(r"^(?:test|check|tests|unit|verify)\s*:.*\n(?:\t.*\n?)*", re.MULTILINE)
_SUREFIRE = re.compile(
    r"skipTests|maven\.test\.(?:skip|failure\.ignore)|testFailureIgnore|ignoreFailures|<exclude>|exclude\s*\(|filter\s*\{"
)


_CTEST = re.compile(r"\bWILL_FAIL\b|\bDISABLED\s+(?:TRUE|ON|1)\b|\bSKIP_RETURN_CODE\b|gtest_filter=-", re.IGNORECASE)
# Settings that switch a checker off for a whole project.
_LAX = re.compile(
    r"""ignore_errors\s*=\s*true|"(?:strict|noImplicitAny|strictNullChecks|noEmitOnError|checkJs)"\s*:\s*false|\bstrict\s*=\s*false"""
    r"""|follow_imports\s*=\s*"?skip|typeCheckingMode"?\s*[:=]\s*"off"|ignore\s*=\s*\[\s*"ALL"|"?ignoreBuildErrors"?\s*:\s*true""",
    re.IGNORECASE,
)
_CHECKER_FILES = re.compile(
    r"(?:^|/)(?:pyproject\.toml|setup\.cfg|\.?mypy\.ini|\.?ruff\.toml|pyrightconfig\.json|tsconfig[\w.]*\.json|next\.config\.\w+)$"
)


def decides_how_tests_run(path: str) -> bool:
    """Whole files that a result depends on; of those that people may edit too, `touches_runner` knows the parts."""
    runs_first = _STARTS_FIRST.search(path) or _SHADOWS.search(path)
    return bool(runs_first or _RUNNER_FILES.search(path)) or path.rsplit("/", 1)[-1] in ("Makefile", "GNUmakefile")


def is_plain_conftest(change: Change) -> bool:
    """Fixtures and what they need, and nothing that reaches into how tests are run."""
    return change.path.rsplit("/", 1)[-1] == "conftest.py" and not _is_runner_file(change)


def find(change: Change) -> list[Cheat]:
    return [
        Cheat(file=change.path, line=_first_line(change), rule=rule, detail=detail, doubt=rule == "snapshot-edited")
        for rule, detail, holds in (
            ("runner-configuration", "it decides how tests are run", _is_runner_file(change)),
            ("runner-configuration", "it has a part that decides how tests are run", _runner_part(change)),
            ("runs-before-tests", "Python runs it before anything else", bool(_STARTS_FIRST.search(change.path))),
            ("runs-before-tests", "it takes the place of a test tool", bool(_SHADOWS.search(change.path))),
            ("check-silenced", "a checker is switched off", _laxer(change)),
            ("snapshot-edited", "a recorded answer was changed", _snapshot_edited(change)),
        )
        if holds
    ]


def _is_runner_file(change: Change) -> bool:
    """A conftest is code too: fixtures come and go in it. What it may not do is reach into how tests are run."""
    if change.path.rsplit("/", 1)[-1] == "conftest.py":
        return any(_CONFTEST.search(line) for _, line in change.added())
    decides = bool(_RUNNER_FILES.search(change.path))
    if decides and re.search(r"\.config\.\w+$", change.path):
        return _told(change.before) != _told(change.after)
    return decides


_CONFTEST = re.compile(
    r"\bpytest_\w+|\bcollect_ignore|autouse\s*=\s*True|\bsys\.modules\b|^[\w.]+\.\w+\s*=[^=]|\b_pytest\b|\bos\._exit|hookimpl|"
    r"\bskip\b|\bxfail\b|\bimportlib\b|\bsetattr\("
)
# What only says what else is told of a run, in a configuration that is a program and cannot be read as data.
_TELLS = re.compile(
    r"\b(?:collectCoverage(?:From)?|coverageReporters|coverageDirectory|coveragePathIgnorePatterns|verbose|displayName|reporters?"
    r"|clearMocks|restoreMocks|resetMocks|errorOnDeprecated|slowTestThreshold|slow|trace|video|screenshot|outputFile)\s*:\s*"
    r"(?:\[[^\]]*\]|'[^']*'|\"[^\"]*\"|[\w.]+)\s*,?"
)


def _told(text: str | None) -> str:
    return re.sub(r"[\s,;]", "", _TELLS.sub("", text or ""))


def _laxer(change: Change) -> bool:
    known = {line.strip() for line in (change.before or "").splitlines()}
    added = [line for _, line in change.added() if line.strip() not in known]
    return bool(_CHECKER_FILES.search(change.path)) and any(_LAX.search(line) for line in added)


def _runner_part(change: Change) -> bool:
    name = change.path.rsplit("/", 1)[-1]
    if says_how_tests_run(change.path):
        return touches_runner(change.path, _bytes(change.before), _bytes(change.after))
    if name in ("Makefile", "GNUmakefile", "justfile", "Justfile"):
        return _MAKE_TEST.findall(change.before or "") != _MAKE_TEST.findall(change.after or "") and bool(change.before)
    if name == "Cargo.toml":
        return _cargo(change.before) != _cargo(change.after)
    if name == "CMakeLists.txt" or name.endswith(".cmake"):
        return any(_CTEST.search(line) for _, line in change.added())
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
