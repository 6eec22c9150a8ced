"""Any command: our reporters go in by the environment, should it start one of their runners; else its text is read."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from ratchet.checks import Results, Session, Step, Strength, Target
from ratchet.checks.formats import Parsed, distinct
from ratchet.checks.formats.text import lines
from ratchet.checks.project import Project, root_of, under
from ratchet.checks.runners import (
    FILES_BEFORE,
    Usual,
    compiler,
    joined,
    new_files,
    note_files,
    parser,
    read_log,
    read_records,
)
from ratchet.checks.runners.python import pytest_env
from ratchet.core.report import TestResult

_unknown, _console, _tap = parser("unknown"), parser("console"), parser("tap", "parse_titled")

TESTS = ["test/**", "tests/**", "spec/**", "**/test_*", "**/*_test.*", "**/*.test.*", "**/*.spec.*"]


class AnyCommand(Usual):
    name = family = "command"

    def detect(self, project: Project) -> Iterator[Target]:
        for names, command, pattern in (
            (("GNUmakefile", "makefile", "Makefile"), ["make", "test"], r"(?m)^test\s*:"),
            (("GNUmakefile", "makefile", "Makefile"), ["make", "check"], r"(?m)^check\s*:"),
            (("justfile", "Justfile", ".justfile"), ["just", "test"], r"(?m)^test\b.*:"),
            (("Rakefile", "rakefile"), ["rake", "test"], r"(?m)^\s*(?:task :test|Rake::TestTask)"),
        ):
            path = next(filter(project.has, names), "")
            if path and re.search(pattern, project.text(path)):
                yield self._target(root_of(path), command, f"{path} has a target called {command[1]}")
        for path in project.named("**/package.json"):
            scripts = project.json(path).get("scripts")
            script = scripts.get("test", "") if isinstance(scripts, dict) else ""
            if script and "no test specified" not in script:
                yield self._target(root_of(path), ["npm", "test", "--silent"], f"{path} has a test script")

    def _target(self, root: str, command: list[str], why: str) -> Target:
        return Target(
            runner=self.name,
            command=command,
            root=root,
            tests=under(root, *TESTS),
            sources=under(root, "**"),
            protected=[],
            why=why,
            strength=Strength.PATTERN,
        )

    def recognises(self, _words: list[str]) -> bool:
        return False

    def launch(self, target: Target, session: Session) -> list[Step]:
        note_files(session, target.report) if target.report else None
        return [Step(argv=target.command, env=pytest_env(session, target.command) | {"CI": "1"})]

    def parse(self, results: Results) -> Parsed:
        """The report it was said to write; else records, if a runner we have a reporter in wrote some; of mere text
        only what is sure."""
        if (results.private / FILES_BEFORE).exists():
            return _reported(results)
        parsed = read_records(results)
        if parsed.tests or parsed.ended or parsed.collection_errors:
            return parsed
        listed = read_log(results, _console)
        return listed if listed.ended and listed.reported else _counted(results)

    def again(self, target: Target, test: TestResult) -> list[str]:
        """All of them: nobody knows how to name one to it."""
        return target.command


def _counted(results: Results) -> Parsed:
    """Sums beyond doubt; else the tests, where it says that it speaks TAP, and says so once."""
    parsed = read_log(results, _unknown)
    if parsed.ended:
        return parsed
    with results.log.open("rb") as stream:
        stream.seek(results.began)
        versions = sum(line.startswith("TAP version ") for line in lines(stream))
    return read_log(results, _tap) if versions == 1 else parsed


def _reported(results: Results) -> Parsed:
    """Without a report nothing is known but what the compiler said."""
    pattern, files = new_files(results)
    parts = [_document(path, results.folder) for path in files]
    if not parts:
        errors = read_log(results, compiler).compile_errors if results.exit_code else []
        return Parsed(
            compile_errors=errors, ended=bool(errors), notes=[f"nothing was written to {pattern}"] * (not errors)
        )
    parsed = joined(parts)
    if parsed.reported.get("tests") and not parsed.tests:
        parsed.notes = [*parsed.notes, f"{pattern} counts {parsed.reported['tests']} tests and holds none"]
    parsed.tests, parsed.ended = distinct(parsed.tests), parsed.ended and not results.stopped
    return parsed


def _document(path: Path, folder: Path) -> Parsed:
    from ratchet.checks.log import read_document  # noqa: PLC0415 — every format there is

    parsed = read_document(path)
    name = path.relative_to(folder) if path.is_relative_to(folder) else path
    return parsed or Parsed(ended=False, notes=[f"{name} holds no results that are known"])
