"""Parses TAP 12 to 14: test points with diagnostics, nested subtests, and `prove` around several files."""

from __future__ import annotations

import re
from typing import BinaryIO

import msgspec

from ratchet.checks.formats import Parsed, recover, yamlish
from ratchet.checks.formats.recover.stacks import is_foreign
from ratchet.checks.formats.text import HeadAndTail, lines
from ratchet.core.report import Diagnostic, Failure, TestResult, TestStatus

# `go test` and deno print `ok` for a package or run too.
_POINT = re.compile(
    r"^(?P<not>not )?ok(?=[\s#]|$)(?!\s+\S+\s+(?:[\d.]+s|\(cached\))(?:\s|$))(?! \| \d+ passed)"
    r"(?:[ \t]+(?P<number>\d{1,9})\b)?(?P<rest>.*)$"
)
_NUMBERED = re.compile(r"^(?:(?:not )?ok \d|1\.\.\d)")
_OPENS = re.compile(r"\{\s*(?:#\s*time=[\d.]+\s*m?s\s*)?$")
_PLAN = re.compile(r"^1\.\.(?P<last>\d{1,9})(?P<rest>\s*(?:#.*)?)$")
_DIRECTIVE = re.compile(
    r"(?:^|\s)#\s*(?P<word>skip|todo|expected failure)(?:ped|ping)?(?![^\W_])\S*(?P<reason>.*)$", re.I
)
_TIME = re.compile(r"\s*#\s*(?:time=(?P<ms>[\d.]{1,12})\s*(?P<unit>ms|s)?|in (?P<bats>\d{1,9}) ?ms)\s*\{?\s*$")
_PROVE = re.compile(r"^(?P<file>\S+\.(?:t|pl|bats|js|mjs|sh)) \.{2,} ?(?:skipped: (?P<skipped>.*))?$")
_SUMMARY = re.compile(r"^# (?P<word>tests|pass|fail|cancelled|skip|skipped|todo)\s+(?P<count>\d{1,9})$")
_TEST_FILE = re.compile(r"^[^\s>]+\.(?:test|spec)\.[cm]?[jt]sx?$")
_AT = re.compile(r"(?:file://)?([^\s()]+?):(\d{1,9}):\d+\)?$")
# node-tap's summary of all points does not belong to the last one.
_TALLY = re.compile(
    r"^# (?:time=[\d.]{1,12}m?s|failed \d{1,9}(?: of \d{1,9})? tests?|No coverage generated|\{ total: .*\})$"
)
_ESCAPED = re.compile(r"\\([#\\])")
_DASH = re.compile(r"^\s*-(?:\s+|$)")
_WORDS = {"tests": "tests", "pass": "passed", "fail": "failed", "skip": "skipped", "skipped": "skipped", "todo": "todo"}
_DIRECTED = {"skip": TestStatus.SKIPPED, "todo": TestStatus.TODO, "expected failure": TestStatus.XFAILED}
_DEEPEST = 50

SIGN = re.compile(rb"\bok\b|1\.\.0|\bskipped: ")


def parse(stream: BinaryIO) -> Parsed:
    """Return the leaves of the document. It has ended when every plan was fulfilled without a bail-out."""
    return _read(stream, _Tap())


def parse_as_perl(stream: BinaryIO) -> Parsed:
    """Parse as Perl counts: a subtest is one test, whatever it contains."""
    return _read(stream, _Tap(folded=True))


def parse_titled(stream: BinaryIO) -> Parsed:
    """Parse TAP in which a comment begins a test and its points are assertions: tape and zora."""
    return _read(stream, _Tap(titled=True))


def _read(stream: BinaryIO, reader: _Tap) -> Parsed:
    # prove's dump is not terminal output: a name may contain a carriage return.
    for line in lines(stream, overwritten=not reader.folded):
        reader.line(line)
    return reader.parsed()


class _Level:
    """One document: the stream itself or a subtest."""

    def __init__(self, name: str = "") -> None:
        self.name = name
        self.plan: int | None = None
        self.points = 0
        self.highest = 0
        self.misnumbered = ""
        self.tests: list[TestResult] = []


class _Point(msgspec.Struct):
    """A test point whose diagnostics may still follow."""

    depth: int
    good: bool
    name: str
    number: str
    status: TestStatus
    reason: str
    duration_s: float
    children: list[TestResult]
    body: HeadAndTail | None = None
    fields: dict[str, str] = {}


