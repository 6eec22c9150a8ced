"""PHP: PHPUnit, by its TeamCity log, which is written as it goes and holds expected and actual; else by JUnit."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import msgspec

from ratchet.checks import Results, Session, Step, Strength, Target
from ratchet.checks.formats import Parsed
from ratchet.checks.project import Project, root_of, under
from ratchet.checks.runners import Usual, compiler, end_of, junit, parser, read, upward
from ratchet.core.report import RED, Failure, TestResult, TestStatus

_teamcity = parser("teamcity")


class PHPUnit(Usual):
    name = family = "phpunit"

    def detect(self, project: Project) -> Iterator[Target]:
        for path in project.named("**/phpunit.xml", "**/phpunit.xml.dist", "**/phpunit.dist.xml"):
            yield self._target(project, root_of(path), f"there is a {path}", Strength.CONFIG)
        for path in project.named("**/composer.json"):
            if "phpunit/phpunit" in project.text(path):
                yield self._target(project, root_of(path), f"{path} depends on PHPUnit", Strength.DEPENDENCY)

    def _target(self, project: Project, root: str, why: str, strength: Strength) -> Target:
        configured = any(
            project.has(path) for path in under(root, "phpunit.xml", "phpunit.xml.dist", "phpunit.dist.xml")
        )
        folder = "test" if any(project.named(*under(root, "test/**/*Test.php"))) else "tests"
        return Target(
            runner=self.name,
            command=["phpunit", *([] if configured else [folder])],
            root=root,
            language="php",
            tests=under(root, f"{folder}/**", "**/*Test.php"),
            sources=under(root, "**/*.php"),
            protected=under(root, "phpunit.xml", "phpunit.xml.dist", "phpunit.dist.xml"),
            setup=["composer install"] if project.has(*under(root, "composer.json")) else [],
            why=why,
            strength=strength,
        )

    def launch(self, target: Target, session: Session) -> list[Step]:
        own = upward(session.folder, "vendor/bin/phpunit") if target.command[0] == "phpunit" else None
        words = [str(own), *target.command[1:]] if own else target.command
        logs = [
            "--log-junit",
            str(session.private / "junit.xml"),
            "--log-teamcity",
            str(session.private / "teamcity.txt"),
        ]
        chosen = ["--filter", _filter(session.only)] if session.only else []
        return [Step(argv=[*words, *logs, *chosen])]

    def parse(self, results: Results) -> Parsed:
        live = read(results.private / "teamcity.txt", _teamcity)
        whole = read(results.private / "junit.xml", junit)
        parsed = live if live.tests or live.running else whole
        # The XML is written at the very end: with it the run is over, whatever the log says.
        parsed.ended = whole.ended
        parsed.tests = _with_risky_passed(parsed.tests, whole.tests, results.exit_code)
        parsed.tests = [_named(test) for test in _with_errors(parsed.tests, whole.tests)]
        if not parsed.tests and results.exit_code:
            with end_of(results) as stream:
                parsed.compile_errors = compiler(stream).compile_errors
            parsed.ended = parsed.ended or bool(parsed.compile_errors)
        return parsed

    def located(self, test: TestResult, folder: Path) -> TestResult:
        """A test that never ended, by the name of its class, which is that of its file."""
        case, _, method = test.id.partition(" with data set ")[0].partition("::")
        project = Project(folder)
        for path in project.named(f"**/{case.rpartition(chr(92))[2]}.php"):
            if written := re.search(rf"\bfunction\s+{re.escape(method)}\b", project.text(path)):
                line = project.text(path).count("\n", 0, written.start()) + 1
                failure = test.failure and msgspec.structs.replace(test.failure, file=path, line=line)
                return msgspec.structs.replace(test, file=path, line=line, failure=failure)
        return test

    def again(self, target: Target, test: TestResult) -> list[str]:
        return [*target.command, "--filter", _filter([test])]


def _with_risky_passed(tests: list[TestResult], told: list[TestResult], exit_code: int) -> list[TestResult]:
    """A test that asserts nothing passes, unless PHPUnit is told to fail for it: then nothing else has failed."""
    risky = {(test.file, test.name) for test in (*told, *tests) if test.failure and _is_risky(test.failure)}
    others = [test for test in tests if test.status in RED and (test.file, test.name) not in risky]
    if not risky or (exit_code and not others):
        return tests
    return [_passed(test) if test.failure and (test.file, test.name) in risky else test for test in tests]


# Of a run that died there is no XML, and so no type of them.
_RISKY = re.compile(r"(?:RiskyTestError|OutputError|CoversAnnotationException|CoveredCode\w*(?:Error|Exception))$")
_RISKY_SAID = re.compile(
    r"This test (?:did not perform any assertions|does not have a @covers annotation|printed output:)"
)


def _is_risky(failure: Failure) -> bool:
    return bool(_RISKY.search(failure.type) or _RISKY_SAID.match(failure.message))


def _with_errors(tests: list[TestResult], told: list[TestResult]) -> list[TestResult]:
    """The live log tells errors as failures, and often without their type: the XML knows both."""
    errors = {(test.file, test.name): test for test in told if test.status is TestStatus.ERROR}
    return [
        _as_error(test, error) if test.failure and (error := errors.get((test.file, test.name))) else test
        for test in tests
    ]


def _as_error(test: TestResult, error: TestResult) -> TestResult:
    kind = error.failure.type if error.failure else ""
    failure = test.failure and msgspec.structs.replace(test.failure, type=test.failure.type or kind)
    return msgspec.structs.replace(test, status=TestStatus.ERROR, failure=failure)


_INVALID = re.compile(r"The data provider specified for (?P<id>(?P<suite>\S+)::(?P<name>\w+)) is invalid")


def _named(test: TestResult) -> TestResult:
    """A test without data is one of PHPUnit's own, which says whose data it is that cannot be had."""
    found = _INVALID.match(test.failure.message) if test.failure and "ErrorTestCase" in test.id else None
    if not found:
        return test
    return msgspec.structs.replace(
        test,
        id=found.group("id"),
        name=found.group("name"),
        suite=[found.group("suite")],
        file="",
        status=TestStatus.ERROR,
        phase="setup",
    )


def _passed(test: TestResult) -> TestResult:
    said = test.failure.message.splitlines()[0] if test.failure and test.failure.message else ""
    return msgspec.structs.replace(test, status=TestStatus.PASSED, failure=None, reason=said)


def _filter(tests: list[TestResult]) -> str:
    """Exactly these, with all their data where none of it is named: PHPUnit matches `Class::method with data set …`."""
    names = [re.escape(test.id).replace("/", r"\/") for test in tests]
    whole = [name if "::" in name else f"[^:]+::{name}" for name in names]
    # Without data there is no test but a message, and that is what PHPUnit looks at.
    whole += [
        rf"[^:]+ {name} is invalid[\s\S]*" for test, name in zip(tests, names, strict=True) if test.phase == "setup"
    ]
    return "/^(?:" + "|".join(whole) + ")(?: with data set .*)?$/"
