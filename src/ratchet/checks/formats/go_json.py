"""`go test -json`: events of all packages, interleaved. Build failures of every Go version; panics, races, timeouts."""

from __future__ import annotations

import re
from typing import BinaryIO

import msgspec

from ratchet.checks.formats import Parsed, compiler, distinct, loose, recover
from ratchet.checks.formats.text import Ends, clip, lines, plain
from ratchet.core.report import Diagnostic, Failure, TestResult, TestStatus

_STATUS = {"pass": TestStatus.PASSED, "fail": TestStatus.FAILED, "skip": TestStatus.SKIPPED}
_ACTIONS = {*_STATUS, "start", "run", "output"}  # `go tool test2json` alone knows no package
_FRAMING = re.compile(r"^\s*(?:=== (?:RUN|PAUSE|CONT|NAME)|--- (?:PASS|FAIL|SKIP|BENCH):)")
_AFTERWARDS = "the package failed after its tests"
_BUILD_FAILED = re.compile(r"^FAIL\s+(\S+) \[(build failed|setup failed)\]")
_SIGNAL = re.compile(r"^(SIG[A-Z]{2,8}): [a-z]", re.M)
# What `testing` says of a test by itself is said in its own file.
_PLACE = re.compile(
    r"^ {4,}(?:(?:Test|Example|Fuzz)\S*: )?(?!testing\.go:)(?P<file>[^\s:]+\.go):(?P<line>\d{1,9}): ?(?P<message>.*)"
)
# Before Go 1.20 a verdict behind what a test printed without a line end is not seen by `go test` itself.
_LATE = re.compile(r"\S *--- (?P<word>PASS|FAIL|SKIP): (?P<name>\S+) \((?P<s>[\d.]{1,12})s\)\n?$")
_WORDS = {"PASS": TestStatus.PASSED, "FAIL": TestStatus.FAILED, "SKIP": TestStatus.SKIPPED}
_STACKS = re.compile(r"(?m)^\s*goroutine \d+ [^\n]*\[|^Goroutine \d+ \(")
_RACE = re.compile(r"WARNING: DATA RACE\n(?:\S[^\n]*\n(?:[ \t]+[^\n]*\n)*)*")

SIGN = re.compile(rb'"Action"|\[(?:build|setup) failed\]')


def parse(stream: BinaryIO) -> Parsed:
    """One record for each test and subtest, named `package.Test/sub`. It has ended when every package has."""
    reader = Events()
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
        self.output = Ends(8 << 10)


