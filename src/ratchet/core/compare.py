"""Compares reports by test identity and judges red, green and fix steps."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Hashable

import msgspec

from ratchet.core.failure import RevertOutcome
from ratchet.core.missing_code import COMPILED, is_missing_code
from ratchet.core.report import (
    GREEN,
    RED,
    Diagnostic,
    Failure,
    Report,
    ReportStatus,
    TestResult,
    TestStatus,
    load_errors,
)
from ratchet.core.roles import PathRules


class Delta(msgspec.Struct, frozen=True, kw_only=True):
    """Changes between two reports of the same suite, as sorted test ids."""

    new_failures: list[str]
    still_failing: list[str]
    fixed: list[str]
    added: list[str]
    missing: list[str]
    silenced: list[str]
    broken: list[str]
    renamed: list[tuple[str, str]] = []

    def lost(self) -> list[str]:
        """Return the tests that passed before and now fail, are missing, or are silenced by a skip or xfail."""
        return [*self.new_failures, *self.missing, *self.silenced]


class ComparedReport(Report, frozen=True, kw_only=True):
    """The output of `ratchet test --json`: a report and its comparison with the previous one.

    `delta` is null without a previous report or after a partial run; `known` are failures of the baseline; `flaky` are
    tests with different results on the same content, now or earlier.
    """

    delta: Delta | None = None
    known: list[str] = msgspec.field(default_factory=list)
    flaky: list[str] = msgspec.field(default_factory=list)


def with_comparison(report: Report, delta: Delta | None, known: list[str], flaky: list[str]) -> ComparedReport:
    fields = {name: getattr(report, name) for name in Report.__struct_fields__}
    return ComparedReport(**fields, delta=delta, known=known, flaky=flaky)


def compare(before: Report, after: Report) -> Delta:
    """Compare two reports. A renamed test counts under its new name, as neither added nor missing."""
    old, new = _by_id(before), _by_id(after)
    names = renames(before, after)
    old = {names.get(name, name): test for name, test in old.items()}
    was_green = {name for name, test in old.items() if test.status in GREEN}
    was_red = {name for name, test in old.items() if test.status in RED}
    red = {name for name, test in new.items() if test.status in RED}
    green = {name for name, test in new.items() if test.status in GREEN}
    known = {error.file for error in load_errors(before)}
    return Delta(
        new_failures=sorted(red & was_green),
        still_failing=sorted(red & was_red),
        fixed=sorted(green & was_red),
        added=sorted(new.keys() - old.keys()),
        missing=sorted(was_green - new.keys()),
        silenced=sorted((was_green & new.keys()) - red - green),
        broken=sorted({error.file for error in load_errors(after)} - known),
        renamed=sorted(names.items()),
    )


def renames(before: Report, after: Report) -> dict[str, str]:
    """Map old to new names of renamed tests: missing under one name and present under another with the same content.

    Only unique matches on both sides count: two tests with the same body are indistinguishable.
    """
    old, new = _by_id(before), _by_id(after)
    gone = [test for name, test in old.items() if name not in new]
    fresh = [test for name, test in new.items() if name not in old]
    pairs: dict[str, str] = {}
    for alike in (_body_key, _failure_key):
        pairs |= _pair_by(gone, fresh, alike)
        gone = [test for test in gone if test.id not in pairs]
        fresh = [test for test in fresh if test.id not in pairs.values()]
    return pairs


def _pair_by(
    gone: list[TestResult], fresh: list[TestResult], alike: Callable[[TestResult], Hashable | None]
) -> dict[str, str]:
    once_gone, once_fresh = _unique_by(gone, alike), _unique_by(fresh, alike)
    return {once_gone[key].id: once_fresh[key].id for key in once_gone.keys() & once_fresh.keys()}


def _unique_by(tests: list[TestResult], alike: Callable[[TestResult], Hashable | None]) -> dict[Hashable, TestResult]:
    keyed = [(key, test) for test in tests if (key := alike(test)) is not None]
    counts = Counter(key for key, _ in keyed)
    return {key: test for key, test in keyed if counts[key] == 1}


def _body_key(test: TestResult) -> Hashable | None:
    """Return the source digest and the parameters, or None if the source is unknown."""
    _, bracket, parameters = test.name.partition("[")
    return (test.target, test.body, bracket + parameters) if test.body else None


def _failure_key(test: TestResult) -> Hashable | None:
    """Return how the test fails, or None if its source is known or the failure has no message."""
    failure = test.failure
    if test.body or test.status not in RED or failure is None or not failure.message:
        return None
    return test.target, failure.type, failure.message, failure.expected, failure.actual


def _by_id(report: Report) -> dict[str, TestResult]:
    return {test.id: test for test in report.tests}


class Judgement(msgspec.Struct, frozen=True, kw_only=True):
    """The result of judging a step. `tests` are the accepted red tests or the tests that turned green; `why` is the
    reason for a rejection, `outcome` its class; `met` is set if the new tests are refused because they already pass."""

    ok: bool
    tests: list[str] = []
    why: str = ""
    outcome: RevertOutcome = RevertOutcome.BROKE_OTHERS
    met: bool = False


# Report statuses that allow no conclusion about single tests.
_NO_VERDICT = {
    ReportStatus.CRASHED: "the test runner died before it finished",
    ReportStatus.TIMEOUT: "the tests did not finish in time",
    ReportStatus.NO_TESTS: "no tests were found",
    ReportStatus.INCONSISTENT: "the runner's results contradict each other",
    ReportStatus.UNKNOWN: "the results could not be read",
    ReportStatus.ERROR: "the test runner could not start",
    ReportStatus.INTERRUPTED: "the tests were interrupted",
}


def why_inconclusive(report: Report) -> str:
    why = _NO_VERDICT.get(report.status, "")
    details = [*report.notes, *(f"while running {name}" for name in report.running)]
    return f"{why}: {'; '.join(details)}" if why and details else why


RED_MAX = 100  # one test, with room for its parameters

# Errors raised when a function, class, module or parameter that the test uses does not exist yet.
_MISSING = {"ImportError", "ModuleNotFoundError", "AttributeError", "NotImplementedError", "TypeError"}
# The same in the words of other languages' compilers and runtimes.
_ABSENT = re.compile(
    r"(?i)^undefined: |undefined (?:method|subroutine|function|reference to)|call to undefined|uninitialized constant"
    r"|\bis not (?:a function|defined|a member of)|cannot find (?:symbol|function|value|type|module|macro|name)\b"
    r"|no (?:function|method|member|field|associated \w+) (?:\w+ )*named|has no (?:member|field or method)"
    r"|unresolved (?:reference|import|name)|undeclared|was not declared|implicit declaration|could not find function"
)
_BROKEN = {"SyntaxError", "IndentationError", "TabError"}


# `No module named 'a.b' (app.py:1)`, `Cannot find package 'x' imported from …`
_NO_MODULE = re.compile(r"No module named '?([\w.]+)|Cannot find (?:module|package) '([^'\n]+)'", re.IGNORECASE)
_PLACE = re.compile(r"\(([^()\s]+):\d+\)\s*$")


def missing_package(message: str) -> str:
    """Return the package or module that a failure could not import, or ''. Relative paths are the project's own."""
    found = _NO_MODULE.search(message)
    name = (found[1] or found[2]) if found else ""
    return "" if name.startswith((".", "/")) else name


