"""Collects what changed around the tests: new values and names, names that the sources lost, helpers that assert."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from ratchet.core.cheats.findings import Change
from ratchet.core.cheats.test_cases import TestContext, written

_NAME = re.compile(r"[A-Za-z_]\w*")
_DEFINED = re.compile(
    r"^\s*(?:export\s+)?(?:default\s+)?(?:pub(?:\([^)]*\))?\s+|public\s+|private\s+|protected\s+|static\s+|final\s+|async\s+|open\s+"
    r"|internal\s+|override\s+|abstract\s+|data\s+|sealed\s+)*(?:def|class|function|func|fun|fn|struct|enum|trait|interface"
    r"|type|const|let|var|val|module|object|record)\s+(?:\([^)]*\)\s*)?(?:self\.)?(?P<name>[A-Za-z_]\w*)"
    r"|^\s*(?:public|private|protected|internal)\s[\w<>\[\], ]*?(?P<method>[A-Za-z_]\w*)\s*\(",
    re.MULTILINE,
)
_ASSERTS = re.compile(
    r"\bassert|\bexpect\b|\brequire\.|\bt\.(?:Error|Fatal|Fail)|\bpanic!|\bunwrap\(|EXPECT_|ASSERT_|REQUIRE|\bCHECK\b|\braises\b"
    r"|\bshould|\.Should\(|\bAssert\.|\bfail\("
)
_COMMENT = re.compile(r"\s*(?://|/\*|\*|#(?!\[))")
_COMMON = 3  # shorter names are ambiguous


def around(
    inside: Sequence[Change], outside: Sequence[Change], tests: Iterable[tuple[str, str]], spec: str
) -> TestContext:
    added = "\n".join(line for change in inside for _, line in change.added() if not _COMMENT.match(line))
    texts = [*(change.after or "" for change in inside), *(text for _, text in tests)]
    helpers = frozenset(name for text in texts for name in _helpers(text))
    return TestContext(
        words=frozenset([*written(added), *_words_as_read(added), *_words_in_rows(added)]),
        names=frozenset(_NAME.findall(added)),
        vanished=frozenset(_vanished(inside, outside)),
        spec=spec,
        helpers=helpers,
        silent=frozenset(name for text in texts for name in defined(text)) - helpers,
    )


def _words_as_read(text: str) -> list[str]:
    """Return literals as the language's parser represents them."""
    return re.findall(
        r"""-?\b\d+(?:\.\d+)?\b|"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'|\b(?:true|false|True|False)\b""", text
    )


def _words_in_rows(text: str) -> list[str]:
    """Return the literals of rows written as one string: `"1, 2, 3"`."""
    rows = re.findall(r"""["']([^"'\n]*[,|][^"'\n]*)["']""", text)
    parts = [part.strip() for row in rows for part in re.split(r"[,|]", row)]
    return [*parts, *(f'"{part}"' for part in parts), *(f"'{part}'" for part in parts)]


def _vanished(inside: Sequence[Change], outside: Sequence[Change]) -> set[str]:
    """Return names that are no longer defined and that no remaining test uses, if there is a source that lost them."""
    before = {name for change in outside for name in defined(change.before or "")}
    before |= {_stem(change.path) for change in outside if change.after is None}
    after = {name for change in outside for name in defined(change.after or "")}
    still = {name for change in inside for name in _NAME.findall(change.after or "")}
    return {name for name in before - after - still if len(name) >= _COMMON}


def defined(text: str) -> set[str]:
    return {found["name"] or found["method"] for found in _DEFINED.finditer(text)}


def _stem(path: str) -> str:
    return path.rsplit("/", 1)[-1].partition(".")[0]


def _helpers(text: str) -> set[str]:
    """Return functions that assert and are not tests themselves."""
    starts = list(_DEFINED.finditer(text))
    ends = [found.start() for found in starts[1:]] + [len(text)]
    return {
        name
        for found, end in zip(starts, ends[: len(starts)], strict=True)
        if (name := found["name"] or found["method"])
        and not name.lower().startswith("test")
        and _ASSERTS.search(text, found.end(), end)
    }
