"""Reports compared by test identity: what is red for the right reason, what is green for good."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable

import msgspec

from ratchet.core.report import (
    GREEN,
    RED,
    Diagnostic,
    Failure,
    Report,
    ReportStatus,
    TestResult,
    TestStatus,
    broken,
)
from ratchet.core.roles import Scope


class Delta(msgspec.Struct, frozen=True, kw_only=True):
    """What moved between two reports of the same suite, as test ids in order."""

    new_failures: list[str]
    still_failing: list[str]
    fixed: list[str]
    added: list[str]
    missing: list[str]
    silenced: list[str]
    broken: list[str]
    renamed: list[tuple[str, str]] = []

    def lost(self) -> list[str]:
        """Everything that was green and is no longer: failed, gone, or silenced by a skip or an xfail."""
        return [*self.new_failures, *self.missing, *self.silenced]


class ComparedReport(Report, frozen=True, kw_only=True):
    """What `ratchet test --json` prints: a report, and what it means beside the last one.

    `delta` is null where there is no last one, or not all tests were run; `known` are the failures of the baseline,
    `flaky` the tests that ended differently on the same content, now or before.
    """

    delta: Delta | None = None
    known: list[str] = msgspec.field(default_factory=list)
    flaky: list[str] = msgspec.field(default_factory=list)


def compared(report: Report, delta: Delta | None, known: list[str], flaky: list[str]) -> ComparedReport:
    fields = {name: getattr(report, name) for name in Report.__struct_fields__}
    return ComparedReport(**fields, delta=delta, known=known, flaky=flaky)


def compare(before: Report, after: Report) -> Delta:
    """A renamed test is the same test: it goes by its new name, and is neither added nor missing."""
    old, new = _by_id(before), _by_id(after)
    names = renames(before, after)
    old = {names.get(name, name): test for name, test in old.items()}
    was_green = {name for name, test in old.items() if test.status in GREEN}
    was_red = {name for name, test in old.items() if test.status in RED}
    red = {name for name, test in new.items() if test.status in RED}
    green = {name for name, test in new.items() if test.status in GREEN}
    known = {error.file for error in broken(before)}
    return Delta(
        new_failures=sorted(red & was_green),
        still_failing=sorted(red & was_red),
        fixed=sorted(green & was_red),
        added=sorted(new.keys() - old.keys()),
        missing=sorted(was_green - new.keys()),
        silenced=sorted((was_green & new.keys()) - red - green),
        broken=sorted({error.file for error in broken(after)} - known),
        renamed=sorted(names.items()),
    )


def renames(before: Report, after: Report) -> dict[str, str]:
    """Old name to new, for tests that are gone under one name and there under another with the same content.

    Only what is alike exactly once on both sides counts: of two tests with one body nobody knows which is which.
    """
    old, new = _by_id(before), _by_id(after)
    gone = [test for name, test in old.items() if name not in new]
    fresh = [test for name, test in new.items() if name not in old]
    pairs: dict[str, str] = {}
    for alike in (_body, _failing):
        pairs |= _paired(gone, fresh, alike)
        gone = [test for test in gone if test.id not in pairs]
        fresh = [test for test in fresh if test.id not in pairs.values()]
    return pairs


def _paired(
    gone: list[TestResult], fresh: list[TestResult], alike: Callable[[TestResult], Hashable | None]
) -> dict[str, str]:
    once_gone, once_fresh = _once(gone, alike), _once(fresh, alike)
    return {once_gone[key].id: once_fresh[key].id for key in once_gone.keys() & once_fresh.keys()}


def _once(tests: list[TestResult], alike: Callable[[TestResult], Hashable | None]) -> dict[Hashable, TestResult]:
    keyed = [(key, test) for test in tests if (key := alike(test)) is not None]
    counts = Counter(key for key, _ in keyed)
    return {key: test for key, test in keyed if counts[key] == 1}


def _body(test: TestResult) -> Hashable | None:
    """Its source, and which of its parameters."""
    _, bracket, parameters = test.name.partition("[")
    return (test.target, test.body, bracket + parameters) if test.body else None


def _failing(test: TestResult) -> Hashable | None:
    """How it fails, where its source is not known and that says something."""
    failure = test.failure
    if test.body or test.status not in RED or failure is None or not failure.message:
        return None
    return test.target, failure.type, failure.message, failure.expected, failure.actual


def _by_id(report: Report) -> dict[str, TestResult]:
    return {test.id: test for test in report.tests}


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """`tests`: the ids that are rightly red, or that turned green. `why` says what stood against it."""

    ok: bool
    tests: list[str] = []
    why: str = ""


# A run that ended in one of these says nothing about single tests.
_NO_VERDICT = {
    ReportStatus.CRASHED: "the test runner died before it finished",
    ReportStatus.TIMEOUT: "the tests did not finish in time",
    ReportStatus.NO_TESTS: "no tests were found",
    ReportStatus.INCONSISTENT: "the runner's results contradict each other",
    ReportStatus.UNKNOWN: "the results could not be read",
    ReportStatus.ERROR: "the test runner could not start",
}


def no_verdict(report: Report) -> str:
    why = _NO_VERDICT.get(report.status, "")
    details = [*report.notes, *(f"while running {name}" for name in report.running)]
    return f"{why}: {'; '.join(details)}" if why and details else why


RED_MAX = 100  # one test, with room for its parameters

# What an absent function, class, module or parameter raises: the thing the test names does not exist yet.
_MISSING = {"ImportError", "ModuleNotFoundError", "AttributeError", "NotImplementedError", "TypeError"}
_BROKEN = {"SyntaxError", "IndentationError", "TabError"}


def judge_red(reference: Report, report: Report, scope: Scope) -> Verdict:
    """Right red: at least one new test fails, by assertion or by the missing thing it names, and nothing is lost."""
    if why := no_verdict(report):
        return Verdict(ok=False, why=why)
    delta = compare(reference, report)
    if lost := delta.lost():
        return Verdict(ok=False, why=f"tests that passed before no longer do: {_some(lost)}")
    if unloadable := _unloadable(report, delta):
        return Verdict(ok=False, why=unloadable)
    results = _by_id(report)
    red = [name for name in delta.added if results[name].status in RED]
    if len(red) > RED_MAX:
        return Verdict(ok=False, why=f"{len(red)} new tests fail: write one test for one requirement")
    for name in red:
        if why := _wrong_red(results[name], scope):
            return Verdict(ok=False, why=f"{name}: {why}")
    if red := [*red, *delta.broken]:
        return Verdict(ok=True, tests=red)
    if delta.added:
        return Verdict(ok=False, why=f"the new test already passes: {_some(delta.added)}")
    return Verdict(ok=False, why="no new test was found in the suite")


def _unloadable(report: Report, delta: Delta) -> str:
    """A new file that does not load is a right red only when what it lacks is the thing under test."""
    for error in broken(report):
        if error.file in delta.broken and error.type not in _MISSING:
            return f"{_place(error)} is broken: {error.type}: {error.message}"
    return ""


def _place(error: Diagnostic) -> str:
    return f"{error.file}:{error.line}" if error.line else error.file


def _wrong_red(test: TestResult, scope: Scope) -> str:
    failure = test.failure or Failure()
    if failure.type in _BROKEN:
        return f"the test is broken: {failure.type}: {failure.message}"
    if failure.type == "NameError" and scope.is_test(failure.file):
        return f"the test names something it never defined or imported: {failure.message}"
    if test.status is TestStatus.ERROR and failure.type not in _MISSING:
        return f"it fails outside the test itself ({test.phase}): {failure.message}"
    return ""


def judge_green(reference: Report, report: Report, red: list[str]) -> Verdict:
    """Green for good: every red test passes, and nothing that passed before is red, gone or silenced."""
    if why := no_verdict(report):
        return Verdict(ok=False, why=why)
    delta = compare(reference, report)
    if lost := delta.lost():
        return Verdict(ok=False, why=f"tests that passed before no longer do: {_some(lost)}")
    if delta.broken:
        return Verdict(ok=False, why=f"files no longer load: {_some(delta.broken)}")
    if still := [name for name in red if not _is_green(report, name)]:
        return Verdict(ok=False, why=f"still red: {_some(still)}")
    known = {test.id for test in reference.tests if test.status in RED} | set(red)
    if other := [test.id for test in report.tests if test.status in RED and test.id not in known]:
        return Verdict(ok=False, why=f"new failures: {_some(other)}")
    return Verdict(ok=True, tests=red)


def judge_fix(reference: Report, report: Report, red: list[str]) -> Verdict:
    """A step towards green: at least one red test passes now, and nothing is lost. Tests that could not even be run
    before are fixed when they can be."""
    if why := no_verdict(report):
        return Verdict(ok=False, why=why)
    if no_verdict(reference):
        return Verdict(ok=True)
    delta, files = compare(reference, report), {error.file for error in broken(reference)}
    if lost := [*delta.lost(), *delta.broken]:
        return Verdict(ok=False, why=f"what worked before no longer does: {_some(lost)}")
    still = {error.file for error in broken(report)} | {test.id for test in report.tests if test.status in RED}
    fixed = [name for name in red if name not in still and (name in files or _is_green(report, name))]
    if not fixed:
        return Verdict(ok=False, why=f"still red: {_some(red)}")
    # A file that loads now brings tests nobody had seen: the red ones among them were hidden, not broken.
    known = set(failing(reference)) | (set(delta.added) if files.intersection(fixed) else set())
    if other := [test.id for test in report.tests if test.status in RED and test.id not in known]:
        return Verdict(ok=False, why=f"new failures: {_some(other)}")
    return Verdict(ok=True, tests=fixed)


def failing(report: Report) -> list[str]:
    """What is red: tests, and files whose tests are missing because they do not load."""
    red = [test.id for test in report.tests if test.status in RED]
    return [*red, *sorted({error.file for error in broken(report) if error.file} - set(red))]


def _is_green(report: Report, name: str) -> bool:
    """A red id is a test, or the file whose loading was what failed."""
    tests = [test for test in report.tests if name in (test.id, test.file)]
    return bool(tests) and all(test.status in GREEN for test in tests)


def _some(names: list[str]) -> str:
    shown = ", ".join(names[:5])
    return f"{shown} and {len(names) - 5} more" if len(names) > 5 else shown
