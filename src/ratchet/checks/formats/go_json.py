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
_BUILD_FAILED = re.compile(r"^FAIL\s+(\S+) \[(build failed|setup failed)\]")
_SIGNAL = re.compile(r"^(SIG[A-Z]{2,8}): [a-z]", re.M)
_PLACE = re.compile(r"^ {4,}(?P<file>[^\s:]+\.go):(?P<line>\d{1,9}): ?(?P<message>.*)")


def parse(stream: BinaryIO) -> Parsed:
    """One record for each test and subtest, named `package.Test/sub`. It has ended when every package has."""
    reader = _Go()
    for line in lines(stream):
        reader.line(line)
    return reader.parsed()


class _Package:
    def __init__(self) -> None:
        self.ended = False
        self.run = 1
        self.failed = False
        self.red = False
        self.output = Ends(8 << 10)


class _Go:
    def __init__(self) -> None:
        self.tests: list[TestResult] = []
        self.seen: dict[str, tuple[int, int]] = {}
        self.outputs: dict[tuple[str, str], Ends] = {}
        self.packages: dict[str, _Package] = {}
        self.scan = compiler.Scan()
        self.unbuilt: dict[str, bool] = {}
        self.paused: set[tuple[str, str]] = set()
        self.died: dict[str, bool] = {}  # each with whether its output says why

    def line(self, line: str) -> None:
        event = loose.row(line)
        if not event:
            self._stray(line)
            return
        action, package = loose.text(event, "Action"), loose.text(event, "Package")
        if action in {"build-output", "build-fail"}:
            self._build(event, action)
        elif package or action in _ACTIONS:
            self._event(event, action, package)

    def _stray(self, line: str) -> None:
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
            self._output(package, name, loose.text(event, "Output"))
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

    def _output(self, package: str, name: str, text: str) -> None:
        kept = self.outputs.setdefault((package, name), Ends())
        if not _FRAMING.match(text):
            kept.add(text)

    def _cut_off(self, package: str, known: _Package) -> None:
        """The package is over and these tests are not: they were running when its process panicked, left or was killed.

        Those that waited for their turn, or for a test inside them, are not to blame.
        """
        open_ones = [name for place, name in self.outputs if place == package]
        waiting = [name for name in open_ones if (package, name) in self.paused]
        for name in open_ones:
            around = any(other.startswith(f"{name}/") for other in open_ones)
            if known.failed and name not in waiting and not around:
                self._died(package, name, plain(known.output.text()))
            self.outputs.pop((package, name), None)

    def _died(self, package: str, name: str, said: str) -> None:
        output = plain(self.outputs[package, name].text())
        fault = next((text for text in (output, said) if _kind(text)), "")
        self.died[f"{package}.{name}" if package else name] = bool(fault)
        message = " ".join(["it was running when the process of its package ended", *_end(said)])
        failure = _failure(fault) if fault else Failure(type="Crashed", message=message)
        self._over(package, name, TestStatus.ERROR, 0.0, failure)

    def _over(
        self, package: str, name: str, status: TestStatus, elapsed_s: float, failure: Failure | None = None
    ) -> None:
        kept = self.outputs.pop((package, name), None)
        output = plain(kept.text()) if kept else ""
        if status is TestStatus.FAILED:
            failure = _failure(output)
        self.packages[package].red |= failure is not None
        self._add(
            self.packages[package].run,
            TestResult(
                id=f"{package}.{name}" if package else name,
                name=name,
                suite=[package],
                status=status,
                file=failure.file if failure else "",
                duration_s=elapsed_s,
                reason=_reason(output) if status is TestStatus.SKIPPED else "",
                failure=failure,
                stdout=clip(output, 8 << 10) if failure else "",
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
        broken = [error for name, known in self.packages.items() if (error := self._broken(name, known))]
        return Parsed(
            tests=distinct(self.tests),
            collection_errors=broken,
            compile_errors=self._compile_errors(),
            ended=bool(self.packages or self.unbuilt)
            and all(known.ended for known in self.packages.values())
            and all(self.died.values()),
            partial=any(not known.ended for known in self.packages.values()),
            running=[*self.died, *(f"{package}.{name}" if package else name for package, name in self.outputs)],
        )

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
        return Diagnostic(
            file=at.file or name, line=at.line, type=_kind(output), message=clip(output.strip(), 4000), tool="go"
        )


def _failure(output: str) -> Failure:
    """The first line that names a place is the message; a panic or a race counts before it."""
    kind = _kind(output)
    if kind == "panic" or kind.startswith("SIG"):
        return recover.failure(output, message=_panic(output), type=kind)
    place = next((match for row in output.splitlines() if (match := _PLACE.match(row))), None)
    message = _message(output) or ("a subtest failed" if not output.strip() else output.strip())
    return recover.failure(
        output,
        message=message,
        type=kind,
        file=place.group("file") if place else "",
        line=int(place.group("line")) if place else 0,
    )


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
