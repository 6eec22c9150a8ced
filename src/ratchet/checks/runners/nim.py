"""Runner for Nim: `nimble test`, read from its output."""

from __future__ import annotations

from collections.abc import Iterator

from ratchet.checks.detect.project import Project, join_root
from ratchet.checks.formats import Parsed
from ratchet.checks.protocol import RunOutput, Target
from ratchet.checks.runners import parser
from ratchet.checks.runners.manifest import TextRunner
from ratchet.core.report import TestResult


class Nim(TextRunner):
    """Nim's unittest, started by nimble."""

    name = family = language = "nim"
    manifests = ("*.nimble",)
    command = ("nimble", "test")
    tests = ("tests/**",)
    sources = ("**/*.nim",)
    setup = ("nimble install --depsOnly --accept",)
    text = staticmethod(parser("nim"))

    def parse(self, results: RunOutput) -> Parsed:
        """Drop the error that nimble's own script adds to the compiler's when a program does not compile."""
        parsed = super().parse(results)
        own = [error for error in parsed.compile_errors if not error.file.endswith("/nimscript.nim")]
        parsed.compile_errors = own or parsed.compile_errors
        return parsed

    def detect(self, project: Project) -> Iterator[Target]:
        for target in super().detect(project):
            if any(project.glob(*join_root(target.root, "tests/*.nim"))):
                yield target

    def rerun_command(self, target: Target, test: TestResult) -> list[str]:
        chosen = [test.id] if test.id != test.file else []
        return ["nim", "c", "-r", test.file, *chosen] if test.file else target.command
