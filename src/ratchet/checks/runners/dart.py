"""Runner for Dart: `dart test`, read from its JSON reporter."""

from __future__ import annotations

from ratchet.checks.formats import Parsed
from ratchet.checks.protocol import LaunchStep, RunOutput, Session, Target
from ratchet.checks.runners import (
    parse_file,
    parser,
)
from ratchet.checks.runners.manifest import ManifestRunner

_dart_json = parser("dart_json")


class Dart(ManifestRunner):
    name = family = language = "dart"
    manifests = ("pubspec.yaml",)
    command = ("dart", "test")
    tests = ("test/**",)
    sources = ("lib/**",)
    setup = ("dart pub get",)

    def launch(self, target: Target, session: Session) -> list[LaunchStep]:
        files = list(dict.fromkeys(test.file for test in session.only if test.file))
        return [LaunchStep(argv=[*target.command, "--file-reporter", f"json:{session.private / 'dart.json'}", *files])]

    def parse(self, results: RunOutput) -> Parsed:
        return self.with_compile_errors(parse_file(results.private / "dart.json", _dart_json), results)
