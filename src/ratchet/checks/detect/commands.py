"""Splits a target by its commands: a project's script may start one runner several times with different options and
files."""

from __future__ import annotations

import msgspec

from ratchet.checks.detect.registry import runner
from ratchet.checks.protocol import Target
from ratchet.core.report import Report, TestResult


def split_by_command(target: Target, only: list[TestResult]) -> list[tuple[Target, list[TestResult]]]:
    """Return the target once for each command, with the selected tests that the command runs. No selection means all
    tests."""
    if not target.also:
        return [(target, only)]
    if not only:
        return [(command, []) for command in _by_command(target)]
    taking = [commands_with(target, test) for test in only]
    found = [
        (command, [test for test, takers in zip(only, taking, strict=True) if command in takers])
        for command in _by_command(target)
    ]
    return [(command, tests) for command, tests in found if tests]


def commands_with(target: Target, test: TestResult) -> list[Target]:
    """Return the target with each command that runs this test; if none is known to run it, with every command."""
    each = _by_command(target)
    number = test.target.partition("#")[2]
    if number.isdecimal() and 0 < int(number) <= len(each) and target.owns(test):
        return [each[int(number) - 1]]
    runs_file = runner(target.runner).runs_file
    return [one for one in each if runs_file(one.command, test.file)] or each


def number_commands(report: Report, target: Target, only: list[TestResult]) -> Report:
    """Record the number of the command on each test of a target with several commands, and restore the selected ids: an
    id may count tests of the same name that other commands ran before."""
    commands = [target.command, *target.also]
    if not target.also or report.command not in commands:
        return report
    number = f"{target.name}#{commands.index(report.command) + 1}"
    asked = {_qualified_name(test): test.id for test in only if test.name}
    tests = [
        msgspec.structs.replace(test, target=number, id=asked.get(_qualified_name(test), test.id))
        for test in report.tests
    ]
    return msgspec.structs.replace(report, tests=tests)


def _qualified_name(test: TestResult) -> tuple[str, ...]:
    return test.file, *test.suite, test.name


def _by_command(target: Target) -> list[Target]:
    first = msgspec.structs.replace(target, also=[])
    return [first, *(msgspec.structs.replace(first, command=words, builds=[]) for words in target.also)]
