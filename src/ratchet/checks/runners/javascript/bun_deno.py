"""Runners of the interpreters bun and deno, read from their JUnit files."""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

from ratchet.checks.detect.project import Project, join_root
from ratchet.checks.formats import Parsed, distinct
from ratchet.checks.protocol import Confidence, LaunchStep, RunOutput, Session, Target
from ratchet.checks.runners import junit, parse_file
from ratchet.checks.runners.javascript import ScriptRunner, ci_env, packages_importing
from ratchet.checks.runners.javascript.console_errors import first, text_of
from ratchet.checks.runners.javascript.selection import (
    all_named,
    by_name,
    chosen_by,
    escaped,
    files_of,
    names_of,
)
from ratchet.core.report import Diagnostic, TestResult, TestStatus


class _ByJUnit(ScriptRunner):
    """Base of runners whose JUnit file is the best channel; the rest is read from the output."""

    output = ""

    def parse(self, results: RunOutput) -> Parsed:
        parsed = parse_file(results.private / "junit.xml", junit)
        text = text_of(results)
        parsed.collection_errors += self.broken(text)
        if not parsed.tests and not parsed.ended:
            parsed.tests, parsed.running = self.printed(text)
        parsed.ended = parsed.ended or (bool(parsed.collection_errors) and not results.stopped)
        parsed.tests = [_with_file(test) for test in parsed.tests]
        return parsed

    def broken(self, _text: str) -> list[Diagnostic]:
        return []

    def printed(self, _text: str) -> tuple[list[TestResult], list[str]]:
        """Parse the output of a run that wrote no file: the finished tests, and the running one."""
        return [], []

    def error(self, file: str, text: str) -> Diagnostic:
        """Return the first error printed for a file, and the location below it."""
        line = _ERROR.search(text)
        at = _PLACE.search(text, line.start() if line else 0)
        row, column = (int(at["line"]), int(at["column"])) if at else (0, 0)
        kind = (line["type"] if line else "") or "Error"
        file = file or (at["file"] if at else "")
        message = line["message"] if line else first(text)
        return Diagnostic(file=file, line=row, column=column, type=kind, message=message, tool=self.name)


_ERROR = re.compile(
    r"(?m)^(?:error: )?(?:\(in promise\) )?(?:(?P<type>\w+Error|TS\d+)(?: \[ERROR\])?: |(?<=error: ))(?P<message>.+)$"
)
_PLACE = re.compile(r"(?m)^ +at (?:.*\()?(?:file://)?(?P<file>/[^\n:]+):(?P<line>\d{1,9}):(?P<column>\d{1,9})\)?$")


def _with_file(test: TestResult) -> TestResult:
    """Set the file: these runners write it in place of the class."""
    file = test.file or (test.suite[0] if test.suite else "") or test.id.partition("::")[0]
    if not re.search(r"\.[cm]?[jt]sx?$", file):
        return test
    file = file.removeprefix("./")
    suite = test.suite[1:] if test.suite and test.suite[0].removeprefix("./") == file else test.suite
    return msgspec.structs.replace(test, file=file, suite=suite)


class Bun(_ByJUnit):
    name = "bun"
    covers_subfolders = True
    configs = ("bunfig.toml",)
    arguments = ("test",)

    valued = frozenset(("--preload", "-r", "--timeout", "--jsx-import-source", "--tsconfig-override"))

    def detect(self, project: Project) -> Iterator[Target]:
        yield from (target for target in super().detect(project) if target.strength is Confidence.SCRIPT)
        for package, path in packages_importing(project, "bun:test").items():
            yield self.target(project, package, f"{path} imports bun:test", Confidence.DEPENDENCY)

    def start(self, words: list[str]) -> int | None:
        return _before_test(words, super().start(words))

    def launch(self, target: Target, session: Session) -> list[LaunchStep]:
        program, given = self.parts(target, session)
        given = ["test", *(word for word in given if word != "test")]
        options = ["--reporter=junit", f"--reporter-outfile={session.private / 'junit.xml'}"]
        return [LaunchStep(argv=[*program, *given, *options, *chosen_by(session.only, "-t")], env=ci_env(session))]

    def broken(self, text: str) -> list[Diagnostic]:
        """Return files that fail to load, which are only in the output: the file's name, then its error, and no
        test."""
        blocks = re.finditer(
            r"(?m)^(?P<file>\S+\.[cm]?[jt]sx?):\n+# Unhandled error between tests\n-+\n(?P<message>(?:.*\n)*?)-+$", text
        )
        return [self.error(block["file"], block["message"]) for block in blocks]

    def printed(self, text: str) -> tuple[list[TestResult], list[str]]:
        file, found = "", []
        for match in _RESULT.finditer(text):
            file = match["file"] or file
            if match["how"]:
                *suite, name = match["name"].split(" > ")
                named = f"{file}::{match['name']}"
                status = _ENDS[match["how"]]
                found.append(TestResult(id=named, name=name, suite=suite, file=file, status=status))
        return distinct(found), [file] if file and "\nRan " not in text else []

    def rerun_command(self, target: Target, test: TestResult) -> list[str]:
        return ["bun", "test", test.file, *by_name("-t", test)]


