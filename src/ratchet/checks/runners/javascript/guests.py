"""Runners with a reporter of ours inside: jest, vitest, mocha, jasmine, ava, uvu, lab and playwright."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress

import msgspec

from ratchet.checks import Results, Session, Step, Strength, Target
from ratchet.checks.formats import Parsed
from ratchet.checks.project import Project
from ratchet.checks.runners import SHIMS, read_records, upward
from ratchet.checks.runners.javascript import TESTS, Script, preloaded, unattended
from ratchet.checks.runners.javascript.choice import (
    all_named,
    by_name,
    chosen_by,
    escaped,
    files_of,
    names_of,
    pattern_of,
    project_of,
)
from ratchet.checks.runners.javascript.printed import before_any, text_of
from ratchet.checks.scripts import is_started
from ratchet.core.report import TestResult

# Of what was asked for another command, or another project of the same, may have all.
_QUIETLY = ["--passWithNoTests"]


class Vitest(Script):
    name = package = "vitest"
    covers_below = True
    configs = tuple(
        f"{stem}.{end}" for stem in ("vitest.config", "vitest.workspace") for end in ("js", "mjs", "ts", "mts", "cjs")
    )
    arguments = ("run",)
    valued = frozenset(
        ("-c", "--config", "-r", "--root", "--dir", "--environment", "--pool", "--mode", "--project", "--workspace",
         "--testTimeout", "--reporter", "--outputFile", "--shard", "--maxWorkers", "--retry", "--tsconfig")
    )  # fmt: skip

    def means(self, word: str, file: str) -> bool:
        return word in file

    def launch(self, target: Target, session: Session) -> list[Step]:
        program, given = self.parts(target, session)
        given = ["run", *(word for word in given if word not in ("run", "--run", "watch", "dev"))]
        options = [f"--reporter={SHIMS / '_ratchet_vitest.mjs'}", "--reporter=default", "--coverage.enabled=false"]
        argv = [*program, *given, *options, *(_QUIETLY if session.only else []), *chosen_by(session.only, "-t")]
        return [Step(argv=argv, env=unattended(session) | preloaded(session, "_ratchet_vitest_inside.cjs"))]

    def again(self, target: Target, test: TestResult) -> list[str]:
        project = project_of(test)
        among = [f"--project={project}"] if project else []
        return self.alone(target, "run", *among, test.file or test.id, *by_name("-t", test))


class Jest(Script):
    name = package = "jest"
    covers_below = True
    configs = tuple(f"jest.config.{end}" for end in ("js", "mjs", "ts", "cjs", "json"))
    valued = frozenset(
        ("-c", "--config", "--env", "--testEnvironment", "-w", "--maxWorkers", "--rootDir", "--testTimeout", "--shard",
         "--selectProjects", "--ignoreProjects", "--projects", "--reporters", "--outputFile", "--coverageReporters")
    )  # fmt: skip

    def means(self, word: str, file: str) -> bool:
        with suppress(re.error):
            return bool(re.search(word, file))
        return word in file

    def launch(self, target: Target, session: Session) -> list[Step]:
        program, given = self.parts(target, session)
        reporters = [f"--reporters={SHIMS / '_ratchet_jest.cjs'}", "--reporters=default"]
        options = [*reporters, "--testLocationInResults", "--coverage=false"]
        named = ["-t", pattern_of(session.only)] if session.only and all_named(session.only) else []
        files = [*_QUIETLY, "--runTestsByPath", *files_of(session.only)] if session.only else []
        return [Step(argv=[*program, *given, *options, *named, *files], env=unattended(session))]

    def again(self, target: Target, test: TestResult) -> list[str]:
        project = project_of(test)
        among = ["--selectProjects", project] if project else []
        return self.alone(target, test.file, *among, *by_name("-t", test))


class _LoadsAll(Script):
    """A runner that loads every file before it has a reporter: the error of one that does not load is in the text."""

    def parse(self, results: Results) -> Parsed:
        parsed = read_records(results)
        if parsed.tests or parsed.running or parsed.ended or results.stopped:
            return parsed
        return before_any(text_of(results), self.name) or parsed


class Mocha(_LoadsAll):
    name = package = "mocha"
    programs = ("mocha", "_mocha")
    configs = tuple(f".mocharc.{end}" for end in ("js", "cjs", "mjs", "json", "jsonc", "yml", "yaml"))
    valued = frozenset(
        ("-r", "--require", "-R", "--reporter", "-O", "--reporter-option", "--reporter-options", "-t", "--timeout",
         "-u", "--ui", "--extension", "--config", "--package", "-s", "--slow", "-j", "--jobs", "--retries", "--ignore",
         "--exclude", "--import", "--loader", "--experimental-loader", "-n", "--node-option", "--file")
    )  # fmt: skip

    def launch(self, target: Target, session: Session) -> list[Step]:
        program, given = self.parts(target, session)
        named = ["-g", pattern_of(session.only)] if session.only and all_named(session.only) else []
        reporter = ["--reporter", str(SHIMS / "_ratchet_mocha.cjs")]
        given, env = _without_specs(_without_reporter(given), session)
        argv = [*program, *given, *reporter, *named, *files_of(session.only)]
        return [Step(argv=argv, env=unattended(session) | env)]

    def again(self, target: Target, test: TestResult) -> list[str]:
        return self.alone(target, test.file, *by_name("-g", test))

    def without(self, target: Target, files: list[str], _asked: list[TestResult]) -> Target | None:
        ignored = [f"--ignore={file}" for file in files if f"--ignore={file}" not in target.command]
        return msgspec.structs.replace(target, command=[*target.command, *ignored]) if ignored else None


def _without_specs(given: list[str], session: Session) -> tuple[list[str], dict[str, str]]:
    """For some of the files the project's configuration without its own, which would be run with them."""
    options = upward(session.folder, "node_modules/mocha/lib/cli/options.cjs", "node_modules/mocha/lib/cli/options.js")
    if not files_of(session.only) or not options or {"--no-config", "--no-package"} & set(given):
        return given, {}
    rest, config = _taken_out(given, "--config")
    rest, package = _taken_out(rest, "--package")
    told = msgspec.json.encode({"options": str(options), "config": config, "pkg": package}).decode()
    ours = ["--config", str(SHIMS / "_ratchet_mocharc.cjs"), "--no-package"]
    return [*rest, *ours], {"_RATCHET_MOCHARC": told}


