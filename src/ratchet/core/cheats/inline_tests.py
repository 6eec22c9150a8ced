"""Finds tests inside source files: Rust, Zig, D, OCaml, Vitest and doctest-like examples. All rules treat them as
tests.

Each kind is found by its markers, without a grammar. `split` separates a file into source and tests, line by line.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

import msgspec

from ratchet.core.cheats.masked_source import closing, mask
from ratchet.core.cheats.test_blocks import blocks


class Region(msgspec.Struct, frozen=True, kw_only=True):
    """Lines of a file that are tests, from 0, the last one excluded. `example`: documentation that is executed."""

    key: str
    first: int
    last: int
    example: bool = False


_SCRIPTS = (".js", ".jsx", ".ts", ".tsx", ".mjs", ".mts")
_CPP = (".cc", ".cpp", ".cxx", ".hpp", ".h")
_OPENED = {
    ".rs": re.compile(
        r"^[ \t]*(?P<attributes>(?:#\[[^\n]*\][ \t]*\n?[ \t]*)+)(?:pub(?:\([^)]*\))?\s+)?(?:async\s+)?(?P<word>mod|fn)\s+(?P<name>\w+)"
        r"[^{;]*\{",
        re.MULTILINE,
    ),
    ".zig": re.compile(r"^[ \t]*test\b[ \t]*(?P<name>\"[^\"\n]*\"|\w*)[ \t]*\{", re.MULTILINE),
    ".d": re.compile(r"^[ \t]*(?:@\w+(?:\([^)]*\))?\s+|pure\s+|nothrow\s+)*(?P<name>unittest)\s*\{", re.MULTILINE),
} | dict.fromkeys(_SCRIPTS, re.compile(r"^[ \t]*(?P<name>if\s*\(\s*import\.meta\.vitest\s*\))\s*\{", re.MULTILINE))
_DOCTEST_H = re.compile(r"^[ \t]*(?P<name>TEST_CASE(?:_\w+)?\s*\([^)\n]*\)+)\s*\{", re.MULTILINE)
_RUST_TEST = re.compile(r"#\[(?:[\w:]*::)?(?:test|rstest|test_case|quickcheck)\b|#\[cfg\((?:all\()?\s*test\b")
_RUST_FILE = re.compile(r"(?:^|/)tests?\.rs$|(?:^|/)tests/.*\.rs$|_tests?\.rs$")
_EXAMPLES = {".py": re.compile(r"\s*>>> "), ".ex": re.compile(r"\s*iex(?:\(\d+\))?> ")}
_DEFINES = re.compile(
    r"\s*(?:async\s+)?(?:def|defp|defmacro|class|defmodule|(?:pub\s+)?(?:fn|struct|enum|trait|mod))\s+(\w[\w.?!]*)"
)
_OCAML = re.compile(r"let%(?:test|expect_test)\w*\s*(\"[^\"\n]*\"|\w*)")


def suffix(path: str) -> str:
    return "." + path.rsplit("/", 1)[-1].rpartition(".")[2]


def is_possible(path: str) -> bool:
    """Return whether files of this kind can contain tests."""
    end = suffix(path)
    return end in _OPENED or end in _EXAMPLES or end in _CPP or end == ".ml"


def regions(path: str, text: str) -> list[Region]:
    """Return the tests in a source file, in order; a key is a name and the number of earlier ones with it."""
    end = suffix(path)
    found = [*_braced(path, text, end), *_examples(text, end)]
    if end == ".rs":
        found = [_all_of(text)] if _RUST_FILE.search(path) else [*found, *_rust_examples(text)]
    if end == ".ml":
        found = list(_ocaml(text))
    return _numbered(sorted(found, key=lambda region: (region.first, -region.last)))


def _numbered(found: list[Region]) -> list[Region]:
    """Keep only the outermost regions."""
    seen: Counter[str] = Counter()
    kept: list[Region] = []
    for region in found:
        if kept and region.first < kept[-1].last:
            continue
        seen[region.key] += 1
        kept.append(msgspec.structs.replace(region, key=f"{region.key}#{seen[region.key]}"))
    return kept


def _all_of(text: str) -> Region:
    return Region(key="the file", first=0, last=len(text.split("\n")))


def _braced(path: str, text: str, end: str) -> Iterable[Region]:
    pattern = _OPENED.get(end) or (_DOCTEST_H if end in _CPP and "doctest" in text else None)
    if pattern is None:
        return
    masked = mask(text, path)
    for found in pattern.finditer(text):
        if end == ".rs" and not _is_rust_test(found):
            continue
        if masked[found.end() - 1] == "{":
            last = closing(masked, found.end() - 1)
            yield Region(key=found["name"], first=_line(text, found.start()), last=_line(text, last) + 1)


def _is_rust_test(found: re.Match[str]) -> bool:
    """Return whether it is a test; a function that is only compiled for tests is a helper."""
    mark = _RUST_TEST.search(found["attributes"])
    return bool(mark) and (found["word"] == "mod" or "cfg" not in mark[0] if mark else False)


def _line(text: str, at: int) -> int:
    return text.count("\n", 0, at)


def _examples(text: str, end: str) -> Iterable[Region]:
    """Return prompts with the lines after them, up to a blank line or the end of the documentation."""
    mark = _EXAMPLES.get(end)
    if mark is None or not ("iex" in text or ">>>" in text):
        return
    lines, owner, at = text.split("\n"), "", 0
    while at < len(lines):
        if defined := _DEFINES.match(lines[at]):
            owner = defined[1]
        if not mark.match(lines[at]):
            at += 1
            continue
        first = at
        while at < len(lines) and lines[at].strip() and '"""' not in lines[at] and "'''" not in lines[at]:
            at += 1
        at = max(at, first + 1)
        yield Region(key=owner, first=first, last=at, example=True)


