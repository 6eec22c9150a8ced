"""Interpreters with a runner of their own, bun and deno, by their JUnit files."""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

from ratchet.checks import Results, Session, Step, Strength, Target
from ratchet.checks.formats import Parsed, distinct
from ratchet.checks.project import Project, under
from ratchet.checks.runners import junit, read
from ratchet.checks.runners.javascript import Script, importing, unattended
from ratchet.checks.runners.javascript.choice import all_named, by_name, chosen_by, escaped, files_of, names_of
from ratchet.checks.runners.javascript.printed import first, text_of
from ratchet.core.report import Diagnostic, TestResult, TestStatus


class _ByJUnit(Script):
    """A runner whose own JUnit file is its best channel; what it leaves out is in the text."""

    output = ""

    def parse(self, results: Results) -> Parsed:
        parsed = read(results.private / "junit.xml", junit)
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
        """What is known of a run that never came to write its file: the tests that ended, and what was running."""
        return [], []

    def error(self, file: str, said: str) -> Diagnostic:
        """From what is printed of a file: the first error, and the place below it."""
        line = _ERROR.search(said)
        at = _PLACE.search(said, line.start() if line else 0)
        row, column = (int(at["line"]), int(at["column"])) if at else (0, 0)
        kind = (line["type"] if line else "") or "Error"
        file = file or (at["file"] if at else "")
        message = line["said"] if line else first(said)
        return Diagnostic(file=file, line=row, column=column, type=kind, message=message, tool=self.name)


_ERROR = re.compile(
    r"(?m)^(?:error: )?(?:\(in promise\) )?(?:(?P<type>\w+Error|TS\d+)(?: \[ERROR\])?: |(?<=error: ))(?P<said>.+)$"
)
_PLACE = re.compile(r"(?m)^ +at (?:.*\()?(?:file://)?(?P<file>/[^\n:]+):(?P<line>\d{1,9}):(?P<column>\d{1,9})\)?$")


def _with_file(test: TestResult) -> TestResult:
    """These write the file where others write the class."""
    file = test.file or (test.suite[0] if test.suite else "") or test.id.partition("::")[0]
    if not re.search(r"\.[cm]?[jt]sx?$", file):
        return test
    file = file.removeprefix("./")
    suite = test.suite[1:] if test.suite and test.suite[0].removeprefix("./") == file else test.suite
    return msgspec.structs.replace(test, file=file, suite=suite)


class Bun(_ByJUnit):
    name = "bun"
    covers_below = True
    configs = ("bunfig.toml",)
    arguments = ("test",)

    valued = frozenset(("--preload", "-r", "--timeout", "--jsx-import-source", "--tsconfig-override"))

    def detect(self, project: Project) -> Iterator[Target]:
        yield from (target for target in super().detect(project) if target.strength is Strength.SCRIPT)
        for package, path in importing(project, "bun:test").items():
            yield self.target(project, package, f"{path} imports bun:test", Strength.DEPENDENCY)

    def start(self, words: list[str]) -> int | None:
        return _before_test(words, super().start(words))

    def launch(self, target: Target, session: Session) -> list[Step]:
        program, given = self.parts(target, session)
        given = ["test", *(word for word in given if word != "test")]
        options = ["--reporter=junit", f"--reporter-outfile={session.private / 'junit.xml'}"]
        return [Step(argv=[*program, *given, *options, *chosen_by(session.only, "-t")], env=unattended(session))]

    def broken(self, text: str) -> list[Diagnostic]:
        """Files that do not load are in the text only: a file's name, then its error between lines, and no test."""
        blocks = re.finditer(
            r"(?m)^(?P<file>\S+\.[cm]?[jt]sx?):\n+# Unhandled error between tests\n-+\n(?P<said>(?:.*\n)*?)-+$", text
        )
        return [self.error(block["file"], block["said"]) for block in blocks]

    def printed(self, text: str) -> tuple[list[TestResult], list[str]]:
        file, found = "", []
        for match in _TOLD.finditer(text):
            file = match["file"] or file
            if match["how"]:
                *suite, name = match["name"].split(" > ")
                named = f"{file}::{match['name']}"
                status = _ENDS[match["how"]]
                found.append(TestResult(id=named, name=name, suite=suite, file=file, status=status))
        return distinct(found), [file] if file and "\nRan " not in text else []

    def again(self, target: Target, test: TestResult) -> list[str]:
        return ["bun", "test", test.file, *by_name("-t", test)]


_TOLD = re.compile(
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
    covers_below = True
    configs = ("deno.json", "deno.jsonc")
    arguments = ("test", "--allow-all", "--no-prompt")

    valued = frozenset(("-c", "--config", "--import-map", "--lock", "--filter", "--reload"))

    def detect(self, project: Project) -> Iterator[Target]:
        """Beside a `package.json` its configuration mostly says how to publish, unless it speaks of tests."""
        for target in super().detect(project):
            config = " ".join(project.text(path) for path in under(target.root, *self.configs))
            is_sure = target.strength is not Strength.CONFIG or re.search(r"deno test\b|\"test\": *\{", config)
            guessed = not is_sure and project.has(*under(target.root, "package.json"))
            yield msgspec.structs.replace(target, strength=Strength.PATTERN) if guessed else target

    def start(self, words: list[str]) -> int | None:
        return _before_test(words, super().start(words))

    def launch(self, target: Target, session: Session) -> list[Step]:
        program, given = self.parts(target, session)
        given = ["test", *(word for word in given if word != "test")]
        option = f"--junit-path={session.private / 'junit.xml'}"
        # A step runs with its test only.
        tops = dict.fromkeys(" > ".join(names_of(test)).partition(" > ")[0] for test in session.only)
        pattern = "|".join(f"^{escaped(name)}$" for name in tops)
        names = [f"--filter=/{pattern}/"] if session.only and all_named(session.only) else []
        return [Step(argv=[*program, *given, option, *names, *files_of(session.only)], env=unattended(session))]

    def broken(self, text: str) -> list[Diagnostic]:
        """One that does not compile keeps all others from running."""
        raised = re.finditer(r"(?m)^\./(?P<file>\S+) \(uncaught error\)\n(?P<said>(?:.+\n)+)", text)
        found = [self.error(match["file"], match["said"]) for match in raised]
        unread = re.finditer(r"(?m)^(?:TS\d+ \[ERROR\]|error: SyntaxError): .+\n(?:.+\n)*? +at file://.+$", text)
        return found or [self.error("", match.group()) for match in unread]

    def without(self, target: Target, files: list[str], _asked: list[TestResult]) -> Target | None:
        ignored = [f"--ignore={file}" for file in files if f"--ignore={file}" not in target.command]
        return msgspec.structs.replace(target, command=[*target.command, *ignored]) if ignored else None

    def again(self, target: Target, test: TestResult) -> list[str]:
        return ["deno", "test", f"--filter={test.name.partition(' > ')[0]}", test.file]


def _before_test(words: list[str], at: int | None) -> int | None:
    """These are also interpreters: only `bun test` is a runner."""
    return at if at is not None and words[at + 1 : at + 2] == ["test"] else None
