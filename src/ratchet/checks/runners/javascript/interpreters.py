"""Interpreters with a runner of their own, bun and deno, by their JUnit files."""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

from ratchet.checks import Results, Session, Step, Strength, Target
from ratchet.checks.formats import Parsed
from ratchet.checks.project import Project, under
from ratchet.checks.runners import end_of, junit, read
from ratchet.checks.runners.javascript import Script, importing, unattended
from ratchet.checks.runners.javascript.choice import all_named, by_name, chosen_by, escaped, files_of, names_of
from ratchet.checks.runners.javascript.printed import first
from ratchet.core.report import Diagnostic, TestResult


class _ByJUnit(Script):
    """A runner whose own JUnit file is its best channel; what it leaves out is in the text."""

    output = ""

    def parse(self, results: Results) -> Parsed:
        parsed = read(results.private / "junit.xml", junit)
        with end_of(results) as stream:
            text = stream.read().decode(errors="replace")
        for file, message in self.broken(text):
            parsed.collection_errors.append(Diagnostic(file=file, message=message, tool=self.name, type="Error"))
        parsed.ended = parsed.ended or bool(parsed.collection_errors)
        parsed.tests = [_with_file(test) for test in parsed.tests]
        return parsed

    def broken(self, _text: str) -> Iterator[tuple[str, str]]:
        yield from ()


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

    def broken(self, text: str) -> Iterator[tuple[str, str]]:
        """Files that do not load are in the text only: a file's name, then its error, and no test."""
        for match in re.finditer(
            r"(?m)^(\S+\.[cm]?[jt]sx?):\n+# Unhandled error between tests\n-+\n(.*(?:\n.*)?)", text
        ):
            yield match.group(1), match.group(2).strip().splitlines()[0]

    def again(self, target: Target, test: TestResult) -> list[str]:
        return ["bun", "test", test.file, *by_name("-t", test)]


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

    def broken(self, text: str) -> Iterator[tuple[str, str]]:
        for match in re.finditer(r"(?m)^(\./\S+) \(uncaught error\)$", text):
            yield match.group(1).removeprefix("./"), first(text[match.end() :])

    def again(self, target: Target, test: TestResult) -> list[str]:
        return ["deno", "test", f"--filter={test.name.partition(' > ')[0]}", test.file]


def _before_test(words: list[str], at: int | None) -> int | None:
    """These are also interpreters: only `bun test` is a runner."""
    return at if at is not None and words[at + 1 : at + 2] == ["test"] else None
