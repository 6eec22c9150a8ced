"""Runners for the JVM: Maven, Gradle and sbt, read from the JUnit files written by this run."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import msgspec

from ratchet.checks.detect.project import Project, join_root, parent_of
from ratchet.checks.formats import Parsed, distinct
from ratchet.checks.protocol import Confidence, LaunchStep, RunOutput, Session, Target
from ratchet.checks.runners import (
    compiler,
    junit,
    merge_parsed,
    new_files,
    open_log_tail,
    parse_file,
    parser,
    record_existing_files,
)
from ratchet.checks.runners.base import BaseRunner
from ratchet.core.report import TestResult

_testng = parser("testng_xml")


class _Jvm(BaseRunner):
    """Base of build tools that write `TEST-*.xml` files below the project."""

    manifests: tuple[str, ...] = ()
    reports = ""
    wrapper = ""
    options: tuple[str, ...] = ()

    def detect(self, project: Project) -> Iterator[Target]:
        roots: list[str] = []
        for path in project.glob(*(f"**/{name}" for name in self.manifests)):
            root = parent_of(path)
            if any(above in (".", root) or root.startswith(f"{above}/") for above in roots):
                continue  # a module: the parent build runs it
            if root != "." and not any(_is_test(name) for name in project.files_below(root)):
                continue  # a build inside a project of another language, of a site or an app
            roots.append(root)
            own = project.has(*join_root(root, self.wrapper)) if self.wrapper else False
            yield Target(
                runner=self.name,
                command=[f"./{self.wrapper}" if own else self.programs[0], "test"],
                root=root,
                language="java",
                tests=join_root(root, "**/src/test/**"),
                sources=join_root(root, "**/src/main/**"),
                protected=[],
                why=f"there is a {path}",
                strength=Confidence.CONFIG,
            )

    def launch(self, target: Target, session: Session) -> list[LaunchStep]:
        record_existing_files(session, self.reports)
        return [LaunchStep(argv=[*target.command, *self.options, *self.selection(session.only)])]

    def selection(self, tests: list[TestResult]) -> list[str]:
        raise NotImplementedError

    def parse(self, results: RunOutput) -> Parsed:
        _, files = new_files(results)
        parts = [self.read(files)] if files else []
        if results.exit_code:
            with open_log_tail(results) as stream:
                errors = compiler(stream).compile_errors
            if errors:
                parts.append(Parsed(compile_errors=errors, ended=True))
            with open_log_tail(results) as stream:
                parts += crash_of(stream.read().decode(errors="replace"))
        parsed = merge_parsed(parts) if parts else Parsed(ended=not results.exit_code)
        parsed.ended = parsed.ended and not results.stopped
        return parsed

    def read(self, files: list[Path]) -> Parsed:
        return merge_parsed(parse_file(path, junit) for path in files)


_DIED = re.compile(
    r"The forked VM terminated without|Process 'Gradle Test Executor \d+' finished with non-zero exit value"
    r"|Could not complete execution for Gradle Test Executor"
)
_CRASHED = re.compile(r"(?m)^\[ERROR\] Crashed tests:\s*\n((?:\[ERROR\] [\w.$]+[ \t]*\r?\n)+)")


def crash_of(text: str) -> list[Parsed]:
    """Return the classes of a VM that died in the middle of its tests: it writes no file, and only the output names
    them."""
    if not _DIED.search(text):
        return []
    named = [name for rows in _CRASHED.findall(text) for name in re.findall(r"(?m)^\[ERROR\] ([\w.$]+)", rows)]
    return [Parsed(ended=False, running=list(dict.fromkeys(named)))]


def _is_test(path: str) -> bool:
    return bool(re.search(r"(?:^|/)src/\w*[tT]est\w*/|(?:Test|Tests|Spec)\.\w+$", path))


class Maven(_Jvm):
    name = family = "maven"
    programs = ("mvn", "mvnw")
    manifests = ("pom.xml",)
    wrapper = "mvnw"
    reports = "**/target/surefire-reports/*.xml"
    options = ("-B", "-fae", "-DtrimStackTrace=false", "-Dsurefire.rerunFailingTestsCount=0")

    def read(self, files: list[Path]) -> Parsed:
        """Parse the files. surefire 2 names every row of a data provider like its method; TestNG's own file has the
        values."""
        parsed = super().read([path for path in files if path.name.startswith("TEST-")])
        detailed = [
            test for path in files if path.name == "testng-results.xml" for test in parse_file(path, _testng).tests
        ]
        parsed.tests = _by_values(parsed.tests, detailed)
        return parsed

    def selection(self, tests: list[TestResult]) -> list[str]:
        names = ",".join(dict.fromkeys(_joined(test, "#") for test in tests))
        # Modules without these tests must not fail; the second option is the newer name.
        none = ["-DfailIfNoTests=false", "-Dsurefire.failIfNoSpecifiedTests=false"]
        return [f"-Dtest={names}", *none] if tests else []

    def rerun_command(self, target: Target, test: TestResult) -> list[str]:
        return [*target.command, *self.selection([test])]


def _by_values(tests: list[TestResult], detailed: list[TestResult]) -> list[TestResult]:
    """Name rows of one method by their values, if TestNG reports the same number of rows with the same outcomes."""
    rows, values = _rows(tests), _rows(detailed)
    named = {
        id(row): msgspec.structs.replace(row, id=f"{key[0]}#{value.name}", name=value.name)
        for key, group in rows.items()
        if len(group) > 1 and [row.status for row in group] == [value.status for value in values.get(key, [])]
        for row, value in zip(group, values[key], strict=True)
    }
    return distinct([named.get(id(test), test) for test in tests]) if named else tests


def _rows(tests: list[TestResult]) -> dict[tuple[str, str], list[TestResult]]:
    """Group the rows by class and method, in order."""
    rows: dict[tuple[str, str], list[TestResult]] = {}
    for test in tests:
        method = re.match(r"[\w$]*", test.name)
        rows.setdefault(("".join(test.suite[-1:]), method[0] if method else ""), []).append(test)
    return rows


def _joined(test: TestResult, sign: str) -> str:
    """Return class and method; a parametrised method cannot be selected by parameters, so all of its tests run.

    A failure before or after the tests of a class has the class's name: then the whole class runs.
    """
    group = _class(test)
    name = test.name or (re.split(r"::|#", test.id)[1:] or [""])[0]
    method = re.match(r"[\w$]*", name)
    whole = name in (group, group.rpartition(".")[2]) or not method or not method[0]
    return group if whole or not method else f"{group}{sign}{method[0]}"


def _class(test: TestResult) -> str:
    """Return the class; nested classes appear only in the id."""
    named = re.split(r"::|#", test.id)
    return named[0] if len(named) > 1 else test.suite[-1] if test.suite else named[0]


class Gradle(_Jvm):
    name = family = "gradle"
    programs = ("gradle", "gradlew")
    manifests = ("settings.gradle", "settings.gradle.kts", "build.gradle", "build.gradle.kts")
    wrapper = "gradlew"
    reports = "**/build/test-results/**/*.xml"
    options = ("--continue", "--console=plain")

    def launch(self, target: Target, session: Session) -> list[LaunchStep]:
        # Otherwise a suite that passed before is skipped as up to date and writes no results.
        script = session.private / "ratchet.gradle"
        script.write_text("allprojects { tasks.withType(Test) { outputs.upToDateWhen { false } } }\n")
        (step,) = super().launch(target, session)
        return [LaunchStep(argv=[step.argv[0], "-I", str(script), *step.argv[1:]])]

    def selection(self, tests: list[TestResult]) -> list[str]:
        return [word for test in tests for word in ("--tests", _joined(test, "."))]

    def rerun_command(self, target: Target, test: TestResult) -> list[str]:
        return [*target.command, *self.selection([test])]


class Sbt(_Jvm):
    name = family = "sbt"
    programs = ("sbt",)
    manifests = ("build.sbt",)
    reports = "**/target/**/test-reports/*.xml"
    options = ("-Dsbt.color=false",)

    def selection(self, _tests: list[TestResult]) -> list[str]:
        return []

    def rerun_command(self, _target: Target, test: TestResult) -> list[str]:
        return ["sbt", f"testOnly {_class(test)}"]
