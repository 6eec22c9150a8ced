"""JavaScript, TypeScript, Go, Rust, Java and their like, read by their words: tests, and what each asserts.

No grammar: comments and strings are masked, blocks found by counting brackets. It is enough to see a test go, fall
asleep or ask less; what cannot be read gives no case, and the run's own inventory still counts its tests.
"""

from __future__ import annotations

import re

from ratchet.core.cheats.asserting import assertions, before_asserting, weighed
from ratchet.core.cheats.blocks import blocks
from ratchet.core.cheats.cases import Assertion, Case
from ratchet.core.cheats.masking import mask, tight
from ratchet.core.cheats.reached import asleep


def cases(path: str, text: str) -> list[Case]:
    masked = mask(text, path)
    seen: dict[str, int] = {}
    found = []
    mocked = _mocked(text)
    for name, start, first, last, off in blocks(path, text, masked):
        seen[name] = seen.get(name, 0) + 1
        full = name if seen[name] == 1 else f"{name}#{seen[name]}"
        body, hidden = text[first:last], masked[first:last]
        asserts = list(assertions(body, hidden, text.count("\n", 0, first) + 1))
        answered = {*mocked, *_answered(body)}
        found.append(
            Case(
                file=path,
                name=full,
                line=text.count("\n", 0, start) + 1,
                last_line=text.count("\n", 0, last) + 1,
                asserts=[weighed(made, made.line, _asks(made, answered)) for made in asserts],
                names=frozenset(re.findall(r"[A-Za-z_]\w*", hidden)),
                disabled=off or asleep(hidden[: before_asserting(hidden)]),
                rows=_rows(text[start:last], masked[start:last]),
                words=frozenset(re.findall(_LITERAL, _without_comments(body, hidden))),
            )
        )
    return found


_MOCKED = re.compile(r"""\b(?:jest|vi|vitest)\.mock\(\s*(?P<path>['"][^'"]+['"])\s*,""")


def _mocked(text: str) -> set[str]:
    """What is imported from modules that the file has answered itself."""
    found: set[str] = set()
    for mock in _MOCKED.finditer(text):
        place = re.escape(mock["path"])
        for names in re.findall(
            rf"(?:import|const|let)\s*(\{{[^}}]*\}}|\w+)\s*(?:from\s*|=\s*require\(\s*){place}", text
        ):
            found.update(re.findall(r"\w+", names))
    return found


def _answered(body: str) -> set[str]:
    """Calls that the test itself says the answer to: Mockito's `when(x.y())`, RSpec's `allow(x).to receive(:y)`."""
    stubbed = [tight(call) for call in re.findall(r"\bwhen\(([^;\n]*?\))\)\s*\.", body)]
    stubbed += [f"{of}.{verb}" for of, verb in re.findall(r"\ballow\(([\w.@]+)\)\s*\.to\s+receive\(:(\w+)\)", body)]
    return set(stubbed)


def _asks(made: Assertion, answered: set[str]) -> bool:
    return made.subject in answered or made.subject.partition("(")[0] in answered


_LITERAL = r"""-?\b\d+(?:\.\d+)?\b|"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'|\b(?:true|false)\b"""
_GROUP = re.compile(rf"[\[{{(]\s*(?:\w+\s*:\s*)?(?:{_LITERAL})\s*(?:,\s*(?:\w+\s*:\s*)?(?:{_LITERAL})\s*)+,?\s*[\]}})]")


_ROWS = re.compile(r"\b(?:InlineData|TestCase|DataRow|Arguments|row|arguments|Arguments\.of|rstest::case|case)$")


def _rows(whole: str, masked: str) -> list[tuple[str, ...]]:
    """Groups of written-out values, as tables of tests have them; calls are looked at as assertions instead."""
    found = []
    for group in _GROUP.finditer(whole):
        before = whole[: group.start()].rstrip()
        if masked[group.start()] != " " and not (
            group[0][0] == "(" and before and (before[-1].isalnum() or before[-1] in "_!>") and not _ROWS.search(before)
        ):
            found.append(tuple(re.findall(_LITERAL, group[0])))
    return found


def _without_comments(body: str, masked: str) -> str:
    """Quotes are kept by the mask, comments are not: what is blank there and not within quotes is a comment."""
    return "\n".join(
        b for b, m in zip(body.splitlines(), masked.splitlines(), strict=True) if m.strip() or not b.strip()
    )
