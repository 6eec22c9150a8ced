"""Parses stack traces of every language into the frames inside the project."""

# ruff: noqa: RUF001

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache

from ratchet.checks.formats.recover.prefilter import rarest
from ratchet.core.report import Frame

_MOST_FRAMES = 12
_ALL = 32 << 10  # more rows than any searched text has

_FOREIGN = re.compile(
    r"node_modules/|^node:|/node:internal|site-packages/|dist-packages/|/lib/python\d|/rustc/|\.cargo/registry|/rustlib/|/gems/|/rubygems/|/ruby/\d|/usr/(?:lib|include)/|/usr/share/(?!nginx|apache|www|webapps)"
    r"|(?:^|/)vendor/|/go/pkg/mod/|/go/src/(?![^/]*\.)|/usr/local/go|/src/(?:testing|runtime)/\w+\.(?:go|s)$|^testing\.go$|/libgo|<frozen|<string>|<anonymous>|^internal/|^(?:_\w+|child_process|events|module|net|fs|timers|vm|assert|domain|bootstrap_node)\.js$|/jest-|/mocha/lib/|^native$|^dart:|package:test|package:stack_trace"
    r"|\(ex_unit|\(elixir|\(stdlib|/zig/lib/|/lib/std/|catch\.hpp$|catch_amalgamated|/gtest/|doctest\.h$|libsanitizer/|/csu/|/sysdeps/|compiler-rt/|^ext:|/_pytest/|/unittest/(?:case|mock|loader)\.py"
)
_FOREIGN_JVM = re.compile(
    r"^(?:java|javax|jakarta|jdk|sun|com\.sun|android|androidx|com\.android\.(?:internal|tools)|dalvik|libcore|kotlin|kotlinx|scala|groovy|groovyjarjar\w*|junit|org\.(?:junit|opentest4j|testng|assertj|hamcrest|mockito|gradle|apache\.maven"
    r"|codehaus|scalatest|spockframework|scalactic|specs2|powermock|robolectric|easymock|jmock)|io\.kotest|io\.mockk|munit|sbt|worker\.org\.gradle|app//org\.junit|java\.base)[./]"
)


# The failures of one run share most of their frames.
_remembered = lru_cache(maxsize=2048)

_PYTHON = re.compile(r'\s*File "(.+?)", line (\d+)(?:, in (.+)|\s*$)')
_FATAL_PYTHON = re.compile(r'\s*File "(.+?)", line (\d+) in (.+)')  # of a process that died, innermost first
_PYTEST = re.compile(r"([\w./\\+@ -]+\.py):(\d+): (?:in (\S+)|[A-Z]\w*\b|$)")
_JAVASCRIPT = re.compile(
    r"\s*(?:at|❯) (?:async )?(?:(.+?) \()?(?:file://|webpack(?:-internal)?://[\w-]*/)?((?:/|\.{0,2}/|[A-Za-z]:[\\/]|node:)?[^\s():][^():]*?):(\d+):\d+\)?$"
)
_JVM = re.compile(r"\s*at (?:[\w.@-]++/++)*([\w.$<>/]+)\.([\w$<>]+)\(([\w$-]+\.(?:java|kt|scala|groovy)):(\d+)\)")
_DOTNET = re.compile(r"\s*at (.+?) in (.+?):line (\d+)")
# Libraries name their sources as they were at build time.
_FOREIGN_DOTNET = re.compile(
    r"(?:System|NUnit\.Framework|NUnit\.Engine|Xunit|FluentAssertions|Shouldly|Moq|NSubstitute|TechTalk\.SpecFlow|Reqnroll"
    r"|Microsoft\.VisualStudio\.TestTools|Microsoft\.VisualStudio\.TestPlatform)\."
)
_RUBY = re.compile(r"\s*(?:# |from )?((?:[A-Za-z]:)?[\w./@ +-]+\.rb):(\d+)(?::in [`'](.+?)')?")
_PHP = re.compile(r"\s*(?:#\d+ |at )?((?:[A-Za-z]:)?[\w./\\@ +-]+\.(?:php|phpt))[:(](\d+)\)?(?:: (.+))?\s*$")
_ELIXIR = re.compile(
    r"\s*(?:\(([\w.]+)(?: [\w.-]+)?\) )?([\w./-]+\.(?:exs?|erl|gleam)):(\d++)"
    r"(?::\d++|(?!:\d))(?!: [Ww]arning\b)(?:: (.+))?"
)
_NATIVE = re.compile(r"\s*#\d+ 0x[0-9a-f]+ in (.+?) ([/.\w][^\s:]*\.\w+):(\d+)(?::\d+)?")
_GO = re.compile(r"(?: *\t| {6})((?:/|[A-Za-z]:)[^\s:]*\.go):(\d+)(?: \+0x[0-9a-f]+)?\s*$")
_RUST = re.compile(r"\s+at ((?:\./|/)?[^\s:]+\.rs):(\d+)(?::\d+)?\s*$")
_DART = re.compile(r"\s*(?:#\d+ +)?(?:(?:package|file):)?([\w./\\-]+\.dart) (\d+)(?::\d+)? +(\S.*)")
_ZIG = re.compile(r"(\S+\.zig):(\d+):\d+: 0x[0-9a-f]+ in (\S+)")


