"""Scenarios in Gherkin: Cucumber for JavaScript, by its messages, which come as it goes; behave, by its JSON."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from typing import Any

from ratchet.checks import Results, Session, Step, Strength, Target
from ratchet.checks.formats import Parsed
from ratchet.checks.project import Project, root_of, under
from ratchet.checks.runners import Usual, compiler, end_of, parser, read, unskipped
from ratchet.checks.runners.javascript import Script
from ratchet.checks.runners.python import python_of
from ratchet.core.report import Diagnostic, TestResult

_messages = parser("cucumber_messages")
_json = parser("cucumber_json")
_TESTS = ("features/**", "**/*.feature")
_SILENT = "no test specified"


class Cucumber(Script):
    """A project whose tests are others mostly needs a server for its scenarios: then they are not ours to start."""

    name = family = "cucumber"
    package = "@cucumber/cucumber"
    programs = ("cucumber-js", "cucumber")
    tests = _TESTS
    valued = frozenset({
        "--require", "-r", "--import", "-i", "--format", "-f", "--tags", "-t", "--profile", "-p", "--config", "-c",
        "--format-options", "--parallel", "--name", "--language", "--retry", "--retry-tag-filter", "--order",
        "--loader", "--require-module", "--world-parameters", "--shard",
    })  # fmt: skip

    def detect(self, project: Project) -> Iterator[Target]:
        if not any(project.named("**/*.feature")):
            return
        for target in super().detect(project):
            if target.strength is Strength.SCRIPT or not _has_tests(project.json(*under(target.root, "package.json"))):
                yield target

    def commands(self, project: Project, root: str) -> list[list[str]]:
        found = super().commands(project, root)
        return [["cucumber-js"]] if found == [[self.name]] else found

    def launch(self, target: Target, session: Session) -> list[Step]:
        program, given = self.parts(target, session)
        told = ["--format", f"message:{session.private / 'messages.ndjson'}"]
        return [Step(argv=[*program, *given, *told, *[test.id for test in session.only]], env={"CI": "1"})]

    def parse(self, results: Results) -> Parsed:
        return _loaded(read(results.private / "messages.ndjson", _messages), results)

    def again(self, target: Target, test: TestResult) -> list[str]:
        return self.alone(target, test.id)


def _has_tests(package: dict[str, Any]) -> bool:
    scripts = package.get("scripts")
    script = scripts.get("test") if isinstance(scripts, dict) else None
    return isinstance(script, str) and _SILENT not in script


class Behave(Usual):
    name = family = "behave"
    asked = staticmethod(unskipped)

    def detect(self, project: Project) -> Iterator[Target]:
        for path in project.named("**/features/steps/*.py", "**/features/steps/**/*.py"):
            if "behave" in project.text(path):
                root = root_of(path[: path.rindex("features/steps/")] + "features")
                yield self._target(project, root, f"{path} has steps of behave")

    def _target(self, project: Project, root: str, why: str) -> Target:
        return Target(
            runner=self.name,
            command=[python_of(project.folder / root, "behave", project.folder), "-m", "behave"],
            root=root,
            language="python",
            tests=under(root, *_TESTS),
            sources=under(root, "**/*.py"),
            protected=under(root, "behave.ini", ".behaverc"),
            why=why,
            strength=Strength.PATTERN,
        )

    def launch(self, target: Target, session: Session) -> list[Step]:
        told = ["-f", "json", "-o", str(session.private / "behave.json"), "-f", "plain", "--no-color"]
        return [Step(argv=[*target.command, *told, *[test.id for test in session.only]])]

    def parse(self, results: Results) -> Parsed:
        return _loaded(read(results.private / "behave.json", _json), results)


def _loaded(parsed: Parsed, results: Results) -> Parsed:
    """With the steps that did not load: then nothing was run, and only the text says why."""
    if parsed.tests or parsed.ended or not results.exit_code:
        return parsed
    with end_of(results, 16 << 10) as stream:
        text = stream.read()
    parsed.compile_errors = compiler(io.BytesIO(text)).compile_errors
    said = text.decode(errors="replace")
    parsed.collection_errors = [] if parsed.compile_errors else _unread(said) or _raised(said)
    parsed.ended = bool(parsed.compile_errors or parsed.collection_errors)
    return parsed


_UNREAD = re.compile(r'(?m)^Parse error in "(?P<file>[^"]+)" \((?P<line>\d{1,9}):(?P<column>\d{1,9})\): (?P<said>.*)$')


def _unread(text: str) -> list[Diagnostic]:
    """Features that are not Gherkin."""
    return [
        Diagnostic(
            file=found["file"],
            line=int(found["line"]),
            column=int(found["column"]),
            type="ParseError",
            message=found["said"],
            tool="cucumber",
        )
        for found in _UNREAD.finditer(text)
    ]


def _raised(text: str) -> list[Diagnostic]:
    from ratchet.checks.formats import recover  # noqa: PLC0415 — many patterns, seldom needed

    said = [line for line in text.splitlines() if recover.error_type(line)]
    found = recover.failure(text, message=said[-1]) if said else None
    # behave hides where an import failed, unless it is asked to be verbose.
    return [Diagnostic(file=found.file, line=found.line, type=found.type, message=found.message)] if found else []
