"""Runners with our reporter: jest, vitest, mocha, jasmine, ava, uvu, lab and playwright."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress

import msgspec

from ratchet.checks.detect.package_scripts import is_started
from ratchet.checks.detect.project import Project
from ratchet.checks.formats import Parsed
from ratchet.checks.protocol import Confidence, LaunchStep, RunOutput, Session, Target
from ratchet.checks.runners import REPORTERS, find_upward, parse_records
from ratchet.checks.runners.javascript import TESTS, ScriptRunner, ci_env, preload_env
from ratchet.checks.runners.javascript.console_errors import before_first_test, text_of
from ratchet.checks.runners.javascript.selection import (
    all_named,
    by_name,
    chosen_by,
    escaped,
    files_of,
    names_of,
    pattern_of,
    project_of,
)
from ratchet.core.report import TestResult

# The selected tests may all belong to another command, or to another project of the same.
_QUIETLY = ["--passWithNoTests"]


class Vitest(ScriptRunner):
    name = package = "vitest"
    covers_subfolders = True
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

    def launch(self, target: Target, session: Session) -> list[LaunchStep]:
        program, given = self.parts(target, session)
        given = ["run", *(word for word in given if word not in ("run", "--run", "watch", "dev"))]
        options = [f"--reporter={REPORTERS / '_ratchet_vitest.mjs'}", "--reporter=default", "--coverage.enabled=false"]
        argv = [*program, *given, *options, *(_QUIETLY if session.only else []), *chosen_by(session.only, "-t")]
        return [LaunchStep(argv=argv, env=ci_env(session) | preload_env(session, "_ratchet_vitest_inside.cjs"))]

    def rerun_command(self, target: Target, test: TestResult) -> list[str]:
        project = project_of(test)
        among = [f"--project={project}"] if project else []
        return self.alone(target, "run", *among, test.file or test.id, *by_name("-t", test))


class Jest(ScriptRunner):
    name = package = "jest"
    covers_subfolders = True
    configs = tuple(f"jest.config.{end}" for end in ("js", "mjs", "ts", "cjs", "json"))
    valued = frozenset(
        ("-c", "--config", "--env", "--testEnvironment", "-w", "--maxWorkers", "--rootDir", "--testTimeout", "--shard",
         "--selectProjects", "--ignoreProjects", "--projects", "--reporters", "--outputFile", "--coverageReporters")
    )  # fmt: skip

    def means(self, word: str, file: str) -> bool:
        with suppress(re.error):
            return bool(re.search(word, file))
        return word in file

    def launch(self, target: Target, session: Session) -> list[LaunchStep]:
        program, given = self.parts(target, session)
        reporters = [f"--reporters={REPORTERS / '_ratchet_jest.cjs'}", "--reporters=default"]
        options = [*reporters, "--testLocationInResults", "--coverage=false"]
        named = ["-t", pattern_of(session.only)] if session.only and all_named(session.only) else []
        files = [*_QUIETLY, "--runTestsByPath", *files_of(session.only)] if session.only else []
        return [LaunchStep(argv=[*program, *given, *options, *named, *files], env=ci_env(session))]

    def rerun_command(self, target: Target, test: TestResult) -> list[str]:
        project = project_of(test)
        among = ["--selectProjects", project] if project else []
        return self.alone(target, test.file, *among, *by_name("-t", test))


class _LoadsAll(ScriptRunner):
    """Base of runners that load every file before they have a reporter: load errors are only in the output."""

    def parse(self, results: RunOutput) -> Parsed:
        parsed = parse_records(results)
        if parsed.tests or parsed.running or parsed.ended or results.stopped:
            return parsed
        return before_first_test(text_of(results), self.name) or parsed


class Mocha(_LoadsAll):
    name = package = "mocha"
    programs = ("mocha", "_mocha")
    configs = tuple(f".mocharc.{end}" for end in ("js", "cjs", "mjs", "json", "jsonc", "yml", "yaml"))
    valued = frozenset(
        ("-r", "--require", "-R", "--reporter", "-O", "--reporter-option", "--reporter-options", "-t", "--timeout",
         "-u", "--ui", "--extension", "--config", "--package", "-s", "--slow", "-j", "--jobs", "--retries", "--ignore",
         "--exclude", "--import", "--loader", "--experimental-loader", "-n", "--node-option", "--file")
    )  # fmt: skip

    def launch(self, target: Target, session: Session) -> list[LaunchStep]:
        program, given = self.parts(target, session)
        named = ["-g", pattern_of(session.only)] if session.only and all_named(session.only) else []
        reporter = ["--reporter", str(REPORTERS / "_ratchet_mocha.cjs")]
        given, env = _without_specs(_without_reporter(given), session)
        argv = [*program, *given, *reporter, *named, *files_of(session.only)]
        return [LaunchStep(argv=argv, env=ci_env(session) | env)]

    def rerun_command(self, target: Target, test: TestResult) -> list[str]:
        return self.alone(target, test.file, *by_name("-g", test))

    def exclude_files(self, target: Target, files: list[str], selected: list[TestResult]) -> Target | None:
        ignored = [f"--ignore={file}" for file in files if f"--ignore={file}" not in target.command]
        return msgspec.structs.replace(target, command=[*target.command, *ignored]) if ignored else None


def _without_specs(given: list[str], session: Session) -> tuple[list[str], dict[str, str]]:
    """Return the project's configuration without its own files, which would run besides the selected ones."""
    options = find_upward(
        session.folder, "node_modules/mocha/lib/cli/options.cjs", "node_modules/mocha/lib/cli/options.js"
    )
    if not files_of(session.only) or not options or {"--no-config", "--no-package"} & set(given):
        return given, {}
    rest, config = _taken_out(given, "--config")
    rest, package = _taken_out(rest, "--package")
    settings = msgspec.json.encode({"options": str(options), "config": config, "pkg": package}).decode()
    ours = ["--config", str(REPORTERS / "_ratchet_mocharc.cjs"), "--no-package"]
    return [*rest, *ours], {"_RATCHET_MOCHARC": settings}


