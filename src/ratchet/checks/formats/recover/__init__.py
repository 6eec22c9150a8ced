"""Recovers from a failure's text what the format does not provide: expected and actual values, file and line, project
frames."""

from __future__ import annotations

import re

from ratchet.checks.formats.recover import locations, stacks, values
from ratchet.checks.formats.recover.prefilter import match_line
from ratchet.checks.formats.text import clip, first_line, strip_control_characters
from ratchet.core.report import Failure, Frame

_SCAN = 32 << 10  # comparisons and stacks after this many characters are not searched
_WIDE = 1000  # longer lines are data, not prose, and are not matched


def failure(
    body: str,
    *,
    message: str = "",
    type: str = "",
    file: str = "",
    line: int = 0,
    expected: str | None = None,
    actual: str | None = None,
    operator: str = "",
) -> Failure:
    """Complete a failure: the given fields take precedence over what its text contains."""
    body, message = strip_control_characters(body), strip_control_characters(message)
    searched = _ends(body if message in body else f"{message}\n{body}")
    prose, calls = _apart(searched, message)
    prose = _narrow(prose)
    changes = values.diff(prose) if "\n" in prose else ""
    if expected is None and actual is None:
        expected, actual, found = values.comparison(prose)
        operator = operator or found
    if expected is None and actual is None and message and message != prose:
        # The text may repeat the message with an indentation.
        expected, actual, found = values.comparison(_narrow(_ends(message)))
        operator = operator or found
    if expected is None and actual is None and changes:
        expected, actual = values.sides(changes)
    if expected and actual and type.endswith("ComparisonFailure"):
        expected, actual = values.uncompacted(expected), values.uncompacted(actual)
    trace = stacks.split_stacks(prose, calls) or stacks.frames(_narrow(searched))
    at = trace[-1] if trace else locations.location(_narrow(searched))
    if not file and at:
        file, line = at.file, at.line
    return Failure(
        type=type or error_type(message or body) or error_type(body),
        message=clip((message or body).strip()),
        expected=expected,
        actual=actual,
        operator=operator,
        diff=changes,
        file=file,
        line=line,
        frames=trace,
    )


def _ends(text: str) -> str:
    return text if len(text) <= _SCAN else text[: _SCAN // 2] + "\n" + text[-_SCAN // 2 :]


def _narrow(text: str) -> str:
    if len(text) <= _WIDE:
        return text
    rows = text.split("\n")
    return text if max(map(len, rows)) <= _WIDE else "\n".join([row[:_WIDE] for row in rows])


def _apart(text: str, message: str) -> tuple[str, dict[str, Frame]]:
    """Split a text into the message and the project's rows of a Java stack trace."""
    begin = text.find("\n\tat ") + 1
    if text.startswith("\tat "):
        begin = 0
    elif not begin:
        return _prose(text, message), {}
    prose = text[:begin].removesuffix("\n")
    calls, is_stack = stacks.calls(text, begin)
    # Otherwise the text has a cause between two stacks.
    if not is_stack:
        prose = "\n".join([prose, *(row for row in text[begin:].split("\n") if not row.startswith("\t"))])
    return prose, calls


def _prose(text: str, message: str) -> str:
    """Return the text without a JavaScript stack at its end; of pytest's text only its own lines, not the source."""
    begin = text.find("\n    at ")
    if begin >= 0 and text.count("\n    at ", begin) == text.count("\n", begin):
        return text[:begin]
    if begin >= 0 or "\nE   " not in text:
        return text
    _, *error_lines = text.split("\nE   ")
    return "\n".join([message, *["E   " + row.partition("\n")[0] for row in error_lines]])


_TYPE = re.compile(
    r"^(?!(?:Error|Exception|Failure|Failed|Exit)$)(?:E +|Uncaught |\*\* \()?"
    r"((?:[A-Za-z_]\w*(?:\.|::|\\))*(?:[A-Z]\w*)?(?:Error|Exception|Failure|Failed|Exit|Interrupt))\b(?=\s?:|\)| \[|$)"
)


_PYTEST_TYPE = re.compile(r'^(?:\S+\.py:\d+: |failed on \w+ with ")([A-Z]\w+)\b', re.M)


def error_type(text: str) -> str:
    """Return the class of the exception: at the beginning of the text, in pytest's last line, or in its message about a
    fixture."""
    line = first_line(text)
    # Every name that can match contains one of these.
    found = _TYPE.match(line) if "E" in line or "F" in line or "Interrupt" in line else None
    if not found and "failed on " in text:
        found = _PYTEST_TYPE.search(text)
    elif not found:
        found = match_line(_PYTEST_TYPE, text, ".py:")
    return found.group(1) if found else ""


_SANITIZER = re.compile(
    r"(?:ERROR|WARNING): ((?:Address|Leak|Memory|Thread|HWAddress)Sanitizer): (.+?)(?: on address .*| \(pid=\d+\))?$",
    re.M,
)
_RUNTIME = re.compile(r"^(?P<file>[^\s:]+):(?P<line>\d{1,9}):\d+: runtime error: (?P<message>.+)$", re.M)


def sanitizer(text: str) -> Failure | None:
    """Return the message of a sanitizer (ASan, LSan, MSan, TSan, UBSan) in a program's output."""
    text = _narrow(_ends(strip_control_characters(text)))
    if found := _SANITIZER.search(text):
        trace = stacks.frames(text[found.start() :])
        at = trace[-1] if trace else Frame(file="")
        return Failure(type=found.group(1), message=found.group(2), file=at.file, line=at.line, frames=trace)
    if found := _RUNTIME.search(text):
        file, line = found.group("file"), stacks.line_number(found.group("line"))
        return Failure(type="UndefinedBehaviorSanitizer", message=found.group("message"), file=file, line=line)
    return None