def _taken_out(words: list[str], option: str) -> tuple[list[str], str]:
    """The words without an option, and its value."""
    joined = next((word for word in words if word.startswith(f"{option}=")), "")
    if joined:
        return [word for word in words if word != joined], joined.partition("=")[2]
    at = words.index(option) if option in words else len(words)
    return [*words[:at], *words[at + 2 :]], "".join(words[at + 1 : at + 2])


def _without_reporter(words: list[str]) -> list[str]:
    """mocha has one reporter, and it is ours."""
    options = ("-R", "--reporter")
    before = ["", *words]
    kept = zip(words, before, strict=False)
    return [word for word, last in kept if last not in options and not word.startswith(("-R", "--reporter"))]


class Jasmine(_LoadsAll):
    name = package = "jasmine"
    configs = tuple(f"spec/support/jasmine.{end}" for end in ("json", "js", "mjs", "cjs"))
    tests = (*TESTS, "spec/**")
    valued = frozenset(("--config", "--helper", "--require", "--reporter", "--parallel"))

    def detect(self, project: Project) -> Iterator[Target]:
        for target in super().detect(project):
            root = target.root.removesuffix("spec/support").rstrip("/") or "."
            yield target if root == target.root else self.target(project, root, target.why, target.strength)

    def launch(self, target: Target, session: Session) -> list[Step]:
        program, given = self.parts(target, session)
        given = [word for word in given if not word.startswith(("--reporter", "--parallel"))]
        names = [" ".join(names_of(test)) for test in session.only]
        named = [f"--filter=^(?:{'|'.join(map(re.escape, names))})$"] if names and all_named(session.only) else []
        reporter = f"--reporter={SHIMS / '_ratchet_jasmine.cjs'}"
        return [Step(argv=[*program, *given, reporter, *named, *files_of(session.only)], env=unattended(session))]

    def again(self, target: Target, test: TestResult) -> list[str]:
        name = escaped(" ".join(names_of(test)))
        return self.alone(target, f"--filter={name}", *([test.file] if test.file else []))


