"""Runner for Swift: `swift test`, read from its xUnit files."""

from __future__ import annotations

from ratchet.checks.formats import Parsed
from ratchet.checks.protocol import LaunchStep, RunOutput, Session, Target
from ratchet.checks.runners import (
    junit,
    merge_parsed,
    parse_file,
)
from ratchet.checks.runners.manifest import ManifestRunner


class Swift(ManifestRunner):
    name = family = language = "swift"
    manifests = ("Package.swift",)
    command = ("swift", "test")
    tests = ("Tests/**",)
    sources = ("Sources/**",)

    def launch(self, target: Target, session: Session) -> list[LaunchStep]:
        chosen = [word for test in session.only for word in ("--filter", test.id)]
        return [LaunchStep(argv=[*target.command, "--xunit-output", str(session.private / "junit.xml"), *chosen])]

    def parse(self, results: RunOutput) -> Parsed:
        files = sorted(results.private.glob("junit*.xml"))
        parsed = merge_parsed(parse_file(path, junit) for path in files) if files else Parsed(ended=False)
        return self.with_compile_errors(parsed, results)