_RESULT = re.compile(
    r"(?m)^(?:(?P<file>\S+\.[cm]?[jt]sx?):|\((?P<how>pass|fail|skip|todo)\) (?P<name>.+?)(?: \[[\d.]+m?s\])?)$"
)
_ENDS = {
    "pass": TestStatus.PASSED,
    "fail": TestStatus.FAILED,
    "skip": TestStatus.SKIPPED,
    "todo": TestStatus.TODO,
}


class Deno(_ByJUnit):
    name = "deno"
    covers_subfolders = True
    configs = ("deno.json", "deno.jsonc")
    arguments = ("test", "--allow-all", "--no-prompt")

    valued = frozenset(("-c", "--config", "--import-map", "--lock", "--filter", "--reload"))

    def detect(self, project: Project) -> Iterator[Target]:
        """Detect the configuration. Beside a `package.json` it is mostly for publishing, unless it mentions tests."""
        for target in super().detect(project):
            config = " ".join(project.text(path) for path in join_root(target.root, *self.configs))
            is_sure = target.strength is not Confidence.CONFIG or re.search(r"deno test\b|\"test\": *\{", config)
            guessed = not is_sure and project.has(*join_root(target.root, "package.json"))
            yield msgspec.structs.replace(target, strength=Confidence.PATTERN) if guessed else target

    def start(self, words: list[str]) -> int | None:
        return _before_test(words, super().start(words))

    def launch(self, target: Target, session: Session) -> list[LaunchStep]:
        program, given = self.parts(target, session)
        given = ["test", *(word for word in given if word != "test")]
        option = f"--junit-path={session.private / 'junit.xml'}"
        # A step runs only with its test.
        tops = dict.fromkeys(" > ".join(names_of(test)).partition(" > ")[0] for test in session.only)
        pattern = "|".join(f"^{escaped(name)}$" for name in tops)
        names = [f"--filter=/{pattern}/"] if session.only and all_named(session.only) else []
        return [LaunchStep(argv=[*program, *given, option, *names, *files_of(session.only)], env=ci_env(session))]

    def broken(self, text: str) -> list[Diagnostic]:
        """Return files that do not compile; one of them keeps all others from running."""
        raised = re.finditer(r"(?m)^\./(?P<file>\S+) \(uncaught error\)\n(?P<message>(?:.+\n)+)", text)
        found = [self.error(match["file"], match["message"]) for match in raised]
        unread = re.finditer(r"(?m)^(?:TS\d+ \[ERROR\]|error: SyntaxError): .+\n(?:.+\n)*? +at file://.+$", text)
        return found or [self.error("", match.group()) for match in unread]

    def exclude_files(self, target: Target, files: list[str], selected: list[TestResult]) -> Target | None:
        ignored = [f"--ignore={file}" for file in files if f"--ignore={file}" not in target.command]
        return msgspec.structs.replace(target, command=[*target.command, *ignored]) if ignored else None

    def rerun_command(self, target: Target, test: TestResult) -> list[str]:
        return ["deno", "test", f"--filter={test.name.partition(' > ')[0]}", test.file]


def _before_test(words: list[str], at: int | None) -> int | None:
    """Return whether the command is a test run: these programs are also interpreters."""
    return at if at is not None and words[at + 1 : at + 2] == ["test"] else None
