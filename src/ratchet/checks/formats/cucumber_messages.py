"""Cucumber's message formatter: one envelope a line, which refer to each other by their ids."""

from __future__ import annotations

import re
from typing import Any, BinaryIO

import msgspec

from ratchet.checks.formats import Parsed, distinct, loose
from ratchet.checks.formats.cucumber_json import Step, scenario
from ratchet.checks.formats.text import lines
from ratchet.core.report import Diagnostic, TestResult, TestStatus

_DEPTH = 30

SIGN = re.compile(rb'"(?:testCase|testRunHook)Finished"|"parseError"|"testRunFinished"')


def parse(stream: BinaryIO) -> Parsed:
    """Each pickle by its place. Of an attempt that is repeated only its number is kept."""
    reader = _Messages()
    for line in lines(stream):
        for kind, message in loose.row(line).items():
            if isinstance(message, dict):
                reader.hear(kind, message)
    return reader.parsed()


class _Messages:
    def __init__(self) -> None:
        self.lines: dict[str, int] = {}
        self.features: dict[str, str] = {}
        self.pickles: dict[str, loose.Table] = {}
        self.cases: dict[str, loose.Table] = {}
        self.running: dict[str, tuple[loose.Table, list[Step]]] = {}
        self.tests: list[TestResult] = []
        self.broken: list[Diagnostic] = []
        self.notes: list[str] = []
        self.ended = False

    def hear(self, kind: str, message: loose.Table) -> None:
        match kind:
            case "gherkinDocument":
                self.features[loose.text(message, "uri")] = loose.text(loose.table(message, "feature"), "name")
                self._lines(message, 0)
            case "parseError":
                self._unreadable(message)
            case "pickle":
                self.pickles[loose.text(message, "id")] = message
            case "testCase":
                self.cases[loose.text(message, "id")] = message
            case "testCaseStarted":
                self.running[loose.text(message, "id")] = (message, [])
            case "testStepFinished":
                self._step(message)
            case "testCaseFinished":
                self._finish(message)
            case "testRunHookFinished":
                self._hook(loose.table(message, "result"))
            case "testRunFinished":
                self._end(message)

    def _lines(self, node: Any, depth: int) -> None:
        """Where every node of the document stands, wherever in it that is."""
        if depth > _DEPTH:
            return
        if isinstance(node, dict):
            if "id" in node and "location" in node:
                self.lines[loose.text(node, "id")] = loose.whole(loose.table(node, "location"), "line")
            node = list(node.values())
        for child in node if isinstance(node, list) else []:
            self._lines(child, depth + 1)

    def _unreadable(self, message: loose.Table) -> None:
        source = loose.table(message, "source")
        at = loose.table(source, "location")
        self.broken.append(
            Diagnostic(
                file=loose.text(source, "uri"),
                line=loose.whole(at, "line"),
                column=loose.whole(at, "column"),
                message=loose.text(message, "message"),
                tool="cucumber",
            )
        )

    def _step(self, message: loose.Table) -> None:
        _, steps = self.running.get(loose.text(message, "testCaseStartedId"), ({}, []))
        result = loose.table(message, "testStepResult")
        known = self._known(message)
        took = loose.table(result, "duration")
        steps.append(
            Step(
                status=loose.text(result, "status").lower(),
                text=loose.text(known, "text") or "hook",
                line=self._place(known),
                said=_said(result),
                duration_s=loose.number(took, "seconds") + loose.number(took, "nanos") * 1e-9,
                phase="call" if known else "teardown" if any(step.phase == "call" for step in steps) else "setup",
            )
        )

    def _known(self, message: loose.Table) -> loose.Table:
        """The step of the pickle; a hook has none."""
        started, _ = self.running.get(loose.text(message, "testCaseStartedId"), ({}, []))
        case = self.cases.get(loose.text(started, "testCaseId"), {})
        wanted = _of(loose.tables(case, "testSteps"), loose.text(message, "testStepId")).get("pickleStepId")
        pickle = self.pickles.get(loose.text(case, "pickleId"), {})
        return _of(loose.tables(pickle, "steps"), wanted) if wanted else {}

    def _place(self, node: loose.Table) -> int:
        """Of an outline, the row of its examples is named last."""
        return next((line for key in reversed(loose.texts(node, "astNodeIds")) if (line := self.lines.get(key, 0))), 0)

    def _finish(self, message: loose.Table) -> None:
        started, steps = self.running.pop(loose.text(message, "testCaseStartedId"), ({}, []))
        if message.get("willBeRetried") or not started:
            return
        pickle = self.pickles.get(loose.text(self.cases.get(loose.text(started, "testCaseId"), {}), "pickleId"), {})
        self.tests.append(self._test(pickle, steps, loose.whole(started, "attempt") + 1))

    def _test(self, pickle: loose.Table, steps: list[Step], attempts: int) -> TestResult:
        uri, name = loose.text(pickle, "uri"), loose.text(pickle, "name")
        line = self._place(pickle) or loose.whole(loose.table(pickle, "location"), "line")
        test = scenario(f"{uri}:{line}" if line else uri, name, [self.features.get(uri, "")], (uri, line), steps)
        return msgspec.structs.replace(test, attempts=attempts)

    def _hook(self, result: loose.Table) -> None:
        """A hook around the whole run."""
        if loose.text(result, "status") == "FAILED":
            self.broken.append(Diagnostic(type="hook", message=_said(result) or "a hook failed", tool="cucumber"))

    def _end(self, message: loose.Table) -> None:
        red = self.broken or any(test.status in (TestStatus.FAILED, TestStatus.ERROR) for test in self.tests)
        self.ended = True
        if said := loose.text(loose.table(message, "exception"), "message") or loose.text(message, "message"):
            self.broken.append(Diagnostic(message=said, tool="cucumber"))
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

    def _named(self, started: loose.Table) -> str:
        case = self.cases.get(loose.text(started, "testCaseId"), {})
        return self._test(self.pickles.get(loose.text(case, "pickleId"), {}), [], 1).id


def _of(every: list[loose.Table], wanted: object) -> loose.Table:
    return next((row for row in every if row.get("id") == wanted), {})


def _said(result: loose.Table) -> str:
    return loose.text(loose.table(result, "exception"), "stackTrace") or loose.text(result, "message")
