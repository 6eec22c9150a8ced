"""Flaky tests: different results on the same tree, found by re-runs and from history. They are always reported."""

from __future__ import annotations

import msgspec

from ratchet.core.report import GREEN, RED, Report, ReportStatus, TestResult, count_totals

_KEPT = 20


class OutcomeHistory(msgspec.Struct, frozen=True, kw_only=True):
    """The last results of each test that ever failed: tree, and whether it passed."""

    outcomes: dict[str, list[tuple[str, bool]]] = {}

    def flaky(self) -> list[str]:
        return sorted(name for name, rows in self.outcomes.items() if _is_flaky(rows))


def _is_flaky(rows: list[tuple[str, bool]]) -> bool:
    by_tree: dict[str, set[bool]] = {}
    for tree, green in rows:
        by_tree.setdefault(tree, set()).add(green)
    return any(len(outcomes) > 1 for outcomes in by_tree.values())


def record_outcomes(history: OutcomeHistory, report: Report, *, tree: str) -> OutcomeHistory:
    outcomes = dict(history.outcomes)
    for test in report.tests:
        if test.status in RED or (test.status in GREEN and test.id in outcomes):
            outcomes[test.id] = [*outcomes.get(test.id, []), (tree, test.status in GREEN)][-_KEPT:]
        if test.status in GREEN and test.attempts > 1:
            outcomes[test.id] = [*outcomes.get(test.id, []), (tree, False), (tree, True)][-_KEPT:]
    return OutcomeHistory(outcomes=outcomes)


def merge_rerun(first: Report, again: Report) -> Report:
    """Merge a re-run of the failures into the first report. Each test keeps its first failure and counts attempts.

    A test that passes in the re-run is passed with two attempts, which marks it as flaky; the caller judges that.
    """
    second = {test.id: test for test in again.tests}
    tests = [_merge_result(test, second.get(test.id)) for test in first.tests]
    red = any(test.status in RED for test in tests)
    broken = first.collection_errors or first.compile_errors
    status = first.status if red or broken or first.status is not ReportStatus.FAILED else ReportStatus.PASSED
    return msgspec.structs.replace(first, tests=tests, totals=count_totals(tests), status=status)


def _merge_result(test: TestResult, second: TestResult | None) -> TestResult:
    if second is None or test.status not in RED:
        return test
    attempts = test.attempts + 1
    if second.status in GREEN:
        return msgspec.structs.replace(second, attempts=attempts, failure=test.failure)
    return msgspec.structs.replace(test, attempts=attempts)