class Uvu(_LoadsAll):
    """It has no reporters and no way to choose a test: the guest does both."""

    name = package = "uvu"
    valued = frozenset(("-r", "--require", "-i", "--ignore", "-C", "--cwd"))

    def start(self, words: list[str]) -> int | None:
        return _at_the_start(words, super().start(words))

    def launch(self, target: Target, session: Session) -> list[Step]:
        program, given = self.parts(target, session)
        given = [word for word in given if word not in ("-b", "--bail")]
        wanted = [
            f"{test.file}::{' > '.join(names_of(test))}" if names_of(test) else test.file for test in session.only
        ]
        chosen = {"_RATCHET_ONLY": msgspec.json.encode(wanted).decode()} if wanted else {}
        env = unattended(session) | chosen | preloaded(session, "_ratchet_uvu.cjs")
        return [Step(argv=[*program, *given, *_folder_and_pattern(files_of(session.only))], env=env)]

    def again(self, target: Target, test: TestResult) -> list[str]:
        return self.alone(target, *_folder_and_pattern([test.file]))


def _folder_and_pattern(files: list[str]) -> list[str]:
    """How uvu is given files: a folder, and what their names below it match."""
    return [".", f"^({'|'.join(map(escaped, files))})$"] if files else []


def _at_the_start(words: list[str], at: int | None) -> int | None:
    return at if at is not None and is_started(words, at) else None


class Ava(_LoadsAll):
    name = package = "ava"
    configs = tuple(f"ava.config.{end}" for end in ("js", "cjs", "mjs"))
    valued = frozenset(("-c", "--concurrency", "--config", "-T", "--timeout", "--node-arguments", "-m", "--match"))

    def launch(self, target: Target, session: Session) -> list[Step]:
        program, given = self.parts(target, session)
        titles = [word for test in session.only for word in _by_title(test)]
        given = [word for word in given if word not in ("--tap", "-t", "--fail-fast")]
        argv = [*program, *given, *(titles if all(map(_by_title, session.only)) else []), *files_of(session.only)]
        return [Step(argv=argv, env=unattended(session) | preloaded(session, "_ratchet_ava.cjs"))]

    def again(self, target: Target, test: TestResult) -> list[str]:
        return self.alone(target, test.file or test.id, *_by_title(test))


def _by_title(test: TestResult) -> list[str]:
    """A title that matches itself: a star would match more, and an exclamation mark everything else.

    A hook runs for the test that it names, or for all.
    """
    *_, title = names_of(test) or [""]
    title = re.sub(r"^(?:before|after)(?:Each)?(?:\.always)? hook(?: for |$)", "", title)
    literal = title.replace("\\", "\\\\").replace("*", "\\*").removeprefix("!")
    return [f"--match={literal}"] if literal else []