class _Tap:
    def __init__(self, *, folded: bool = False, titled: bool = False) -> None:
        self.folded = folded  # `prove` prints the name of a file, then its points
        self.titled, self.title = titled, ""
        self.levels: list[_Level] = [_Level()]
        self.point: _Point | None = None
        self.yaml: list[str] | None = None
        self.indent = 0
        self.file = ""
        self.plans = 0
        self.bailed = ""
        self.notes: list[str] = []
        self.reported: dict[str, int] = {}
        self.seen: dict[str, int] = {}
        self.subtest = ""
        self.done: list[TestResult] = []
        self.broken: list[Diagnostic] = []
        self.buffered: list[_Point] = []

    # --- lines

    def line(self, line: str) -> None:
        if self.yaml is not None and not self._is_torn(line):
            self._yaml(line)
            return
        text = line.lstrip(" ")
        depth = min((len(line) - len(text)) // 4, _DEEPEST)
        if text == "---" and self.point:
            self.yaml, self.indent = [], len(line) - len(text)
        elif text.startswith(("ok", "not ok")) and (match := _POINT.match(text)):
            self._point(match, depth)
        elif text.startswith("1..") and (match := _PLAN.match(text)):
            self._plan(match, depth)
        elif text.startswith("#"):
            self._comment(text, line)
        elif text == "}" and self.buffered:
            self._close_brace()
        elif text == "{" and self.point:
            self._open_brace()
        elif text.startswith("Bail out!"):
            self.bailed = text[9:].strip() or "no reason given"
        elif " .." in text and (match := _PROVE.match(text)):
            self._new_file(match.group("file"), match.group("skipped"))

    def _is_torn(self, line: str) -> bool:
        """Return whether the diagnostics break off: another point or plan is less indented."""
        is_left = not line.startswith(" " * self.indent) or not self.indent
        if not is_left or not _NUMBERED.match(line.lstrip(" ")):
            return False
        assert self.yaml is not None
        if self.point:
            self.point.fields = yamlish.read(self.yaml)
        self.yaml = None
        return True

    def _yaml(self, line: str) -> None:
        assert self.yaml is not None
        if line.strip() == "..." and len(line) - len(line.lstrip()) <= self.indent:
            if self.point:
                self.point.fields = yamlish.read(self.yaml)
            self.yaml = None
        elif len(self.yaml) < 2000:
            self.yaml.append(line[:2000])

    def _comment(self, text: str, line: str) -> None:
        if text.startswith("# Subtest: "):
            self._settle()
            self.subtest = text[11:]
        elif (match := _SUMMARY.match(text)) and line == text:
            word = _WORDS.get(match.group("word"), "")
            self.reported.update({word: int(match.group("count"))} if word else {})
        elif self.titled and line.startswith("# "):
            self._settle()
            self.title = line[2:].strip()
        elif self.point and not _TALLY.match(text):
            self.point.body = self.point.body or HeadAndTail()
            self.point.body.add(text.removeprefix("#").removeprefix(" ") + "\n")

    def _plan(self, match: re.Match[str], depth: int) -> None:
        if depth < len(self.levels) - 1:
            self._settle()
        level = self._level(depth)
        level.plan = int(match.group("last"))
        self.plans += depth == 0
        directive = _DIRECTIVE.search(match.group("rest"))
        if level.plan == 0 and directive and depth == 0:
            name = self.file or "all tests"
            self._keep(
                TestResult(
                    id=name,
                    name=name,
                    status=TestStatus.SKIPPED,
                    file=self.file,
                    reason=directive.group("reason").strip(),
                )
            )

    def _point(self, match: re.Match[str], depth: int) -> None:
        self._settle()
        # A name may end with a brace that is never closed.
        while self.buffered and depth <= self.buffered[-1].depth:
            self._close_brace()
            self._settle()
        children: list[TestResult] = []
        if depth < len(self.levels) - 1:
            children = self._close_to(depth)
        level = self._level(depth)
        level.points += 1
        number = int(match.group("number") or level.points)
        level.highest = max(level.highest, number)
        if number != level.points and not level.misnumbered:
            level.misnumbered = f"test {number} where {level.points} was due"
        name, status, reason, duration_s = _described(match)
        self.point = _Point(
            depth=depth,
            good=status not in {TestStatus.FAILED},
            name=name,
            number=match.group("number") or str(level.points),
            status=status,
            reason=reason,
            duration_s=duration_s,
            children=children,
        )
        if _OPENS.search(match.group("rest")):
            self._open_brace()

    def _open_brace(self) -> None:
        assert self.point is not None
        self.buffered.append(self.point)
        self.point = None

    def _close_brace(self) -> None:
        """Close a subtest in braces, which is named before its children and ends after them."""
        self._settle()
        point = self.buffered.pop()
        point.children = self._close_to(point.depth)
        self.point = point

    def _level(self, depth: int) -> _Level:
        while len(self.levels) <= depth:
            self.levels.append(_Level(self.subtest))
        return self.levels[depth]

    def _close_to(self, depth: int) -> list[TestResult]:
        """Close the subtests below; their tests belong to the point that summarises them."""
        children: list[TestResult] = []
        while len(self.levels) > depth + 1:
            level = self.levels.pop()
            self._check(level)
            children = level.tests + children
        return children

    def _check(self, level: _Level) -> None:
        if level.plan is not None and level.plan != level.points:
            where = f" in {level.name}" if level.name else (f" in {self.file}" if self.file else "")
            self.notes.append(f"the plan{where} says {level.plan} tests, {level.points} ran")
        elif level.plan is not None and level.highest > level.plan:
            self.notes.append(f"test {level.highest} is outside the plan 1..{level.plan}")
        elif level.misnumbered and level.plan is not None:
            self.notes.append(f"tests are out of sequence: {level.misnumbered}")  # a failed run, as for prove

    # --- results

    def _settle(self) -> None:
        """Finish the open point: it becomes a test, or the name of the tests below it."""
        point, self.point = self.point, None
        if point is None:
            return
        level = self._level(point.depth)
        named = [_below(point.name, child) for child in point.children]
        level.tests += named
        before = len(level.tests)
        if named and point.depth == 0 and (self.folded or self.file):
            level.tests = [*level.tests[: -len(named)], self._fold(point, named)]
        # node counts a test with subtests, but not a suite.
        elif not named and point.fields.get("type") == "suite" and point.good:
            pass  # a suite without tests does not count
        elif not named or (point.fields.get("type") != "suite" and "duration_ms" in point.fields):
            level.tests.append(self._test(point, failing_child=any(c.failure for c in named)))
        elif point.status is TestStatus.FAILED and not any(child.failure for child in named):
            level.tests.append(self._test(point, failing_child=False))
        if point.depth == 0:
            level.tests = [*level.tests[:before], *(_below(self.title, test) for test in level.tests[before:])]
            self._publish(level)

    def _fold(self, point: _Point, inner: list[TestResult]) -> TestResult:
        """Merge a subtest into one test, which failed where its first failed test did."""
        first = next((test for test in inner if test.failure), None)
        test = self._test(point, failing_child=first is not None)
        if not (test.failure and first and first.failure):
            return test
        message = f"{' > '.join([*first.suite[1:], first.name])}: {first.failure.message}"
        return msgspec.structs.replace(test, failure=msgspec.structs.replace(first.failure, message=message))

    def _publish(self, level: _Level) -> None:
        for test in level.tests:
            self._keep(test)
        level.tests = []

    def _test(self, point: _Point, *, failing_child: bool) -> TestResult:
        file, line = _place(point.fields)
        name = point.name or f"#{point.number}"
        failure = _failure(point, failing_child) if point.status is TestStatus.FAILED else None
        return TestResult(
            id=name,
            name=name,
            status=TestStatus.ERROR if failure and point.fields.get("failureType") == "hookFailed" else point.status,
            file=file or self.file,
            line=line,
            duration_s=point.duration_s or _duration(point.fields),
            reason=point.reason,
            phase="setup" if point.fields.get("failureType") == "hookFailed" else "call",
            failure=failure,
        )

    def _keep(self, test: TestResult) -> None:
        if test.failure and not self.file and (test.id == test.file or _TEST_FILE.search(test.id)):
            # node and vitest report a file that failed to load as a test with the file's name.
            self.broken.append(Diagnostic(file=test.id, message=test.failure.message, type=test.failure.type))
            return
        name = f"{self.file}::{test.id}" if self.file and test.id != self.file else test.id
        count = self.seen[name] = self.seen.get(name, 0) + 1
        key = name if count == 1 else f"{name} #{count}"
        self.done.append(test if key == test.id else msgspec.structs.replace(test, id=key))

    def _new_file(self, file: str, skipped: str | None) -> None:
        """Begin the next file of `prove`, a document of its own."""
        self._finish()
        self.file = file
        self.levels = [_Level()]
        if skipped is not None:
            self.levels[0].plan = 0
            self._keep(TestResult(id=file, name=file, status=TestStatus.SKIPPED, file=file, reason=skipped))

    def _finish(self) -> None:
        self._settle()
        while self.buffered:
            self._close_brace()
            self._settle()
        orphans = self._close_to(0)
        top = self.levels[0]
        top.tests += orphans
        self._publish(top)
        self._check(top)

    def parsed(self) -> Parsed:
        self._finish()
        notes = [*self.notes, *([f"bailed out: {self.bailed}"] if self.bailed else [])]
        return Parsed(
            tests=self.done,
            collection_errors=self.broken,
            reported=self.reported,
            ended=self.plans > 0 and not notes and self.levels[0].plan is not None,
            partial=bool(notes) or self.yaml is not None,
            notes=notes,
        )


def _described(match: re.Match[str]) -> tuple[str, TestStatus, str, float]:
    rest = _OPENS.sub(lambda opened: opened.group()[1:], match.group("rest")).rstrip()
    rest, duration_s = _timed(rest)
    status = TestStatus.FAILED if match.group("not") else TestStatus.PASSED
    reason = ""
    if "#" in rest and (directive := _DIRECTIVE.search(rest)):
        status = _DIRECTED[directive.group("word").lower()]
        reason, rest = directive.group("reason").strip(), rest[: directive.start()]
    name = _DASH.sub("", rest, count=1).strip()
    name = _ESCAPED.sub(r"\1", name) if "\\" in name else name
    return name, status, reason, duration_s


def _timed(rest: str) -> tuple[str, float]:
    if "#" not in rest or not (match := _TIME.search(rest)):
        return rest, 0.0
    if match.group("bats"):
        return rest[: match.start()], int(match.group("bats")) / 1000
    scale = 1.0 if match.group("unit") == "s" else 0.001
    return rest[: match.start()], round(_float(match.group("ms")) * scale, 6)


def _below(parent: str, child: TestResult) -> TestResult:
    name = f"{parent} > {child.id}" if parent else child.id
    return msgspec.structs.replace(child, id=name, suite=[*([parent] if parent else []), *child.suite])


def _place(fields: dict[str, str]) -> tuple[str, int]:
    """Read the location: `location` (node), `at.file`/`at.fileName` (tap), `file` and `line` (Perl, old tap)."""
    if match := re.match(r"^(?:file://)?(.+?):(\d{1,9})(?::\d+)?$", fields.get("location", "")):
        return match.group(1), int(match.group(2))
    if (match := _AT.search(fields.get("at", ""))) and not is_foreign(match.group(1)):
        return match.group(1), int(match.group(2))
    file = fields.get("at.file") or fields.get("at.fileName") or fields.get("file") or ""
    line = fields.get("at.line") or fields.get("at.lineNumber") or fields.get("line") or ""
    return file.removeprefix("file://"), int(line) if line.isdecimal() and len(line) < 10 else 0


def _duration(fields: dict[str, str]) -> float:
    return round(_float(fields.get("duration_ms", "")) / 1000, 6)


def _float(text: str) -> float:
    try:
        value = float(text) if text else 0.0
    except ValueError:
        return 0.0
    return value if 0 <= value < 1e12 else 0.0


def _failure(point: _Point, failing_child: bool) -> Failure:
    fields, body = point.fields, point.body.text().strip("\n") if point.body else ""
    named = (fields.get(key) for key in ("error", "error.message", "message", "assertion"))
    message = next((text for text in named if text), "a subtest failed" if failing_child else "")
    expected, actual = _sides(fields)
    file, line = _place({} if "location" in fields else fields)
    # node's stack lacks the word that marks a frame.
    stack = "\n".join(f"    at {row.strip().removeprefix('at ')}" for row in fields.get("stack", "").splitlines())
    whole = "\n".join([stack, fields.get("diff", ""), *_values(fields), body])
    return recover.failure(
        whole,
        message=message or _trimmed(body) or point.name or f"not ok {point.number}",
        type=next((fields[key] for key in ("name", "error.name", "type") if fields.get(key, "").endswith("Error")), ""),
        file=file,
        line=line,
        expected=expected,
        actual=actual,
        operator=fields.get("operator") or fields.get("compare") or "",
    )


def _sides(fields: dict[str, str]) -> tuple[str | None, str | None]:
    """Return expected and actual by each runner's keys; ava has only a diff, with the signs reversed."""
    expected = fields.get("expected", fields.get("wanted"))
    actual = fields.get("actual", fields.get("found", fields.get("got")))
    turned = next((value for key, value in fields.items() if "(- actual, + expected)" in key), "")
    if expected is None and actual is None and turned:
        rows = turned.splitlines()
        expected = "\n".join(row[2:] for row in rows if not row.startswith("-"))
        actual = "\n".join(row[2:] for row in rows if not row.startswith("+"))
    return expected, actual


def _trimmed(body: str) -> str:
    if body.startswith("Traceback (most recent call last):"):
        return body.rstrip().rpartition("\n")[2]
    return "\n".join(row for row in body.splitlines() if not row.startswith("Looks like you "))


def _values(fields: dict[str, str]) -> list[str]:
    return [f"{key}\n{value}" for key, value in fields.items() if key.startswith(("values.", "details.", "at"))]
