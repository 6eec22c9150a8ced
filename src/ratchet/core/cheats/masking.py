"""Source text whose comments and strings are masked, so that words and brackets in it are the program's own."""

from __future__ import annotations

import re

_HASH = (".rb", ".ex", ".exs", ".bats", ".sh", ".pl", ".t")


def mask(text: str, path: str) -> str:
    """The same text, same length, with what is in comments and strings blanked out."""
    comment = r"#[^\n]*" if path.endswith(_HASH) else r"//[^\n]*|/\*.*?\*/"
    quotes = r'"(?:[^"\\\n]|\\.)*"|`(?:[^`\\]|\\.)*`|' + (
        r"'(?:[^'\\\n]|\\.)'"
        if path.endswith((".rs", ".java", ".go", ".kt", ".cs", ".cc", ".cpp"))
        else r"'(?:[^'\\\n]|\\.)*'"
    )
    return re.sub(f"(?P<comment>{comment})|(?P<string>{quotes})", _blank, text, flags=re.DOTALL)


def _blank(found: re.Match[str]) -> str:
    whole = found[0]
    inner = re.sub(r"[^\n]", " ", whole if found["comment"] else whole[1:-1])
    return inner if found["comment"] else f"{whole[0]}{inner}{whole[-1]}"


def closing(masked: str, at: int) -> int:
    """Where the bracket that opens at `at` closes; the end when it does not."""
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
