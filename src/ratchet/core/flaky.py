"""Flaky: a test that ends differently on the same tree. Known from re-runs and from history; never hidden."""

from __future__ import annotations

import msgspec

from ratchet.core.report import GREEN, RED, Report, ReportStatus, TestResult, totals_of

_KEPT = 20


class History(msgspec.Struct, frozen=True, kw_only=True):
    """For each test that was ever red: the trees it ran on last, and whether it was green there."""

    outcomes: dict[str, list[tuple[str, bool]]] = {}

    def flaky(self) -> list[str]:
        return sorted(name for name, rows in self.outcomes.items() if _differs(rows))


def _differs(rows: list[tuple[str, bool]]) -> bool:
    by_tree: dict[str, set[bool]] = {}
    for tree, green in rows:
        by_tree.setdefault(tree, set()).add(green)
    return any(len(outcomes) > 1 for outcomes in by_tree.values())


def remember(history: History, report: Report, *, tree: str) -> History:
    outcomes = dict(history.outcomes)
    for test in report.tests:
        if test.status in RED or (test.status in GREEN and test.id in outcomes):
            outcomes[test.id] = [*outcomes.get(test.id, []), (tree, test.status in GREEN)][-_KEPT:]
        if test.status in GREEN and test.attempts > 1:
            outcomes[test.id] = [*outcomes.get(test.id, []), (tree, False), (tree, True)][-_KEPT:]
    return History(outcomes=outcomes)


def settle(first: Report, again: Report) -> Report:
    """The first report with its failures run again: each keeps its failure and the number of its attempts.

    A test that passed the second time is passed with two attempts: flaky. Whether that is good enough is not ours.
    """
    second = {test.id: test for test in again.tests}
    tests = [_settled(test, second.get(test.id)) for test in first.tests]
    red = any(test.status in RED for test in tests)
    broken = first.collection_errors or first.compile_errors
    status = first.status if red or broken or first.status is not ReportStatus.FAILED else ReportStatus.PASSED
    return msgspec.structs.replace(first, tests=tests, totals=totals_of(tests), status=status)


def _settled(test: TestResult, second: TestResult | None) -> TestResult:
    if second is None or test.status not in RED:
        return test
    attempts = test.attempts + 1
    if second.status in GREEN:
        return msgspec.structs.replace(second, attempts=attempts, failure=test.failure)
    return msgspec.structs.replace(test, attempts=attempts)
