"""Parses `go test -json`: interleaved events of all packages, build failures of every Go version, panics, races,
timeouts."""

from __future__ import annotations

import re
from typing import BinaryIO

import msgspec

from ratchet.checks.formats import Parsed, compiler, distinct, lenient_json, recover
from ratchet.checks.formats.text import HeadAndTail, clip, lines, strip_control_characters
from ratchet.core.report import Diagnostic, Failure, TestResult, TestStatus

_STATUS = {"pass": TestStatus.PASSED, "fail": TestStatus.FAILED, "skip": TestStatus.SKIPPED}
_ACTIONS = {*_STATUS, "start", "run", "output"}  # `go tool test2json` alone knows no package
_FRAMING = re.compile(r"^\s*(?:=== (?:RUN|PAUSE|CONT|NAME)|--- (?:PASS|FAIL|SKIP|BENCH):)")
_AFTERWARDS = "the package failed after its tests"
_BUILD_FAILED = re.compile(r"^FAIL\s+(\S+) \[(build failed|setup failed)\]")
_SIGNAL = re.compile(r"^(SIG[A-Z]{2,8}): [a-z]", re.M)
# Messages of `testing` itself are located in its own file.
_PLACE = re.compile(
    r"^ {4,}(?:(?:Test|Example|Fuzz)\S*: )?(?!testing\.go:)(?P<file>[^\s:]+\.go):(?P<line>\d{1,9}): ?(?P<message>.*)"
)
# Before Go 1.20 `go test` misses a verdict that follows output without a line end.
_LATE = re.compile(r"\S *--- (?P<word>PASS|FAIL|SKIP): (?P<name>\S+) \((?P<s>[\d.]{1,12})s\)\n?$")
_WORDS = {"PASS": TestStatus.PASSED, "FAIL": TestStatus.FAILED, "SKIP": TestStatus.SKIPPED}
_STACKS = re.compile(r"(?m)^\s*goroutine \d+ [^\n]*\[|^Goroutine \d+ \(")
_RACE = re.compile(r"WARNING: DATA RACE\n(?:\S[^\n]*\n(?:[ \t]+[^\n]*\n)*)*")

SIGN = re.compile(rb'"Action"|\[(?:build|setup) failed\]')


def parse(stream: BinaryIO) -> Parsed:
    """Return one result for each test and subtest, named `package.Test/sub`. The stream has ended when every package
    has."""
    reader = GoEvents()
    for line in lines(stream):
        reader.line(line)
    return reader.parsed()


class _Package:
    def __init__(self) -> None:
        self.ended = False
        self.run = 1
        self.failed = False
        self.red = False
        self.tests = False
        self.output = HeadAndTail(8 << 10)


