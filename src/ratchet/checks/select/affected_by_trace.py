"""Finds the tests that a change affects, by what each test used in the last full run: functions, data files, processes.

The result only decides what runs first. None means that it cannot be determined: run everything.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterable
from pathlib import Path, PurePosixPath

import msgspec

from ratchet.checks.protocol import Target
from ratchet.checks.select.affected import affected
from ratchet.core.foreign_json import MALFORMED
from ratchet.core.lines import split_lines
from ratchet.tree_files import READ_MAX_BYTES, is_source, names_inside, open_source, read_inside

# Files that affect everything without being imported, and files that a prepared interpreter has loaded.
CONFIGURATION = frozenset({"pyproject.toml", "pytest.ini", ".pytest.ini", "pytest.toml", "tox.ini", "setup.cfg",
                           "setup.py", "conftest.py", "requirements.txt", "uv.lock", "poetry.lock", "Pipfile.lock",
                           "ratchet.toml", "sitecustomize.py", "usercustomize.py"})  # fmt: skip
_RECORD_BYTES = 256 << 20
_LONG_STRING = ('"' * 3, "'" * 3)
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


class Span(msgspec.Struct, frozen=True, array_like=True):
    """One function: its lines including decorators, and the digest of its text."""

    name: str
    first: int
    last: int
    digest: str


class Outline(msgspec.Struct, frozen=True):
    """The functions of a file, and the digest of everything outside of their bodies."""

    functions: list[Span]
    skeleton: str

    def name_at(self, line: int) -> str:
        """Return the innermost function that contains the line; empty at module level."""
        inside = [span for span in self.functions if span.first <= line <= span.last]
        return max(inside, key=lambda span: span.first).name if inside else ""

    def digests(self) -> dict[str, str]:
        """Return the digests by name; for a name defined twice, of both definitions."""
        found: dict[str, str] = {}
        for span in self.functions:
            found[span.name] = found.get(span.name, "") + span.digest
        return found


def outline(source: str) -> Outline | None:
    """Return None if the source is not Python. Text is hashed instead of the syntax tree, which is ten times faster."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    reader = _Reader(split_lines(source.replace("\r\n", "\n").replace("\r", "\n")))  # as Python numbers them
    reader.walk(tree, "")
    return Outline(reader.found, _digest(reader.skeleton()))


class _Reader:
    """Extracts the functions of a file; the remainder is its skeleton."""

    def __init__(self, lines: list[str]) -> None:
        self.lines = lines
        self.found: list[Span] = []
        self._bodies: set[int] = set()
        self._strings: set[int] = set()  # lines that look like comments but may be part of a string

    def walk(self, node: ast.AST, above: str) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, _FUNCTIONS):
                self.walk(child, f"{self._take(child, above)}.")
            elif isinstance(child, ast.ClassDef):
                self.walk(child, f"{above}{child.name}.")
            elif isinstance(child, ast.stmt | ast.excepthandler | ast.match_case):
                self._look_for_strings(child)
                self.walk(child, above)

    def _take(self, function: ast.FunctionDef | ast.AsyncFunctionDef, above: str) -> str:
        name = f"{above}{function.name}"
        first = min([function.lineno, *(each.lineno for each in function.decorator_list)])
        last = function.end_lineno or function.lineno
        self.found.append(Span(name, first, last, _digest(_significant_lines(function, self.lines[first - 1 : last]))))
        self._bodies.update(range(function.body[0].lineno, last + 1))
        return name

    def _look_for_strings(self, node: ast.AST) -> None:
        if isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign | ast.Expr) and node.end_lineno != node.lineno:
            inside = range(node.lineno, (node.end_lineno or node.lineno) + 1)
            if _may_contain_string(self.lines[number - 1] for number in inside):
                self._strings.update(inside)

    def skeleton(self) -> list[str]:
        return [
            line
            for number, line in enumerate(self.lines, 1)
            if number not in self._bodies and (number in self._strings or _is_code(line))
        ]


def _significant_lines(function: ast.FunctionDef | ast.AsyncFunctionDef, lines: list[str]) -> list[str]:
    """Return the lines without comments and blank lines; all lines if a string may contain what looks like a
    comment."""
    end = 0
    if ast.get_docstring(function, clean=False) is not None:
        end = len(lines) - (function.end_lineno or 0) + (function.body[0].end_lineno or 0)
    rest = lines[end:]
    if _may_contain_string(rest):
        return lines
    return lines[:end] + [line for line in rest if _is_code(line)]


def _may_contain_string(lines: Iterable[str]) -> bool:
    """Return whether a string may span several lines, one of which may look like a comment."""
    return any(line.endswith("\\") or any(quotes in line for quotes in _LONG_STRING) for line in lines)


def _is_code(line: str) -> bool:
    text = line.strip()
    return bool(text) and not text.startswith("#")


def _digest(lines: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(lines).encode(errors="surrogateescape")).hexdigest()[:16]


class TraceRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The record of one process: the code, read paths and flags of each test."""

    codes: list[tuple[str, int]]
    tests: dict[str, tuple[list[int], list[str], list[str]]]
    outside: list[str]
    modules: list[str]


class TraceMap(msgspec.Struct, frozen=True, kw_only=True):
    """Maps code to tests. `tests` are ids, all other fields refer to them by index; `always` are tests that start
    processes or cannot be traced."""

    tests: list[str] = []
    outlines: dict[str, Outline] = {}
    users: dict[str, list[int]] = {}
    readers: dict[str, list[int]] = {}
    always: list[int] = []
    outside: list[str] = []
    modules: list[str] = []

    def affected(self, folder: Path, target: Target, changed: Iterable[str], *, prefix: str) -> set[str] | None:
        """Return ids and test files that the changed paths affect; None: unknown, run everything.

        Changed paths are relative to the folder; ids and test files to the target, whose folder is the prefix.
        """
        found: set[str] = set()
        for path in changed:
            more = self._reached_by(folder, target, path)
            if more is None:
                return None
            found |= {name.removeprefix(prefix) for name in more if "::" not in name}
            found |= {name for name in more if "::" in name}
        return found | {self.tests[number] for number in self.always}

    def _reached_by(self, folder: Path, target: Target, path: str) -> set[str] | None:
        name = PurePosixPath(path).name
        if name in CONFIGURATION or path in self.outside:
            return None
        if not path.endswith(".py"):
            return self._readers_of(path)
        if is_test_file(name):
            return self._tests_in(folder, path) if is_source(folder, path) else set()
        users = self._users_of(folder, path)
        return _by_imports(folder, target, path) if users is None else users

    def _readers_of(self, path: str) -> set[str]:
        above = f"{PurePosixPath(path).parent.as_posix()}/"
        return {self.tests[number] for key in (path, above) for number in self.readers.get(key, [])}

    def _tests_in(self, folder: Path, path: str) -> set[str]:
        """Return the tests whose own lines changed; the whole file if tests may have been added, removed or renamed."""
        users = self._users_of(folder, path)
        return {path} if users is None else users

    def _users_of(self, folder: Path, path: str) -> set[str] | None:
        """Return the tests that use changed functions; None if more than function bodies changed."""
        old = self.outlines.get(path)
        new = outline(_text(folder, path)) if is_source(folder, path) else None
        if old is None or new is None or old.skeleton != new.skeleton:
            return None
        before, after = old.digests(), new.digests()
        names = [name for name in before if after.get(name) != before[name]]
        return {self.tests[number] for name in names for number in self.users.get(f"{path}::{name}", [])}


def _by_imports(folder: Path, target: Target, path: str) -> set[str] | None:
    """Return the files that import this one: code outside of functions runs on import."""
    here = msgspec.structs.replace(target, root=".")
    found = affected(folder, [here], [path])
    tests = found.get(here.name, [])
    return {test.file for test in tests} or (set() if here.name not in found else None)


def is_test_file(name: str) -> bool:
    return name.startswith("test_") or name.endswith("_test.py")


def read_trace(place: Path, folder: Path) -> TraceMap | None:
    """Build the map from the records of all processes of the last run; None if there are none."""
    decoded = [_decode(place, name) for name in names_inside(place.parent, place.name) if name.endswith(".json")]
    records = [record for record in decoded if record]
    if not records:
        return None
    outlines = dict(_outlines(folder, {name for record in records for name, _ in record.codes}))
    numbers: dict[str, int] = {}
    users: dict[str, set[int]] = {}
    readers: dict[str, set[int]] = {}
    always: set[int] = set()
    for record in records:
        keys = [_key(outlines, *code) for code in record.codes]
        for test, (codes, paths, flags) in record.tests.items():
            number = numbers.setdefault(test, len(numbers))
            for key in {keys[code] for code in codes}:
                users.setdefault(key, set()).add(number)
            for path in paths:
                readers.setdefault(path, set()).add(number)
            if flags:
                always.add(number)
    return TraceMap(
        tests=list(numbers),
        outlines=outlines,
        users={key: sorted(found) for key, found in users.items()},
        readers={key: sorted(found) for key, found in readers.items()},
        always=sorted(always),
        outside=sorted({path for record in records for path in record.outside}),
        modules=list(dict.fromkeys(name for record in records for name in record.modules)),
    )


def _decode(place: Path, name: str) -> TraceRecord | None:
    found = read_inside(place.parent, f"{place.name}/{name}", max_bytes=_RECORD_BYTES)
    try:
        return msgspec.json.decode(found or b"", type=TraceRecord)
    except MALFORMED:
        return None


def _key(outlines: dict[str, Outline], path: str, line: int) -> str:
    known = outlines.get(path)
    return f"{path}::{known.name_at(line) if known else ''}"


def _outlines(folder: Path, paths: set[str]) -> Iterable[tuple[str, Outline]]:
    for path in sorted(paths):
        if made := outline(_text(folder, path)):
            yield path, made


def _text(folder: Path, path: str) -> str:
    try:
        with open_source(folder, path) as stream:
            return stream.read(READ_MAX_BYTES).decode(errors="surrogateescape")
    except OSError:
        return ""
