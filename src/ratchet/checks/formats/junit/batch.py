"""Builds the results of many cases at once: common parts are computed once, the others in columns."""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import repeat
from operator import add, eq

from ratchet.checks.formats.junit import durations, verdicts, writers
from ratchet.checks.formats.junit.elements import Child
from ratchet.checks.formats.recover.failure_templates import FailureTemplates
from ratchet.core.report import Failure, TestResult, TestStatus

Columns = dict[str, list[str]]
ChildrenByCase = dict[int, list[Child]]  # the child elements of cases, by case number


def size_of(columns: Columns) -> int:
    return len(next(iter(columns.values()), ()))


def part_of(columns: Columns, begin: int, end: int) -> Columns:
    return {key: values[begin:end] for key, values in columns.items()}


def row_of(columns: Columns, at: int) -> dict[str, str]:
    return {key: values[at] for key, values in columns.items()}


def recognised(columns: Columns) -> tuple[int, str]:
    """Return the first case that identifies the tool that wrote the document, and the tool; else the number of cases
    and ""."""
    size = size_of(columns)
    groups = columns.get("classname") or [""] * size
    if "status" not in columns:
        for group in dict.fromkeys(groups):
            if writer := writers.of_look(group, "", False, columns.keys()):
                return groups.index(group), writer
        return size, ""
    names = columns.get("name") or [""] * size
    looks = list(zip(groups, columns["status"], map(eq, groups, names), strict=True))
    for look in dict.fromkeys(looks):
        if writer := writers.of_look(*look, columns.keys()):
            return looks.index(look), writer
    return size, ""


def silent_verdicts(columns: Columns) -> list[int]:
    """Return the cases without child elements that did not pass according to an attribute."""
    if "status" not in columns and "result" not in columns:
        return []
    none = [""] * size_of(columns)
    words = list(zip(columns.get("status", none), columns.get("result", none), strict=True))
    doubtful = {pair for pair in set(words) if verdicts.by_words(*pair) is not TestStatus.PASSED}
    return [at for at, pair in enumerate(words) if pair in doubtful] if doubtful else []


def skip(results: list[TestResult], children_by_case: ChildrenByCase) -> ChildrenByCase:
    """Mark skipped tests; return the children of all other cases."""
    known = {id(children): verdicts.skipped_of(children) for children in children_by_case.values()}
    loud: ChildrenByCase = {}
    for at, children in children_by_case.items():
        if skipped := known[id(children)]:
            test = results[at]
            results[at] = TestResult(
                test.id, skipped[0], test.name, test.suite, test.file, test.line, test.duration_s, "call", skipped[1]
            )
        else:
            loud[at] = children
    return loud


def fail(
    results: list[TestResult],
    children_by_case: ChildrenByCase,
    columns: Columns,
    writer: str,
    failures: FailureTemplates,
) -> ChildrenByCase:
    """Set the failure of cases whose only child is a failure; return the children of all other cases, and of files
    listed as cases."""
    names, groups = (columns.get(key) or [""] * len(results) for key in ("name", "classname"))
    alone = {
        at: children[0]
        for at, children in children_by_case.items()
        if len(children) == 1
        and children[0].name in verdicts.BAD
        and not verdicts.broken_of(writer, names[at], groups[at], children[0])
    }
    for (at, bad), failure in zip(alone.items(), _read(alone, names, failures), strict=True):
        test = results[at]
        results[at] = TestResult(
            test.id,
            TestStatus.ERROR if bad.name == "error" else TestStatus.FAILED,
            test.name,
            test.suite,
            test.file,
            test.line,
            test.duration_s,
            verdicts.phase_of(writer, test.name, failure),
            "",
            failure,
        )
    return {at: children for at, children in children_by_case.items() if at not in alone}


def _read(alone: dict[int, Child], names: list[str], failures: FailureTemplates) -> list[Failure]:
    """Parse the failures. Cases with the same element share one failure, unless its text contains their names."""
    keys = [(id(bad), names[at] if "::" in bad.text else "") for at, bad in alone.items()]
    distinct = dict(zip(keys, alone.values(), strict=True))
    read = failures.read_all([verdicts.failure_texts(name, bad) for (_, name), bad in distinct.items()])
    known = dict(zip(distinct, map(verdicts.placed, read, distinct.values()), strict=True))
    return [known[key] for key in keys]


