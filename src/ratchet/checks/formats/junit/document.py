"""The document's handler: what is open while it is read, and what is known of its cases so far."""

# Each rule for an identity has the same three arguments.
# ruff: noqa: ARG002

from __future__ import annotations

from itertools import groupby, repeat

from ratchet.checks.formats import Parsed, compiler, distinct
from ratchet.checks.formats.junit import durations, lane, verdicts, writers
from ratchet.checks.formats.junit.verdicts import Child
from ratchet.checks.formats.xml import Reader
from ratchet.core.report import RED, Diagnostic, Failure, TestResult, TestStatus

_COUNTS = {"tests": "tests", "failures": "failed", "errors": "errors", "skipped": "skipped", "skip": "skipped"}
_SUITE = {"testsuite", "testsuites"}
_CHILD = {"failure", "error", "skipped", "warning", "system-out", "system-err", *verdicts.AGAIN}
_DEPTH = 100
_STRIDE = 64
_PASSED = TestStatus.PASSED

_Open = list[tuple[str, dict[str, str]]]
_Told = dict[int, list[lane.Child]]
_Saved = tuple[_Open, dict[str, int], int, int, int, str]
PLAIN = {"name", "classname", "time"}


class Document:
    """The document's handler: open suites on a stack, one open case, finished cases in `tests`."""

    reader: Reader

    def __init__(self) -> None:
        self.tests: list[TestResult] = []
        self.broken: list[Diagnostic] = []
        self.compile: list[Diagnostic] = []
        self.reported: dict[str, int] = {}
        self.cases = 0
        self.writer = ""
        self.identify: writers.Identify = writers.plain_id
        self.open: _Open = []
        self.closed = False
        self.path: list[str] = []
        self.file = ""
        self.case: dict[str, str] | None = None
        self.children: list[Child] = []
        self.around: list[tuple[dict[str, str], list[Child], bool]] = []  # cases that have cases in them
        self.child: Child | None = None
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
            # A mark costs; a fault may as well repeat a few cases.
            if len(self.plain) >= _STRIDE or len(self.tests) - self.marked >= _STRIDE or not self.marks:
                self._mark()
            if self.case is not None and len(self.around) < _DEPTH:
                self.around.append((self.case, self.children, self.telling))
            self.case, self.telling, self.children = attributes, False, []
        elif name in _CHILD and self.case is not None:
            self.child = Child(name, attributes)
            self.telling = self.telling or not name.startswith("system-")
            self.reader.listen()
        elif name in _SUITE:
            self._open(name, attributes)
        elif name == "property":
            self._property(attributes)

    def end(self, name: str, /) -> None:
        self.depth -= 1
        if name == "testcase":
            case = self.case
            # Nearly every case has three attributes and no verdict: those are put aside and become results together.
            if case is not None and not self.telling and case.keys() == PLAIN:
                self.plain.append(case)
                self.case = None
            else:
                self._finish()
            if self.around:
                self.case, self.children, self.telling = self.around.pop()
        elif self.child is not None and name == self.child.name:
            self.reader.listen(False)
            self.children.append(self.child)
            self.child = None
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
        """What is known now is final: a fault comes back to here."""
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
        if len(self.open) < _DEPTH:
            self.open.append((name, attributes))
            self._stand()
        if not self.writer:
            self._written_by(writers.of_suite(attributes))
        self._count(attributes)

    def next_suite(self, attributes: dict[str, str]) -> None:
        """The innermost suite ends, and this one begins beside it."""
        self.settle()
        self.open.pop()
        self._open("testsuite", attributes)

    def is_beside_suites(self) -> bool:
        """Nothing but suites is open, and the innermost may have others beside it."""
        return 1 < self.depth == len(self.open) and self.open[-1][0] == "testsuite"

    def _stand(self) -> None:
        """Where the next case stands: in which suites, in whose file."""
        self.path = [suite["name"] for name, suite in self.open if name == "testsuite" and suite.get("name")]
        self.file = next((suite["file"] for _, suite in reversed(self.open) if suite.get("file")), "").removeprefix(
            "./"
        )

    def _count(self, attributes: dict[str, str]) -> None:
        """The outermost element that has totals is the summary; several roots or suites add up."""
        if "tests" not in attributes or any("tests" in a for _, a in self.open[:-1]):
            return
        reported = self.reported
        for key, word in _COUNTS.items():
            said = attributes.get(key)
            if said == "0" and word in reported:
                continue
            if said and said.isdecimal():
                reported[word] = min(reported.get(word, 0) + int(said[:9]), 1 << 40)

    def _close(self, name: str) -> None:
        self.settle()
        names = [n for n, _ in self.open]
        if name in names:
            del self.open[len(names) - 1 - names[::-1].index(name) :]
            self._stand()
        self.closed = not self.open

    def _property(self, attributes: dict[str, str]) -> None:
        if not self.writer and attributes.get("name", "").startswith("java."):
            # Cases that came before it were written by nobody known.
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
        """Makes results of the cases that were put aside."""
        if not self.plain:
            return
        cases, self.plain = self.plain, []
        names, classes, times = ([case[key] for case in cases] for key in ("name", "classname", "time"))
        self.plainly(names, classes, times)

    def plainly(self, name: list[str], classname: list[str], time: list[str], told: _Told | None = None) -> None:
        """Cases that have these three and nothing else, in columns; they are cut where the class changes."""
        self.settle()
        if classname.count(classname[0]) == len(classname):
            self._of_class(classname[0], name, time, told or {})
            return
        begin = 0
        for group, same in groupby(classname):
            end = begin + sum(1 for _ in same)
            inside = {at - begin: told[at] for at in range(begin, end) if at in told} if told else {}
            self._of_class(group, name[begin:end], time[begin:end], inside)
            begin = end

    def _of_class(self, group: str, names: list[str], times: list[str], told: _Told) -> None:
        results = self._passed(group, names, durations.of(times))
        none: list[int] = []
        for at, children in told.items():
            case = {"name": names[at], "classname": group, "time": times[at]}
            if result := self._judged(case, [Child(*child) for child in children], results[at].id):
                results[at] = result
            else:
                none.append(at)
        for at in reversed(none):
            del results[at]
        self.tests += results

    def told(self, case: dict[str, str], children: list[Child]) -> None:
        """One case with all that stands in it."""
        self.case, self.children = case, children
        self._finish()

    def _passed(self, group: str, names: list[str], durations: list[float]) -> list[TestResult]:
        """Results of cases that have a name, a class and a time, and nothing against them."""
        if not self.writer:
            self._written_by(writers.of_case({"classname": group, "name": names[0]}))
        self.cases += len(names)
        ids, path, file = self._ids(group, names), self.path, self.file
        if not file and self.writer in writers.FILE_ELSEWHERE:
            file = writers.file_of(self.writer, group, ids[0])
        return list(
            map(TestResult, ids, repeat(_PASSED), names, repeat(path), repeat(file), repeat(0), durations),
        )

    def _ids(self, group: str, names: list[str]) -> list[str]:
        identify = self.identify
        if self.writer not in writers.BY_PREFIX or not all(names):
            return [identify(group, name, "") for name in names]
        head = identify(group, "?", "")[:-1]
        return [head + name for name in names]

    def _written_by(self, writer: str) -> None:
        self.writer = writer
        self.identify = self._node_id if writer == "node" else writers.IDENTIFY.get(writer, writers.plain_id)

    def _node_id(self, group: str, name: str, file: str) -> str:
        return " > ".join([*self.path, name])

    def _judged(self, case: dict[str, str], children: list[Child], key: str = "") -> TestResult | None:
        """What became of a test (`key`, if known); nothing if it is none, but a file that could not be loaded."""
        bad = verdicts.bad_of(children)
        if bad and (broken := verdicts.broken_of(self.writer, case, bad)):
            found = compiler.diagnostics(bad.whole())
            self.compile += found if verdicts.is_build(case, bad) else []
            self.broken += [] if found and verdicts.is_build(case, bad) else [broken]
            return None
        status = verdicts.status_of(case, children)
        failure = verdicts.failure_of(case, bad, children) if bad and status is not TestStatus.XFAILED else None
        if failure is None and status in RED:
            failure = Failure(message=verdicts.reason_of(children))
        return self._result(case, children, status, failure, key)

    def _result(
        self,
        case: dict[str, str],
        children: list[Child],
        status: TestStatus,
        failure: Failure | None = None,
        key: str = "",
    ) -> TestResult:
        get, writer = case.get, self.writer
        group, name, file = get("classname", ""), get("name", ""), get("file", "")
        key = key or self.identify(group, name, file)
        place = file or self.file or writers.file_of(writer, group, key)
        # Nearly every failure stands alone.
        more = [] if len(children) == 1 and children[0].name in verdicts.BAD else children
        return TestResult(
            id=key,
            status=status,
            name=name,
            suite=self.path,
            file=place.removeprefix("./"),
            line=writers.line_of(get("line") or get("lineno", ""), writer),
            duration_s=durations.seconds(get("time", "")),
            phase=verdicts.phase_of(writer, name, failure) if failure else "call",
            reason=verdicts.reason_of(children) if children and failure is None else "",
            failure=failure,
            attempts=1 + sum([child.name in verdicts.AGAIN for child in more]) if more else 1,
            stdout=verdicts.output_of(more, "system-out") if failure and more else "",
            stderr=verdicts.output_of(more, "system-err") if failure and more else "",
        )

    # --- the end

    def parsed(self, fault: str) -> Parsed:
        self.settle()
        ended = self.closed and self.case is None
        return Parsed(
            tests=_without_teardowns(self.tests) if self.writer == "pytest" else distinct(self.tests),
            collection_errors=self.broken,
            compile_errors=self.compile,
            reported=self.reported,
            ended=ended,
            partial=bool(fault and not (ended and "junk after" in fault)) or not ended,
            notes=self._notes(fault),
            running=[self._result(self.case, self.children, TestStatus.ERROR).id] if self.case else [],
        )

    def _notes(self, fault: str) -> list[str]:
        notes = [fault] if fault.startswith("the document declares") else []
        claimed = self.reported.get("tests", 0)
        # Catch2 counts assertions there.
        if claimed > self.cases and self.closed and self.writer != "catch2":
            notes.append(f"the summary says {claimed} tests, the document has {self.cases}")
        bad = self.reported.get("failed", 0) + self.reported.get("errors", 0)
        if bad and self.closed and not self.broken and not self.compile and not self._any_red():
            notes.append(f"the summary says {bad} tests failed, the document shows none")
        return notes

    def _any_red(self) -> bool:
        return any(test.status in RED or test.status is TestStatus.XFAILED for test in self.tests)


def _without_teardowns(tests: list[TestResult]) -> list[TestResult]:
    """pytest writes a test again when its teardown fails too; the gravest of the two is told."""
    found: dict[str, TestResult] = {}
    for test in tests:
        if test.id not in found or found[test.id].status not in RED:
            found[test.id] = test
    return list(found.values())