def _taken_out(words: list[str], option: str) -> tuple[list[str], str]:
    """Remove an option and its value."""
    joined = next((word for word in words if word.startswith(f"{option}=")), "")
    if joined:
        return [word for word in words if word != joined], joined.partition("=")[2]
    at = words.index(option) if option in words else len(words)
    return [*words[:at], *words[at + 2 :]], "".join(words[at + 1 : at + 2])


def _without_reporter(words: list[str]) -> list[str]:
    """Remove other reporters: mocha has only one, and it is ours."""
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

    def launch(self, target: Target, session: Session) -> list[LaunchStep]:
        program, given = self.parts(target, session)
        given = [word for word in given if not word.startswith(("--reporter", "--parallel"))]
        names = [" ".join(names_of(test)) for test in session.only]
        named = [f"--filter=^(?:{'|'.join(map(re.escape, names))})$"] if names and all_named(session.only) else []
        reporter = f"--reporter={REPORTERS / '_ratchet_jasmine.cjs'}"
        return [LaunchStep(argv=[*program, *given, reporter, *named, *files_of(session.only)], env=ci_env(session))]

    def rerun_command(self, target: Target, test: TestResult) -> list[str]:
        name = escaped(" ".join(names_of(test)))
        return self.alone(target, f"--filter={name}", *([test.file] if test.file else []))


class Uvu(_LoadsAll):
    """Runner for uvu, which has no reporters and no selection: our preloaded module does both."""

    name = package = "uvu"
    valued = frozenset(("-r", "--require", "-i", "--ignore", "-C", "--cwd"))

    def start(self, words: list[str]) -> int | None:
        return _at_the_start(words, super().start(words))

    def launch(self, target: Target, session: Session) -> list[LaunchStep]:
        program, given = self.parts(target, session)
        given = [word for word in given if word not in ("-b", "--bail")]
        wanted = [
            f"{test.file}::{' > '.join(names_of(test))}" if names_of(test) else test.file for test in session.only
        ]
        chosen = {"_RATCHET_ONLY": msgspec.json.encode(wanted).decode()} if wanted else {}
        env = ci_env(session) | chosen | preload_env(session, "_ratchet_uvu.cjs")
        return [LaunchStep(argv=[*program, *given, *_folder_and_pattern(files_of(session.only))], env=env)]

    def rerun_command(self, target: Target, test: TestResult) -> list[str]:
        return self.alone(target, *_folder_and_pattern([test.file]))


def _folder_and_pattern(files: list[str]) -> list[str]:
    """Return how uvu gets files: a folder and a pattern for the names below it."""
    return [".", f"^({'|'.join(map(escaped, files))})$"] if files else []


def _at_the_start(words: list[str], at: int | None) -> int | None:
    return at if at is not None and is_started(words, at) else None


