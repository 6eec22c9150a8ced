"""JUnit XML in all its dialects: what each writer of it means by a name, a status, a line and a total."""

# Each rule for an identity has the same three arguments.
# ruff: noqa: ARG001, ARG002, ARG005, RUF001

from __future__ import annotations

import gc
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import groupby, repeat
from textwrap import dedent
from typing import BinaryIO

from ratchet.checks.formats import Parsed, compiler, distinct, lane, recover
from ratchet.checks.formats.text import TAIL_LIMIT, TEXT_LIMIT, clip, plain
from ratchet.checks.formats.xml import Reader
from ratchet.core.report import RED, Diagnostic, Failure, TestResult, TestStatus

_AGAIN = {"flakyFailure", "flakyError", "rerunFailure", "rerunError"}
_COUNTS = {"tests": "tests", "failures": "failed", "errors": "errors", "skipped": "skipped", "skip": "skipped"}
_SUITE = {"testsuite", "testsuites"}
_BAD = {"failure", "error"}
_CHILD = {"failure", "error", "skipped", "warning", "system-out", "system-err", *_AGAIN}
_DEPTH = 100
_STRIDE = 64
_PASSED = TestStatus.PASSED

Identify = Callable[[str, str, str], str]
_Open = list[tuple[str, dict[str, str]]]
_Told = dict[int, list[lane.Child]]
_Saved = tuple[_Open, dict[str, int], int, int, int, str]


def parse(stream: BinaryIO) -> Parsed:
    """Every test case of the document; torn or malformed documents give what can be read, marked `partial`."""
    handler = _JUnit()
    reader = Reader(handler, _Lane(handler))
    with _uncollected():
        reader.read(stream)
    return handler.parsed(reader.fault)


