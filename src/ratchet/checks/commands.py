"""The commands of a target: a project's script may start one runner several times, with other options and files."""

from __future__ import annotations

import msgspec

from ratchet.checks import Target
from ratchet.checks.registry import runner
from ratchet.core.report import Report, TestResult


def shared(target: Target, only: list[TestResult]) -> list[tuple[Target, list[TestResult]]]:
    """The target by each of its commands, with those of the tests to run that it has. None to run are all."""
    if not target.also:
        return [(target, only)]
    if not only:
        return [(command, []) for command in _by_command(target)]
    taking = [having(target, test) for test in only]
    found = [
        (command, [test for test, takers in zip(only, taking, strict=True) if command in takers])
        for command in _by_command(target)
    ]
    return [(command, tests) for command, tests in found if tests]


def having(target: Target, test: TestResult) -> list[Target]:
    """The target by those of its commands that run this test; where none is known to, by any."""
    each = _by_command(target)
    number = test.target.partition("#")[2]
    if number.isdecimal() and 0 < int(number) <= len(each) and target.has(test):
        return [each[int(number) - 1]]
    takes = getattr(runner(target.runner), "takes", None)
    return [one for one in each if takes and takes(one.command, test.file)] or each


def marked(report: Report, target: Target, only: list[TestResult]) -> Report:
    """With the number of the command at each test, where the target has several, and the id by which it was asked for:
    that may count those of the same name which other commands ran before it."""
    commands = [target.command, *target.also]
    if not target.also or report.command not in commands:
        return report
    number = f"{target.name}#{commands.index(report.command) + 1}"
    asked = {_names(test): test.id for test in only if test.name}
    tests = [msgspec.structs.replace(test, target=number, id=asked.get(_names(test), test.id)) for test in report.tests]
    return msgspec.structs.replace(report, tests=tests)


def _names(test: TestResult) -> tuple[str, ...]:
    return test.file, *test.suite, test.name


def _by_command(target: Target) -> list[Target]:
    first = msgspec.structs.replace(target, also=[])
    return [first, *(msgspec.structs.replace(first, command=words, builds=[]) for words in target.also)]