def judge_red(
    reference: Report, report: Report, scope: PathRules, *, is_ours: Callable[[str], bool] = lambda _name: True
) -> Judgement:
    """Accept a red step if a new test fails by assertion or by a missing name, and no passing test is lost.

    Where tests are compiled, a new one that uses what is not there yet takes the tests of its package with it: they
    are not lost, and must pass again when the step is green. `is_ours` tells whether a missing module may be the
    behaviour under test rather than a package to install."""
    if why := why_inconclusive(report):
        return Judgement(ok=False, why=why)
    delta = compare(reference, report)
    taken_along = set(delta.missing) if _lacks_code(report, delta, scope) else set[str]()
    if lost := [name for name in delta.lost() if name not in taken_along]:
        return Judgement(ok=False, why=_why_lost(lost, report, delta))
    if unloadable := _load_failure(report, delta) or _missing_set_up(report, delta, scope, is_ours):
        return Judgement(ok=False, why=unloadable)
    results = _by_id(report)
    red = [name for name in delta.added if results[name].status in RED]
    if len(red) > RED_MAX:
        return Judgement(ok=False, why=f"{len(red)} new tests fail: write one test for one requirement")
    for name in red:
        if why := _wrong_failure(results[name], scope):
            return Judgement(ok=False, why=f"{name}: {why}")
    if red := [*red, *delta.broken]:
        return Judgement(ok=True, tests=red)
    if delta.added:
        return Judgement(ok=False, why=f"the new test already passes: {abbreviate(delta.added)}", met=True)
    return Judgement(ok=False, why="no new test was found in the suite")


def failed_beside_a_new_test(reference: Report, report: Report) -> bool:
    """Whether all that is wrong with a red step may be flaky tests: some that passed now fail, none is missing."""
    delta = compare(reference, report)
    return bool(delta.new_failures) and not (why_inconclusive(report) or delta.missing or delta.silenced)


def _lacks_code(report: Report, delta: Delta, scope: PathRules) -> bool:
    """Whether all new compile errors are in tests and say that code is missing."""
    new = [error for error in load_errors(report) if error.file in delta.broken]
    return bool(new) and all(scope.is_test(error.file) and is_missing_code(error) for error in new)


def _why_lost(lost: list[str], report: Report, delta: Delta) -> str:
    new = [error for error in load_errors(report) if error.file in delta.broken]
    if not (new and delta.missing):  # tests that ran and failed were not lost to a file that does not load
        return f"tests that passed before no longer do: {abbreviate(lost)}"
    return f"{_location(new[0])} does not compile: {new[0].message}"


