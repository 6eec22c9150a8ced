"""Java and its kin: Maven, Gradle and sbt, by the JUnit files they write, of this run and no older."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ratchet.checks import Results, Session, Step, Strength, Target
from ratchet.checks.formats import Parsed
from ratchet.checks.project import Project, root_of, under
from ratchet.checks.runners import Usual, compiler, end_of, joined, junit, read
from ratchet.core.report import TestResult

_STAMP = "began"


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
        (session.private / _STAMP).touch()
        return [Step(argv=[*target.command, *self.options, *self.chosen(session.only)])]

    def chosen(self, tests: list[TestResult]) -> list[str]:
        raise NotImplementedError

    def parse(self, results: Results) -> Parsed:
        began = (results.private / _STAMP).stat().st_mtime - 1
        files = sorted(path for path in results.folder.glob(self.reports) if path.stat().st_mtime >= began)
        parts = [read(path, junit) for path in files]
        if results.exit_code:
            with end_of(results) as stream:
                errors = compiler(stream).compile_errors
            if errors:
                parts.append(Parsed(compile_errors=errors, ended=True))
        parsed = joined(parts) if parts else Parsed(ended=not results.exit_code)
        parsed.ended = parsed.ended and not results.stopped
        return parsed


def _is_test(path: str) -> bool:
    return bool(re.search(r"(?:^|/)src/\w*[tT]est\w*/|(?:Test|Tests|Spec)\.\w+$", path))


class Maven(_Jvm):
    name = family = "maven"
    programs = ("mvn", "mvnw")
    manifests = ("pom.xml",)
    wrapper = "mvnw"
    reports = "**/target/surefire-reports/TEST-*.xml"
    options = ("-B", "-fae", "-DtrimStackTrace=false", "-Dsurefire.rerunFailingTestsCount=0")

    def chosen(self, tests: list[TestResult]) -> list[str]:
        names = ",".join(f"{_class(test)}#{test.name}" for test in tests)
        return [f"-Dtest={names}", "-DfailIfNoTests=false"] if tests else []

    def again(self, target: Target, test: TestResult) -> list[str]:
        return [*target.command, f"-Dtest={_class(test)}#{test.name}"]


def _class(test: TestResult) -> str:
    return test.suite[-1] if test.suite else re.split(r"::|#", test.id)[0]


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
        return [word for test in tests for word in ("--tests", f"{_class(test)}.{test.name}")]

    def again(self, target: Target, test: TestResult) -> list[str]:
        return [*target.command, "--tests", f"{_class(test)}.{test.name}"]


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
