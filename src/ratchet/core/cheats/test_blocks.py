"""Finds the tests in a file of JavaScript, TypeScript, Go, Rust, Java and similar languages: names and ranges."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from ratchet.core.cheats.masked_source import closing

Block = tuple[str, int, int, int, str]  # name, start, beginning and end of the body, what disables it
_QUOTED = r"""(?P<quote>['"`])(?P<name>(?:\\.|(?!(?P=quote)).)*)(?P=quote)"""
_JS = re.compile(
    rf"\b(?P<word>x?it|x?test|x?specify|fit)(?P<mode>(?:\.\w+)*)\s*(?:\((?P<table>\[.*?\])\)|`.*?`)?\s*\(\s*{_QUOTED}",
    re.DOTALL,
)
_GO = re.compile(r"^func\s+(?P<name>(?:Test|Fuzz|Example)\w*)\s*\((?P<arg>\w+)?[^)]*\)\s*\{", re.MULTILINE)
_RUST = re.compile(r"(?P<attributes>(?:#\[[^\n]*\]\s*)+)(?:pub\s+)?(?:async\s+)?fn\s+(?P<name>\w+)\s*\([^)]*\)[^{;]*\{")
_ANNOTATED = re.compile(
    r"(?P<attributes>(?:(?:@\w+(?:\.\w+)*(?:\([^)]*\))?|\[\w+(?:\([^\]]*\))?(?:,\s*\w+(?:\([^\]]*\))?)*\])\s*)+)"
    r"(?:(?:public|private|protected|internal|static|final|async|suspend|override|open)\s+)*[\w<>\[\],.? ]+?\s+(?P<name>\w+|`[^`\n]*`)\s*\([^)]*\)(?:[^{;=]*\{|[^{;=]*=>?)"
)
_CPP = re.compile(r"\b(?:TEST(?:_F|_P)?|TYPED_TEST)\s*\(\s*(?P<suite>\w+)\s*,\s*(?P<name>\w+)\s*\)\s*\{")
_CATCH2 = re.compile(rf"\b(?:TEST_CASE|SCENARIO)\s*\(\s*{_QUOTED}[^)]*\)\s*\{{")
_PLAIN = re.compile(
    r"\bfunction\s+(?P<name>test\w*)\s*\([^)]*\)[^{;]*\{|\bfunc\s+(?P<swift>test\w*)\s*\(\)[^{]*\{"
    r"|#\[Test\]\s*(?:public\s+)?function\s+(?P<marked>\w+)\s*\([^)]*\)[^{;]*\{"
)
_JUNIT3 = re.compile(r"^[ \t]*public\s+(?:final\s+)?void\s+(?P<name>test\w*)\s*\(\)[^{;]*\{", re.MULTILINE)
_KOTEST = re.compile(
    rf"^[ \t]*(?:(?:test|should|it|expect)\s*\(\s*)?{_QUOTED}\s*\)?(?:\s*\.config\([^)]*\))?\s*\{{", re.MULTILINE
)
_INLINE = re.compile(
    r"^[ \t]*(?:test\b[ \t]*(?P<named>\"[^\"\n]*\"|\w*)|(?:[@\w]+\s+)*(?P<name>unittest))[ \t\n]*\{", re.MULTILINE
)
_WORDED = re.compile(
    rf"^[ \t]*(?:def\s+(?P<def>test\w*)|(?:it|specify|test|@test|scenario)\s*\(?\s*{_QUOTED})", re.MULTILINE
)


def blocks(path: str, text: str, masked: str) -> Iterator[Block]:
    if path.endswith((".js", ".jsx", ".ts", ".tsx", ".mjs", ".cjs", ".mts", ".cts", ".vue", ".svelte")):
        yield from _javascript(text, masked)
    elif path.endswith(".go"):
        yield from _braced(_GO, masked, lambda _found: "")
    elif path.endswith(".rs"):
        yield from _attributed(
            _RUST,
            text,
            masked,
            r"#\[(?:\w+::)*(?:test|rstest|test_case|case)\b",
            r"#\[\s*(?:ignore|should_panic\s*\]|cfg\((?!unix|windows|target_|not\((?:windows|unix|target_|miri)|miri|all\(unix|any\((?:unix|target)))",
        )
    elif path.endswith((".java", ".kt", ".groovy", ".scala", ".cs")):
        yield from _attributed(
            _ANNOTATED,
            text,
            masked,
            r"[@\[](?:\w*Test|Fact|Theory|TestMethod|TestCase)\b",
            r"@(?:Disabled|Ignore)|\[Ignore|Skip\s*=|enabled\s*=\s*false",
        )
        if path.endswith((".java", ".groovy")) and "TestCase" in text:
            yield from _braced(_JUNIT3, masked, lambda _found: "")
        if path.endswith(".kt"):
            yield from _named(_KOTEST, text, masked)
    elif path.endswith((".cc", ".cpp", ".cxx", ".c", ".h", ".hpp")):
        yield from _braced(_CPP, masked, lambda found: "DISABLED_" if found["name"].startswith("DISABLED_") else "")
        yield from _named(_CATCH2, text, masked)
    elif path.endswith((".php", ".swift")):
        yield from _braced(_PLAIN, masked, lambda _found: "")
    elif path.endswith((".zig", ".d")):
        yield from _unnamed(_INLINE, text, masked)
    else:
        yield from _until_next(text, masked)  # Ruby, Elixir, bats: a test ends where the next one begins


def _javascript(text: str, masked: str) -> Iterator[Block]:
    for found in _JS.finditer(text):
        if masked[found.start()] == " " or masked[found.start("quote")] == " ":
            continue
        first = (
            masked.find("(", found.end("mode")) if not found["table"] else masked.rfind("(", 0, found.start("quote"))
        )
        mode, word = found["mode"], found["word"]
        off = (
            f"{word}{mode}"
            if word.startswith(("x", "fit")) or re.search(r"\.(skip|todo|fails|failing|fixme)\b", mode)
            else ""
        )
        yield found["name"], found.start(), found.end(), closing(masked, first), off


def _braced(pattern: re.Pattern[str], masked: str, off: Callable[[re.Match[str]], str]) -> Iterator[Block]:
    for found in pattern.finditer(masked):
        groups = found.groupdict()
        name = groups.get("name") or groups.get("swift") or groups.get("marked") or ""
        reason = off(found)
        yield (
            f"{groups.get('suite') or ''}{name.removeprefix('DISABLED_')}",
            found.start(),
            found.end(),
            closing(masked, found.end() - 1),
            reason,
        )


def _named(pattern: re.Pattern[str], text: str, masked: str) -> Iterator[Block]:
    for found in pattern.finditer(text):
        if masked[found.start("quote")] != " ":
            yield found["name"], found.start(), found.end(), closing(masked, found.end() - 1), ""


def _statement(masked: str, at: int) -> int:
    """Return where an expression body ends: at a semicolon outside brackets, or at a line end with all brackets closed."""
    depth = 0
    for place in range(at, len(masked)):
        depth += (masked[place] in "([{") - (masked[place] in ")]}")
        if depth < 0 or (depth == 0 and (masked[place] == ";" or (masked[place] == "\n" and masked[at:place].strip()))):
            return place
    return len(masked)


def _unnamed(pattern: re.Pattern[str], text: str, masked: str) -> Iterator[Block]:
    for found in pattern.finditer(text):
        if masked[found.end() - 1] == "{":
            name = found["name"] or found["named"] or ""
            yield name, found.start(), found.end(), closing(masked, found.end() - 1), ""


def _attributed(pattern: re.Pattern[str], text: str, masked: str, is_test: str, is_off: str) -> Iterator[Block]:
    for found in pattern.finditer(masked):
        attributes = text[found.start("attributes") : found.end("attributes")]
        if re.search(is_test, attributes):
            off, name = re.search(is_off, attributes), text[found.start("name") : found.end("name")]
            braced = masked[found.end() - 1] in "{("
            last = closing(masked, found.end() - 1) if braced else _statement(masked, found.end())
            yield name, found.start(), found.end(), last, off[0] if off else ""


def _until_next(text: str, masked: str) -> Iterator[Block]:
    starts = [found for found in _WORDED.finditer(text) if masked[found.end() - 1] != " "]
    ends = [found.start() for found in starts[1:]] + [len(text)]
    for found, end in zip(starts, ends[: len(starts)], strict=True):
        yield found["def"] or found["name"], found.start(), found.end(), end, ""
