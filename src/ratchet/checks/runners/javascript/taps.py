"""JavaScript runners that print TAP: tape, ava and tap."""

from __future__ import annotations

import re
from pathlib import PurePosixPath

import msgspec

from ratchet.checks import Results, Session, Step, Target
from ratchet.checks.formats import Parsed
from ratchet.checks.project import Project
from ratchet.checks.runners import parser, read, upward
from ratchet.checks.runners.javascript import Script, unattended
from ratchet.checks.runners.javascript.choice import files_of, names_of
from ratchet.core.report import RED, Diagnostic, TestResult

_tap = parser("tap")
_CHANNEL = "tests.tap"
_SCRIPT = re.compile(r"\.[cm]?[jt]sx?$")
_MARK = " \N{SINGLE RIGHT-POINTING ANGLE QUOTATION MARK} "  # between the parts of a title of ava's
_DIED = re.compile(r"\w*Error\b|\S+\.[cm]?[jt]sx? exited |Uncaught |Unhandled |No tests found in ")
_LEFT = re.compile(r"(?P<file>\S+\.[cm]?[jt]sx?) exited (?:with|due to) .*")


class Tape(Script):
    """What a script of tape's prints is TAP, and its files are in the script only."""

    name = package = "tape"
    arguments: tuple[str, ...] = ("test/**/*.js",)
    valued = frozenset(("-r", "--require", "-i", "--ignore", "--import"))

    def launch(self, target: Target, session: Session) -> list[Step]:
        program, given = self.parts(target, session)
        return [Step(argv=[*program, *given, *files_of(session.only)], env=unattended(session), channel=_CHANNEL)]

    def parse(self, results: Results) -> Parsed:
        return read(results.private / _CHANNEL, _tap)

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
        parsed = super().parse(results)
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


class Ava(Tape):
    """Titles begin with the file, as ava shortens it; what died between the tests is told as test points too."""

    name = package = "ava"
    configs = ("ava.config.js", "ava.config.cjs", "ava.config.mjs")
    arguments = ()
    valued = frozenset(("-c", "--concurrency", "--config", "-T", "--timeout", "--node-arguments", "-m", "--match"))

    def launch(self, target: Target, session: Session) -> list[Step]:
        program, given = self.parts(target, session)
        titles = [f"--match={_literal(names_of(test)[-1])}" for test in session.only if names_of(test)]
        given = [
            word for word in given if word not in ("--tap", "-t", "--fail-fast", "--verbose", "-v", "-s", "--serial")
        ]
        return [
            Step(
                argv=[*program, *given, "--tap", *titles, *files_of(session.only)],
                env=unattended(session),
                channel=_CHANNEL,
            )
        ]

    def parse(self, results: Results) -> Parsed:
        parsed = super().parse(results)
        finder = _Files(Project(results.folder))
        lost = [test for test in parsed.tests if test.status in RED and _DIED.match(test.name)]
        told = [test for test in parsed.tests if test not in lost]
        return msgspec.structs.replace(
            parsed,
            tests=[finder.placed(test) for test in told],
            collection_errors=[*parsed.collection_errors, *_broken(lost)],
            # Its own sums count what died between the tests, and its plan does not.
            reported={},
            notes=[],
            partial=False,
            ended=bool(told) or bool(lost) or parsed.reported.get("tests") == 0,
        )

    def again(self, target: Target, test: TestResult) -> list[str]:
        return self.alone(target, test.file, f"--match={test.name}")


def _literal(title: str) -> str:
    """A title that matches itself: a star would match more, and an exclamation mark everything else."""
    return title.replace("\\", "\\\\").replace("*", "\\*").removeprefix("!")


def _broken(lost: list[TestResult]) -> list[Diagnostic]:
    """A file that ended early is told twice: once with its error and once by its name."""
    files = [match.group("file") for test in lost if (match := _LEFT.match(test.name))]
    errors = [test for test in lost if not _LEFT.match(test.name)]
    found: list[Diagnostic] = []
    for number, test in enumerate(errors):
        message = test.failure.message if test.failure else test.name
        kind = test.failure.type if test.failure else "Error"
        own = test.failure.file if test.failure and not test.failure.file.startswith("node:") else ""
        file = own or (files[number] if number < len(files) else "")
        line = test.failure.line if test.failure and own else 0
        found.append(Diagnostic(file=file, line=line, type=kind, message=message, tool="ava"))
    return found or [
        Diagnostic(file=file, type="Exited", message="its process ended early", tool="ava") for file in files
    ]


class _Files:
    """Finds the file that ava meant, and the line where a title stands in it."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self.by_prefix: dict[str, str] = {}
        for path in sorted(project.named("**/*.?s", "**/*.?js", "**/*.?ts", "**/*.?sx"), key=_unlike_a_test):
            parts = [part for part in PurePosixPath(path).with_suffix("").parts if part != "__tests__"]
            parts[-1] = re.sub(r"^test-|\.(?:test|spec)$|[-_]test$", "", parts[-1])
            for start in range(len(parts)):
                self.by_prefix.setdefault(_MARK.join(parts[start:]), path)

    def placed(self, test: TestResult) -> TestResult:
        parts = test.name.split(_MARK)
        # The longest beginning of the title that is a file: a title may hold the same mark.
        known = [n for n in range(len(parts) - 1, 0, -1) if _MARK.join(parts[:n]) in self.by_prefix]
        title = _MARK.join(parts[known[0] :]) if known else test.name
        # A run of one file has titles without it.
        file = self.by_prefix[_MARK.join(parts[: known[0]])] if known else self._holding(title)
        return msgspec.structs.replace(
            test,
            id=f"{file}::{title}" if file else test.id,
            name=title,
            suite=[],
            file=file,
            line=_line_of(self.project.text(file), title) if file else 0,
        )

    def _holding(self, title: str) -> str:
        files = [path for path in dict.fromkeys(self.by_prefix.values()) if not _unlike_a_test(path)[0]]
        return next((path for path in files if _line_of(self.project.text(path), title)), "")


def _unlike_a_test(path: str) -> tuple[bool, int, str]:
    tested = re.search(r"(?:^|/)(?:tests?|__tests__)/|(?:^|/)test[-.]|\.(?:test|spec)\.", path)
    return not tested, path.count("/"), path


def _line_of(text: str, title: str) -> int:
    at = next((text.find(f"{quote}{title}{quote}") for quote in "'\"`" if f"{quote}{title}{quote}" in text), -1)
    return text.count("\n", 0, at) + 1 if at >= 0 else 0
