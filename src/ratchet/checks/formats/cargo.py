"""Parses Rust test runs: cargo's build messages, and libtest's results as JSON events or text, in one stream or
several."""

from __future__ import annotations

import re
from typing import BinaryIO

import msgspec

from ratchet.checks.formats import Parsed, compiler, lenient_json, recover
from ratchet.checks.formats.text import HeadAndTail, clip, lines, strip_control_characters
from ratchet.core.report import Diagnostic, Failure, Frame, TestResult, TestStatus

_EVENT = {"ok": TestStatus.PASSED, "failed": TestStatus.FAILED, "ignored": TestStatus.SKIPPED, "timeout": None}
_TARGET = re.compile(r"^\s*(?:Running (?P<run>.+?)(?: \((?P<binary>.+?)\))?|Doc-tests (?P<doc>\S+))$")
_RUNNING = re.compile(r"^running (\d{1,9}) tests?$")
_TEST = re.compile(r"^test (?P<name>.+?)(?P<should> - should panic)? \.\.\. (?P<rest>.*)$")
_WORD = re.compile(r"^(?P<word>ok|FAILED|ignored)(?:, (?P<reason>.*?))?(?: <(?P<s>[\d.]{1,12})s>)?$")
_LATE = re.compile(r"(?P<word>ok|FAILED)(?: <(?P<s>[\d.]{1,12})s>)?$")
_SECTION = re.compile(r"^---- (?P<name>.+?) std(?:out|err) ----$")
_RESULT = re.compile(r"^test result: (?:ok|FAILED)\. (\d{1,9}) passed; (\d{1,9}) failed; (\d{1,9}) ignored;")
_TEXT = {"ok": TestStatus.PASSED, "FAILED": TestStatus.FAILED, "ignored": TestStatus.SKIPPED}
_PANIC = re.compile(
    r"thread '[^\n]*?' (?:\(\d+\) )?panicked at "
    r"(?:(?P<file>[^\s:'][^\n:]*):(?P<line>\d{1,9}):\d+:\n(?P<new>[^\n]*)"
    r"|'(?P<old>.*?)', (?P<file0>[^\n:]+):(?P<line0>\d{1,9}):\d+)",
    re.S,
)
_LINKER = ("could not compile", "aborting due to")


class _Program(msgspec.Struct, frozen=True):
    """One test program: its id as in nextest (`package`, `package::test`, `package::bin/name`) and its folder."""

    id: str = ""
    name: str = ""
    folder: str = ""


# Lines by which our start script reports which test program runs and how it ended.
STARTED, ENDED = "ratchet-started", "ratchet-ended"
_DOC = re.compile(r"(?P<file>\S+\.(?:rs|md)) - .*?\(line (?P<line>\d{1,9})\)")
_UNLIKE = re.compile(
    r"panic did not contain expected string\s+panic message: (?P<a>.+?),?\s+expected substring: (?P<e>.+)"
)

SIGN = re.compile(rb'test [^\n]* \.\.\. |"event"|"compiler-message"|"ratchet-')


def parse(stream: BinaryIO) -> Parsed:
    """Return the tests of all programs. The stream has ended when every started suite has a result."""
    reader = _Cargo()
    for line in lines(stream):
        reader.line(line)
    return reader.parsed()