class GoEvents:
    """Processes the events of a run in order."""

    def __init__(self) -> None:
        self.tests: list[TestResult] = []
        self.seen: dict[str, tuple[int, int]] = {}
        self.outputs: dict[tuple[str, str], HeadAndTail] = {}
        # Go 1.27 marks which lines are errors and which are log output
        self.errors: dict[tuple[str, str], HeadAndTail] = {}
        self.late: dict[tuple[str, str], tuple[TestStatus, float]] = {}
        self.around: set[str] = set()  # ids of tests with a failed subtest
        self.packages: dict[str, _Package] = {}
        self.scan = compiler.CompilerScan()
        self.unbuilt: dict[str, bool] = {}
        self.paused: set[tuple[str, str]] = set()
        self.died: dict[str, bool] = {}  # each with whether its output explains the failure

    def line(self, line: str) -> None:
        if event := lenient_json.row(line):
            self.take_event(event)
        else:
            self.stray(line)

    def take_event(self, event: lenient_json.Table) -> None:
        action, package = lenient_json.text(event, "Action"), lenient_json.text(event, "Package")
        if action in {"build-output", "build-fail"}:
            self._build(event, action)
        elif package or action in _ACTIONS:
            self._event(event, action, package)

    def stray(self, line: str) -> None:
        """Handle a plain line: before Go 1.24 the compiler wrote to stderr, and `go test` a plain line about the
        package."""
        if match := _BUILD_FAILED.match(line):
            self.unbuilt[match.group(1)] = True
        else:
            self.scan.line(line)

    def _build(self, event: lenient_json.Table, action: str) -> None:
        if action == "build-output":
            self.scan.line(lenient_json.text(event, "Output").rstrip("\n"))
        else:
            self.unbuilt.setdefault(lenient_json.text(event, "ImportPath").split(" ")[0], True)

    def _event(self, event: lenient_json.Table, action: str, package: str) -> None:
        name = lenient_json.text(event, "Test")
        known = self.packages.setdefault(package, _Package())
        if name and known.ended:
            known.ended, known.run = False, known.run + 1
        if not name:
            self._package(event, action, package, known)
        elif action == "run":
            self.outputs[package, name] = HeadAndTail()
        elif action == "output":
            self._output(package, name, lenient_json.text(event, "Output"), lenient_json.text(event, "OutputType"))
        elif action in {"pause", "cont"}:
            (self.paused.add if action == "pause" else self.paused.discard)((package, name))
        elif action in _STATUS:
            self._over(package, name, _STATUS[action], lenient_json.number(event, "Elapsed"))

    def _package(self, event: lenient_json.Table, action: str, package: str, known: _Package) -> None:
        if action == "output":
            known.output.add(lenient_json.text(event, "Output"))
        elif action in _STATUS:
            known.ended, known.failed = True, action == "fail"
            if event.get("FailedBuild"):
                self.unbuilt[package] = True
            self._cut_off(package, known)

    def _output(self, package: str, name: str, text: str, kind: str) -> None:
        kept = self.outputs.setdefault((package, name), HeadAndTail())
        if _FRAMING.match(text):
            return
        kept.add(text)
        if kind.startswith("error"):
            self.errors.setdefault((package, name), HeadAndTail()).add(text)
        elif (late := _LATE.search(text)) and late.group("name") == name:
            self.late[package, name] = _WORDS[late.group("word")], float(late.group("s").strip(".") or 0)

    def _cut_off(self, package: str, known: _Package) -> None:
        """Fail tests that were running when the package's process panicked, exited or was killed.

        Tests that waited for their turn or for a subtest are not to blame.
        """
        self._settle(package)
        for name in self._running(package):
            if known.failed:
                self._died(package, name, strip_control_characters(known.output.text()))
        for name in self._open(package):
            self.outputs.pop((package, name))

    def _settle(self, package: str) -> None:
        """Apply verdicts found in the middle of a line if there was no other."""
        for name in self._open(package):
            if verdict := self.late.get((package, name)):
                self._over(package, name, *verdict)

    def _open(self, package: str) -> list[str]:
        return [name for place, name in self.outputs if place == package]

    def _running(self, package: str) -> list[str]:
        open_ones = self._open(package)
        outer = {above for name in open_ones for above in _above(name)}
        return [name for name in open_ones if (package, name) not in self.paused and name not in outer]

    def _died(self, package: str, name: str, last_output: str) -> None:
        output = strip_control_characters(self.outputs[package, name].text())
        fault = next((text for text in (output, last_output) if _kind(text)), "")
        self.died[f"{package}.{name}" if package else name] = bool(fault)
        message = " ".join(["it was running when the process of its package ended", *_end(last_output)])
        failure = explained(fault) if fault else Failure(type="Crashed", message=message)
        self._over(package, name, TestStatus.ERROR, 0.0, failure)

    def _over(
        self, package: str, name: str, status: TestStatus, elapsed_s: float, failure: Failure | None = None
    ) -> None:
        kept, errors = self.outputs.pop((package, name), None), self.errors.pop((package, name), None)
        output = strip_control_characters(kept.text()) if kept else ""
        self.late.pop((package, name), None)
        full = f"{package}.{name}" if package else name
        if status is TestStatus.FAILED:
            failure_found = explained(output, strip_control_characters(errors.text()) if errors else "")
            failure = failure_found if failure_found.message else Failure(message=_silent(inside=full in self.around))
            if full in self.around and failure_found.type == "panic" and self._hand_down(full, failure_found, output):
                failure, output = Failure(message=_silent(inside=True)), ""
        self.packages[package].tests = True
        self.packages[package].red |= failure is not None
        if failure:
            self.around |= {full[: len(full) - len(name)] + above for above in _above(name)}
        self._add(
            self.packages[package].run,
            TestResult(
                id=full,
                name=name,
                suite=[package],
                status=status,
                file=failure.file if failure else "",
                duration_s=elapsed_s,
                reason=_reason(output) if status is TestStatus.SKIPPED else "",
                failure=failure,
                stdout=clip(_without_stacks(output, failure), 8 << 10) if failure else "",
            ),
        )

    def _hand_down(self, full: str, failure: Failure, output: str) -> bool:
        """Move a panic to the subtest that failed silently: newer Go reports it for the outermost test."""
        for index in range(len(self.tests) - 1, -1, -1):
            test = self.tests[index]
            if test.id.startswith(f"{full}/") and test.failure == Failure(message=_silent(inside=False)):
                stdout = clip(_without_stacks(output, failure), 8 << 10)
                self.tests[index] = msgspec.structs.replace(test, file=failure.file, failure=failure, stdout=stdout)
                return True
        return False

    def _add(self, run: int, test: TestResult) -> None:
        """Add a result: after the end of its package a test is a retry and its last result counts; within one run it
        is another test."""
        index, before = self.seen.get(test.id, (0, run))
        if before < run:
            attempts = self.tests[index].attempts + 1
            self.tests[index] = msgspec.structs.replace(test, attempts=attempts)
        else:
            index = len(self.tests)
            self.tests.append(test)
        self.seen[test.id] = index, run

    def parsed(self) -> Parsed:
        for package in [name for name, known in self.packages.items() if not known.ended]:
            self._settle(package)
        broken = [error for name, known in self.packages.items() if (error := self._broken(name, known))]
        return Parsed(
            tests=distinct(self.tests),
            collection_errors=broken,
            compile_errors=self._compile_errors(),
            ended=bool(self.packages or self.unbuilt)
            and all(known.ended for known in self.packages.values())
            and all(self.died.values()),
            partial=any(not known.ended for known in self.packages.values()),
            running=[*self.died, *self._unfinished()],
        )

    def _unfinished(self) -> list[str]:
        places = dict.fromkeys(package for package, _ in self.outputs)
        return [f"{place}.{name}" if place else name for place in places for name in self._running(place)]

    def _compile_errors(self) -> list[Diagnostic]:
        """Return the compiler's errors; a package that was not built always has one, even without a reason."""
        if self.scan.found or not self.unbuilt:
            return self.scan.found if self.unbuilt else []
        return [Diagnostic(file=name, message="build failed", tool="go") for name in self.unbuilt]

    def _broken(self, name: str, known: _Package) -> Diagnostic | None:
        """Report a package that failed without a failed test: TestMain, a panic in init, os.Exit in a test."""
        if not known.failed or known.red or name in self.unbuilt or name.split(" ", maxsplit=1)[0] in self.unbuilt:
            return None
        output = strip_control_characters(known.output.text())
        if "[build failed]" in output or "[setup failed]" in output:
            self.unbuilt[name] = True
            return None
        at = recover.failure(output)
        excerpt = clip(output.strip(), 4000)
        message = "\n".join([" ".join([_AFTERWARDS, *_end(output)]), excerpt]) if known.tests else excerpt
        return Diagnostic(file=at.file or name, line=at.line, type=_kind(output), message=message, tool="go")


