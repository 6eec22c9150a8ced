"""Runner for PHPUnit, read from its TeamCity log, which is written live with expected and actual values; else from
JUnit."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import msgspec

from ratchet.checks.detect.project import Project, join_root, parent_of
from ratchet.checks.formats import Parsed
from ratchet.checks.protocol import Confidence, LaunchStep, RunOutput, Session, Target
from ratchet.checks.runners import compiler, find_upward, junit, open_log_tail, parse_file, parser
from ratchet.checks.runners.base import BaseRunner
from ratchet.core.report import RED, Failure, TestResult, TestStatus

_teamcity = parser("teamcity")


class PHPUnit(BaseRunner):
    name = family = "phpunit"

    def detect(self, project: Project) -> Iterator[Target]:
        for path in project.glob("**/phpunit.xml", "**/phpunit.xml.dist", "**/phpunit.dist.xml"):
            yield self._target(project, parent_of(path), f"there is a {path}", Confidence.CONFIG)
        for path in project.glob("**/composer.json"):
            if "phpunit/phpunit" in project.text(path):
                yield self._target(project, parent_of(path), f"{path} depends on PHPUnit", Confidence.DEPENDENCY)

    def _target(self, project: Project, root: str, why: str, strength: Confidence) -> Target:
        configured = any(
            project.has(path) for path in join_root(root, "phpunit.xml", "phpunit.xml.dist", "phpunit.dist.xml")
        )
        folder = "test" if any(project.glob(*join_root(root, "test/**/*Test.php"))) else "tests"
        return Target(
            runner=self.name,
            command=["phpunit", *([] if configured else [folder])],
            root=root,
            language="php",
            tests=join_root(root, f"{folder}/**", "**/*Test.php"),
            sources=join_root(root, "**/*.php"),
            protected=join_root(root, "phpunit.xml", "phpunit.xml.dist", "phpunit.dist.xml"),
            setup=["composer install"] if project.has(*join_root(root, "composer.json")) else [],
            why=why,
            strength=strength,
        )

    def launch(self, target: Target, session: Session) -> list[LaunchStep]:
        own = find_upward(session.folder, "vendor/bin/phpunit") if target.command[0] == "phpunit" else None
        words = [str(own), *target.command[1:]] if own else target.command
        logs = [
            "--log-junit",
            str(session.private / "junit.xml"),
            "--log-teamcity",
            str(session.private / "teamcity.txt"),
        ]
        chosen = ["--filter", _filter(session.only)] if session.only else []
        return [LaunchStep(argv=[*words, *logs, *chosen])]

    def parse(self, results: RunOutput) -> Parsed:
        live = parse_file(results.private / "teamcity.txt", _teamcity)
        whole = parse_file(results.private / "junit.xml", junit)
        parsed = live if live.tests or live.running else whole
        # The XML is written last: if it exists the run has ended, whatever the log says.
        parsed.ended = whole.ended
        parsed.tests = _with_risky_passed(parsed.tests, whole.tests, results.exit_code)
        parsed.tests = [_named(test) for test in _with_errors(parsed.tests, whole.tests)]
        if not parsed.tests and results.exit_code:
            with open_log_tail(results) as stream:
                parsed.compile_errors = compiler(stream).compile_errors
            parsed.ended = parsed.ended or bool(parsed.compile_errors)
        return parsed

    def locate(self, test: TestResult, folder: Path) -> TestResult:
        """Locate a test that never finished: its file has the name of its class."""
        case, _, method = test.id.partition(" with data set ")[0].partition("::")
        project = Project(folder)
        for path in project.glob(f"**/{case.rpartition(chr(92))[2]}.php"):
            if written := re.search(rf"\bfunction\s+{re.escape(method)}\b", project.text(path)):
                line = project.text(path).count("\n", 0, written.start()) + 1
                failure = test.failure and msgspec.structs.replace(test.failure, file=path, line=line)
                return msgspec.structs.replace(test, file=path, line=line, failure=failure)
        return test

    def rerun_command(self, target: Target, test: TestResult) -> list[str]:
        return [*target.command, "--filter", _filter([test])]


def _with_risky_passed(tests: list[TestResult], detailed: list[TestResult], exit_code: int) -> list[TestResult]:
    """Treat tests without assertions as passed, unless PHPUnit is configured to fail for them: then nothing else has
    failed."""
    risky = {(test.file, test.name) for test in (*detailed, *tests) if test.failure and _is_risky(test.failure)}
    others = [test for test in tests if test.status in RED and (test.file, test.name) not in risky]
    if not risky or (exit_code and not others):
        return tests
    return [_passed(test) if test.failure and (test.file, test.name) in risky else test for test in tests]


# A run that died has no XML and hence no types.
_RISKY = re.compile(r"(?:RiskyTestError|OutputError|CoversAnnotationException|CoveredCode\w*(?:Error|Exception))$")
_RISKY_MESSAGE = re.compile(
    r"This test (?:did not perform any assertions|does not have a @covers annotation|printed output:)"
)


def _is_risky(failure: Failure) -> bool:
    return bool(_RISKY.search(failure.type) or _RISKY_MESSAGE.match(failure.message))


def _with_errors(tests: list[TestResult], detailed: list[TestResult]) -> list[TestResult]:
    """Correct errors, which the live log reports as failures and often without a type, from the XML."""
    errors = {(test.file, test.name): test for test in detailed if test.status is TestStatus.ERROR}
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
    """Name a test without data: PHPUnit reports it in place of the test whose data provider failed."""
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
    reason = test.failure.message.splitlines()[0] if test.failure and test.failure.message else ""
    return msgspec.structs.replace(test, status=TestStatus.PASSED, failure=None, reason=reason)


def _filter(tests: list[TestResult]) -> str:
    """Match exactly these tests, with all data sets if none is named: PHPUnit matches `Class::method with data set
    …`."""
    names = [re.escape(test.id).replace("/", r"\/") for test in tests]
    whole = [name if "::" in name else f"[^:]+::{name}" for name in names]
    # Without data there is no test but a message, which PHPUnit matches.
    whole += [
        rf"[^:]+ {name} is invalid[\s\S]*" for test, name in zip(tests, names, strict=True) if test.phase == "setup"
    ]
    return "/^(?:" + "|".join(whole) + ")(?: with data set .*)?$/"