def _rust_examples(text: str) -> Iterable[Region]:
    """Return code blocks of documentation comments that are compiled and run as Rust."""
    first, mine = -1, False
    lines = text.split("\n")
    for at, line in enumerate(lines):
        if not (fence := re.match(r"\s*//[/!]\s*```(.*)", line)):
            continue
        if first < 0:
            first, mine = (
                at,
                not re.search(r"\b(?:text|ignore|no_run|compile_fail|toml|sh|bash|console|json|none)\b", fence[1]),
            )
        else:
            if mine:
                below = (found[1] for later in lines[at + 1 : at + 200] if (found := _DEFINES.match(later)))
                yield Region(key=next(below, "the file"), first=first, last=at + 1, example=True)
            first = -1


def _ocaml(text: str) -> Iterable[Region]:
    lines = text.split("\n")
    for at, line in enumerate(lines):
        if found := _OCAML.match(line):
            last = at + 1
            while last < len(lines) and (not lines[last].strip() or lines[last][0] in " \t"):
                last += 1
            yield Region(key=found[1], first=at, last=last)


# --- source and tests apart -----------------------------------------------------------------------------------------


def split(path: str, text: str | None) -> tuple[str | None, str | None]:
    """Return source and tests, each with the other's lines blanked; None for a missing file."""
    found = regions(path, text) if text else []
    if not text or not found:
        return text, None
    inside = {at for region in found for at in range(region.first, region.last)}
    lines = text.split("\n")
    parts = (
        "\n".join("" if (at in inside) == side else line for at, line in enumerate(lines)) for side in (True, False)
    )
    source, tests = parts
    return (f"{source}\n" if source.strip() else None), f"{tests}\n"


def has_tests(path: str, text: str | None) -> bool:
    return bool(text and regions(path, text))


def same_source(path: str, before: str | None, after: str | None) -> bool:
    """Return whether only inline tests differ."""
    return _squeezed(split(path, before)[0]) == _squeezed(split(path, after)[0])


def _squeezed(text: str | None) -> list[str]:
    return [line.rstrip() for line in (text or "").split("\n") if line.strip()]


def units(path: str, text: str | None) -> Counter[str]:
    """Return each test as text without spaces, wherever it is."""
    return Counter("".join(one.split()) for one in _units(path, text)) if text else Counter()


def _units(path: str, text: str) -> Iterable[str]:
    tests = split(path, text)[1] or ""
    lines = tests.split("\n")
    single = [(start, last) for _, start, _, last, _ in blocks(path, tests, mask(tests, path))] if tests else []
    yield from (tests[start : last + 1] for start, last in single)
    for region in regions(path, text):
        own = "\n".join(lines[region.first : region.last])
        if region.example or not any(region.first <= _line(tests, start) < region.last for start, _ in single):
            yield own


_TAMPERS = re.compile(r"macro_rules!|#!?\[(?!test\b|tokio::test|case|rstest)|\bexit\b|\bvi\.mock\b|\breturn\s*;")


def keeps_tests(path: str, before: str | None, after: str | None, elsewhere: Counter[str]) -> bool:
    """Return whether each test of `before` is in `after` or among those `elsewhere`. New tests may be added, but
    nothing around them that changes the meaning of the old ones."""
    if not has_tests(path, before):
        return True
    if units(path, before) - units(path, after) - elsewhere:
        return False
    added = Counter(_frame(path, after)) - Counter(_frame(path, before))
    lost = Counter(_frame(path, before)) - Counter(_frame(path, after))
    return after is None or not (lost or any(_TAMPERS.search(line) for line in added))


def _frame(path: str, text: str | None) -> list[str]:
    """Return the test lines that belong to no single test: imports, helpers."""
    tests = split(path, text)[1] or ""
    masked = mask(tests, path)
    inside = {
        at
        for _, start, _, last, _ in (blocks(path, tests, masked) if tests else ())
        for at in range(_line(tests, start), _line(tests, last) + 1)
    }
    single = {
        at
        for region in (regions(path, text) if text else ())
        if region.example
        for at in range(region.first, region.last)
    }
    kept = [line.strip() for at, line in enumerate(tests.split("\n")) if at not in inside | single]
    return [line for line in kept if line]


def with_tests_of(path: str, text: str, other: str) -> str:
    """Return the source of `text` with the inline tests of `other`, without examples whose place is gone."""
    theirs = {region.key: region for region in regions(path, other)}
    lines, wanted = text.split("\n"), other.split("\n")
    made: list[str] = []
    at = 0
    for region in regions(path, text):
        made += lines[at : region.first]
        if same := theirs.pop(region.key, None):
            made += wanted[same.first : same.last]
        else:
            made += lines[region.first : region.last]
        at = region.last
    made += lines[at:]
    for region in theirs.values():
        made += [] if region.example else ["", *wanted[region.first : region.last]]
    return "\n".join(made)