def explained(output: str, own_output: str = "") -> Failure:
    """Build a failure: the first located line is the message, but a panic or race takes precedence.

    `own_output` is the part of the output that is known to be about the failure.
    """
    kind = _kind(output)
    if kind == "panic" or kind.startswith("SIG"):
        message = _panic(output)
        return recover.failure(_busy(output) if _OVERDUE in message else output, message=message, type=kind)
    if kind == "race" and (found := _RACE.search(output)):
        return recover.failure(found.group(), message=_message(own_output or output) or _RACED, type=kind)
    source = own_output if _place(own_output) else output
    place = _place(source)
    expected, actual = _example(output)
    message, stack, _ = _STACKS.sub("\0", _message(source), count=1).partition("\0")
    if expected is None:
        expected, actual = _blocks(message)
    if stack:
        place = None  # the goroutine that printed the stack is not the one that it is about
    return recover.failure(
        source,
        message=_testify(message.rstrip()) or output.strip(),
        type=kind,
        file=place.group("file") if place else "",
        line=int(place.group("line")) if place else 0,
        expected=expected,
        actual=actual,
    )


_OVERDUE = "test timed out after"
_RACED = "race detected during execution of test"
_EXAMPLE = re.compile(r"(?:\A|\n)got:\n(?P<a>.*?)\n?want(?: \(unordered\))?:\n(?P<e>.*?)\n?\Z", re.S)
_BLOCKS = re.compile(
    r"(?:\A|\n)[ \t]*(?P<what>expected|want(?:ed)?|got|actual|have)[ \t]*:[ \t]*\n(?P<one>.+?)\n+"
    r"[ \t]*(?P<other>expected|want(?:ed)?|got|actual|have)[ \t]*:[ \t]*\n(?P<two>.+)\Z",
    re.S | re.I,
)


