"""Parses compile and load errors in compiler output: file, line, column and message, from one table of patterns."""

# One pattern, one line.
# ruff: noqa: E501

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import BinaryIO

from ratchet.checks.formats import Parsed
from ratchet.checks.formats.text import clip, lines
from ratchet.core.report import Diagnostic

_MOST = 200
_WIDE = 1000
_REACH = 12  # maximum number of lines between the two halves of a report

_F = r"(?P<file>(?:[A-Za-z]:)?[^\s:()\[\]'\"<>|]+\.\w+)"
_L = r"(?P<line>\d{1,9})"
_C = r"(?P<column>\d{1,9})"
_M = r"(?P<message>\S.*)"

# Tool, required substring, pattern of the line.
# fmt: off
_ONE_LINE: list[tuple[str, str, str]] = [
    ("tsc", "error TS", rf"^{_F}\({_L},{_C}\): error (?P<code>TS\d+): {_M}"),
    ("tsc", "error TS", rf"^{_F}:{_L}:{_C} - error (?P<code>TS\d+): {_M}"),
    ("msbuild", "error ", rf"^\s*(?:\d+>)?(?P<file>(?:[A-Za-z]:)?[^\s:()\"<>|][^:()\"<>|]*\.\w+) ?\({_L}(?:,{_C})?(?:,\d+,\d+)?\) ?: (?:fatal )?error (?P<code>[A-Z]+\d*)?: (?P<message>\S.*?)(?: \[[^\]]+proj\])?$"),
    ("maven", "[ERROR] ", rf"^\[ERROR\] {_F}:\[{_L},{_C}\] (?:error: )?{_M}"),
    ("kotlinc", "e: ", rf"^e: (?:file://)?{_F}:{_L}:{_C} {_M}"),
    ("kotlinc", "e: ", rf"^e: {_F}: \({_L}, {_C}\): {_M}"),
    ("scalac", "[error] ", rf"^\[error\] {_F}:{_L}:(?:{_C}:)? (?:error: )?{_M}"),
    ("scalac", "-- ", rf"^(?:\[error\] )?-- (?:\[(?P<code>E\d+)\] )?(?P<message>[\w ]*Error): {_F}:{_L}:{_C} -*"),
    ("javac", ".java:", rf"^(?:\s*\[javac?\] )?{_F}:{_L}: error: {_M}"),
    ("groovyc", ".groovy: ", rf"^{_F}: {_L}: {_M}"),
    ("meson", ": ERROR: ", rf"^(?P<file>\S*meson\.(?:build|options)|\S*meson_options\.txt):{_L}:{_C}: ERROR: {_M}"),
    ("esbuild", "ERROR: ", rf"^{_F}:{_L}:{_C}: ERROR: {_M}"),
    ("dart", ".dart:", rf"^{_F}:{_L}:{_C}: Error: {_M}"),
    ("zig", ".zig:", rf"^{_F}:{_L}:{_C}: error: {_M}"),
    ("swift", ".swift:", rf"^{_F}:{_L}:{_C}: (?:fatal )?error: {_M}"),
    ("cc", "error: ", rf"^\s*{_F}:{_L}:(?:{_C}:)? (?:fatal )?error: {_M}"),
    ("nvcc", "): error", rf"^\s*{_F}\({_L}\): error(?: #?[\w-]+)?: {_M}"),
    ("ld", "undefined reference", rf"(?:^|[ :]){_F}:{_L}: (?P<message>undefined reference to .*)"),
    ("ld", "undefined reference", r"(?:^|[ :])(?P<file>[^\s:()]+\.\w+):\([^)]*\): (?P<message>undefined reference to .*)"),
    ("go", ".go:", rf"^(?:vet: |typecheck: )?(?:\./)?(?P<file>[^\s:]+\.go):{_L}:(?:{_C}:)? {_M}"),
    ("go", "/go.", rf"^(?P<file>/\S*/go\.(?:mod|work)):{_L}:(?:{_C}:)? {_M}"),
    ("nim", ".nim(", rf"^{_F}\({_L}, {_C}\) Error: {_M}"),
    ("php", " on line ", r"^(?:PHP )?(?P<type>(?:Parse|Fatal) error): +(?P<message>.+?) in (?P<file>\S+\.php\w?) on line " + _L),
    ("php", ".php:", rf"^(?:PHP )?(?P<type>(?:Parse|Fatal) error): +(?P<message>.+?) in {_F}:{_L}$"),
    ("elixir", "** (", rf"^\*\* \((?P<type>\w*(?:Syntax|Compile|Token\w*|Mismatched\w*)Error)\) {_F}:{_L}(?::{_C})?: {_M}"),
    ("elixir", "** (", rf"^\*\* \((?P<type>\w*(?:Syntax|Token\w*|Mismatched\w*)Error)\) (?P<message>.+?) on {_F}:{_L}:{_C}"),
    ("erlc", ".erl:", rf"^{_F}:{_L}:(?:{_C}:)? {_M}"),
    ("ruby", ".rb:", rf"^\s*{_F}:{_L}: (?P<message>syntax errors?\b.*|.*\(SyntaxError\).*)"),
    ("rolldown", "At file: ", rf"^(?P<message>At file): {_F}:{_L}:{_C}"),
    ("babel", "SyntaxError: ", rf"(?P<type>SyntaxError): {_F}: (?P<message>.+?) \({_L}:{_C}\)"),
    ("perl", " line ", rf"^(?P<message>syntax error|Can't locate \S+ in @INC.*?|Global symbol .*?|Bareword .*?) at (?P<file>\S+) line {_L}"),
    ("bash", ": line ", rf"^(?:bash: )?(?P<file>\S+): line {_L}: (?P<message>syntax error.*)"),
    ("lua", ".lua:", rf"^(?:lua\S*: |luac: |Error: )?{_F}:{_L}: (?P<message>.* near .*)"),
]
# fmt: on
_LINE = [(tool, needle, re.compile(pattern)) for tool, needle, pattern in _ONE_LINE]

