"""Parses what a runner printed before a reporter was loaded: no tests found, or why a file failed to load."""

from __future__ import annotations

import io
import re

from ratchet.checks.formats import Parsed
from ratchet.checks.formats.text import strip_control_characters
from ratchet.checks.protocol import RunOutput
from ratchet.checks.runners import compiler, open_log_tail
from ratchet.core.report import Diagnostic

# Messages for "no tests", printed before a reporter is loaded.
_COMPILED = re.compile(r": error TS\d+: ")
FOUND_NONE = re.compile(
    r"(?m)^(?:Error: No test files found\b|Could not find '.*'$|\s*\S Couldn.t find any files to test$)"
)


def before_first_test(text: str, tool: str) -> Parsed | None:
    """Parse the output of a runner that ended before it had a reporter: no files, or one that does not compile or
    load."""
    if FOUND_NONE.search(text):
        return Parsed(ended=True)
    if _COMPILED.search(text):
        errors = compiler(io.BytesIO(_BEFORE.sub("", text).encode())).compile_errors
        return Parsed(compile_errors=errors, ended=bool(errors))
    error = load_error_in(text, tool)
    return Parsed(collection_errors=[error], ended=True) if error else None


def text_of(results: RunOutput) -> str:
    with open_log_tail(results) as stream:
        return strip_control_characters(stream.read().decode(errors="replace"))


# For a missing module only the importing file is named: the stack consists of node's own frames.
_NOT_THERE = re.compile(
    r"(?m)(?P<type>\w*Error) \[(?P<code>ERR_\w+)\]: (?P<message>Cannot find .+ imported from (?:file://)?(?P<file>\S+))$"
)


# Jasmine and mocha name the file where node does not.
_LOADING = re.compile(
    r"^(?:Error: While loading (?P<file>\S+): (?P<type>\w*Error)|(?P<kind>\w*Error)\[ @(?P<at>\S+) \]): (?P<message>.*)"
)
_BEFORE = re.compile(r"(?m)^\s*(?:Exception during run: |Error requiring file: (?P<file>\S+)\n)")


def load_error_in(text: str, tool: str) -> Diagnostic | None:
    from ratchet.checks.formats import recover  # noqa: PLC0415 — many patterns, seldom needed

    before = _BEFORE.search(text)
    named = (before["file"] if before else "") or ""
    text = _BEFORE.sub("", text)
    found, absent, loading = recover.failure(text), _NOT_THERE.search(text), _LOADING.match(first(text))
    if absent and not found.file:
        kind, code, message, file = absent.group("type", "code", "message", "file")
        return Diagnostic(file=file, type=kind, code=code, message=message, tool=tool)
    if loading and not found.file:
        file, kind = loading["file"] or loading["at"], loading["type"] or loading["kind"]
        return Diagnostic(file=file, type=kind, message=loading["message"], tool=tool)
    kind, message = _parts(first(text))
    if kind or found.type or found.file:
        file, line = (found.file, found.line) if found.file else (named, 0)
        return Diagnostic(file=file, line=line, type=found.type or kind, message=message, tool=tool)
    return None


def _parts(line: str) -> tuple[str, str]:
    """Split an error into its type and message."""
    match = re.match(r"(\w*(?:Error|Exception))(?: \[\w+\])?: ", line)
    return (match[1], line[match.end() :]) if match else ("", line)


def first(text: str) -> str:
    found = re.search(r"(?m)^\w*(?:Error|Exception)\b.*$", text)
    return found.group(0) if found else text.strip()[:500]