def _example(output: str) -> tuple[str | None, str | None]:
    """Return the expected and actual output of an example."""
    found = _EXAMPLE.search(output)
    return (found.group("e"), found.group("a")) if found else (None, None)


def _blocks(message: str) -> tuple[str | None, str | None]:
    """Return two values that each follow a heading on a line of its own."""
    found = _BLOCKS.search(message)
    first, second = (found["what"][0].lower() in "ew", found["other"][0].lower() in "ew") if found else (False, False)
    if not found or first == second:
        return None, None
    one, two = found["one"].strip("\n"), found["two"].strip("\n")
    return (one, two) if first else (two, one)


_LABEL = re.compile(r"(?m)^\t([A-Z][A-Za-z ]*): *\t")


def _testify(message: str) -> str:
    """Parse testify's table: the error, then the test's message; trace and name are known already."""
    _, *pairs = _LABEL.split(f"\n{message}" if message.startswith("\t") else f"\n\t{message}")
    table = dict(zip(pairs[::2], pairs[1::2], strict=True))
    if "Error Trace" not in table or "Error" not in table:
        return message
    texts = (re.sub(r"(?m)^\t {6,}\t", "", table[label]).strip() for label in ("Messages", "Error") if label in table)
    return "\n".join(texts)


def place_of(row: str) -> tuple[str, int] | None:
    """Return the file and line at the beginning of a row of output."""
    found = _PLACE.match(row)
    return (found.group("file"), int(found.group("line"))) if found else None


def _place(output: str) -> re.Match[str] | None:
    return next((match for row in output.splitlines() if (match := _PLACE.match(row))), None)


def _above(name: str) -> list[str]:
    """Return the parents of a test: `a` and `a/b` for `a/b/c`."""
    return [name[:at] for at, sign in enumerate(name) if sign == "/"]


def _busy(output: str) -> str:
    """Return the stacks that do not merely wait for a subtest."""
    first, *stacks = re.split(r"(?m)^(?=goroutine \d+ )", output)
    return "".join([first, *(stack for stack in stacks if "\ntesting.(*T).Run(" not in stack)])


def _silent(*, inside: bool) -> str:
    return "a subtest failed" if inside else "it failed, and says nothing of why"


def _without_stacks(output: str, failure: Failure) -> str:
    """Return the output before the stacks, which have been parsed into frames."""
    found = _STACKS.search(output) if failure.frames else None
    return output[: found.start()].rstrip() if found else output


def _end(output: str) -> list[str]:
    """Return how the process ended according to `go test`: `(signal: killed)`, `(exit status 3)`."""
    return [f"({row})" for row in output.splitlines() if row.startswith(("signal: ", "exit status "))][-1:]


def _kind(output: str) -> str:
    if re.search(r"^panic: ", output, re.M):
        return "panic"
    if found := _SIGNAL.search(output):
        return found.group(1)
    if "WARNING: DATA RACE" in output:
        return "race"
    return "fatal error" if re.search(r"^fatal error: ", output, re.M) else ""


def _panic(output: str) -> str:
    found = re.search(r"^(?:panic|SIG[A-Z]+): (.+?)(?: \[recovered.*)?$", output, re.M)
    return found.group(1) if found else ""


def _message(output: str) -> str:
    """Return the text of the first located line, with the lines indented below it."""
    rows = output.splitlines()
    for index, row in enumerate(rows):
        if match := _PLACE.match(row):
            more = []
            for follow in rows[index + 1 :]:
                if not follow.startswith("        ") or _PLACE.match(follow):
                    break
                more.append(follow[8:])
            return "\n".join([match.group("message"), *more]).strip("\n")
    return ""


def _reason(output: str) -> str:
    return clip(_message(output) if _place(output) else output.strip(), 1000)
