"""JavaScript runners that print TAP: tape and tap."""

from __future__ import annotations

import re

import msgspec

from ratchet.checks import Results, Session, Step, Target
from ratchet.checks.formats import Parsed
from ratchet.checks.runners import parser, read, upward
from ratchet.checks.runners.javascript import Script, unattended
from ratchet.checks.runners.javascript.choice import files_of
from ratchet.core.report import TestResult

_tap, _titled = parser("tap"), parser("tap", "parse_titled")
_CHANNEL = "tests.tap"
_SCRIPT = re.compile(r"\.[cm]?[jt]sx?$")


class Tape(Script):
    """What a script of tape's prints is TAP, and its files are in the script only."""

    name = package = "tape"
    arguments: tuple[str, ...] = ("test/**/*.js",)
    valued = frozenset(("-r", "--require", "-i", "--ignore", "--import"))

    def launch(self, target: Target, session: Session) -> list[Step]:
        program, given = self.parts(target, session)
        return [Step(argv=[*program, *given, *files_of(session.only)], env=unattended(session), channel=_CHANNEL)]

    def parse(self, results: Results) -> Parsed:
        return read(results.private / _CHANNEL, _titled)

    def again(self, target: Target, test: TestResult) -> list[str]:
        return self.alone(target, test.file) if test.file else ["npx", *target.command]


class Tap(Tape):
    """Its files are its own subtests: the leaves are assertions, as they are to tape."""

    name = package = "tap"
    configs = (".taprc",)
    arguments = ()
    valued = frozenset(("-j", "--jobs", "-t", "--timeout", "-g", "--grep", "--include", "--exclude", "--plugin"))

    def launch(self, target: Target, session: Session) -> list[Step]:
        program, given = self.parts(target, session)
        given = [word for word in given if not word.startswith(("-R", "--reporter"))]
        # A coverage that is not whole is an error to tap, and it never is when some of the tests run.
        options = ["--reporter=tap", _unmeasured(session), "--no-bail"]
        return [
            Step(argv=[*program, *given, *options, *files_of(session.only)], env=unattended(session), channel=_CHANNEL)
        ]

    def parse(self, results: Results) -> Parsed:
        parsed = read(results.private / _CHANNEL, _tap)
        parsed.tests = [_in_its_file(test) for test in parsed.tests]
        return parsed


def _unmeasured(session: Session) -> str:
    """How tap is told to measure no coverage: since its eighteenth version in another word."""
    found = upward(session.folder, "node_modules/tap/package.json")
    version = re.search(r'"version":\s*"(\d+)', found.read_text("utf-8", "replace")) if found else None
    return "--no-coverage" if version and int(version[1]) < 18 else "--disable-coverage"


def _in_its_file(test: TestResult) -> TestResult:
    """tap says where only of what failed; but the outermost name is a file's."""
    top = test.suite[0] if test.suite else test.id
    return msgspec.structs.replace(test, file=top) if not test.file and _SCRIPT.search(top) else test
