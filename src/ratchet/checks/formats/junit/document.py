"""The handler for XML events of a JUnit document: open elements, and the results so far."""

# All rules for ids have the same three parameters.
# ruff: noqa: ARG002

from __future__ import annotations

import msgspec

from ratchet.checks.formats import Parsed, compiler, distinct
from ratchet.checks.formats.junit import batch, fast_path, verdicts, writers
from ratchet.checks.formats.junit.elements import Child, ChildBuilder
from ratchet.checks.formats.junit.identities import Identities
from ratchet.checks.formats.recover.failure_templates import FailureTemplates
from ratchet.checks.formats.xml import XmlReader
from ratchet.core.report import RED, Diagnostic, Failure, TestResult, TestStatus

_COUNTS = {"tests": "tests", "failures": "failed", "errors": "errors", "skipped": "skipped", "skip": "skipped"}
_SUITE = {"testsuite", "testsuites"}
_CHILD = {"failure", "error", "skipped", "warning", "system-out", "system-err", *verdicts.AGAIN}
_DEPTH = 100
_STRIDE = 64


class _Level(msgspec.Struct, frozen=True, gc=False):
    """An open suite: its element, the suites and the file of its cases, and whether its totals or an outer suite's were
    counted."""

    element: str = ""
    path: list[str] = []
    file: str = ""
    is_counted: bool = False


_OUTSIDE = _Level()
_Saved = tuple[list[_Level], dict[str, int], int, int, int, str]


