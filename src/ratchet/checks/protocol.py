"""Interfaces of the checks: detect the tests of a project, run them, and return one structured report."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum
from pathlib import Path
from typing import Protocol

import msgspec

from ratchet.checks.detect.project import Project
from ratchet.checks.formats import Parsed
from ratchet.core.report import Report, TestResult


class Confidence(IntEnum):
    """Confidence of a detection. Within a folder the most confident runner of a family wins."""

    PATTERN = 1
    DEPENDENCY = 2
    SCRIPT = 3
    CONFIG = 4
    ASKED = 5


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """One test runner in one folder: its command, its test paths, and the reason for the detection.

    `tests`, `sources` and `protected` are globs relative to the repository. `setup` lists commands that prepare the
    folder; they are shown to people and never run on the host. `builds` lists commands to run before each run, because
    the tests use what they build. `also` lists further commands that start the same runner for other tests or with
    other options, as the project's own script does after the first. `report` is the glob of the files that a configured
    command writes its results to.
    """

    runner: str
    command: list[str]
    also: list[list[str]] = []
    root: str = "."
    language: str = ""
    tests: list[str]
    sources: list[str] = []
    protected: list[str]
    setup: list[str] = []
    report: str = ""
    builds: list[list[str]] = []
    why: str
    strength: Confidence = Confidence.PATTERN

    @property
    def name(self) -> str:
        return self.runner if self.root == "." else f"{self.runner}@{self.root}"

    def owns(self, test: TestResult) -> bool:
        """Return whether the result belongs to this target, whichever of its commands produced it."""
        return test.target.partition("#")[0] == self.name


class Session(msgspec.Struct, frozen=True, kw_only=True):
    """One run of one target: its folder and the private folder that serves as the result channel.

    Tests may write the private folder. What they must not change is kept in its parent.

    `only` lists the tests to run (empty: all). `nonce` must appear in start and end records. `reporter_blocked`: the
    program does not load our reporter, so it is asked for a report of its own.
    """

    folder: Path
    private: Path
    nonce: str
    env: dict[str, str]
    only: list[TestResult] = []
    reporter_blocked: bool = False


class LaunchStep(msgspec.Struct, frozen=True, kw_only=True):
    """One command of a run. If `channel` is set, stdout goes to that file in the private folder instead of the log.

    With `needs_success` it is started only if all earlier steps succeeded.
    """

    argv: list[str]
    env: dict[str, str] = {}
    channel: str = ""
    needs_success: bool = False


class RunOutput(msgspec.Struct, frozen=True, kw_only=True):
    """What a run leaves behind: the private folder, the log from `log_offset` on, and the exit code of each step."""

    folder: Path
    private: Path
    log: Path
    log_offset: int = 0
    nonce: str
    exit_codes: list[int]
    stopped: bool = False

    @property
    def killed_by_signal(self) -> bool:
        return any(code < 0 for code in self.exit_codes)

    @property
    def exit_code(self) -> int:
        return next((code for code in self.exit_codes if code), 0)


class Runner(Protocol):
    """A test runner: detects targets, starts them with our reporter and parses the results.

    Runners are registered by entry point. Subclass `checks.runners.base.BaseRunner`, which has defaults for everything
    but `detect`, `launch` and `parse`.
    """

    name: str
    family: str
    covers_subfolders: bool

    def detect(self, project: Project) -> Iterable[Target]:
        """Find every folder of the project that this runner can test, with the reason."""
        ...

    def recognises(self, words: list[str]) -> bool:
        """Return whether a configured command starts this runner."""
        ...

    def launch(self, target: Target, session: Session) -> list[LaunchStep]:
        """Return the commands of a run; they write their results to the session's private folder."""
        ...

    def parse(self, results: RunOutput) -> Parsed:
        """Read what a run left behind."""
        ...

    def rerun_command(self, target: Target, test: TestResult) -> list[str]:
        """Return the plain command that runs this one test, for a person to copy."""
        ...

    def filter_results(self, tests: list[TestResult], only: list[TestResult]) -> list[TestResult]:
        """Return the results that belong to the selected tests `only`."""
        ...

    def locate(self, test: TestResult, folder: Path) -> TestResult:
        """Add the source location to a test that never finished, if its name reveals it."""
        ...

    def unknown_tests(self, output: str, selected: list[TestResult]) -> list[TestResult]:
        """Return the selected tests that the runner rejected as unknown, according to its output."""
        ...

    def exclude_files(self, target: Target, files: list[str], selected: list[TestResult]) -> Target | None:
        """Return the target without files that keep all others from running; None if that is impossible."""
        ...

    def runs_file(self, command: list[str], file: str) -> bool:
        """Return whether a command of a target with several commands runs the tests of a file."""
        ...

    def crash_output(self, output: str) -> str:
        """Return the part of the output that can explain why the runner died."""
        ...


class SuiteRunner(Protocol):
    """The interface by which the engine runs tests."""

    @property
    def targets(self) -> Sequence[Target]: ...

    async def run(self, folder: Path, *, log: Path, env: Mapping[str, str] | None = None) -> Report:
        """Run all targets; `env` is added to the usual environment."""
        ...

    def environment(self, folder: Path, env: Mapping[str, str]) -> dict[str, str]:
        """Return the environment of a command in the folder, without paths into the developer's tree."""
        ...

    def tool_digests(self, folder: Path) -> dict[str, str]:
        """Return digests of the tools that run the tests in the folder, by name."""
        ...