class Lab(_LoadsAll):
    """Besides its tests it measures, lints and checks types: those fail where only some of the tests run."""

    name = "lab"
    package = "@hapi/lab"
    configs = tuple(f".labrc.{end}" for end in ("js", "cjs"))
    valued = frozenset(
        ("-a", "--assert", "-e", "--environment", "-I", "--globals", "-i", "--id", "-m", "--timeout", "-M", "-P",
         "--context-timeout", "--pattern", "-T", "--transform", "--seed", "-p", "--require", "--types-test")
    )  # fmt: skip

    def start(self, words: list[str]) -> int | None:
        return _at_the_start(words, super().start(words))

    def launch(self, target: Target, session: Session) -> list[Step]:
        program, given = self.parts(target, session)
        named = ["-g", pattern_of(session.only)] if session.only and all_named(session.only) else []
        reporter = ["-r", str(SHIMS / "_ratchet_lab.cjs")]
        argv = [*program, *_without_measures(given), *reporter, *named, *files_of(session.only)]
        return [Step(argv=argv, env=unattended(session))]

    def again(self, target: Target, test: TestResult) -> list[str]:
        plainly = msgspec.structs.replace(target, command=_without_measures(target.command))
        return self.alone(plainly, *by_name("-g", test), test.file)


_MEASURES = re.compile(
    r"(?P<valued>-[rotn]|--(?:reporter|output|threshold|linter|coverage-(?:path|exclude|pattern)|lint-options"
    r"|lint-(?:errors|warnings)-threshold))|-[cLYC]+|--(?:coverage|coverage-all|coverage-flat|lint|types|bail)"
)


def _without_measures(words: list[str]) -> list[str]:
    found = [_MEASURES.fullmatch(word) for word in ["", *words]]
    pairs = zip(words, found[1:], found, strict=False)
    return [word for word, own, last in pairs if not own and not (last and last["valued"])]


class Playwright(Script):
    name = "playwright"
    family = "playwright"
    package = "@playwright/test"
    configs = tuple(f"playwright.config.{end}" for end in ("js", "mjs", "ts", "mts", "cjs"))
    arguments = ("test",)
    valued = frozenset(
        ("-c", "--config", "-g", "--grep", "-G", "--grep-invert", "-j", "--workers", "--project", "--retries",
         "--shard", "--timeout", "--global-timeout", "--max-failures", "--repeat-each", "--output", "--trace",
         "--tsconfig", "--browser", "--reporter", "--name")
    )  # fmt: skip

    def detect(self, project: Project) -> Iterator[Target]:
        """What the test script starts is surer than a configuration: that may be of tests that run beside it."""
        for target in super().detect(project):
            aside = target.strength is Strength.CONFIG
            yield msgspec.structs.replace(target, strength=Strength.DEPENDENCY) if aside else target

    def launch(self, target: Target, session: Session) -> list[Step]:
        program, given = self.parts(target, session)
        given = ["test", *(word for word in given if word != "test" and not word.startswith("--reporter"))]
        places = [f"{test.file}:{test.line}" if test.line else test.file for test in session.only]
        reporters = f"--reporter={SHIMS / '_ratchet_playwright.cjs'},line"
        return [Step(argv=[*program, *given, reporters, *places], env=unattended(session))]

    def again(self, target: Target, test: TestResult) -> list[str]:
        project = re.match(r"\[([^\]]+)\] ", test.id)
        among = [f"--project={project[1]}"] if project else []
        return self.alone(target, "test", *among, f"{test.file}:{test.line}" if test.line else test.file or test.id)

    def without(self, target: Target, files: list[str], asked: list[TestResult]) -> Target | None:
        """Files are given to it as patterns, of which one that matches is enough."""
        given = self._split(target.command)[1]
        unlike = [word for word in given if word.startswith(_UNLIKE)]
        if asked or given != unlike:
            return None
        before = unlike[0][len(_UNLIKE) : -3].split("|") if unlike else []
        names = [*before, *(escaped(file) for file in files if escaped(file) not in before)]
        command = [*(word for word in target.command if word not in unlike), f"{_UNLIKE}{'|'.join(names)})$)"]
        return msgspec.structs.replace(target, command=command) if len(names) > len(before) else None


_UNLIKE = "^(?!.*/(?:"
