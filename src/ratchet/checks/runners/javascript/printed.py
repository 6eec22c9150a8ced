"""What a runner only printed: that it found no tests, or why a file did not load before there was a reporter."""

from __future__ import annotations

import io
import re

from ratchet.checks import Results
from ratchet.checks.formats import Parsed
from ratchet.checks.formats.text import plain
from ratchet.checks.runners import compiler, end_of
from ratchet.core.report import Diagnostic

# How runners say that there are no tests, before there is a reporter.
_COMPILED = re.compile(r": error TS\d+: ")
FOUND_NONE = re.compile(
    r"(?m)^(?:Error: No test files found\b|Could not find '.*'$|\s*\S Couldn.t find any files to test$)"
)


def before_any(text: str, tool: str) -> Parsed | None:
    """What is told by a runner that ended before it had a reporter: no files, or one that did not compile or load."""
    if FOUND_NONE.search(text):
        return Parsed(ended=True)
    if _COMPILED.search(text):
        errors = compiler(io.BytesIO(_BEFORE.sub("", text).encode())).compile_errors
        return Parsed(compile_errors=errors, ended=bool(errors))
    error = unloaded(text, tool)
    return Parsed(collection_errors=[error], ended=True) if error else None


def text_of(results: Results) -> str:
    with end_of(results) as stream:
        return plain(stream.read().decode(errors="replace"))


# Of a module that is not there only the file that imports it is named: the stack is all node's.
_NOT_THERE = re.compile(
    r"(?m)(?P<type>\w*Error) \[(?P<code>ERR_\w+)\]: (?P<said>Cannot find .+ imported from (?:file://)?(?P<file>\S+))$"
)


# Jasmine and mocha say which file it was, where node does not.
_LOADING = re.compile(
    r"^(?:Error: While loading (?P<file>\S+): (?P<type>\w*Error)|(?P<kind>\w*Error)\[ @(?P<at>\S+) \]): (?P<said>.*)"
)
_BEFORE = re.compile(r"(?m)^\s*(?:Exception during run: |Error requiring file: (?P<file>\S+)\n)")


def unloaded(text: str, tool: str) -> Diagnostic | None:
    from ratchet.checks.formats import recover  # noqa: PLC0415 — many patterns, seldom needed

    before = _BEFORE.search(text)
    named = (before["file"] if before else "") or ""
    text = _BEFORE.sub("", text)
    found, absent, loading = recover.failure(text), _NOT_THERE.search(text), _LOADING.match(first(text))
    if absent and not found.file:
        kind, code, said, file = absent.group("type", "code", "said", "file")
        return Diagnostic(file=file, type=kind, code=code, message=said, tool=tool)
    if loading and not found.file:
        file, kind = loading["file"] or loading["at"], loading["type"] or loading["kind"]
        return Diagnostic(file=file, type=kind, message=loading["said"], tool=tool)
    kind, said = _parts(first(text))
    if kind or found.type or found.file:
        file, line = (found.file, found.line) if found.file else (named, 0)
        return Diagnostic(file=file, line=line, type=found.type or kind, message=said, tool=tool)
    return None


def _parts(line: str) -> tuple[str, str]:
    """The kind of an error, and what it says."""
    match = re.match(r"(\w*(?:Error|Exception))(?: \[\w+\])?: ", line)
    return (match[1], line[match.end() :]) if match else ("", line)


def first(text: str) -> str:
    found = re.search(r"(?m)^\w*(?:Error|Exception)\b.*$", text)
    return found.group(0) if found else text.strip()[:500]
