"""What of a test counts: nothing does that is never reached, swallowed, or not waited for."""

from __future__ import annotations

import re

from ratchet.core.cheats.masking import closing


def asleep(head: str) -> str:
    """Something before the first assertion that ends the test."""
    found = re.search(
        r"\bt\.Skip\w*\(|\bthis\.skip\(|\bassume(?:True|False)\(|\bmarkTest(?:Skipped|Incomplete)\(|\bGTEST_SKIP\b|^\s*(?:skip|pending)\b",
        head,
        re.MULTILINE,
    )
    if found:
        return f"{found[0].strip()} added"
    leaves = re.search(r"\bif\b(?P<when>[^{\n]*)(?:\{\s*return\s*;?\s*\}|\)\s*return\s*;)", head)
    return "returns early on a condition" if leaves and not _MACHINE.search(leaves["when"]) else ""


_MACHINE = re.compile(r"GOOS|platform|isWindows|Short\(\)|OSTYPE|_WIN32|cfg!")


def unawaited(body: str, masked: str, start: int, last: int) -> bool:
    """`expect(promise).resolves…` that nobody waits for says nothing."""
    if not re.match(r"\)\s*\.(?:resolves|rejects)\b", masked[last:]):
        return False
    return not re.search(r"(?:\bawait|\breturn|=>|\(|\[|,)\s*$", body[:start])


def dead(masked: str) -> list[tuple[int, int]]:
    """Stretches that do not count: behind `if (false)`, after a return, or in a try whose catch forgets."""
    never = re.finditer(r"\bif\s*\(?\s*(?:false|0)\s*\)?\s*\{", masked)
    found = [(branch.start(), closing(masked, branch.end() - 1)) for branch in never]
    for block in re.finditer(r"\btry\s*\{", masked):
        last = closing(masked, block.end() - 1)
        caught = re.match(r"\}\s*catch\s*(?:\([^)]*\))?\s*\{", masked[last:])
        if caught:
            body = masked[last + caught.end() : closing(masked, last + caught.end() - 1)]
            if not re.search(r"\bthrow\b|\bfail\b|expect\s*\(|assert|\bt\.", body):
                found.append((block.start(), last))
    caught_whole = re.finditer(r"\brunCatching\s*\{|\bcatch_unwind\(", masked)
    found += [(block.start(), closing(masked, block.end() - 1)) for block in caught_whole]
    if (rescued := re.search(r"^[ \t]*rescue\b", masked, re.MULTILINE)) and "raise" not in masked[rescued.end() :]:
        found.append((0, rescued.start()))
    if ends := _returns(masked):
        found.append((ends, len(masked)))
    return found


def _returns(masked: str) -> int:
    """A bare return among the test's own statements ends it."""
    depth = 0
    for found in re.finditer(r"[{}]|\breturn\s*;?\s*$", masked, re.MULTILINE):
        if found[0] == "{":
            depth += 1
        elif found[0] == "}":
            depth -= 1
        elif depth <= _own_depth(masked):
            return found.start()
    return 0


def _own_depth(masked: str) -> int:
    """0 where the block begins inside its braces; 1 where a callback's brace is still to come."""
    return 1 if re.match(r"\s*,", masked) else 0
