"""Shell and Perl: bats by TAP as it goes and JUnit at the end, prove by TAP."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePosixPath

import msgspec

from ratchet.checks import Results, Session, Step, Strength, Target
from ratchet.checks.formats import Parsed, junit, tap
from ratchet.checks.project import Project, root_of, under
from ratchet.checks.runners import Usual, joined, read
from ratchet.core.report import TestResult


class Bats(Usual):
    name = family = "bats"

    def detect(self, project: Project) -> Iterator[Target]:
        folders = list(dict.fromkeys(root_of(path) for path in project.named("**/*.bats")))
        tops = [place for place in folders if not any(place != other and _below(place, other) for other in folders)]
        if tops:
            yield Target(
                runner=self.name,
                command=["bats", "--recursive", *tops],
                language="shell",
                tests=["**/*.bats"],
                sources=["**/*.sh", "**/*.bash"],
                protected=[],
                why=f"{next(project.named('**/*.bats'))} is a bats file",
                strength=Strength.CONFIG,
            )

    def launch(self, target: Target, session: Session) -> list[Step]:
        options = ["--formatter", "tap", "--timing", "--report-formatter", "junit", "--output", str(session.private)]
        words = target.command
        if session.only:
            names = "|".join(f"^{_plain(test.name or test.id.split('::')[-1])}$" for test in session.only)
            words = [words[0], "--filter", names, *dict.fromkeys(test.file for test in session.only if test.file)]
        return [Step(argv=[*words, *options], channel="bats.tap")]

    def parse(self, results: Results) -> Parsed:
        """TAP names no files but is there when the run was cut; the XML has everything but comes at the end."""
        live = read(results.private / "bats.tap", tap.parse)
        report = results.private / "report.xml"
        whole = read(report, junit.parse) if report.exists() else Parsed(ended=False)
        if whole.ended and len(whole.tests) >= len(live.tests) > 0:
            whole.tests = [_with_values(test, results) for test in whole.tests]
            whole.notes = live.notes
            return whole
        return live

    def again(self, target: Target, test: TestResult) -> list[str]:
        return ["bats", test.file, "--filter", f"^{_plain(test.name)}$"]


def _with_values(test: TestResult, _results: Results) -> TestResult:
    file = test.file or (test.suite[0] if test.suite else "")
    return msgspec.structs.replace(test, file=file) if file.endswith(".bats") else test


def _below(place: str, other: str) -> bool:
    return other == "." or place.startswith(f"{other}/")


def _plain(name: str) -> str:
    return "".join(f"\\{c}" if c in r".[]()*+?{}|^$\\" else c for c in name)


class Prove(Usual):
    name = family = "prove"

    def detect(self, project: Project) -> Iterator[Target]:
        roots = dict.fromkeys(root_of(root_of(path)) for path in project.named("**/t/*.t"))
        for root in roots:
            yield Target(
                runner=self.name,
                command=["prove", "-l", "-r", "t"],
                root=root,
                language="perl",
                tests=under(root, "t/**"),
                sources=under(root, "**/*.pm", "**/*.pl"),
                protected=[],
                why=f"there are {PurePosixPath(*under(root, 't'))}/*.t files",
                strength=Strength.CONFIG,
            )

    def launch(self, target: Target, session: Session) -> list[Step]:
        files = list(dict.fromkeys(test.file for test in session.only if test.file))
        words = [*target.command[:-1], *files] if files else target.command
        return [Step(argv=[*words, "--nocolor"], env={"PERL_TEST_HARNESS_DUMP_TAP": str(session.private / "tap")})]

    def parse(self, results: Results) -> Parsed:
        top = results.private / "tap"
        files = sorted(path for path in top.rglob("*") if path.is_file()) if top.exists() else []
        parts = [_of_file(read(path, tap.parse), path.relative_to(top).as_posix()) for path in files]
        return joined(parts) if parts else Parsed(ended=False)

    def again(self, target: Target, test: TestResult) -> list[str]:
        return [*target.command[:-1], "-v", test.file]


def _of_file(parsed: Parsed, file: str) -> Parsed:
    """A test point has a number and a name in its file only."""
    parsed.tests = [msgspec.structs.replace(test, id=f"{file}::{test.id}", file=file) for test in parsed.tests]
    return parsed
