"""A runner for checklists: `sh checklist.txt` prints `yes NAME` or `no NAME: why` for each point, and `done` at the end."""

from __future__ import annotations

from collections.abc import Iterator
from typing import BinaryIO

from ratchet.checks.detect.project import Project, join_root, parent_of
from ratchet.checks.formats import Parsed
from ratchet.checks.protocol import Confidence, LaunchStep, RunOutput, Session, Target
from ratchet.checks.runners.base import BaseRunner
from ratchet.core.report import Failure, TestResult, TestStatus


class Checklist(BaseRunner):
    name = "checklist"
    family = "checklist"

    def detect(self, project: Project) -> Iterator[Target]:
        for path in project.glob("**/checklist.txt"):
            root = parent_of(path)
            yield Target(
                runner=self.name,
                command=["sh", "checklist.txt"],
                root=root,
                tests=join_root(root, "checklist.txt"),
                protected=[],
                why=f"there is a {path}",
                strength=Confidence.CONFIG,
            )

    def recognises(self, words: list[str]) -> bool:
        return "checklist.txt" in words

    def launch(self, target: Target, session: Session) -> list[LaunchStep]:
        return [LaunchStep(argv=[*target.command, *(test.id for test in session.only)], channel="answers.txt")]

    def parse(self, results: RunOutput) -> Parsed:
        with (results.private / "answers.txt").open("rb") as stream:
            return parse(stream)


def parse(stream: BinaryIO) -> Parsed:
    """Lines that are neither yes nor no are the program's own talk. Without `done` the run was cut short."""
    parsed = Parsed(ended=False)
    for line in stream:
        word, _, rest = line.decode(errors="replace").rstrip("\n").partition(" ")
        name, _, why = rest.partition(": ")
        if word == "yes":
            parsed.tests.append(TestResult(id=name, name=name, status=TestStatus.PASSED))
        elif word == "no":
            parsed.tests.append(TestResult(id=name, name=name, status=TestStatus.FAILED, failure=Failure(message=why)))
        elif word == "done":
            parsed.ended = True
    return parsed