@_remembered
def _python(line: str) -> Frame | None:
    found = _PYTHON.match(line)
    return _frame(found, 1, 2, 3)


@_remembered
def _fatal_python(line: str) -> Frame | None:
    found = _FATAL_PYTHON.match(line)
    return _frame(found, 1, 2, 3)


@_remembered
def _pytest(line: str) -> Frame | None:
    found = _PYTEST.match(line + " ")
    return _frame(found, 1, 2, 3)


@_remembered
def _javascript(line: str) -> Frame | None:
    found = _JAVASCRIPT.match(line)
    return _frame(found, 2, 3, 1)


class _JvmRows(dict[str, Frame | None]):
    """A cache of parsed rows: a document of failures has the same rows a million times."""

    def __missing__(self, row: str) -> Frame | None:
        if len(self) >= _MOST_ROWS:
            self.clear()
        self[row] = frame = _jvm(row)
        return frame


_JvmEnd = tuple[dict[str, Frame], int]


class _JvmEnds(dict[str, _JvmEnd]):
    """A cache of the ends of stacks, below the project's calls, which are the same in most failures of a run."""

    last: tuple[str, _JvmEnd] = ("", ({}, 0))

    def read(self, text: str, at: int) -> _JvmEnd:
        # Comparing is much faster than hashing.
        last, known = self.last
        if len(last) != len(text) - at or not text.endswith(last):
            last = text[at:]
            known = self[last]
            self.last = last, known
        return known

    def __missing__(self, end: str) -> _JvmEnd:
        if len(self) >= _MOST_ENDS:
            self.clear()
        rows = {row: frame for row in end.split("\n") if (frame := _JVM_ROWS[row])}
        self[end] = known = rows, end.count("\t") - end.count("\n")
        return known


_MOST_ROWS = 4096
_MOST_ENDS = 64  # each may be as long as the searched text


def _jvm(line: str) -> Frame | None:
    found = _JVM.match(line)
    folder = _jvm_folder(found[1]) if found else None
    if not found or folder is None:
        return None
    return Frame(file=f"{folder}{found[3]}", line=line_number(found[4]), function=f"{found[1]}.{found[2]}")


@_remembered
def _jvm_folder(owner: str) -> str | None:
    """Return the source folder of a class, or "" if it is not the project's."""
    return None if _FOREIGN_JVM.match(owner + ".") else "".join(owner.replace(".", "/").rpartition("/")[:2])


@_remembered
def _dotnet(line: str) -> Frame | None:
    found = _DOTNET.match(line)
    return None if found and _FOREIGN_DOTNET.match(found[1]) else _frame(found, 2, 3, 1)


@_remembered
def _ruby(line: str) -> Frame | None:
    found = _RUBY.match(line)
    return _frame(found, 1, 2, 3)


@_remembered
def _php(line: str) -> Frame | None:
    found = _PHP.match(line)
    return _frame(found, 1, 2, 3)


@_remembered
def _elixir(line: str) -> Frame | None:
    found = _ELIXIR.match(line)
    return None if found and found.group(1) in {"ex_unit", "elixir", "stdlib", "mix"} else _frame(found, 2, 3, 4)


@_remembered
def _native(line: str) -> Frame | None:
    found = _NATIVE.match(line)
    return _frame(found, 2, 3, 1)


@_remembered
def _go(line: str) -> Frame | None:
    found = _GO.match(line)
    return _frame(found, 1, 2, 0)


@_remembered
def _rust(line: str) -> Frame | None:
    found = _RUST.match(line)
    return _frame(found, 1, 2, 0)