class _Cargo:
    def __init__(self) -> None:
        self.tests: list[TestResult] = []
        self.index: dict[str, int] = {}
        self.taken: dict[str, str] = {}
        self.target = ""
        self.suites = 0
        self.results = 0
        self.announced = 0
        self.has_events = False  # then text between events belongs to the tests, whatever it looks like
        self.reported: dict[str, int] = {}
        self.running: dict[str, bool] = {}
        self.lost: list[str] = []  # tests of programs that died before others started
        self.programs: dict[str, _Program] = {}
        self.program = _Program()
        self.begun = 0  # suites before this program
        self.apart = False  # several packages have tests of the same names, and not all of them run every time
        self.scan = compiler.CompilerScan()
        self.structured: dict[tuple[str, int, str, str], Diagnostic] = {}
        self.pending = ""
        self.section = ""
        self.body = HeadAndTail()

    def line(self, line: str) -> None:
        row = lenient_json.row(_escaped(line)) if line.startswith("{") else {}
        if "reason" in row:
            self._cargo(row)
        elif row.get("type") == "test":
            self._test_event(row)
        elif row.get("type") == "suite":
            self._suite_event(row)
        elif not row and not self.has_events:
            self._text(line)

    # --- JSON

    def _cargo(self, row: lenient_json.Table) -> None:
        message = lenient_json.table(row, "message")
        if row.get("reason") == "compiler-artifact" and (path := lenient_json.text(row, "executable")):
            self.programs[path] = _program(row)
        elif row.get("reason") == STARTED:
            self._leave()
            self.program = self.programs.get(lenient_json.text(row, "executable"), _Program())
            self.target, self.begun, self.apart = self.program.id, self.suites, row.get("apart") is True
        elif row.get("reason") == ENDED:
            self._leave()
            self._without_harness(lenient_json.whole(row, "code"))
        if row.get("reason") != "compiler-message" or message.get("level") != "error":
            return
        found = _diagnostic(message)
        if not found.message.startswith(_LINKER):
            self.structured.setdefault((found.file, found.line, found.code, found.message), found)

    def _suite_event(self, row: lenient_json.Table) -> None:
        event = row.get("event")
        if event == "started":
            self._begin(lenient_json.whole(row, "test_count"), has_events=True)
        elif event in {"ok", "failed"}:
            self.has_events = False
            self._result(*(lenient_json.whole(row, key) for key in ("passed", "failed", "ignored")))

    def _test_event(self, row: lenient_json.Table) -> None:
        name, event = lenient_json.text(row, "name"), row.get("event")
        if event == "started":
            self.running[name] = True
        elif isinstance(event, str) and (status := _EVENT.get(event)):
            output, why = (
                lenient_json.text(row, "stdout"),
                lenient_json.text(row, "message") or lenient_json.text(row, "reason"),
            )
            failure = _failure(output, why) if status is TestStatus.FAILED else None
            self._add(
                name,
                status,
                duration_s=lenient_json.number(row, "exec_time"),
                reason=why if status is TestStatus.SKIPPED else "",
                failure=failure,
                output=output if failure else "",
            )

    def _leave(self) -> None:
        """Finish a program; tests still running in it are lost."""
        self.lost += [self._identity(name) for name in self.running]
        self.running, self.has_events = {}, False

    def _without_harness(self, code: int) -> None:
        """Report a program without a harness as one test."""
        if self.suites > self.begun or not self.program.id:
            return
        failed = TestStatus.FAILED if code else TestStatus.PASSED
        failure = Failure(message=f"the program ended with {code}") if code else None
        self.tests.append(
            TestResult(
                id=self.program.id, name=self.program.name, suite=[self.program.id], status=failed, failure=failure
            )
        )
        self.suites, self.results = self.suites + 1, self.results + 1
        self.announced += 1
        word = "failed" if code else "passed"
        self.reported[word] = self.reported.get(word, 0) + 1

    # --- text

    def _text(self, line: str) -> None:
        if self.section and self._in_section(line):
            return
        if match := _TEST.match(line):
            self._test_line(match)
        elif self.pending and (match := _LATE.search(line)):
            self._word(self.pending, match.group("word"), "", match.group("s"))
        elif match := _SECTION.match(line):
            self.section, self.body = match.group("name"), HeadAndTail()
        elif match := _RUNNING.match(line):
            self._begin(int(match.group(1)))
        elif match := _RESULT.match(line):
            self._result(*map(int, match.groups()))
        elif match := _TARGET.match(line):
            self.target = match.group("run") or f"doc {match.group('doc')}"
        elif not self.running:
            self.scan.line(line)

    def _in_section(self, line: str) -> bool:
        """Collect the output of a failure up to the next section or the list of failures."""
        ends = line.startswith(("----", "failures:", "test result"))
        if ends and (_SECTION.match(line) or line == "failures:" or _RESULT.match(line)):
            self._close_section()
            return False
        self.body.add(line + "\n")
        return True

    def _close_section(self) -> None:
        """Complete a failure with its output: in text mode the output follows all results."""
        name, self.section = self.section, ""
        where = self.index.get(name)
        if where is not None and self.tests[where].status is TestStatus.FAILED:
            output = self.body.text()
            failure = _placed(_failure(output), name, self.program.folder)
            test = msgspec.structs.replace(self.tests[where], failure=failure, stdout=clip(output.strip(), 8 << 10))
            self.tests[where] = test

    def _test_line(self, match: re.Match[str]) -> None:
        name, rest = match.group("name"), match.group("rest")
        word = _WORD.match(rest)
        if word:
            self._word(name, word.group("word"), word.group("reason") or "", word.group("s"))
        elif late := _LATE.search(rest):
            self._word(name, late.group("word"), "", late.group("s"))
        else:
            self.pending = name
            self.running[name] = True

    def _word(self, name: str, word: str, reason: str, seconds: str | None) -> None:
        self.pending = ""
        status = _TEXT[word]
        failure = Failure(message="no output") if status is TestStatus.FAILED else None
        self._add(name, status, duration_s=_seconds(seconds), reason=reason, failure=failure)

    # --- both

    def _begin(self, count: int, *, has_events: bool = False) -> None:
        self.suites += 1
        self.announced += count
        self.index = {}
        self._leave()
        self.has_events = has_events

    def _result(self, passed: int, failed: int, ignored: int) -> None:
        self.results += 1
        for word, count in (("passed", passed), ("failed", failed), ("skipped", ignored)):
            self.reported[word] = self.reported.get(word, 0) + count

    def _add(
        self,
        name: str,
        status: TestStatus,
        *,
        duration_s: float = 0.0,
        reason: str = "",
        failure: Failure | None = None,
        output: str = "",
    ) -> None:
        self.running.pop(name, None)
        self.index[name] = len(self.tests)
        failure = _placed(failure, name, self.program.folder) if failure else None
        self.tests.append(
            TestResult(
                id=self._identity(name),
                name=name.rpartition("::")[2] or name,
                suite=[part for part in [self.target, *name.split("::")[:-1]] if part],
                status=status,
                file=failure.file if failure else "",
                duration_s=duration_s,
                reason=reason,
                failure=failure,
                stdout=clip(output.strip(), 8 << 10),
            )
        )

    def _identity(self, name: str) -> str:
        """Return libtest's name; if two programs have the same, the later one includes its program."""
        mine = self.target or str(self.suites)
        other = "" if self.apart else self.taken.setdefault(name, mine)
        return name if other == mine else f"{mine} {name}"

    def parsed(self) -> Parsed:
        if self.section:
            self._close_section()
        compile_errors = list(self.structured.values()) or self.scan.found
        return Parsed(
            tests=self.tests,
            compile_errors=compile_errors,
            reported=self.reported,
            ended=bool(self.suites or compile_errors) and self.suites <= self.results,
            partial=self.suites > self.results,
            notes=self._notes(),
            running=[*self.lost, *map(self._identity, self.running)],
        )

    def _notes(self) -> list[str]:
        if self.suites == self.results and self.announced > len(self.tests):
            unfinished = f", and nothing of {', '.join(list(self.running)[:3])}" if self.running else ""
            return [f"{self.announced} tests were announced, {len(self.tests)} reported{unfinished}"]
        return []


