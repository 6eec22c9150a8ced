"""Runner for R: testthat, read from our reporter."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePosixPath

from ratchet.checks.detect.project import Project, join_root, parent_of
from ratchet.checks.formats import Parsed
from ratchet.checks.protocol import Confidence, LaunchStep, RunOutput, Session, Target
from ratchet.checks.runners import (
    REPORTERS,
    parse_records,
    reporter_env,
)
from ratchet.checks.runners.base import BaseRunner
from ratchet.core.report import TestResult


class TestThat(BaseRunner):
    """Runs whole files: testthat cannot select a test by name."""

    __test__ = False  # pytest: this is no test class
    name = family = "testthat"
    folder = "tests/testthat"

    def detect(self, project: Project) -> Iterator[Target]:
        found = project.glob(f"**/{self.folder}/test*.R", f"**/{self.folder}/test*.r")
        for root in dict.fromkeys(parent_of(parent_of(parent_of(path))) for path in found):
            if project.has(*join_root(root, "DESCRIPTION")):
                yield Target(
                    runner=self.name,
                    command=["Rscript", "-e", "testthat::test_local()"],
                    root=root,
                    language="r",
                    tests=join_root(root, "tests/**"),
                    sources=join_root(root, "R/**", "src/**"),
                    protected=join_root(root, "DESCRIPTION"),
                    why=f"there are {PurePosixPath(*join_root(root, self.folder))}/test*.R files",
                    strength=Confidence.CONFIG,
                )

    def recognises(self, words: list[str]) -> bool:
        return any("testthat" in word for word in words)

    def launch(self, target: Target, session: Session) -> list[LaunchStep]:
        files = dict.fromkeys(PurePosixPath(test.file or test.id.partition("::")[0]).name for test in session.only)
        reporter = str(REPORTERS / "_ratchet_testthat.R")
        return [LaunchStep(argv=["Rscript", reporter, self.folder, *files], env=reporter_env(session))]

    def parse(self, results: RunOutput) -> Parsed:
        return parse_records(results)

    def rerun_command(self, target: Target, test: TestResult) -> list[str]:
        name = PurePosixPath(test.file or test.id.partition("::")[0]).stem.removeprefix("test").lstrip("-_")
        return ["Rscript", "-e", f'testthat::test_local(filter = "^{name}$")']