def _load_failure(report: Report, delta: Delta) -> str:
    """Return why a new file does not load, unless the cause is the missing code under test."""
    for error in load_errors(report):
        if error.file in delta.broken and error.type not in _MISSING and not is_missing_code(error):
            return f"{_location(error)} is broken: {error.type}: {error.message}"
    return ""


def _missing_set_up(report: Report, delta: Delta, scope: PathRules, is_ours: Callable[[str], bool]) -> str:
    """Return which package a new test cannot import, unless that is the missing code under test: then nothing could
    turn it green."""
    failures = {error.file: error.message for error in load_errors(report) if error.file in delta.broken}
    results = _by_id(report)
    failures |= {name: f.message for name in delta.added if (f := results[name].failure) and f.type in _NOT_THERE}
    for name, message in failures.items():
        package, place = missing_package(message), _PLACE.search(message)
        if package and (not is_ours(package) or (place and not scope.is_test(place[1]))):
            return f"{name} fails because the package {package!r} cannot be imported, not because of missing behaviour"
    return ""


_NOT_THERE = {"ImportError", "ModuleNotFoundError"}


def _location(error: Diagnostic) -> str:
    return f"{error.file}:{error.line}" if error.line else error.file


def _wrong_failure(test: TestResult, scope: PathRules) -> str:
    failure = test.failure or Failure()
    if failure.type in _BROKEN:
        return f"the test is broken: {failure.type}: {failure.message}"
    if failure.type == "NameError" and scope.is_test(failure.file):
        return f"the test names something it never defined or imported: {failure.message}"
    if test.status is TestStatus.ERROR and not (failure.type in _MISSING or _ABSENT.search(failure.message)):
        return f"it fails outside the test itself ({test.phase}): {failure.message}"
    return ""


def judge_green(reference: Report, report: Report, red: list[str]) -> Judgement:
    """Accept a green step if every red test passes and no test that passed before fails, is missing or silenced."""
    if why := why_inconclusive(report):
        return Judgement(ok=False, why=why)
    delta = compare(reference, report)
    if lost := delta.lost():
        return Judgement(ok=False, why=f"tests that passed before no longer do: {abbreviate(lost)}")
    if delta.broken:
        return Judgement(ok=False, why=f"files no longer load: {abbreviate(delta.broken)}")
    if still := [name for name in red if not (_is_green(report, name) or _compiles_now(report, name, delta))]:
        return Judgement(ok=False, why=f"still red: {abbreviate(still)}", outcome=RevertOutcome.STILL_RED)
    known = {test.id for test in reference.tests if test.status in RED} | set(red)
    if other := [test.id for test in report.tests if test.status in RED and test.id not in known]:
        return Judgement(ok=False, why=f"new failures: {abbreviate(other)}")
    return Judgement(ok=True, tests=red)


def judge_fix(reference: Report, report: Report, red: list[str]) -> Judgement:
    """Accept a fix if at least one red test passes and nothing is lost. Tests that could not run before count as fixed
    when they run."""
    if why := why_inconclusive(report):
        return Judgement(ok=False, why=why)
    if why_inconclusive(reference):
        return Judgement(ok=True)
    delta, files = compare(reference, report), {error.file for error in load_errors(reference)}
    if lost := [*delta.lost(), *delta.broken]:
        return Judgement(ok=False, why=f"what worked before no longer does: {abbreviate(lost)}")
    still = {error.file for error in load_errors(report)} | {test.id for test in report.tests if test.status in RED}
    fixed = [name for name in red if name not in still and (name in files or _is_green(report, name))]
    if not fixed:
        return Judgement(ok=False, why=f"still red: {abbreviate(red)}", outcome=RevertOutcome.STILL_RED)
    # A file that loads now adds tests: the failing ones among them were hidden before, not broken by the fix.
    known = set(failing(reference)) | (set(delta.added) if files.intersection(fixed) else set())
    if other := [test.id for test in report.tests if test.status in RED and test.id not in known]:
        return Judgement(ok=False, why=f"new failures: {abbreviate(other)}")
    return Judgement(ok=True, tests=fixed)


def failing(report: Report) -> list[str]:
    """Return failing tests, and files whose tests are missing because they do not load."""
    red = [test.id for test in report.tests if test.status in RED]
    return [*red, *sorted({error.file for error in load_errors(report) if error.file} - set(red))]


def _is_green(report: Report, name: str) -> bool:
    """Whether the test, or every test of the file, with this name passes."""
    tests = [test for test in report.tests if name in (test.id, test.file)]
    return bool(tests) and all(test.status in GREEN for test in tests)


def _compiles_now(report: Report, name: str, delta: Delta) -> bool:
    """Whether the tests of a file that did not compile pass: those called as the file, or else the new ones."""
    if not name.endswith(COMPILED):
        return False
    stem = name.rpartition("/")[2].partition(".")[0]
    named = [test for test in report.tests if any(stem in part for part in test.suite)]
    added = [test for test in report.tests if test.id in delta.added]
    return bool(named or added) and all(test.status in GREEN for test in named or added)


def abbreviate(names: list[str]) -> str:
    shown = ", ".join(names[:5])
    return f"{shown} and {len(names) - 5} more" if len(names) > 5 else shown
