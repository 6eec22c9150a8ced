"""Test reports as they are stored: redacted before they are compared, so that both sides of a comparison are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from ratchet.checks.protocol import SuiteRunner, Target
from ratchet.core.redact import Redactor
from ratchet.core.report import Report, TestResult


class RedactedChecks:
    """Runs tests and redacts what they report. Implements `SuiteRunner`."""

    def __init__(self, checks: SuiteRunner, redact: Redactor) -> None:
        self._checks, self._redact = checks, redact

    @property
    def targets(self) -> Sequence[Target]:
        return self._checks.targets

    async def run(self, folder: Path, *, log: Path, env: Mapping[str, str] | None = None) -> Report:
        return redact_report(await self._checks.run(folder, log=log, env=env), self._redact)

    def environment(self, folder: Path, env: Mapping[str, str]) -> dict[str, str]:
        return self._checks.environment(folder, env)

    def tool_digests(self, folder: Path) -> dict[str, str]:
        return self._checks.tool_digests(folder)


def redact_report(report: Report, redact: Redactor) -> Report:
    """Redact every string of a report. Tests whose ids are then the same are numbered, so that none hides another."""
    written = msgspec.json.encode(report)
    clean = redact.document(written)
    if clean == written:
        return report
    found = msgspec.json.decode(clean, type=Report)
    seen = Counter[str]()
    tests: list[TestResult] = []
    for before, test in zip(report.tests, found.tests, strict=True):
        seen[test.id] += 1
        hides = before.id != test.id and seen[test.id] > 1
        tests.append(msgspec.structs.replace(test, id=f"{test.id} ({seen[test.id]})") if hides else test)
    return msgspec.structs.replace(found, tests=tests)
