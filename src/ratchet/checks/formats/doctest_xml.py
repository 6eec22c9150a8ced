"""Parses doctest (C++): Catch2's XML with different names for suites, subcases and results."""

from __future__ import annotations

from typing import BinaryIO

from ratchet.checks.formats import Parsed
from ratchet.checks.formats.catch2_xml import Catch2, read
from ratchet.core.report import TestStatus


def parse(stream: BinaryIO) -> Parsed:
    return read(_Doctest(), stream)


class _Doctest(Catch2):
    roots = ("doctest",)
    totals = "OverallResultsTestCases"

    def status(self) -> TestStatus:
        case = self.case or {}
        if case.get("skipped") == "true" or not (self.result or self.failure):
            return TestStatus.SKIPPED  # without a result it was only listed
        good = self._good()
        if good and self.failure:
            return TestStatus.XFAILED
        return TestStatus.PASSED if good else TestStatus.FAILED

    def _good(self) -> bool:
        """Return whether the case passed: before 2.4.7 there were only counts."""
        word = self.result.get("test_case_success")
        return word == "true" if word else self.result.get("failures", "0") == "0" and self.failure is None