class Events:
    """What the events of a run, in their order, come to."""

    def __init__(self) -> None:
        self.tests: list[TestResult] = []
        self.seen: dict[str, tuple[int, int]] = {}
        self.outputs: dict[tuple[str, str], Ends] = {}
        self.errors: dict[tuple[str, str], Ends] = {}  # Go 1.27 says which lines are errors and which are logged
        self.late: dict[tuple[str, str], tuple[TestStatus, float]] = {}
        self.around: set[str] = set()  # ids of those with a failed test inside
        self.packages: dict[str, _Package] = {}
        self.scan = compiler.Scan()
        self.unbuilt: dict[str, bool] = {}
        self.paused: set[tuple[str, str]] = set()
        self.died: dict[str, bool] = {}  # each with whether its output says why

    def line(self, line: str) -> None:
        if event := loose.row(line):
            self.tell(event)
        else:
            self.stray(line)

    def tell(self, event: loose.Table) -> None:
        action, package = loose.text(event, "Action"), loose.text(event, "Package")
        if action in {"build-output", "build-fail"}:
            self._build(event, action)
        elif package or action in _ACTIONS:
            self._event(event, action, package)

    def stray(self, line: str) -> None:
        """Before Go 1.24 the compiler wrote to stderr, and `go test` a plain line about the package."""
        if match := _BUILD_FAILED.match(line):
            self.unbuilt[match.group(1)] = True
        else:
            self.scan.line(line)

    def _build(self, event: loose.Table, action: str) -> None:
        if action == "build-output":
            self.scan.line(loose.text(event, "Output").rstrip("\n"))
        else:
            self.unbuilt.setdefault(loose.text(event, "ImportPath").split(" ")[0], True)

    def _event(self, event: loose.Table, action: str, package: str) -> None:
        name = loose.text(event, "Test")
        known = self.packages.setdefault(package, _Package())
        if name and known.ended:
            known.ended, known.run = False, known.run + 1
        if not name:
            self._package(event, action, package, known)
        elif action == "run":
            self.outputs[package, name] = Ends()
        elif action == "output":
            self._output(package, name, loose.text(event, "Output"), loose.text(event, "OutputType"))
        elif action in {"pause", "cont"}:
            (self.paused.add if action == "pause" else self.paused.discard)((package, name))
        elif action in _STATUS:
            self._over(package, name, _STATUS[action], loose.number(event, "Elapsed"))

    def _package(self, event: loose.Table, action: str, package: str, known: _Package) -> None:
        if action == "output":
            known.output.add(loose.text(event, "Output"))
        elif action in _STATUS:
            known.ended, known.failed = True, action == "fail"
            if event.get("FailedBuild"):
                self.unbuilt[package] = True
            self._cut_off(package, known)

    def _output(self, package: str, name: str, text: str, kind: str) -> None:
        kept = self.outputs.setdefault((package, name), Ends())
        if _FRAMING.match(text):
            return
        kept.add(text)
        if kind.startswith("error"):
            self.errors.setdefault((package, name), Ends()).add(text)
        elif (late := _LATE.search(text)) and late.group("name") == name:
            self.late[package, name] = _WORDS[late.group("word")], float(late.group("s").strip(".") or 0)

    def _cut_off(self, package: str, known: _Package) -> None:
        """The package is over and these tests are not: they were running when its process panicked, left or was killed.

        Those that waited for their turn, or for a test inside them, are not to blame.
        """
        self._settle(package)
        for name in self._running(package):
            if known.failed:
                self._died(package, name, plain(known.output.text()))
        for name in self._open(package):
            self.outputs.pop((package, name))

    def _settle(self, package: str) -> None:
        """Verdicts that stand in the middle of a line count where no other came."""
        for name in self._open(package):
            if verdict := self.late.get((package, name)):
                self._over(package, name, *verdict)

    def _open(self, package: str) -> list[str]:
        return [name for place, name in self.outputs if place == package]

    def _running(self, package: str) -> list[str]:
        open_ones = self._open(package)
        outer = {above for name in open_ones for above in _above(name)}
        return [name for name in open_ones if (package, name) not in self.paused and name not in outer]

    def _died(self, package: str, name: str, said: str) -> None:
        output = plain(self.outputs[package, name].text())
        fault = next((text for text in (output, said) if _kind(text)), "")
        self.died[f"{package}.{name}" if package else name] = bool(fault)
        message = " ".join(["it was running when the process of its package ended", *_end(said)])
        failure = explained(fault) if fault else Failure(type="Crashed", message=message)
        self._over(package, name, TestStatus.ERROR, 0.0, failure)

    def _over(
        self, package: str, name: str, status: TestStatus, elapsed_s: float, failure: Failure | None = None
    ) -> None:
        kept, errors = self.outputs.pop((package, name), None), self.errors.pop((package, name), None)
        output = plain(kept.text()) if kept else ""
        self.late.pop((package, name), None)
        full = f"{package}.{name}" if package else name
        if status is TestStatus.FAILED:
            told = explained(output, plain(errors.text()) if errors else "")
            failure = told if told.message else Failure(message=_silent(inside=full in self.around))
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

    def _add(self, run: int, test: TestResult) -> None:
        """After its package was over a test is tried again and its last result counts; in one run it is another."""
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
        """What the compiler said; a package that was not built is never silent, even if nobody said why."""
        if self.scan.found or not self.unbuilt:
            return self.scan.found if self.unbuilt else []
        return [Diagnostic(file=name, message="build failed", tool="go") for name in self.unbuilt]

    def _broken(self, name: str, known: _Package) -> Diagnostic | None:
        """A package that failed although none of its tests did: TestMain, an init panic, os.Exit in a test."""
        if not known.failed or known.red or name in self.unbuilt or name.split(" ", maxsplit=1)[0] in self.unbuilt:
            return None
        output = plain(known.output.text())
        if "[build failed]" in output or "[setup failed]" in output:
            self.unbuilt[name] = True
            return None
        at = recover.failure(output)
        said = clip(output.strip(), 4000)
        message = "\n".join([" ".join([_AFTERWARDS, *_end(output)]), said]) if known.tests else said
        return Diagnostic(file=at.file or name, line=at.line, type=_kind(output), message=message, tool="go")