@contextmanager
def _uncollected() -> Iterator[None]:
    """Half a million results that all stay make the collector look at them again and again: a fifth of the time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


class _JUnit:
    """The document's handler: open suites on a stack, one open case, finished cases in `tests`."""

    reader: Reader

    def __init__(self) -> None:
        self.tests: list[TestResult] = []
        self.broken: list[Diagnostic] = []
        self.compile: list[Diagnostic] = []
        self.reported: dict[str, int] = {}
        self.cases = 0
        self.writer = ""
        self.identify: Identify = _plain_id
        self.open: _Open = []
        self.closed = False
        self.path: list[str] = []
        self.file = ""
        self.case: dict[str, str] | None = None
        self.children: list[_Child] = []
        self.around: list[tuple[dict[str, str], list[_Child], bool]] = []  # cases that have cases in them
        self.child: _Child | None = None
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
            self.child = _Child(name, attributes)
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
            if case is not None and not self.telling and case.keys() == _PLAIN:
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
            self._written_by(_writer_of_suite(attributes))
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
            self._written_by(_writer_of_case(case))
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
        results = self._passed(group, names, _durations(times))
        none: list[int] = []
        for at, children in told.items():
            case = {"name": names[at], "classname": group, "time": times[at]}
            if result := self._judged(case, [_Child(*child) for child in children], results[at].id):
                results[at] = result
            else:
                none.append(at)
        for at in reversed(none):
            del results[at]
        self.tests += results

    def told(self, case: dict[str, str], children: list[_Child]) -> None:
        """One case with all that stands in it."""
        self.case, self.children = case, children
        self._finish()

    def _passed(self, group: str, names: list[str], durations: list[float]) -> list[TestResult]:
        """Results of cases that have a name, a class and a time, and nothing against them."""
        if not self.writer:
            self._written_by(_writer_of_case({"classname": group, "name": names[0]}))
        self.cases += len(names)
        ids, path, file = self._ids(group, names), self.path, self.file
        if not file and self.writer in _FILE_ELSEWHERE:
            file = _file_of(self.writer, group, ids[0])
        return list(
            map(TestResult, ids, repeat(_PASSED), names, repeat(path), repeat(file), repeat(0), durations),
        )

    def _ids(self, group: str, names: list[str]) -> list[str]:
        identify = self.identify
        if self.writer not in _BY_PREFIX or not all(names):
            return [identify(group, name, "") for name in names]
        head = identify(group, "?", "")[:-1]
        return [head + name for name in names]

    def _written_by(self, writer: str) -> None:
        self.writer = writer
        self.identify = self._node_id if writer == "node" else _IDENTIFY.get(writer, _plain_id)

    def _node_id(self, group: str, name: str, file: str) -> str:
        return " > ".join([*self.path, name])

    def _judged(self, case: dict[str, str], children: list[_Child], key: str = "") -> TestResult | None:
        """What became of a test (`key`, if known); nothing if it is none, but a file that could not be loaded."""
        bad = _bad(children)
        if bad and (broken := _broken(self.writer, case, bad)):
            found = compiler.diagnostics(bad.whole())
            self.compile += found if _is_build(case, bad) else []
            self.broken += [] if found and _is_build(case, bad) else [broken]
            return None
        status = _status(case, children)
        failure = _failure(case, bad, children) if bad and status is not TestStatus.XFAILED else None
        if failure is None and status in RED:
            failure = Failure(message=_reason(children))
        return self._result(case, children, status, failure, key)

    def _result(
        self,
        case: dict[str, str],
        children: list[_Child],
        status: TestStatus,
        failure: Failure | None = None,
        key: str = "",
    ) -> TestResult:
        get, writer = case.get, self.writer
        group, name, file = get("classname", ""), get("name", ""), get("file", "")
        key = key or self.identify(group, name, file)
        place = file or self.file or _file_of(writer, group, key)
        # Nearly every failure stands alone.
        more = [] if len(children) == 1 and children[0].name in _BAD else children
        return TestResult(
            id=key,
            status=status,
            name=name,
            suite=self.path,
            file=place.removeprefix("./"),
            line=_line(get("line") or get("lineno", ""), writer),
            duration_s=_seconds(get("time", "")),
            phase=_phase(writer, name, failure) if failure else "call",
            reason=_reason(children) if children and failure is None else "",
            failure=failure,
            attempts=1 + sum([child.name in _AGAIN for child in more]) if more else 1,
            stdout=_output(more, "system-out") if failure and more else "",
            stderr=_output(more, "system-err") if failure and more else "",
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


class _Lane:
    """Hands runs of plainly written cases to the handler."""

    def __init__(self, handler: _JUnit) -> None:
        self.handler = handler
        self.chunk = lane.Chunk(b"")
        self.run: lane.Run | None = None
        self.heard = 0

    def find(self, data: bytes, begin: int, /) -> tuple[int, int, int] | None:
        if self.chunk.data is not data:
            self.chunk = lane.Chunk(data)
        self.run = self.chunk.find(begin)
        return (self.run.begin, self.run.second, self.run.end) if self.run else None

    def enter(self) -> bool:
        self.handler.settle()
        self.heard = self.handler.cases
        return True

    def take(self) -> bool:
        handler, run = self.handler, self.run
        heard = handler.cases + len(handler.plain) - self.heard
        # One more case, nothing left open, inside a suite: what follows it is in the same place.
        if run is None or heard != 1 or handler.case or handler.child or not handler.open:
            return False
        if run.is_across and not handler.is_beside_suites():
            return False
        for cases in run.cases:
            self._hand_over(cases)
        handler.remember()
        return True

    def _hand_over(self, cases: lane.Alike | lane.Told | lane.Suite) -> None:
        handler = self.handler
        if isinstance(cases, lane.Suite):
            handler.next_suite(cases.attributes)
        elif isinstance(cases, lane.Told):
            handler.told(cases.attributes, [_Child(*child) for child in cases.children])
        elif cases.columns.keys() != _PLAIN:
            for at, case in enumerate(cases.rows()):
                handler.told(case, [_Child(*child) for child in cases.told.get(at, ())])
        elif cases.columns["name"]:
            handler.plainly(**cases.columns, told=cases.told)


_PLAIN = {"name", "classname", "time"}


class _Child:
    """An element inside a case, with both ends of its text."""

    __slots__ = ("attributes", "held", "name", "pieces", "size")

    def __init__(self, name: str, attributes: dict[str, str], text: str = "") -> None:
        self.name = name
        self.attributes = attributes
        self.pieces = [text]
        self.size = self.held = len(text)

    def add(self, data: str) -> None:
        self.pieces.append(data)
        self.size += len(data)
        self.held += len(data)
        if self.held > 4 * TEXT_LIMIT:
            # Wherever the text was torn, the same is cut out of it.
            held = "".join(self.pieces)
            self.pieces, self.held = [held[:TEXT_LIMIT], held[-TEXT_LIMIT:]], 2 * TEXT_LIMIT

    def text(self) -> str:
        return clip("".join(self.pieces), size=self.size)

    def whole(self) -> str:
        return plain(self.attributes.get("message", "") + "\n" + self.text())


# --- who wrote it ----------------------------------------------------------------------------------------------------

_SUITE_NAMES = {
    "pytest": "pytest",
    "bun test": "bun",
    "deno test": "deno",
    "vitest": "vitest",
    "jest tests": "title",
    "mocha tests": "title",
    "rspec": "rspec",
    "nextest-run": "nextest",
    "testresults": "swift",
    "nunit": "dotted",
}


def _writer_of_suite(attributes: dict[str, str]) -> str:
    name = attributes.get("name", "").lower()
    for known, writer in _SUITE_NAMES.items():
        if name.startswith(known):
            return writer
    if "surefire" in attributes.get("xsi:noNamespaceSchemaLocation", ""):
        return "jvm"
    return "dotted" if name.endswith(".dll") else ""


_JVM_CLASS = re.compile(r"^(?:[a-z_]\w*\.)*[A-Z][\w$]*$")


def _writer_of_case(case: dict[str, str]) -> str:
    group, name = case.get("classname", ""), case.get("name", "")
    if "class" in case and "assertions" in case:
        return "phpunit"
    if "result" in case and case.get("status") in {"run", "notrun"}:
        return "dotted"
    if group == name and case.get("status") in {"run", "fail", "notrun", "disabled"}:
        return "name"
    if group.endswith(".global") or ".global." in group:
        return "catch2"
    if group.endswith(".bats") or re.search(r"\.lua:\d+$", group):
        return "file"
    if group in {"test", "suite"}:
        return "node"
    if re.search(r"\.(?:cc|cpp|cxx|c|hpp|h)$", group):
        return "source"
    return "jvm" if "." in group and _JVM_CLASS.match(group) and "file" not in case else ""


def _plain_id(group: str, name: str, file: str) -> str:
    if not group or name.startswith(group):
        return name
    if "/" in group or " " in group:
        return f"{group}::{name}"
    return f"{group}.{name}"


def _pytest_id(group: str, name: str, file: str) -> str:
    """The node id, from the file where the family gives it, and from the spelling of the module where not."""
    parts = group.split(".") if group else []
    module = file.removesuffix(".py").replace("/", ".")
    if file and group.startswith(module):
        classes = [part for part in group[len(module) :].split(".") if part]
        return "::".join([file, *classes, name])
    first = next((i for i, part in enumerate(parts) if part[:1].isupper()), len(parts))
    path = "/".join(parts[:first]) + ".py" if parts[:first] else ""
    return "::".join(part for part in [path, *parts[first:], name] if part)


def _bun_id(group: str, name: str, file: str) -> str:
    inside = f"{group} > {name}" if group and group != file else name
    return f"{file}::{inside}" if file else inside


_IDENTIFY: dict[str, Identify] = {
    "pytest": _pytest_id,
    "jvm": lambda group, name, file: f"{group}#{name}" if group and name else group or name,
    "phpunit": lambda group, name, file: f"{group.replace('.', chr(92))}::{name}",
    "name": lambda group, name, file: name,
    "title": lambda group, name, file: name,
    "catch2": lambda group, name, file: name,
    "source": lambda group, name, file: name,
    "dotted": lambda group, name, file: f"{group}.{name}" if group else name,
    "file": lambda group, name, file: f"{group.rpartition(':')[0] if '.lua:' in group else group}::{name}",
    "vitest": lambda group, name, file: f"{group}::{name}",
    "deno": lambda group, name, file: f"{group.removeprefix('./')}::{name}",
    "bun": _bun_id,
    "rspec": lambda group, name, file: f"{file or group}::{name}",
    "nextest": lambda group, name, file: f"{group} {name}",
    "swift": lambda group, name, file: f"{group}/{name}",
}
# Whose identity is what the group says, and then the name.
_BY_PREFIX = {"pytest", "jvm", "phpunit", "dotted", "file", "vitest", "deno", "nextest", "swift"}


# --- what it means ---------------------------------------------------------------------------------------------------


def _bad(children: list[_Child]) -> _Child | None:
    for child in children:
        if child.name in _BAD:
            return child
    return None


def _status(case: dict[str, str], children: list[_Child]) -> TestStatus:
    names = [child.name for child in children]
    if "skipped" in names:
        skipped = children[names.index("skipped")].attributes
        if _BAD.isdisjoint(names):
            return _skipped(skipped)
        # Catch2 marks what may fail; a test that was skipped for any other reason cannot have failed.
        return TestStatus.XFAILED if "mayfail" in skipped.get("message", "") else TestStatus.FAILED
    if "error" in names:
        return TestStatus.ERROR
    return TestStatus.FAILED if "failure" in names else _by_attribute(case)


def _skipped(attributes: dict[str, str]) -> TestStatus:
    message, kind = attributes.get("message", ""), attributes.get("type", "")
    if kind == "pytest.xfail":
        return TestStatus.XFAILED
    # ctest calls it not run; its command fails for it.
    if message.startswith(("Unable to find executable", "Could not find executable", "Required Files Missing")):
        return TestStatus.ERROR
    todo = kind == "todo" or message.lower() in {"todo", "not yet implemented"}
    return TestStatus.TODO if todo else TestStatus.SKIPPED


_BY_ATTRIBUTE = {
    "notrun": TestStatus.SKIPPED,
    "disabled": TestStatus.SKIPPED,
    "skipped": TestStatus.SKIPPED,
    "ignored": TestStatus.SKIPPED,
    "suppressed": TestStatus.SKIPPED,
    "pending": TestStatus.SKIPPED,
    "fail": TestStatus.FAILED,
    "failed": TestStatus.FAILED,
    "failure": TestStatus.FAILED,
    "error": TestStatus.ERROR,
}


def _by_attribute(case: dict[str, str]) -> TestStatus:
    """A status that stands only in an attribute: GoogleTest's disabled tests, ctest's, and strangers'."""
    if "status" not in case and "result" not in case:
        return _PASSED
    words = [case.get(key, "").lower() for key in ("status", "result")]
    return next((_BY_ATTRIBUTE[word] for word in words if word in _BY_ATTRIBUTE), _PASSED)


_VAGUE = {"", "failure", "failed", "error", "fail", "testcodefailure", "exception"}


def _is_vague(kind: str) -> bool:
    """Words that say no more than that it failed; capitals are the macro that checked."""
    told = kind.isupper() or kind.startswith("test failure") or kind.lower() in _VAGUE
    return told or kind.endswith("see stacktrace for details")


def _output(children: list[_Child], name: str) -> str:
    found = [child.text()[-TAIL_LIMIT:] for child in children if child.name == name]
    return plain("\n".join(found)).strip("\n") if found else ""


def _failure(case: dict[str, str], bad: _Child, children: list[_Child]) -> Failure:
    body = _headless(plain(bad.text()).strip("\n"), case.get("name", ""))
    message = plain(bad.attributes.get("message", ""))
    kind = bad.attributes.get("type", "")
    if not body and len(message) < 12 and (output := _output(children, "system-out")):
        return _from_output(output)
    if _is_vague(message) or message.startswith("thread '"):
        message = _before_stack(body) or message
    message = _unfolded(message, body)
    if "\n" in message:
        message = _PLACE_LINE.sub("", message)
    return recover.failure(body, message=message, type="" if _is_vague(kind) else clip(kind, 200))


_PLACE_LINE = re.compile(r"^(?:[^\s:]+:\d+|unknown file)\n")
_STACK = re.compile(r"\n\s*(?:at |❯ |#\d+ |# \./|/\S+:\d+|Stack trace:\n)")
_GO_FRAMING = re.compile(r"(?m)^\s*(?:=== (?:RUN|PAUSE|CONT|NAME)|--- FAIL:).*\n?")
_TELLING = re.compile(r"^.*(?:: Failure|FAILED|[Aa]ssert|[Ee]rror|panic|terminate called|Segmentation).*$", re.M)


def _before_stack(body: str) -> str:
    """What a failure without a message says before it lists its stack."""
    body = _GO_FRAMING.sub("", body) if "=== " in body else body.removeprefix("Failure:\n")
    found = _STACK.search(body)
    return _PLACE_LINE.sub("", (body[: found.start()] if found else body).removeprefix("FAILED:\n")).strip()


def _unfolded(message: str, body: str) -> str:
    """An attribute loses its line ends on the way; where the body repeats it, they are still there."""
    if "  " not in message or "\n" in message or "  " not in message.strip():
        return message
    words = message.split()
    found = re.search(r"\s+".join(map(re.escape, words)), body) if len(words) <= 200 else None
    return dedent(found.group()) if found else message


def _headless(body: str, name: str) -> str:
    """PHPUnit begins with the test's own name."""
    end = body.find("\n")
    return body[end + 1 :] if name and end + 1 and body.find(f"::{name}", 0, end) >= 0 and body[end + 1 :] else body


def _from_output(output: str) -> Failure:
    """ctest says nothing in the failure itself: the program's output is all there is."""
    telling = _TELLING.search(output)
    return recover.sanitizer(output) or recover.failure(
        output[telling.start() :] if telling else output, message=telling.group() if telling else output[-1000:].strip()
    )


_FILE_ELSEWHERE = {"vitest", "deno", "source", "file", "pytest"}


def _file_of(writer: str, group: str, test_id: str) -> str:
    """The file, where the writer has it in another place."""
    if writer not in _FILE_ELSEWHERE:
        return ""
    if writer != "pytest":
        return re.sub(r"(\.lua):\d+$", r"\1", group).removeprefix("./")
    head, found, _ = test_id.partition("::")
    return head if found and head.endswith(".py") else ""


def _is_build(case: dict[str, str], bad: _Child) -> bool:
    return "build" in bad.attributes.get("message", "").lower() or "build failed" in case.get("name", "").lower()


def _broken(writer: str, case: dict[str, str], bad: _Child) -> Diagnostic | None:
    """A file that could not be loaded, which several writers dress up as a test."""
    name, group = case.get("name", ""), case.get("classname", "")
    message = plain(bad.attributes.get("message", ""))
    if writer == "pytest" and message == "collection failure":
        return _load_error(_pytest_id("", name.replace(".", "/"), "") + ".py", bad, "pytest")
    if writer == "vitest" and name == group:
        return _load_error(name, bad, "vitest")
    if group == "Test suite failed to run":
        return _load_error(name, bad, "jest")
    if group == "unittest.loader._FailedTest":
        return _load_error(name.replace(".", "/") + ".py", bad, "unittest")
    if writer == "node" and re.search(r"\.[cm]?[jt]sx?$", name) and ("/" in name or "\\" in name):
        return _load_error(name, bad, "node")
    return _load_error(group or name, bad, "go") if _is_build(case, bad) else None


def _load_error(file: str, bad: _Child, tool: str) -> Diagnostic:
    text = bad.whole()
    found = next((d for d in compiler.diagnostics(text) if d.line), None)
    known = recover.failure(text)
    return Diagnostic(
        file=file or (found.file if found else ""),
        line=found.line if found else (known.line if known.file.endswith(file.rpartition("/")[2]) else 0),
        column=found.column if found else 0,
        type=found.type if found and found.type else known.type,
        message=found.message if found and found.type else clip(_before_stack(text.strip()), 4000),
        tool=tool,
    )


_AROUND = re.compile("failed on (setup|teardown)")


def _phase(writer: str, name: str, failure: Failure) -> str:
    if writer == "pytest" and (found := _AROUND.match(failure.message)):
        return found.group(1)
    hook = re.search(r'"(before|after)(?: each| all)?" hook', name) if " hook" in name else None
    if hook or (writer == "jvm" and name in {"", "initializationError"}):
        return "teardown" if hook and hook.group(1) == "after" else "setup"
    return "call"


def _reason(children: list[_Child]) -> str:
    skipped = next((child for child in children if child.name == "skipped"), None)
    if skipped is None:
        return ""
    reason = plain(skipped.attributes.get("message") or skipped.text()).strip()
    return clip("" if reason == "true" else _PLACE_LINE.sub("", reason), 1000)


def _line(digits: str, writer: str) -> int:
    if not digits or not digits.isdecimal() or len(digits) > 9:
        return 0
    return int(digits) + 1 if writer == "pytest" else int(digits)


class _Seconds(dict[str, float]):
    """Durations that were read before. There are few different ones with three digits behind the point."""

    def __missing__(self, text: str) -> float:
        if len(self) >= _MOST_SECONDS:
            self.clear()
        self[text] = seconds = _seconds(text)
        return seconds


_MOST_SECONDS = 8192
_SECONDS = _Seconds()


def _durations(times: list[str]) -> list[float]:
    if max(map(len, times), default=0) <= len("12.345"):
        return list(map(_SECONDS.__getitem__, times))
    try:
        durations = list(map(float, times))
    except ValueError:
        return list(map(_seconds, times))
    # A sum shows what is not a number, too.
    fine = min(durations, default=0) >= 0 and sum(durations) < 1e9
    return durations if fine else list(map(_seconds, times))


def _seconds(text: str) -> float:
    try:
        value = float(text or 0)
    except ValueError:
        return _seconds(text.replace(",", "")) if "," in text else 0.0
    return value if 0 <= value < 1e9 else 0.0