_NAME = re.compile(r'("name": ?")([^"\\]*+(?:\\.[^"\\]*+)*)"')
_BARE = re.compile(r'(?<!\\)\\(?![\\"u])')


def _escaped(line: str) -> str:
    """Escape a name: libtest wrote names unescaped for years, and doc tests are paths, with backslashes on Windows."""
    found = _NAME.search(line) if "\\" in line else None
    if not found or not _BARE.search(found[2]):
        return line
    return f"{line[: found.start(2)]}{found[2].replace(chr(92), chr(92) * 2)}{line[found.end(2) :]}"


def _failure(output: str, why: str = "") -> Failure:
    """Return location, message and values of a panic; without a panic it is an error value or a missing panic."""
    output = strip_control_characters(output)
    found = _PANIC.search(output)
    if not found:
        message = why or next((row for row in output.splitlines() if row.startswith("Error: ")), "") or output.strip()
        kind = "Error" if message.startswith("Error: ") else ""
        return recover.failure(output, message=message.removeprefix("Error: "), type=kind)
    message = found.group("new") or (found.group("old") or "")
    unlike = _UNLIKE.search(f"{output}\n{why}")
    return recover.failure(
        output,
        message="panic did not contain expected string" if unlike else message.strip(),
        type="panic",
        expected=unlike.group("e") if unlike else None,
        actual=unlike.group("a") if unlike else None,
        file=(found.group("file") or found.group("file0")).strip(),
        line=int(found.group("line") or found.group("line0")),
    )


