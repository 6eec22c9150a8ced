"""Reads tests and their assertions in JavaScript, TypeScript, Go, Rust, Java and similar languages by their tokens.

There is no grammar: comments and strings are masked, and blocks are found by counting brackets. That is enough to see a
test removed, disabled or weakened. Anything that cannot be read gives no case; the comparison of test runs still counts
its tests.
"""

from __future__ import annotations

import re

from ratchet.core.cheats.assertions import assertions, before_asserting, with_reachability
from ratchet.core.cheats.masked_source import closing, mask, tight
from ratchet.core.cheats.reachability import skip_reason
from ratchet.core.cheats.test_blocks import blocks
from ratchet.core.cheats.test_cases import AROUND, Assertion, AssertionStrength, TestCase
from ratchet.core.lines import split_lines


def cases(path: str, text: str) -> list[TestCase]:
    masked = mask(text, path)
    seen: dict[str, int] = {}
    found = []
    mocked = _mocked(text)
    tables = [found for found in _TABLE.finditer(masked) if found["name"]]
    for name, start, first, last, off in blocks(path, text, masked):
        seen[name] = seen.get(name, 0) + 1
        full = name if seen[name] == 1 else f"{name}#{seen[name]}"
        body, hidden = text[first:last], masked[first:last]
        asserts = list(assertions(body, hidden, text.count("\n", 0, first) + 1))
        asserts += _panics(text[start:first], text.count("\n", 0, start) + 1)
        answered = {*mocked, *_answered(body)}
        found.append(
            TestCase(
                file=path,
                name=full,
                line=text.count("\n", 0, start) + 1,
                last_line=text.count("\n", 0, last) + 1,
                asserts=[with_reachability(made, made.line, _asks(made, answered)) for made in asserts],
                names=frozenset(re.findall(r"[A-Za-z_]\w*", hidden)),
                disabled=off or skip_reason(hidden[: before_asserting(hidden)]),
                rows=[*_rows(text[start:last], masked[start:last]), *_tables(text, masked, hidden, tables)],
                words=frozenset(re.findall(_LITERAL, _without_comments(body, hidden))),
            )
        )
    rest = _around(path, text, masked, [(case.line - 1, case.last_line) for case in found])
    return [*found, rest] if rest.asserts else found


def _around(path: str, text: str, masked: str, tests: list[tuple[int, int]]) -> TestCase:
    """What is asserted outside of the tests that were found, as a case of its own."""
    inside = {at for first, last in tests for at in range(first, last)}
    bodies = (
        "\n".join("" if at in inside else row for at, row in enumerate(side.split("\n"))) for side in (text, masked)
    )
    body, hidden = bodies
    return TestCase(
        file=path,
        name=AROUND,
        line=1,
        asserts=list(assertions(body, hidden, 1)),
        names=frozenset(re.findall(r"[A-Za-z_]\w*", hidden)),
        words=frozenset(re.findall(_LITERAL, body)),
    )


def _panics(head: str, line: int) -> list[Assertion]:
    """Parse Rust's `#[should_panic(expected = "…")]`, and expected exceptions in annotations of JUnit 4 and PHPUnit."""
    found = re.search(
        r"#\[should_panic(?:\(expected\s*=\s*(?P<text>\"[^\n]*\")\))?|@Test\(expected\s*=\s*(?P<kind>[\w.]+)|@expectedException\s+(?P<php>\S+)",
        head,
    )
    if not found:
        return []
    expected = found["text"] or found["kind"] or found["php"] or ""
    strength = AssertionStrength.EXACTLY if found["text"] else AssertionStrength.PARTLY
    return [Assertion(line=line, subject="raises", strength=strength, expected=expected, literal=bool(found["text"]))]


_MOCKED = re.compile(r"""\b(?:jest|vi|vitest)\.mock\(\s*(?P<path>['"][^'"]+['"])\s*,""")


def _mocked(text: str) -> set[str]:
    """Return names that are imported from modules mocked in this file."""
    found: set[str] = set()
    for mock in _MOCKED.finditer(text):
        place = re.escape(mock["path"])
        for names in re.findall(
            rf"(?:import|const|let)\s*(\{{[^}}]*\}}|\w+)\s*(?:from\s*|=\s*require\(\s*){place}", text
        ):
            found.update(re.findall(r"\w+", names))
    return found


def _answered(body: str) -> set[str]:
    """Return calls whose result the test defines itself: Mockito's `when(x.y())`, RSpec's `allow(x).to receive(:y)`."""
    stubbed = [tight(call) for call in re.findall(r"\bwhen\(([^;\n]*?\))\)\s*\.", body)]
    stubbed += [f"{of}.{verb}" for of, verb in re.findall(r"\ballow\(([\w.@]+)\)\s*\.to\s+receive\(:(\w+)\)", body)]
    return set(stubbed)


def _asks(made: Assertion, answered: set[str]) -> bool:
    return made.subject in answered or made.subject.partition("(")[0] in answered


_LITERAL = r"""-?\b\d+(?:\.\d+)?\b|"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'|\b(?:true|false)\b"""
_GROUP = re.compile(rf"[\[{{(]\s*(?:\w+\s*:\s*)?(?:{_LITERAL})\s*(?:,\s*(?:\w+\s*:\s*)?(?:{_LITERAL})\s*)+,?\s*[\]}})]")


_TABLE = re.compile(
    r"^(?:export\s+|static\s+|private\s+|final\s+)*(?:var|const|let|val|auto|static|@)\s*(?P<name>\w+)[^=\n;]*=[^;{\[\n]*(?P<open>[{\[])",
    re.MULTILINE,
)


def _tables(text: str, masked: str, hidden: str, tables: list[re.Match[str]]) -> list[tuple[str, ...]]:
    """Return the rows of top-level tables that a test names."""
    found = []
    for table in tables:
        if re.search(rf"\b{table['name']}\b", hidden):
            last = closing(masked, table.start("open"))
            if re.match(r"\]\s*[\w*.]*\s*(?:struct)?\s*\{", masked[last:]):  # Go writes the type of a row before it
                last = _after_type(masked, last)
            found += _rows(text[table.start("open") : last], masked[table.start("open") : last])
    return found


def _after_type(masked: str, at: int) -> int:
    """Return the offset where the values of a Go table end."""
    first = masked.find("{", at)
    last = closing(masked, first) if first >= 0 else at
    return closing(masked, last + 1) if masked[last + 1 : last + 2] == "{" else last


_ROWS = re.compile(r"\b(?:InlineData|TestCase|DataRow|Arguments|row|arguments|Arguments\.of|rstest::case|case)$")


def _rows(whole: str, masked: str) -> list[tuple[str, ...]]:
    """Return groups of literals, as in test tables; calls are treated as assertions instead."""
    found = []
    for group in _GROUP.finditer(whole):
        before = whole[: group.start()].rstrip()
        if masked[group.start()] != " " and not (
            group[0][0] == "(" and before and (before[-1].isalnum() or before[-1] in "_!>") and not _ROWS.search(before)
        ):
            found.append(tuple(re.findall(_LITERAL, group[0])))
    return found


def _without_comments(body: str, masked: str) -> str:
    """Blank out comments only: the mask keeps quotes, so blank text outside of quotes is a comment."""
    return "\n".join(
        b for b, m in zip(split_lines(body), split_lines(masked), strict=True) if m.strip() or not b.strip()
    )
