"""Java and its kin: Maven, Gradle and sbt, by the JUnit files they write, of this run and no older."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import msgspec

from ratchet.checks import Results, Session, Step, Strength, Target
from ratchet.checks.formats import Parsed, distinct
from ratchet.checks.project import Project, root_of, under
from ratchet.checks.runners import Usual, compiler, end_of, joined, junit, new_files, note_files, parser, read
from ratchet.core.report import TestResult

_testng = parser("other_xml")


class _Jvm(Usual):
    """A build tool that leaves `TEST-*.xml` files below the project."""

    manifests: tuple[str, ...] = ()
    reports = ""
    wrapper = ""
    options: tuple[str, ...] = ()

    def detect(self, project: Project) -> Iterator[Target]:
        roots: list[str] = []
        for path in project.named(*(f"**/{name}" for name in self.manifests)):
            root = root_of(path)
            if any(above in (".", root) or root.startswith(f"{above}/") for above in roots):
                continue  # a module: the build above runs it
            if root != "." and not any(_is_test(name) for name in project.inside(root)):
                continue  # a build inside another language's project, of a site or an app
            roots.append(root)
            own = project.has(*under(root, self.wrapper)) if self.wrapper else False
            yield Target(
                runner=self.name,
                command=[f"./{self.wrapper}" if own else self.programs[0], "test"],
                root=root,
                language="java",
                tests=under(root, "**/src/test/**"),
                sources=under(root, "**/src/main/**"),
                protected=[],
                why=f"there is a {path}",
                strength=Strength.CONFIG,
            )

    def launch(self, target: Target, session: Session) -> list[Step]:
        note_files(session, self.reports)
        return [Step(argv=[*target.command, *self.options, *self.chosen(session.only)])]

    def chosen(self, tests: list[TestResult]) -> list[str]:
        raise NotImplementedError

    def parse(self, results: Results) -> Parsed:
        _, files = new_files(results)
        parts = [self.read(files)] if files else []
        if results.exit_code:
            with end_of(results) as stream:
                errors = compiler(stream).compile_errors
            if errors:
                parts.append(Parsed(compile_errors=errors, ended=True))
            with end_of(results) as stream:
                parts += died(stream.read().decode(errors="replace"))
        parsed = joined(parts) if parts else Parsed(ended=not results.exit_code)
        parsed.ended = parsed.ended and not results.stopped
        return parsed

    def read(self, files: list[Path]) -> Parsed:
        return joined(read(path, junit) for path in files)


_DIED = re.compile(
    r"The forked VM terminated without|Process 'Gradle Test Executor \d+' finished with non-zero exit value"
    r"|Could not complete execution for Gradle Test Executor"
)
_CRASHED = re.compile(r"(?m)^\[ERROR\] Crashed tests:\s*\n((?:\[ERROR\] [\w.$]+[ \t]*\r?\n)+)")


def died(said: str) -> list[Parsed]:
    """A virtual machine that left in the midst of its tests leaves no file of them: only this tells what is missing."""
    if not _DIED.search(said):
        return []
    named = [name for rows in _CRASHED.findall(said) for name in re.findall(r"(?m)^\[ERROR\] ([\w.$]+)", rows)]
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
        """Every row of a data provider is called as its method is by surefire 2; TestNG's own file has the values."""
        parsed = super().read([path for path in files if path.name.startswith("TEST-")])
        told = [test for path in files if path.name == "testng-results.xml" for test in read(path, _testng).tests]
        parsed.tests = _by_values(parsed.tests, told)
        return parsed

    def chosen(self, tests: list[TestResult]) -> list[str]:
        names = ",".join(dict.fromkeys(_joined(test, "#") for test in tests))
        # The modules that have none of them are not to fail for it; the second is how newer versions call it.
        none = ["-DfailIfNoTests=false", "-Dsurefire.failIfNoSpecifiedTests=false"]
        return [f"-Dtest={names}", *none] if tests else []

    def again(self, target: Target, test: TestResult) -> list[str]:
        return [*target.command, *self.chosen([test])]


def _by_values(tests: list[TestResult], told: list[TestResult]) -> list[TestResult]:
    """Rows that share one name are called by their values, where TestNG tells as many with the same outcomes."""
    rows, values = _rows(tests), _rows(told)
    named = {
        id(row): msgspec.structs.replace(row, id=f"{key[0]}#{value.name}", name=value.name)
        for key, group in rows.items()
        if len(group) > 1 and [row.status for row in group] == [value.status for value in values.get(key, [])]
        for row, value in zip(group, values[key], strict=True)
    }
    return distinct([named.get(id(test), test) for test in tests]) if named else tests


def _rows(tests: list[TestResult]) -> dict[tuple[str, str], list[TestResult]]:
    """By class and method, in their order."""
    rows: dict[tuple[str, str], list[TestResult]] = {}
    for test in tests:
        method = re.match(r"[\w$]*", test.name)
        rows.setdefault(("".join(test.suite[-1:]), method[0] if method else ""), []).append(test)
    return rows


def _joined(test: TestResult, sign: str) -> str:
    """The class and the method; of a method with parameters, which cannot be asked for by them, all its tests.

    What failed before or after a class's tests is under the class's own name: then all of them.
    """
    group = _class(test)
    name = test.name or (re.split(r"::|#", test.id)[1:] or [""])[0]
    method = re.match(r"[\w$]*", name)
    whole = name in (group, group.rpartition(".")[2]) or not method or not method[0]
    return group if whole or not method else f"{group}{sign}{method[0]}"


def _class(test: TestResult) -> str:
    """A class inside another is in the id only."""
    named = re.split(r"::|#", test.id)
    return named[0] if len(named) > 1 else test.suite[-1] if test.suite else named[0]


class Gradle(_Jvm):
    name = family = "gradle"
    programs = ("gradle", "gradlew")
    manifests = ("settings.gradle", "settings.gradle.kts", "build.gradle", "build.gradle.kts")
    wrapper = "gradlew"
    reports = "**/build/test-results/**/*.xml"
    options = ("--continue", "--console=plain")

    def launch(self, target: Target, session: Session) -> list[Step]:
        # Without this a suite that passed before is skipped as up to date, and leaves no results.
        script = session.private / "ratchet.gradle"
        script.write_text("allprojects { tasks.withType(Test) { outputs.upToDateWhen { false } } }\n")
        (step,) = super().launch(target, session)
        return [Step(argv=[step.argv[0], "-I", str(script), *step.argv[1:]])]

    def chosen(self, tests: list[TestResult]) -> list[str]:
        return [word for test in tests for word in ("--tests", _joined(test, "."))]

    def again(self, target: Target, test: TestResult) -> list[str]:
        return [*target.command, *self.chosen([test])]


class Sbt(_Jvm):
    name = family = "sbt"
    programs = ("sbt",)
    manifests = ("build.sbt",)
    reports = "**/target/**/test-reports/*.xml"
    options = ("-Dsbt.color=false",)

    def chosen(self, _tests: list[TestResult]) -> list[str]:
        return []

    def again(self, _target: Target, test: TestResult) -> list[str]:
        return ["sbt", f"testOnly {_class(test)}"]
