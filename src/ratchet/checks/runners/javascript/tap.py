"""Runners for JavaScript that print TAP: tape and tap."""

from __future__ import annotations

import re

import msgspec

from ratchet.checks.formats import Parsed
from ratchet.checks.protocol import LaunchStep, RunOutput, Session, Target
from ratchet.checks.runners import find_upward, parse_file, parser
from ratchet.checks.runners.javascript import ScriptRunner, ci_env
from ratchet.checks.runners.javascript.selection import files_of
from ratchet.core.report import TestResult
from ratchet.tree_files import read_anywhere

_tap, _titled = parser("tap"), parser("tap", "parse_titled")
_CHANNEL = "tests.tap"
_SCRIPT = re.compile(r"\.[cm]?[jt]sx?$")


class Tape(ScriptRunner):
    """Runner for tape, whose scripts print TAP; its files are named only in the script."""

    name = package = "tape"
    arguments: tuple[str, ...] = ("test/**/*.js",)
    valued = frozenset(("-r", "--require", "-i", "--ignore", "--import"))

    def launch(self, target: Target, session: Session) -> list[LaunchStep]:
        program, given = self.parts(target, session)
        return [LaunchStep(argv=[*program, *given, *files_of(session.only)], env=ci_env(session), channel=_CHANNEL)]

    def parse(self, results: RunOutput) -> Parsed:
        return parse_file(results.private / _CHANNEL, _titled)

    def rerun_command(self, target: Target, test: TestResult) -> list[str]:
        return self.alone(target, test.file) if test.file else ["npx", *target.command]


class Tap(Tape):
    """Runner for tap, whose files are subtests; as for tape, the leaves are assertions."""

    name = package = "tap"
    configs = (".taprc",)
    arguments = ()
    valued = frozenset(("-j", "--jobs", "-t", "--timeout", "-g", "--grep", "--include", "--exclude", "--plugin"))

    def launch(self, target: Target, session: Session) -> list[LaunchStep]:
        program, given = self.parts(target, session)
        given = [word for word in given if not word.startswith(("-R", "--reporter"))]
        # tap treats incomplete coverage as an error, which it always is if only some tests run.
        options = ["--reporter=tap", _unmeasured(session), "--no-bail"]
        return [
            LaunchStep(
                argv=[*program, *given, *options, *files_of(session.only)], env=ci_env(session), channel=_CHANNEL
            )
        ]

    def parse(self, results: RunOutput) -> Parsed:
        parsed = parse_file(results.private / _CHANNEL, _tap)
        parsed.tests = [_in_its_file(test) for test in parsed.tests]
        return parsed


def _unmeasured(session: Session) -> str:
    """Return the option that disables coverage; tap 18 renamed it."""
    found = find_upward(session.folder, "node_modules/tap/package.json")
    version = re.search(r'"version":\s*"(\d+)', read_anywhere(found).decode(errors="replace")) if found else None
    return "--no-coverage" if version and int(version[1]) < 18 else "--disable-coverage"


def _in_its_file(test: TestResult) -> TestResult:
    """Set the file: tap reports locations only for failures, but the outermost name is a file."""
    top = test.suite[0] if test.suite else test.id
    return msgspec.structs.replace(test, file=top) if not test.file and _SCRIPT.search(top) else test
