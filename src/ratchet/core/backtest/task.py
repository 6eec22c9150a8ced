"""Tasks mined from commits, and the reasons for which a commit is no task."""

from __future__ import annotations

import re
from collections.abc import Iterable
from enum import StrEnum

import msgspec

from ratchet.core.compare import why_inconclusive
from ratchet.core.report import GREEN, RED, Report, load_errors


class LeftOutReason(StrEnum):
    MERGE = "not a commit with one parent"
    NO_TESTS = "changes no tests"
    NO_SOURCE = "changes no source"
    MESSAGE = "the message says too little"
    SETUP = "the parent's own tests do not run"
    COMMIT_FAILS = "the commit's tests do not run at the commit"
    NOT_RED = "no test is red at the parent and green at the commit"
    WRONG_RED = "red at the parent for another reason"
    FLAKY = "the results differ between two runs"


# Reasons that another environment may end: such commits are examined anew each time.
BY_SETUP = frozenset({LeftOutReason.SETUP, LeftOutReason.COMMIT_FAILS})


class LeftOut(msgspec.Struct, frozen=True, kw_only=True, tag="left_out"):
    commit: str
    title: str
    reason: LeftOutReason
    detail: str = ""


class MinedTask(msgspec.Struct, frozen=True, kw_only=True, tag="task"):
    """A commit that turned tests green. `spec` is its message and linked issues without traces of the answer.

    `fail_to_pass` are red with the commit's tests at the parent and green at the commit, `pass_to_pass` green at both.
    """

    id: str
    commit: str
    base_commit: str
    title: str
    spec: str
    created_at: str
    test_paths: list[str]
    source_paths: list[str]
    fail_to_pass: list[str]
    pass_to_pass: list[str]


Mined = MinedTask | LeftOut


class TestEffect(msgspec.Struct, frozen=True, kw_only=True):
    """The effect of a commit on its tests, or the reason why it shows none."""

    fail_to_pass: list[str] = []
    pass_to_pass: list[str] = []
    reason: LeftOutReason | None = None
    detail: str = ""


_ERROR = re.compile(r"^.*\b\w*(?:Error|Exception)\b.*$", re.MULTILINE)
LINE_MAX_CHARS = 300


def green_tests(report: Report) -> set[str]:
    return {test.id for test in report.tests if test.status in GREEN}


def why_no_setup(report: Report) -> str:
    """Return why a report does not show that the tests can be run; empty if it does."""
    why = why_inconclusive(report) or ("" if green_tests(report) else "no test passes")
    if not why or report.notes:
        return why
    errors = _ERROR.findall(report.output)
    return f"{why}: {errors[-1].strip()[:LINE_MAX_CHARS]}" if errors else why


def find_effect(red: Iterable[Report], after: Iterable[Report]) -> TestEffect:
    """Compare runs at the parent, with the commit's tests laid over it, with runs at the commit."""
    red, after = list(red), list(after)
    if why := next((why for report in after if (why := why_no_setup(report))), ""):
        return TestEffect(reason=LeftOutReason.COMMIT_FAILS, detail=why)
    if why := next((why for report in red if (why := why_inconclusive(report))), ""):
        return TestEffect(reason=LeftOutReason.WRONG_RED, detail=why)
    passing, before = [green_tests(report) for report in after], [green_tests(report) for report in red]
    always: set[str] = set.intersection(*passing)
    never: set[str] = set.union(*before)
    still: set[str] = set.intersection(*before)
    fixed, kept = sorted(always - never), sorted(always & still)
    if not fixed:
        flaky = passing[0] - before[0]
        reason = LeftOutReason.FLAKY if flaky else LeftOutReason.NOT_RED
        broken = [
            f"{error.file} cannot be loaded at the commit: {error.message}"[:300] for error in load_errors(after[0])
        ]
        return TestEffect(reason=reason, detail=", ".join([*sorted(flaky), *broken][:3]))
    rightly = [name for name in fixed if not _why_wrong(name, red[0], after[0])]
    if not rightly:
        return TestEffect(reason=LeftOutReason.WRONG_RED, detail=_why_wrong(fixed[0], red[0], after[0]))
    return TestEffect(fail_to_pass=rightly, pass_to_pass=kept)


def _why_wrong(name: str, red: Report, after: Report) -> str:
    """Return why a test is red for a reason that no change of the source can mend; empty if one can.

    The same test is green at the commit, with the same packages: what it fails by is the source, unless it did not run.
    """
    file = next((test.file for test in after.tests if test.id == name), "")
    ran = any(test.id == name and test.status in RED for test in red.tests)
    unloaded = any(error.file and error.file == file for error in load_errors(red))
    return "" if ran or unloaded else f"{name} did not run at the parent"
