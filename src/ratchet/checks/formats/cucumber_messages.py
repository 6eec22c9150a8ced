"""Parses Cucumber's message stream: one envelope a line, linked by ids."""

from __future__ import annotations

import re
from typing import Any, BinaryIO

import msgspec

from ratchet.checks.formats import Parsed, distinct, lenient_json
from ratchet.checks.formats.cucumber_json import CucumberStep, scenario
from ratchet.checks.formats.text import lines
from ratchet.core.report import Diagnostic, TestResult, TestStatus

_DEPTH = 30

SIGN = re.compile(rb'"(?:testCase|testRunHook)Finished"|"parseError"|"testRunFinished"')


def parse(stream: BinaryIO) -> Parsed:
    """Identify each pickle by its location. Of repeated attempts only the number is kept."""
    reader = _Messages()
    for line in lines(stream):
        for kind, message in lenient_json.row(line).items():
            if isinstance(message, dict):
                reader.feed(kind, message)
    return reader.parsed()


class _Messages:
    def __init__(self) -> None:
        self.lines: dict[str, int] = {}
        self.features: dict[str, str] = {}
        self.pickles: dict[str, lenient_json.Table] = {}
        self.cases: dict[str, lenient_json.Table] = {}
        self.running: dict[str, tuple[lenient_json.Table, list[CucumberStep]]] = {}
        self.tests: list[TestResult] = []
        self.broken: list[Diagnostic] = []
        self.notes: list[str] = []
        self.ended = False

    def feed(self, kind: str, message: lenient_json.Table) -> None:
        match kind:
            case "gherkinDocument":
                self.features[lenient_json.text(message, "uri")] = lenient_json.text(
                    lenient_json.table(message, "feature"), "name"
                )
                self._lines(message, 0)
            case "parseError":
                self._unreadable(message)
            case "pickle":
                self.pickles[lenient_json.text(message, "id")] = message
            case "testCase":
                self.cases[lenient_json.text(message, "id")] = message
            case "testCaseStarted":
                self.running[lenient_json.text(message, "id")] = (message, [])
            case "testStepFinished":
                self._step(message)
            case "testCaseFinished":
                self._finish(message)
            case "testRunHookFinished":
                self._hook(lenient_json.table(message, "result"))
            case "testRunFinished":
                self._end(message)

    def _lines(self, node: Any, depth: int) -> None:
        """Return the line of every node of the document."""
        if depth > _DEPTH:
            return
        if isinstance(node, dict):
            if "id" in node and "location" in node:
                self.lines[lenient_json.text(node, "id")] = lenient_json.whole(
                    lenient_json.table(node, "location"), "line"
                )
            node = list(node.values())
        for child in node if isinstance(node, list) else []:
            self._lines(child, depth + 1)

    def _unreadable(self, message: lenient_json.Table) -> None:
        source = lenient_json.table(message, "source")
        at = lenient_json.table(source, "location")
        self.broken.append(
            Diagnostic(
                file=lenient_json.text(source, "uri"),
                line=lenient_json.whole(at, "line"),
                column=lenient_json.whole(at, "column"),
                message=lenient_json.text(message, "message"),
                tool="cucumber",
            )
        )

    def _step(self, message: lenient_json.Table) -> None:
        _, steps = self.running.get(lenient_json.text(message, "testCaseStartedId"), ({}, []))
        result = lenient_json.table(message, "testStepResult")
        known = self._known(message)
        took = lenient_json.table(result, "duration")
        steps.append(
            CucumberStep(
                status=lenient_json.text(result, "status").lower(),
                text=lenient_json.text(known, "text") or "hook",
                line=self._place(known),
                message=_message(result),
                duration_s=lenient_json.number(took, "seconds") + lenient_json.number(took, "nanos") * 1e-9,
                phase="call" if known else "teardown" if any(step.phase == "call" for step in steps) else "setup",
            )
        )

    def _known(self, message: lenient_json.Table) -> lenient_json.Table:
        """Return the step of the pickle; a hook has none."""
        started, _ = self.running.get(lenient_json.text(message, "testCaseStartedId"), ({}, []))
        case = self.cases.get(lenient_json.text(started, "testCaseId"), {})
        wanted = _of(lenient_json.tables(case, "testSteps"), lenient_json.text(message, "testStepId")).get(
            "pickleStepId"
        )
        pickle = self.pickles.get(lenient_json.text(case, "pickleId"), {})
        return _of(lenient_json.tables(pickle, "steps"), wanted) if wanted else {}

    def _place(self, node: lenient_json.Table) -> int:
        """Return the location; for an outline, that of the example row."""
        return next(
            (line for key in reversed(lenient_json.texts(node, "astNodeIds")) if (line := self.lines.get(key, 0))), 0
        )

    def _finish(self, message: lenient_json.Table) -> None:
        started, steps = self.running.pop(lenient_json.text(message, "testCaseStartedId"), ({}, []))
        if message.get("willBeRetried") or not started:
            return
        pickle = self.pickles.get(
            lenient_json.text(self.cases.get(lenient_json.text(started, "testCaseId"), {}), "pickleId"), {}
        )
        self.tests.append(self._test(pickle, steps, lenient_json.whole(started, "attempt") + 1))

    def _test(self, pickle: lenient_json.Table, steps: list[CucumberStep], attempts: int) -> TestResult:
        uri, name = lenient_json.text(pickle, "uri"), lenient_json.text(pickle, "name")
        line = self._place(pickle) or lenient_json.whole(lenient_json.table(pickle, "location"), "line")
        test = scenario(f"{uri}:{line}" if line else uri, name, [self.features.get(uri, "")], (uri, line), steps)
        return msgspec.structs.replace(test, attempts=attempts)

    def _hook(self, result: lenient_json.Table) -> None:
        """Report a hook around the whole run."""
        if lenient_json.text(result, "status") == "FAILED":
            self.broken.append(Diagnostic(type="hook", message=_message(result) or "a hook failed", tool="cucumber"))

    def _end(self, message: lenient_json.Table) -> None:
        red = self.broken or any(test.status in (TestStatus.FAILED, TestStatus.ERROR) for test in self.tests)
        self.ended = True
        if reason := lenient_json.text(lenient_json.table(message, "exception"), "message") or lenient_json.text(
            message, "message"
        ):
            self.broken.append(Diagnostic(message=reason, tool="cucumber"))
        elif message.get("success") is False and not red:
            self.notes.append("the run says that it failed, and names nothing that did")

    def parsed(self) -> Parsed:
        return Parsed(
            tests=distinct(self.tests),
            collection_errors=self.broken,
            ended=self.ended,
            partial=bool(self.tests) and not self.ended,
            notes=self.notes,
            running=[self._named(started) for started, _ in self.running.values()],
        )

    def _named(self, started: lenient_json.Table) -> str:
        case = self.cases.get(lenient_json.text(started, "testCaseId"), {})
        return self._test(self.pickles.get(lenient_json.text(case, "pickleId"), {}), [], 1).id


def _of(every: list[lenient_json.Table], wanted: object) -> lenient_json.Table:
    return next((row for row in every if row.get("id") == wanted), {})


def _message(result: lenient_json.Table) -> str:
    return lenient_json.text(lenient_json.table(result, "exception"), "stackTrace") or lenient_json.text(
        result, "message"
    )
