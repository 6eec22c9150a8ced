"""Masks comments and strings in source text, so that the remaining words and brackets belong to the program."""

from __future__ import annotations

import re

_HASH = (".rb", ".ex", ".exs", ".bats", ".sh", ".pl", ".t")


def mask(text: str, path: str) -> str:
    """Return the text with comments and strings blanked out; the length stays the same."""
    comment = r"#[^\n]*" if path.endswith(_HASH) else r"//[^\n]*|/\*.*?\*/"
    quotes = r'"(?:[^"\\\n]|\\.)*"|`(?:[^`\\]|\\.)*`|' + (
        r"'(?:[^'\\\n]|\\.)'"
        if path.endswith(
            (".rs", ".java", ".go", ".kt", ".cs", ".cc", ".cpp", ".cxx", ".hpp", ".h", ".c", ".zig", ".d", ".swift")
        )
        else r"'(?:[^'\\\n]|\\.)*'"
    )
    if path.endswith(".rs"):
        quotes = r'r(?P<hashes>#+)".*?"(?P=hashes)|' + quotes
    return re.sub(f"(?P<comment>{comment})|(?P<string>{quotes})", _blank, text, flags=re.DOTALL)


def _blank(found: re.Match[str]) -> str:
    whole = found[0]
    inner = re.sub(r"[^\n]", " ", whole if found["comment"] is not None else whole[1:-1])
    return inner if found["comment"] else f"{whole[0]}{inner}{whole[-1]}"


def closing(masked: str, at: int) -> int:
    """Return the offset of the bracket that closes the one at `at`, or the end if there is none."""
    depth = 0
    for place in range(at, len(masked)):
        if masked[place] in "([{":
            depth += 1
        elif masked[place] in ")]}":
            depth -= 1
            if depth == 0:
                return place
    return len(masked)


def arguments(body: str, masked: str, first: int, last: int) -> list[str]:
    parts, depth, start = [], 0, first
    for place in range(first, last):
        c = masked[place]
        depth += (c in "([{") - (c in ")]}")
        if c == "," and depth == 0:
            parts.append(body[start:place])
            start = place + 1
    parts.append(body[start:last])
    return [tight(part) for part in parts if part.strip()]


def tight(text: str) -> str:
    return re.sub(r"\s+", "", text)