class Ava(_LoadsAll):
    name = package = "ava"
    configs = tuple(f"ava.config.{end}" for end in ("js", "cjs", "mjs"))
    valued = frozenset(("-c", "--concurrency", "--config", "-T", "--timeout", "--node-arguments", "-m", "--match"))

    def launch(self, target: Target, session: Session) -> list[LaunchStep]:
        program, given = self.parts(target, session)
        titles = [word for test in session.only for word in _by_title(test)]
        given = [word for word in given if word not in ("--tap", "-t", "--fail-fast")]
        argv = [*program, *given, *(titles if all(map(_by_title, session.only)) else []), *files_of(session.only)]
        return [LaunchStep(argv=argv, env=ci_env(session) | preload_env(session, "_ratchet_ava.cjs"))]

    def rerun_command(self, target: Target, test: TestResult) -> list[str]:
        return self.alone(target, test.file or test.id, *_by_title(test))


def _by_title(test: TestResult) -> list[str]:
    """Return a title pattern that matches only itself: a star would match more, and an exclamation mark the opposite.

    A hook runs for the test that it names, or for all.
    """
    *_, title = names_of(test) or [""]
    title = re.sub(r"^(?:before|after)(?:Each)?(?:\.always)? hook(?: for |$)", "", title)
    literal = title.replace("\\", "\\\\").replace("*", "\\*").removeprefix("!")
    return [f"--match={literal}"] if literal else []


class Lab(_LoadsAll):
    """Runner for lab, without coverage, lint and type checks, which fail if only some tests run."""

    name = "lab"
    package = "@hapi/lab"
    configs = tuple(f".labrc.{end}" for end in ("js", "cjs"))
    valued = frozenset(
        ("-a", "--assert", "-e", "--environment", "-I", "--globals", "-i", "--id", "-m", "--timeout", "-M", "-P",
         "--context-timeout", "--pattern", "-T", "--transform", "--seed", "-p", "--require", "--types-test")
    )  # fmt: skip

    def start(self, words: list[str]) -> int | None:
        return _at_the_start(words, super().start(words))

    def launch(self, target: Target, session: Session) -> list[LaunchStep]:
        program, given = self.parts(target, session)
        named = ["-g", pattern_of(session.only)] if session.only and all_named(session.only) else []
        reporter = ["-r", str(REPORTERS / "_ratchet_lab.cjs")]
        argv = [*program, *_without_measures(given), *reporter, *named, *files_of(session.only)]
        return [LaunchStep(argv=argv, env=ci_env(session))]

    def rerun_command(self, target: Target, test: TestResult) -> list[str]:
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


class Playwright(ScriptRunner):
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
        """Prefer the test script over a configuration, which may be for other tests."""
        for target in super().detect(project):
            aside = target.strength is Confidence.CONFIG
            yield msgspec.structs.replace(target, strength=Confidence.DEPENDENCY) if aside else target

    def launch(self, target: Target, session: Session) -> list[LaunchStep]:
        program, given = self.parts(target, session)
        given = ["test", *(word for word in given if word != "test" and not word.startswith("--reporter"))]
        places = [f"{test.file}:{test.line}" if test.line else test.file for test in session.only]
        reporters = f"--reporter={REPORTERS / '_ratchet_playwright.cjs'},line"
        return [LaunchStep(argv=[*program, *given, reporters, *places], env=ci_env(session))]

    def rerun_command(self, target: Target, test: TestResult) -> list[str]:
        project = re.match(r"\[([^\]]+)\] ", test.id)
        among = [f"--project={project[1]}"] if project else []
        return self.alone(target, "test", *among, f"{test.file}:{test.line}" if test.line else test.file or test.id)

    def exclude_files(self, target: Target, files: list[str], selected: list[TestResult]) -> Target | None:
        """Exclude files: playwright takes patterns, and one match is enough."""
        given = self._split(target.command)[1]
        unlike = [word for word in given if word.startswith(_UNLIKE)]
        if selected or given != unlike:
            return None
        before = unlike[0][len(_UNLIKE) : -3].split("|") if unlike else []
        names = [*before, *(escaped(file) for file in files if escaped(file) not in before)]
        command = [*(word for word in target.command if word not in unlike), f"{_UNLIKE}{'|'.join(names)})$)"]
        return msgspec.structs.replace(target, command=command) if len(names) > len(before) else None


_UNLIKE = "^(?!.*/(?:"
