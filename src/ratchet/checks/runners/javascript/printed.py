"""What a runner only printed: that it found no tests, or why a file did not load before there was a reporter."""

from __future__ import annotations

import re

from ratchet.checks import Results
from ratchet.checks.formats.text import plain
from ratchet.checks.runners import end_of
from ratchet.core.report import Diagnostic

# How runners say that there are no tests, before there is a reporter.
FOUND_NONE = re.compile(r"(?m)^(?:Error: No test files found\b|Could not find '.*'$)")


def text_of(results: Results) -> str:
    with end_of(results) as stream:
        return plain(stream.read().decode(errors="replace"))


# Of a module that is not there only the file that imports it is named: the stack is all node's.
_NOT_THERE = re.compile(
    r"(?m)(?P<type>\w*Error) \[(?P<code>ERR_\w+)\]: (?P<said>Cannot find .+ imported from (?:file://)?(?P<file>\S+))$"
)


def unloaded(text: str) -> Diagnostic | None:
    from ratchet.checks.formats import recover  # noqa: PLC0415 — many patterns, seldom needed

    found, absent = recover.failure(text), _NOT_THERE.search(text)
    if absent and not found.file:
        kind, code, said, file = absent.group("type", "code", "said", "file")
        return Diagnostic(file=file, type=kind, code=code, message=said, tool="mocha")
    if found.type or found.file:
        said = re.sub(rf"^{re.escape(found.type)}(?: \[\w+\])?: ", "", first(text)) if found.type else first(text)
        return Diagnostic(file=found.file, line=found.line, type=found.type, message=said, tool="mocha")
    return None


def first(text: str) -> str:
    found = re.search(r"(?m)^\w*(?:Error|Exception)\b.*$", text)
    return found.group(0) if found else text.strip()[:500]