# The message on one line, the location within the next few.
_THEN_PLACE: list[tuple[str, str, str]] = [
    ("rustc", r"^error(?:\[(?P<code>E\d+)\])?: (?P<message>.+)", rf"^\s*--> {_F}:{_L}:{_C}"),
    ("gleam", r"^error: (?P<message>.+)", rf"^\s*┌─ {_F}:{_L}:{_C}"),
    ("elixir", r"^\s*error: (?P<message>.+)", rf"^\s*└─ {_F}:{_L}(?::{_C})?"),
    ("esbuild", r"^[✘X] \[ERROR\] (?P<message>.+)", rf"^\s+{_F}:{_L}:{_C}:"),
]
# The location on one line, the message within the next few.
# fmt: off
_THEN_MESSAGE: list[tuple[str, str, str]] = [
    ("python", rf'^\s*(?:E\s+)?File "(?P<file>[^"]+)", line {_L}', r"^\s*(?:E\s+)?(?P<type>SyntaxError|IndentationError|TabError): (?P<message>.+)"),
    ("node", rf"^(?:file://)?(?P<file>/\S+\.[cm]?[jt]sx?):{_L}$", r"^(?P<type>SyntaxError): (?P<message>.+)"),
    ("gfortran", rf"^(?P<file>\S+\.[fF]\w*):{_L}:{_C}:$", r"^(?:Fatal )?Error: (?P<message>.+)"),
    ("ghc", rf"^(?P<file>\S+\.hs):{_L}:{_C}: error:", r"^\s+(?:• )?(?P<message>\S.+)"),
    ("cmake", rf"^CMake Error at (?P<file>[^\s:]+):{_L}(?: \(|:)", r"^ +(?P<message>\S.*)"),
    ("ocaml", rf'^File "(?P<file>[^"]+)", lines? {_L}(?:-\d+)?, characters {_C}-\d+:', r"^Error: (?P<message>.+)"),
]
# fmt: on
_PAIRS = [(tool, re.compile(first), re.compile(second)) for tool, first, second in _THEN_PLACE + _THEN_MESSAGE]
# Every pattern above needs one of these, except node's, which begins with a path: most lines need no further check.
_NEEDLES = (
    "rror", "RROR", "e: ", " line ", 'File "', "undefined reference", "At file: ", ".go:", "/go.", ".erl:", ".rb:", ".lua:",
    ".groovy: ", ".f", ".F",
)  # fmt: skip


def parse(stream: BinaryIO) -> Parsed:
    """Return only the compile errors of an output; they say nothing about tests or its end."""
    return Parsed(compile_errors=collect(lines(stream)), ended=False)


def diagnostics(text: str) -> list[Diagnostic]:
    return collect(text.splitlines())


def collect(rows: Iterable[str]) -> list[Diagnostic]:
    """Return the distinct errors in order of appearance."""
    scan = CompilerScan()
    for row in rows:
        scan.line(row)
    return scan.found


def _is_worth_a_look(row: str) -> bool:
    for needle in _NEEDLES:  # a plain loop: `any` takes twice as long, for every line of a log
        if needle in row:
            return True
    return row.startswith(("/", "file://"))


class CompilerScan:
    """Reads an output line by line. An error repeated for several targets is reported once."""

    def __init__(self) -> None:
        self.found: list[Diagnostic] = []
        self._seen: set[tuple[str, int, str]] = set()
        self._open: dict[int, tuple[int, dict[str, str]]] = {}
        self._row = 0
        self._waits_until = 0  # the last line that may complete an error

    def line(self, row: str) -> bool:
        """Return whether the line was, or completed, an error."""
        self._row += 1
        if self._row > self._waits_until and not _is_worth_a_look(row):
            return False
        row = row[:_WIDE]
        return self._one_line(row) or self._two_lines(row)

    def _one_line(self, row: str) -> bool:
        for tool, needle, pattern in _LINE:
            if needle in row and (match := pattern.search(row)):
                self._add(tool, match.groupdict())
                return True
        return False

    def _two_lines(self, row: str) -> bool:
        done = False
        for index, (tool, first, second) in enumerate(_PAIRS):
            begun = self._open.get(index)
            if begun and self._row - begun[0] <= _REACH and (match := second.match(row)):
                self._add(tool, begun[1] | match.groupdict())
                del self._open[index]
                done = True
            elif match := first.match(row):
                self._open[index] = (self._row, match.groupdict())
                self._waits_until = self._row + _REACH
        return done

    def _add(self, tool: str, fields: dict[str, str]) -> None:
        file = fields["file"].removeprefix("./")
        line, message = int(fields.get("line") or 0), clip(fields["message"].strip(), 4000)
        key = (file, line, message)
        if key in self._seen or len(self.found) >= _MOST:
            return
        self._seen.add(key)
        self.found.append(
            Diagnostic(
                file=file,
                line=line,
                column=int(fields.get("column") or 0),
                type=fields.get("type") or "",
                code=fields.get("code") or "",
                message=message,
                tool=tool,
            )
        )
