"""Runs any command: our reporters are loaded through the environment if it starts one of their runners; else its
output is parsed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from ratchet.checks.detect.project import Project, join_root, parent_of
from ratchet.checks.formats import Parsed, distinct
from ratchet.checks.formats.text import lines
from ratchet.checks.protocol import Confidence, LaunchStep, RunOutput, Session, Target
from ratchet.checks.runners import (
    FILES_BEFORE,
    compiler,
    merge_parsed,
    new_files,
    parse_log,
    parse_records,
    parser,
    record_existing_files,
)
from ratchet.checks.runners.base import BaseRunner
from ratchet.checks.runners.python import pytest_env
from ratchet.core.report import TestResult

_unknown, _console, _tap = parser("unknown"), parser("console"), parser("tap", "parse_titled")

TESTS = ["test/**", "tests/**", "spec/**", "**/test_*", "**/*_test.*", "**/*.test.*", "**/*.spec.*"]


class AnyCommand(BaseRunner):
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
                yield self._target(parent_of(path), command, f"{path} has a target called {command[1]}")
        for path in project.glob("**/package.json"):
            scripts = project.json(path).get("scripts")
            script = scripts.get("test", "") if isinstance(scripts, dict) else ""
            if script and "no test specified" not in script:
                yield self._target(parent_of(path), ["npm", "test", "--silent"], f"{path} has a test script")

    def _target(self, root: str, command: list[str], why: str) -> Target:
        return Target(
            runner=self.name,
            command=command,
            root=root,
            tests=join_root(root, *TESTS),
            sources=join_root(root, "**"),
            protected=[],
            why=why,
            strength=Confidence.PATTERN,
        )

    def recognises(self, _words: list[str]) -> bool:
        return False

    def launch(self, target: Target, session: Session) -> list[LaunchStep]:
        record_existing_files(session, target.report) if target.report else None
        return [LaunchStep(argv=target.command, env=pytest_env(session, target.command) | {"CI": "1"})]

    def parse(self, results: RunOutput) -> Parsed:
        """Parse the configured report; else the records of our reporters, if there are some; else the unambiguous
        part of the output."""
        if (results.private.parent / FILES_BEFORE).exists():
            return _reported(results)
        parsed = parse_records(results)
        if parsed.tests or parsed.ended or parsed.collection_errors:
            return parsed
        listed = parse_log(results, _console)
        return listed if listed.ended and listed.reported else _counted(results)

    def rerun_command(self, target: Target, test: TestResult) -> list[str]:
        """Return the whole command: an unknown program cannot select a test."""
        return target.command


def _counted(results: RunOutput) -> Parsed:
    """Return unambiguous totals; else the tests, if the output declares TAP exactly once."""
    parsed = parse_log(results, _unknown)
    if parsed.ended:
        return parsed
    with results.log.open("rb") as stream:
        stream.seek(results.log_offset)
        versions = sum(line.startswith("TAP version ") for line in lines(stream))
    return parse_log(results, _tap) if versions == 1 else parsed


def _reported(results: RunOutput) -> Parsed:
    """Parse the report files. Without any, only compiler errors are known."""
    pattern, files = new_files(results)
    parts = [_document(path, results.folder) for path in files]
    if not parts:
        errors = parse_log(results, compiler).compile_errors if results.exit_code else []
        return Parsed(
            compile_errors=errors, ended=bool(errors), notes=[f"nothing was written to {pattern}"] * (not errors)
        )
    parsed = merge_parsed(parts)
    if parsed.reported.get("tests") and not parsed.tests:
        parsed.notes = [*parsed.notes, f"{pattern} counts {parsed.reported['tests']} tests and holds none"]
    parsed.tests, parsed.ended = distinct(parsed.tests), parsed.ended and not results.stopped
    return parsed


def _document(path: Path, folder: Path) -> Parsed:
    from ratchet.checks.run.ci_log import parse_report_file  # noqa: PLC0415 — every format there is

    parsed = parse_report_file(path)
    name = path.relative_to(folder) if path.is_relative_to(folder) else path
    return parsed or Parsed(ended=False, notes=[f"{name} contains no known results"])