class JUnitDocument:
    """Collects results from XML events: a stack of open suites, one open case, finished cases in `tests`."""

    reader: XmlReader

    def __init__(self) -> None:
        self.tests: list[TestResult] = []
        self.identities = Identities()
        self.failures = FailureTemplates(verdicts.failure)
        self.broken: list[Diagnostic] = []
        self.compile: list[Diagnostic] = []
        self.reported: dict[str, int] = {}
        self.cases = 0
        self.writer = ""
        self.identify: writers.Identify = writers.plain_id
        self.open: list[_Level] = []
        self.closed = False
        self.inner_red = False  # whether an inner suite counts failures
        self.listed = False  # GoogleTest's `--gtest_list_tests`, where no test has run
        self.foreign = False  # a GLib report, whose cases have another format
        self.path: list[str] = []
        self.file = ""
        self.case: dict[str, str] | None = None
        self.children: list[Child] = []
        self.around: list[tuple[dict[str, str], list[Child], bool]] = []  # open cases that contain the current one
        self.child: ChildBuilder | None = None
        self.telling = False
        self.depth = 0
        self.plain: list[dict[str, str]] = []
        self.marks = 0
        self.marked = 0
        self.saved: _Saved = ([], {}, 0, 0, 0, "")

    # --- events

    def start(self, name: str, attributes: dict[str, str], /) -> None:
        self.depth += 1
        if name == "testcase":
            # Marks are expensive; a fault may cause a few cases to be read again.
            if len(self.plain) >= _STRIDE or len(self.tests) - self.marked >= _STRIDE or not self.marks:
                self._mark()
            if self.case is not None and len(self.around) < _DEPTH:
                self.around.append((self.case, self.children, self.telling))
            self.case, self.telling, self.children = attributes, False, []
        elif name in _CHILD and (self.case is not None or (name in verdicts.BAD and self.open)):
            self._listen_to(name, attributes)
        elif name in _SUITE:
            self._open(name, attributes)
        elif name == "property":
            self._property(attributes)
        elif name == "gtester":
            self.foreign = True
        elif self.case is not None and (usual := verdicts.canonical_name(name)):
            self._listen_to(usual, attributes)

    def _listen_to(self, name: str, attributes: dict[str, str]) -> None:
        self.child = ChildBuilder(name, attributes)
        self.telling = self.telling or not name.startswith("system-")
        self.reader.listen()

    def end(self, name: str, /) -> None:
        self.depth -= 1
        if name == "testcase":
            case = self.case
            # Most cases have no failure: they are collected and converted together.
            if case and not self.telling:
                if self.plain and case.keys() != self.plain[0].keys():
                    self.settle()
                self.plain.append(case)
                self.case = None
            else:
                self._finish()
            if self.around:
                self.case, self.children, self.telling = self.around.pop()
        elif self.child is not None and (name == self.child.name or verdicts.canonical_name(name) == self.child.name):
            self.reader.listen(False)
            element, self.child = self.child.build(), None
            if self.case is not None:
                self.children.append(element)
            else:
                # Ant reports a class that cannot be loaded in the suite itself.
                self.broken.append(verdicts.load_error("".join(self.path[-1:]), element, "junit"))
        elif name in _SUITE:
            self._close(name)

    def text(self, data: str, /) -> None:
        if self.child is not None:
            self.child.add(data)

    def _mark(self) -> None:
        self.settle()
        self.reader.mark()
        self.remember()

    def remember(self) -> None:
        """Save the current state; after a fault, reading continues from here."""
        self.marks += 1
        self.marked = len(self.tests)
        self.saved = (
            list(self.open),
            dict(self.reported),
            self.cases,
            len(self.broken),
            len(self.compile),
            self.writer,
        )

    def rewind(self) -> None:
        self.open, self.reported, self.cases, broken, compiled, writer = self.saved
        self._written_by(writer)
        del self.tests[self.marked :], self.broken[broken:], self.compile[compiled:]
        self._stand()
        self.case, self.children, self.child, self.closed, self.plain = None, [], None, False, []
        self.around = []

    # --- suites

    def _open(self, name: str, attributes: dict[str, str]) -> None:
        self.settle()
        around = self.open[-1] if self.open else _OUTSIDE
        is_counted = around.is_counted
        self.closed = False
        self.listed = self.listed or (attributes.get("name") == "AllTests" and attributes.keys() == {"tests", "name"})
        if "tests" in attributes and not is_counted:
            self._count(attributes)
            is_counted = True
        elif is_counted:
            self.inner_red = self.inner_red or any(attributes.get(key, "0") != "0" for key in ("failures", "errors"))
        if len(self.open) < _DEPTH:
            title = attributes.get("name") if name == "testsuite" else ""
            self.path = [*around.path, title] if title else around.path
            file = attributes.get("file")
            self.file = file.removeprefix("./") if file else around.file
            self.open.append(_Level(name, self.path, self.file, is_counted))
        if not self.writer:
            self._written_by(writers.of_suite(attributes))

    def next_suite(self, suite: fast_path.SuiteChange) -> None:
        """Close some suites and open another one."""
        del self.open[len(self.open) - suite.closed :]
        self._open("testsuite", suite.attributes)
        if suite.is_java and not self.writer:
            self._written_by("jvm")

    def is_among_suites(self, lowest: int, highest: int) -> bool:
        """Return whether only suites are open, and this change of depth leaves the outermost one open."""
        kept = len(self.open) + lowest
        return (
            self.depth == len(self.open) <= _DEPTH - highest
            and kept > 0
            and all(level.element == "testsuite" for level in self.open[kept:])
        )

    def _stand(self) -> None:
        """Set the suites and the file of the next case."""
        level = self.open[-1] if self.open else _OUTSIDE
        self.path, self.file = level.path, level.file

    def _count(self, attributes: dict[str, str]) -> None:
        """Add the totals of the outermost element that has any; several roots or suites add up."""
        reported = self.reported
        for key, word in _COUNTS.items():
            count = attributes.get(key)
            if count and (count != "0" or word not in reported) and count.isdecimal():
                reported[word] = min(reported.get(word, 0) + int(count[:9]), 1 << 40)

    def _close(self, name: str) -> None:
        self.settle()
        names = [level.element for level in self.open]
        if name in names:
            del self.open[len(names) - 1 - names[::-1].index(name) :]
            self._stand()
        # An end tag without a start tag and without a case before it ends nothing.
        self.closed = not self.open and (name in names or self.cases > 0)

    def _property(self, attributes: dict[str, str]) -> None:
        if not self.writer and attributes.get("name", "").startswith("java."):
            # The cases before it were written by an unknown tool.
            self.settle()
            self._written_by("jvm")

    # --- cases

    def _finish(self) -> None:
        case = self.case
        if case is None:
            return
        self.settle()
        self.case = None
        self.cases += 1
        if not self.writer:
            self._written_by(writers.of_case(case))
        if result := self._judged(case, self.children):
            self.tests.append(result)

    def settle(self) -> None:
        """Convert the collected cases to results."""
        if not self.plain:
            return
        cases, self.plain = self.plain, []
        self.together(fast_path.SimilarCases({key: [case[key] for case in cases] for key in cases[0]}, {}, []))

    def together(self, cases: fast_path.SimilarCases) -> None:
        """Convert cases in columns, with the children of some and the suites that begin between them."""
        self.settle()
        columns, children_by_case = cases.columns, cases.children_by_case
        size, done = batch.size_of(columns), 0
        paths: list[list[str]] = []
        files: list[str] = []
        begins = [0, *(suite.before for suite in cases.suites)]
        is_unknown = not self.writer and self._shows_a_writer(cases)
        for begin, end, suite in zip(begins, [*begins[1:], size], [None, *cases.suites], strict=True):
            if suite is not None:
                self.next_suite(suite)
            if is_unknown and not self.writer:
                done = begin = self._before_recognised(columns, children_by_case, begin, end)  # noqa: PLW2901
            paths += [self.path] * (end - begin)
            files += [self.file] * (end - begin)
        if done < size:
            self._make(
                batch.part_of(columns, done, size),
                _part(children_by_case, done, size) if done else children_by_case,
                paths,
                files,
            )

    def _shows_a_writer(self, cases: fast_path.SimilarCases) -> bool:
        is_known = any(suite.is_java or writers.of_suite(suite.attributes) for suite in cases.suites)
        return is_known or bool(batch.recognised(cases.columns)[1])

    def _before_recognised(
        self, columns: batch.Columns, children_by_case: fast_path.Inside, begin: int, end: int
    ) -> int:
        """Convert the cases before the one that identifies the tool; return the number of that case."""
        known, writer = batch.recognised(batch.part_of(columns, begin, end))
        if known:
            part = batch.part_of(columns, begin, begin + known)
            self._make(part, _part(children_by_case, begin, begin + known), [self.path] * known, [self.file] * known)
        self._written_by(writer)
        return begin + known

    def _make(
        self, columns: batch.Columns, children_by_case: fast_path.Inside, paths: list[list[str]], files: list[str]
    ) -> None:
        results = self._results(columns, paths, files)
        self.cases += len(results)
        none: list[int] = []
        loud = batch.fail(results, batch.skip(results, children_by_case), columns, self.writer, self.failures)
        for at, children in [
            *loud.items(),
            *((at, []) for at in batch.silent_verdicts(columns) if at not in children_by_case),
        ]:
            result = self._judged(batch.row_of(columns, at), children, results[at])
            if result:
                results[at] = result
            else:
                none.append(at)
        for at in sorted(none, reverse=True):
            del results[at]
        self.tests += results

    def add_case(self, case: dict[str, str], children: list[Child]) -> None:
        """Add one case with its children."""
        self.case, self.children = case, children
        self._finish()

    def _written_by(self, writer: str) -> None:
        self.writer = writer
        self.identify = self._node_id if writer == "node" else writers.IDENTIFY.get(writer, writers.plain_id)

    def _node_id(self, group: str, name: str, file: str) -> str:
        return " > ".join([*self.path, name])

    def _judged(
        self, case: dict[str, str], children: list[Child], passed: TestResult | None = None
    ) -> TestResult | None:
        """Return the result of a case, or None if it is a file that could not be loaded. `passed` is the result without
        children."""
        bad = verdicts.bad_of(children)
        name = case.get("name", "")
        if bad and (broken := verdicts.broken_of(self.writer, name, case.get("classname", ""), bad)):
            found = compiler.diagnostics(bad.whole())
            self.compile += found if verdicts.is_build(name, bad) else []
            self.broken += [] if found and verdicts.is_build(name, bad) else [broken]
            return None
        status = verdicts.to_status(case, children)
        failure = (
            verdicts.failure_of(name, bad, children, self.failures.read)
            if bad and status is not TestStatus.XFAILED
            else None
        )
        if failure is None and status in RED:
            failure = Failure(message=verdicts.reason_of(children))
        passed = passed or self._passed(case)
        return self._result(passed, children, status, failure)

    def _passed(self, case: dict[str, str]) -> TestResult:
        columns = {key: [value] for key, value in case.items()} or {"name": [""]}
        return self._results(columns, [self.path], [self.file])[0]

    def _results(self, columns: batch.Columns, paths: list[list[str]], files: list[str]) -> list[TestResult]:
        cases = batch.CaseBatch(columns, self.writer, self.identify)
        self.identities.add(cases.ids, cases.groups, cases.heads)
        return cases.passed(paths, files)

    def _result(
        self, passed: TestResult, children: list[Child], status: TestStatus, failure: Failure | None
    ) -> TestResult:
        # Most failures are the only child.
        more = [] if len(children) == 1 and children[0].name in verdicts.BAD else children
        return TestResult(
            passed.id,
            status,
            passed.name,
            passed.suite,
            passed.file,
            passed.line,
            passed.duration_s,
            verdicts.phase_of(self.writer, passed.name, failure) if failure else "call",
            verdicts.reason_of(children) if children and failure is None else "",
            failure,
            1 + sum([child.name in verdicts.AGAIN for child in more]) if more else 1,
            verdicts.output_of(more, "system-out") if failure and more else "",
            verdicts.output_of(more, "system-err") if failure and more else "",
        )

    # --- the end

    def parsed(self, fault: str) -> Parsed:
        if self.foreign:
            return Parsed()
        self.settle()
        self._count_reruns_once()
        ended = self.closed and self.case is None
        tests = self._distinct()
        return Parsed(
            tests=[msgspec.structs.replace(test, status=TestStatus.SKIPPED) for test in tests]
            if self.listed
            else tests,
            collection_errors=self.broken,
            compile_errors=self.compile,
            reported=self.reported,
            ended=ended,
            partial=bool(fault and not (ended and "junk after" in fault)) or not ended,
            notes=self._notes(fault),
            running=[self._passed(self.case).id] if self.case else [],
        )

    def _count_reruns_once(self) -> None:
        """Correct the totals of Surefire versions that count every attempt as a test, and every failed one as a
        failure."""
        claimed = self.reported.get("tests", 0)
        again = sum(test.attempts - 1 for test in self.tests) if claimed > self.cases else 0
        if again and claimed == self.cases + again:
            self.reported["tests"] = self.cases
            self.reported["failed"] = sum(test.status is TestStatus.FAILED for test in self.tests)

    def _distinct(self) -> list[TestResult]:
        if self.identities.are_distinct():
            return self.tests
        return _without_teardowns(self.tests) if self.writer == "pytest" else distinct(self.tests)

    def _notes(self, fault: str) -> list[str]:
        notes = [fault] if fault.startswith("the document declares") else []
        claimed = self.reported.get("tests", 0)
        # Catch2 counts assertions in this attribute.
        if claimed > self.cases and self.closed and self.writer != "catch2":
            notes.append(f"the summary says {claimed} tests, the document has {self.cases}")
        bad = self.reported.get("failed", 0) + self.reported.get("errors", 0)
        if (bad or self.inner_red) and self.closed and not self.broken and not self.compile and not self._any_red():
            who = f"the summary says {bad} tests" if bad else "a suite says that tests"
            notes.append(f"{who} failed, the document shows none")
        return notes

    def _any_red(self) -> bool:
        return any(test.status in RED or test.status is TestStatus.XFAILED for test in self.tests)


def _part(children_by_case: fast_path.Inside, begin: int, end: int) -> fast_path.Inside:
    return {at - begin: children_by_case[at] for at in range(begin, end) if at in children_by_case}


def _without_teardowns(tests: list[TestResult]) -> list[TestResult]:
    """Merge duplicates: pytest writes a test again if its teardown fails too. The more severe result is kept."""
    found: dict[str, TestResult] = {}
    for test in tests:
        if test.id not in found or found[test.id].status not in RED:
            found[test.id] = test
    return list(found.values())
