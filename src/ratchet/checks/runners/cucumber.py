"""Runners for Gherkin scenarios: Cucumber for JavaScript, read from its message stream, and behave, read from its
JSON."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from typing import Any

from ratchet.checks.detect.project import Project, join_root, parent_of
from ratchet.checks.formats import Parsed
from ratchet.checks.protocol import Confidence, LaunchStep, RunOutput, Session, Target
from ratchet.checks.runners import compiler, drop_unselected_skips, open_log_tail, parse_file, parser
from ratchet.checks.runners.base import BaseRunner
from ratchet.checks.runners.javascript import ScriptRunner
from ratchet.checks.runners.python import find_python
from ratchet.core.report import Diagnostic, TestResult

_messages = parser("cucumber_messages")
_json = parser("cucumber_json")
_TESTS = ("features/**", "**/*.feature")
_SILENT = "no test specified"


class Cucumber(ScriptRunner):
    """Runner for Cucumber. If the project has other tests, its scenarios mostly need a server and are not started."""

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
        if not any(project.glob("**/*.feature")):
            return
        for target in super().detect(project):
            if target.strength is Confidence.SCRIPT or not _has_tests(
                project.json(*join_root(target.root, "package.json"))
            ):
                yield target

    def commands(self, project: Project, root: str) -> list[list[str]]:
        found = super().commands(project, root)
        return [["cucumber-js"]] if found == [[self.name]] else found

    def launch(self, target: Target, session: Session) -> list[LaunchStep]:
        program, given = self.parts(target, session)
        options = ["--format", f"message:{session.private / 'messages.ndjson'}"]
        return [LaunchStep(argv=[*program, *given, *options, *[test.id for test in session.only]], env={"CI": "1"})]

    def parse(self, results: RunOutput) -> Parsed:
        return _loaded(parse_file(results.private / "messages.ndjson", _messages), results)

    def rerun_command(self, target: Target, test: TestResult) -> list[str]:
        return self.alone(target, test.id)


def _has_tests(package: dict[str, Any]) -> bool:
    scripts = package.get("scripts")
    script = scripts.get("test") if isinstance(scripts, dict) else None
    return isinstance(script, str) and _SILENT not in script


class Behave(BaseRunner):
    name = family = "behave"
    filter_results = staticmethod(drop_unselected_skips)

    def detect(self, project: Project) -> Iterator[Target]:
        for path in project.glob("**/features/steps/*.py", "**/features/steps/**/*.py"):
            if "behave" in project.text(path):
                root = parent_of(path[: path.rindex("features/steps/")] + "features")
                yield self._target(project, root, f"{path} has steps of behave")

    def _target(self, project: Project, root: str, why: str) -> Target:
        return Target(
            runner=self.name,
            command=[find_python(project.folder / root, "behave", project.folder), "-m", "behave"],
            root=root,
            language="python",
            tests=join_root(root, *_TESTS),
            sources=join_root(root, "**/*.py"),
            protected=join_root(root, "behave.ini", ".behaverc"),
            why=why,
            strength=Confidence.PATTERN,
        )

    def launch(self, target: Target, session: Session) -> list[LaunchStep]:
        options = ["-f", "json", "-o", str(session.private / "behave.json"), "-f", "plain", "--no-color"]
        return [LaunchStep(argv=[*target.command, *options, *[test.id for test in session.only]])]

    def parse(self, results: RunOutput) -> Parsed:
        return _loaded(parse_file(results.private / "behave.json", _json), results)


def _loaded(parsed: Parsed, results: RunOutput) -> Parsed:
    """Add the steps that failed to load: then nothing ran, and only the output says why."""
    if parsed.tests or parsed.ended or not results.exit_code:
        return parsed
    with open_log_tail(results, 16 << 10) as stream:
        text = stream.read()
    parsed.compile_errors = compiler(io.BytesIO(text)).compile_errors
    output = text.decode(errors="replace")
    parsed.collection_errors = [] if parsed.compile_errors else _unread(output) or _raised(output)
    parsed.ended = bool(parsed.compile_errors or parsed.collection_errors)
    return parsed


_UNREAD = re.compile(
    r'(?m)^Parse error in "(?P<file>[^"]+)" \((?P<line>\d{1,9}):(?P<column>\d{1,9})\): (?P<message>.*)$'
)


def _unread(text: str) -> list[Diagnostic]:
    """Return errors of features that are not valid Gherkin."""
    return [
        Diagnostic(
            file=found["file"],
            line=int(found["line"]),
            column=int(found["column"]),
            type="ParseError",
            message=found["message"],
            tool="cucumber",
        )
        for found in _UNREAD.finditer(text)
    ]


def _raised(text: str) -> list[Diagnostic]:
    from ratchet.checks.formats import recover  # noqa: PLC0415 — many patterns, seldom needed

    errors = [line for line in text.splitlines() if recover.error_type(line)]
    found = recover.failure(text, message=errors[-1]) if errors else None
    # behave hides the location of a failed import unless it is verbose.
    return [Diagnostic(file=found.file, line=found.line, type=found.type, message=found.message)] if found else []
