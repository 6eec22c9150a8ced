"""Checks: find the tests of a project, run them, and say in one structured report what happened."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import IntEnum
from pathlib import Path
from typing import Protocol

import msgspec

from ratchet.checks.formats import Parsed
from ratchet.checks.project import Project
from ratchet.core.report import Report, TestResult


class Strength(IntEnum):
    """How sure a detection is. In one folder the surest runner of a family wins."""

    PATTERN = 1
    DEPENDENCY = 2
    SCRIPT = 3
    CONFIG = 4
    ASKED = 5


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """One test runner in one folder: how to call it, which paths are tests, and how we came to know.

    `tests`, `sources` and `protected` are globs relative to the repository; `setup` are commands that make the
    folder ready, named for people and never run by us on the host. `builds` are commands without which the tests would
    try what was built last time: they are run before each run. `also` are commands that start the same runner for other
    tests, or in another way, as the project's own script does after the first. `report` is the glob of the files a
    configured command leaves its results in.
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
    strength: Strength = Strength.PATTERN

    @property
    def name(self) -> str:
        return self.runner if self.root == "." else f"{self.runner}@{self.root}"

    def has(self, test: TestResult) -> bool:
        """Whether it is said to be of this target, by one of its commands maybe."""
        return test.target.partition("#")[0] == self.name


class Session(msgspec.Struct, frozen=True, kw_only=True):
    """One run of one target: where it happens, and the private folder that is its channel.

    `only` are the ids to run (all when empty); `nonce` is what start and end records must carry.
    """

    folder: Path
    private: Path
    nonce: str
    env: dict[str, str]
    only: list[TestResult] = []


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """One command of a run. With `channel` its stdout is that file in the private folder, not the log.

    `needs`: it is not started when an earlier step failed.
    """

    argv: list[str]
    env: dict[str, str] = {}
    channel: str = ""
    needs: bool = False


class Results(msgspec.Struct, frozen=True, kw_only=True):
    """What is there to read after a run: the private folder, the log from where it `began`, how each step ended."""

    folder: Path
    private: Path
    log: Path
    began: int = 0
    nonce: str
    exit_codes: list[int]
    stopped: bool = False

    @property
    def signal(self) -> bool:
        return any(code < 0 for code in self.exit_codes)

    @property
    def exit_code(self) -> int:
        return next((code for code in self.exit_codes if code), 0)


class Runner(Protocol):
    """A test runner: found, started with our reporter from outside, and read. Registered by entry point.

    It may have more: `covers_below`, if it runs what lies in folders below it; `asked(tests, only)`, those of the
    results that were asked for; `located(test, folder)`, a test that never ended with where it is written;
    `strange(said, asked)`, which of those asked for it does not know; `without(target, files, asked)`, the target that
    leaves out files which keep the others from running; `takes(command, file)`, whether a command would
    run the tests of a file, if it gives targets more than one.
    """

    name: str
    family: str

    def detect(self, project: Project) -> Iterable[Target]:
        """Every folder of the project that this runner would run, with the reason."""
        ...

    def recognises(self, words: list[str]) -> bool:
        """Whether a configured command starts this runner."""
        ...

    def launch(self, target: Target, session: Session) -> list[Step]:
        """The commands, with whatever makes the runner write to the session's private folder."""
        ...

    def parse(self, results: Results) -> Parsed:
        """What the run left behind, as data."""
        ...

    def again(self, target: Target, test: TestResult) -> list[str]:
        """The plain command that runs this one test, for a person to copy."""
        ...


class Checks(Protocol):
    """What the engine needs of the tests."""

    async def run(self, folder: Path, *, log: Path, env: Mapping[str, str] | None = None) -> Report:
        """`env` is set besides what tests are given anyway."""
        ...

    def surroundings(self, folder: Path, env: Mapping[str, str]) -> dict[str, str]:
        """The environment of any command there: nothing in it leads to the developer's tree."""
        ...

    def tools(self, folder: Path) -> dict[str, str]:
        """Digests of what the tests are run with there, by name."""
        ...