def _placed(failure: Failure, name: str, folder: str) -> Failure:
    """Correct paths: frames are relative to the package, panics to the workspace, and doc tests to generated code,
    of which only the first line is known."""
    if found := _DOC.match(name):
        return msgspec.structs.replace(failure, file=found.group("file"), line=int(found.group("line")), frames=[])
    if not folder:
        return failure
    frames = [_under(folder, frame) for frame in failure.frames]
    distinct = [frame for at, frame in enumerate(frames) if not at or not _same_line(frame, frames[at - 1])]
    return msgspec.structs.replace(failure, frames=distinct)


def _under(folder: str, frame: Frame) -> Frame:
    return frame if frame.file.startswith("/") else msgspec.structs.replace(frame, file=f"{folder}/{frame.file}")


def _same_line(one: Frame, other: Frame) -> bool:
    return (one.file, one.line) == (other.file, other.line)


def _program(row: lenient_json.Table) -> _Program:
    """Return the program for an artifact message of cargo."""
    target, folder = lenient_json.table(row, "target"), lenient_json.text(row, "manifest_path").rpartition("/")[0]
    kinds, name = target.get("kind"), lenient_json.text(target, "name")
    kind = str(kinds[0]) if isinstance(kinds, list) and kinds else ""
    package = _package(lenient_json.text(row, "package_id"))
    inner = {"test": f"::{name}", "bin": f"::bin/{name}", "example": f"::example/{name}", "bench": f"::bench/{name}"}
    return _Program(id=f"{package}{inner.get(kind, '')}", name=name, folder=folder)


def _package(identity: str) -> str:
    """Parse a package id: `path+file:///w/one#0.1.0`, `…/w/one#other@0.1.0`, before 1.77 `one 0.1.0
    (path+file:///w/one)`."""
    place, marked, version = identity.rpartition("#")
    if not marked:
        return identity.partition(" ")[0]
    return version.partition("@")[0] if "@" in version else place.rstrip("/").rpartition("/")[2]


def _diagnostic(message: lenient_json.Table) -> Diagnostic:
    spans = lenient_json.tables(message, "spans")
    span = next((span for span in spans if span.get("is_primary")), spans[0] if spans else {})
    return Diagnostic(
        file=lenient_json.text(span, "file_name"),
        line=lenient_json.whole(span, "line_start"),
        column=lenient_json.whole(span, "column_start"),
        code=lenient_json.text(lenient_json.table(message, "code"), "code"),
        message=lenient_json.text(message, "message"),
        tool="rustc",
    )


def _seconds(text: str | None) -> float:
    try:
        return float(text or 0)
    except ValueError:
        return 0.0