@_remembered
def _dart(line: str) -> Frame | None:
    found = _DART.match(line)
    return _frame(found, 1, 2, 3)


@_remembered
def _zig(line: str) -> Frame | None:
    found = _ZIG.match(line)
    return _frame(found, 1, 2, 3)


def _frame(found: re.Match[str] | None, file: int, line: int, function: int) -> Frame | None:
    if not found or is_foreign(found.group(file)):
        return None
    name = (found.group(function) or "").strip() if function else ""
    return Frame(file=path_of(found.group(file)), line=line_number(found.group(line)), function=name)


@_remembered
def is_foreign(file: str) -> bool:
    return _FOREIGN.search(file.replace("\\", "/") if "\\" in file else file) is not None


def path_of(path: str) -> str:
    return path.strip().removeprefix("file://").removeprefix("./")


def line_number(digits: str) -> int:
    return int(digits) if len(digits) < 10 else 0


_JVM_ROWS = _JvmRows()
_JVM_ENDS = _JvmEnds()

# Each parser with the string that a line must contain, and whether the innermost frame comes first.
_READERS: list[tuple[str, Callable[[str], Frame | None], bool]] = [
    ('File "', _python, False),
    ('File "', _fatal_python, True),
    (".py:", _pytest, False),
    (".zig:", _zig, True),
    ("at ", _JVM_ROWS.__getitem__, True),
    (":line ", _dotnet, True),
    (".rs:", _rust, True),
    ("at ", _javascript, True),
    ("❯ ", _javascript, True),
    (" 0x", _native, True),
    (".go:", _go, True),
    (".rb:", _ruby, True),
    (".php", _php, True),
    (".ex", _elixir, True),
    (".erl:", _elixir, True),
    (".gleam:", _elixir, True),
    (".dart", _dart, True),
]
_SIGNED = [(rarest(needle), needle, reader, inner_first) for needle, reader, inner_first in _READERS]


def frames(text: str) -> list[Frame]:
    """Return the frames inside the project, innermost last, of the first kind of stack in the text."""
    rows: list[str] = []
    for sign, needle, reader, inner_first in _SIGNED:
        if sign in text and needle in text:
            rows = rows or (_first_stack(text.split("\n")) if " 0x" in text else text.split("\n"))
            matching = [row for row in rows if needle in row]
            found = _distinct(matching, reader, most=_MOST_FRAMES if inner_first else _ALL)
            if found:
                return found[::-1] if inner_first else found[-_MOST_FRAMES:]
    return []


def calls(text: str, begin: int) -> tuple[dict[str, Frame], bool]:
    """Return the project's rows of the stack that begins here, and whether each row has one tab and nothing else to
    parse."""
    found: dict[str, Frame] = {}
    at = begin
    while len(found) < _MOST_FRAMES:
        end = text.find("\n", at)
        row = text[at:end] if end >= 0 else text[at:]
        if frame := _JVM_ROWS[row]:
            found[row] = frame
        elif found and end >= 0:
            below, spare = _JVM_ENDS.read(text, end + 1)
            spare += text.count("\t", begin, end) - text.count("\n", begin, end) - 1
            return found | below, spare == 1
        if end < 0:
            break
        at = end + 1
    return found, text.count("\t", begin) - text.count("\n", begin) == 1


def split_stacks(prose: str, calls: dict[str, Frame]) -> list[Frame]:
    """Return the same for a separate stack, unless the message contains a stack that takes precedence."""
    if not calls or 'File "' in prose or ".py:" in prose or ".zig:" in prose:
        return []
    return list(calls.values())[:_MOST_FRAMES][::-1]


def _first_stack(rows: list[str]) -> list[str]:
    """Return the first of a sanitizer's stacks: where the error is, not where memory was allocated or freed."""
    starts = [index for index, row in enumerate(rows) if "#0 0x" in row and row.lstrip().startswith("#0 0x")]
    return rows[: starts[1]] if len(starts) > 1 else rows


def _distinct(rows: list[str], reader: Callable[[str], Frame | None], *, most: int) -> list[Frame]:
    """Remove repeated frames: a cause repeats those of its effect. The first stack is the one that failed."""
    found: dict[str, Frame] = {}
    for row in rows:
        if row not in found and (frame := reader(row)):
            found[row] = frame
            if len(found) >= most:
                break
    return list(found.values())