def explained(output: str, said: str = "") -> Failure:
    """The first line that names a place is the message; a panic or a race counts before it.

    `said` is the part of the output that is known to be about the failure.
    """
    kind = _kind(output)
    if kind == "panic" or kind.startswith("SIG"):
        message = _panic(output)
        return recover.failure(_busy(output) if _OVERDUE in message else output, message=message, type=kind)
    if kind == "race" and (found := _RACE.search(output)):
        return recover.failure(found.group(), message=_message(said or output) or _RACED, type=kind)
    told = said if _place(said) else output
    place = _place(told)
    expected, actual = _example(output)
    message, stack, _ = _STACKS.sub("\0", _message(told), count=1).partition("\0")
    if stack:
        place = None  # the one that printed the stack is not the one that it is about
    return recover.failure(
        told,
        message=_testify(message.rstrip()) or output.strip(),
        type=kind,
        file=place.group("file") if place else "",
        line=int(place.group("line")) if place else 0,
        expected=expected,
        actual=actual,
    )


_OVERDUE = "test timed out after"
_RACED = "race detected during execution of test"
_EXAMPLE = re.compile(r"\Agot:\n(?P<a>.*?)\n?want:\n(?P<e>.*?)\n?\Z", re.S)


def _example(output: str) -> tuple[str | None, str | None]:
    """What an example should have printed and what it printed, each as lines of their own."""
    found = _EXAMPLE.match(output)
    return (found.group("e"), found.group("a")) if found else (None, None)


_LABEL = re.compile(r"(?m)^\t([A-Z][A-Za-z ]*): *\t")


def _testify(message: str) -> str:
    """Of testify's table what was wrong, after what the test says to it; trace and name are told elsewhere."""
    _, *pairs = _LABEL.split(f"\n{message}" if message.startswith("\t") else f"\n\t{message}")
    table = dict(zip(pairs[::2], pairs[1::2], strict=True))
    if "Error Trace" not in table or "Error" not in table:
        return message
    said = (re.sub(r"(?m)^\t {6,}\t", "", table[label]).strip() for label in ("Messages", "Error") if label in table)
    return "\n".join(said)


def place_of(row: str) -> tuple[str, int] | None:
    """The file and the line that a row of a test's output begins with."""
    found = _PLACE.match(row)
    return (found.group("file"), int(found.group("line"))) if found else None


def _place(output: str) -> re.Match[str] | None:
    return next((match for row in output.splitlines() if (match := _PLACE.match(row))), None)


def _above(name: str) -> list[str]:
    """The tests around one: `a` and `a/b` of `a/b/c`."""
    return [name[:at] for at, sign in enumerate(name) if sign == "/"]


def _busy(output: str) -> str:
    """Of all stacks those that do not merely wait for a test inside."""
    first, *stacks = re.split(r"(?m)^(?=goroutine \d+ )", output)
    return "".join([first, *(stack for stack in stacks if "\ntesting.(*T).Run(" not in stack)])


def _silent(*, inside: bool) -> str:
    return "a subtest failed" if inside else "it failed, and says nothing of why"


def _without_stacks(output: str, failure: Failure) -> str:
    """What was printed before the stacks, which have been read into frames."""
    found = _STACKS.search(output) if failure.frames else None
    return output[: found.start()].rstrip() if found else output


def _end(said: str) -> list[str]:
    """How `go test` says that a process ended, if it does: `(signal: killed)`, `(exit status 3)`."""
    return [f"({row})" for row in said.splitlines() if row.startswith(("signal: ", "exit status "))][-1:]


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
    """The text of the first located line, with the lines that are indented under it."""
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
    return clip(_message(output) or output.strip(), 1000)
