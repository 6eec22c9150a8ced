"""Parses TeamCity service messages, as written by PHPUnit's `--log-teamcity` and others, between any other output."""

from __future__ import annotations

import re
from typing import BinaryIO

from ratchet.checks.formats import Parsed, recover
from ratchet.checks.formats.text import clip, lines, strip_control_characters
from ratchet.core.report import Failure, TestResult, TestStatus

_MESSAGE = re.compile(r"##teamcity\[(\w+)((?: \w+='[^'|]*+(?:\|.[^'|]*+)*')*)")
_PAIR = re.compile(r" (\w+)='([^'|]*+(?:\|.[^'|]*+)*)'")
_ESCAPE = re.compile(r"\|(?:0x([0-9a-fA-F]{4})|(.))")
_PLAIN = {"n": "\n", "r": "\r", "x": "\u0085", "l": "\u2028", "p": "\u2029"}

SIGN = re.compile(rb"##teamcity\[")


def parse(stream: BinaryIO) -> Parsed:
    """Return every finished test. The stream has ended when every started suite is closed."""
    reader = _TeamCity()
    for line in lines(stream):
        for match in _MESSAGE.finditer(line):
            reader.message(match.group(1), {key: _unescape(value) for key, value in _PAIR.findall(match.group(2))})
    return reader.parsed()


def _unescape(text: str) -> str:
    return strip_control_characters(_ESCAPE.sub(_character, text)) if "|" in text else text


def _character(match: re.Match[str]) -> str:
    return chr(int(match.group(1), 16)) if match.group(1) else _PLAIN.get(match.group(2), match.group(2))


class _TeamCity:
    def __init__(self) -> None:
        self.tests: list[TestResult] = []
        self.suites: list[str] = []
        self.began = False
        self.open: dict[tuple[str, str], dict[str, str]] = {}
        self.ended: dict[tuple[str, str], tuple[TestStatus, dict[str, str]]] = {}
        self.announced = 0

    def message(self, kind: str, fields: dict[str, str]) -> None:
        key = (fields.get("flowId", ""), fields.get("name", ""))
        match kind:
            case "testSuiteStarted":
                self.began = True
                self.suites = [*self.suites, key[1]][:100]
            case "testSuiteFinished":
                self.suites = self.suites[:-1]
            case "testStarted":
                self.open[key] = fields
            case "testFailed":
                self.ended[key] = (TestStatus.FAILED, fields)
            case "testIgnored":
                self.open.setdefault(key, fields)
                self.ended[key] = (TestStatus.SKIPPED, fields)
                self._alone(key, fields)
            case "testFinished":
                self._finish(key, fields)
            case "testCount":
                count = fields.get("count", "")
                self.announced = int(count) if count.isdecimal() and len(count) < 10 else 0

    def _alone(self, key: tuple[str, str], fields: dict[str, str]) -> None:
        """Handle a skipped test that was never started: some writers do not finish it either."""
        if self.open[key] is fields:
            self._finish(key, fields)

    def _finish(self, key: tuple[str, str], fields: dict[str, str]) -> None:
        begun = self.open.pop(key, fields)
        status, attributes = self.ended.pop(key, (TestStatus.PASSED, {}))
        file, test_id = _place(begun.get("locationHint", ""), key[1], self.suites)
        failure = _failure(attributes) if status is TestStatus.FAILED else None
        self.tests.append(
            TestResult(
                id=test_id,
                name=key[1],
                suite=list(self.suites),
                file=file,
                status=TestStatus.ERROR if failure and _threw(failure) else status,
                duration_s=_seconds(fields.get("duration", "")),
                reason=clip(attributes.get("message", ""), 1000) if status is TestStatus.SKIPPED else "",
                failure=failure,
            )
        )

    def parsed(self) -> Parsed:
        short = self.began and not self.suites and self.announced > len(self.tests)
        return Parsed(
            tests=self.tests,
            reported={"tests": self.announced} if self.announced else {},
            ended=self.began and not self.suites and not self.open,
            partial=bool(self.suites or self.open),
            notes=[f"{self.announced} tests were announced, {len(self.tests)} finished"] if short else [],
            running=[
                _place(begun.get("locationHint", ""), name, self.suites)[1] for (_, name), begun in self.open.items()
            ],
        )


def _place(hint: str, name: str, suites: list[str]) -> tuple[str, str]:
    r"""Read PHPUnit's location hint: `php_qn:///file::\Class::method`."""
    _, _, path = hint.partition("://")
    file, found, rest = path.partition("::")
    if found:
        return file, rest.lstrip("\\") or name
    return path, "::".join([*suites[-1:], name])


_QT_PLACE = re.compile(r"^Failure! \[Loc: (?P<file>.+)\((?P<line>\d{1,9})\)\]$")


def _failure(attributes: dict[str, str]) -> Failure:
    message = attributes.get("message", "")
    if found := _QT_PLACE.match(message):
        details = attributes.get("details", "")
        return recover.failure(details, message=details, file=found["file"], line=int(found["line"]))
    return _recovered(attributes, message)


def _recovered(attributes: dict[str, str], message: str) -> Failure:
    kind, found, rest = message.partition(" : ")
    typed = bool(found) and re.fullmatch(r"[\w\\]*(?:Exception|Error)", kind) is not None
    return recover.failure(
        attributes.get("details", ""),
        message=rest if typed else message,
        type=kind if typed else "",
        expected=attributes.get("expected"),
        actual=attributes.get("actual"),
    )


def _threw(failure: Failure) -> bool:
    return bool(failure.type) and "PHPUnit\\Framework\\" not in failure.type


def _seconds(text: str) -> float:
    return int(text) / 1000 if text.isdecimal() and len(text) < 12 else 0.0