_EX_PLACE = re.compile(r"(.+\.exs?):(\d{1,9})$")


class CaseBatch:
    """Cases in columns, and the tool that wrote them."""

    def __init__(self, columns: Columns, writer: str, identify: writers.Identify) -> None:
        size = size_of(columns)
        self.columns, self.writer, self.identify = columns, writer, identify
        self.names, self.groups, self.files = (columns.get(key) or [""] * size for key in ("name", "classname", "file"))
        if any(".ex" in file for file in set(self.files)):
            self._split_places()
        self.classes = set(self.groups)
        self.heads = self._heads()
        self.ids = self._ids()

    def passed(self, suites: Iterable[list[str]], files: list[str]) -> list[TestResult]:
        """Return the cases as passed tests, with the given suites and the files of these suites."""
        places = self._places(files)
        times = self.columns.get("time")
        took = durations.of(times) if times else repeat(0.0)
        lines = self._lines()
        return list(map(TestResult, self.ids, repeat(TestStatus.PASSED), self.names, suites, places, lines, took))

    def _split_places(self) -> None:
        """ExUnit's formatter writes `test/a_test.exs:7`."""
        found = [_EX_PLACE.match(file) for file in self.files]
        self.files = [match[1] if match else file for match, file in zip(found, self.files, strict=True)]
        line_column = self.columns.get("line") or [""] * len(self.files)
        lines = [line or (match[2] if match else "") for match, line in zip(found, line_column, strict=True)]
        self.columns = {**self.columns, "file": self.files, "line": lines}

    def _heads(self) -> dict[str, str]:
        """Return the prefix of the test ids of each class, if all its ids have the same prefix."""
        if self.writer not in writers.BY_PREFIX or "" in self.names:
            return {}
        if "file" in self.columns and self.writer in writers.BY_FILE:
            return {}
        return {group: self.identify(group, "?", "")[:-1] for group in self.classes}

    def _ids(self) -> list[str]:
        names, groups, files, identify = self.names, self.groups, self.files, self.identify
        if self.writer in writers.BY_NAME:
            return names
        if not self.writer:
            heads = {group: identify(group, "", "") for group in self.classes}
            return [
                name if not group or name.startswith(group) else heads[group] + name
                for group, name in zip(groups, names, strict=True)
            ]
        if len(self.heads) == 1:
            (head,) = self.heads.values()
            return [head + name for name in names]
        if self.heads:
            return list(map(add, map(self.heads.__getitem__, groups), names))
        if self.writer not in writers.BY_PREFIX or "" in names:
            return list(map(identify, groups, names, files))
        places = list(zip(groups, files, strict=True))
        known = {place: identify(place[0], "?", place[1])[:-1] for place in set(places)}
        return list(map(add, map(known.__getitem__, places), names))

    def _places(self, files: list[str]) -> list[str]:
        """Return the file of each case: its own, else its suite's, else one derived from other attributes."""
        if "file" in self.columns:
            files = [own or around for own, around in zip(self.files, files, strict=True)]
            short = {file: file.removeprefix("./") for file in set(files)}
            files = list(map(short.__getitem__, files))
        return self._elsewhere(files) if self.writer in writers.FILE_ELSEWHERE and "" in files else files

    def _elsewhere(self, files: list[str]) -> list[str]:
        writer, groups = self.writer, self.groups
        known = {
            group: writers.file_of(writer, group, self.heads.get(group) or self.identify(group, "?", ""))
            for group in self.classes
            if group
        }
        if len(self.classes) == len(known) and files.count("") == len(files):
            return [*known.values()] * len(files) if len(known) == 1 else list(map(known.__getitem__, groups))
        return [
            file or (known[group] if group else writers.file_of(writer, group, key))
            for file, group, key in zip(files, groups, self.ids, strict=True)
        ]

    def _lines(self) -> Iterable[int]:
        line_column = self.columns.get("line") or self.columns.get("lineno")
        if not line_column:
            return repeat(0)
        if "line" in self.columns and "lineno" in self.columns:
            line_column = [first or other for first, other in zip(line_column, self.columns["lineno"], strict=True)]
        known = {digits: writers.line_number(digits, self.writer) for digits in set(line_column)}
        return list(map(known.__getitem__, line_column))
