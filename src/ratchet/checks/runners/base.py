"""The base class of runners."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from ratchet.checks.detect.project import Project
from ratchet.checks.protocol import Target
from ratchet.core.report import TestResult


class BaseRunner:
    """Defaults of `Runner`: recognised by the program's name, re-run by test id, no optional abilities."""

    name = ""
    family = ""
    covers_subfolders = False  # whether it runs the tests of folders below its own
    programs: tuple[str, ...] = ()

    def detect(self, project: Project) -> Iterable[Target]:
        raise NotImplementedError

    def recognises(self, words: list[str]) -> bool:
        return any(Path(word).name in (self.programs or (self.name,)) for word in words)

    def rerun_command(self, target: Target, test: TestResult) -> list[str]:
        return [*target.command, test.id]

    def filter_results(self, tests: list[TestResult], only: list[TestResult]) -> list[TestResult]:
        return tests

    def locate(self, test: TestResult, folder: Path) -> TestResult:
        return test

    def unknown_tests(self, output: str, selected: list[TestResult]) -> list[TestResult]:
        return []

    def exclude_files(self, target: Target, files: list[str], selected: list[TestResult]) -> Target | None:
        return None

    def runs_file(self, command: list[str], file: str) -> bool:
        return False

    def crash_output(self, output: str) -> str:
        return output
