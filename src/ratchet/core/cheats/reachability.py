"""Finds the parts of a test that have no effect: never reached, swallowed, or not awaited."""

from __future__ import annotations

import re

from ratchet.core.cheats.masked_source import closing


def skip_reason(head: str) -> str:
    """Return what ends the test before the first assertion."""
    found = re.search(
        r"\bt\.Skip\w*\(|\bthis\.skip\(|\bassume(?:True|False)\(|\bmarkTest(?:Skipped|Incomplete)\(|\bGTEST_SKIP\b|^\s*(?:skip|pending)\b",
        head,
        re.MULTILINE,
    )
    if found and not _conditional(head, found.start()):
        return f"{found[0].strip()} added"
    leaves = re.search(r"\bif\b(?P<when>[^{\n]*)(?:\{\s*return\s*;?\s*\}|\)\s*return\s*;)", head)
    return "returns early on a condition" if leaves and not _MACHINE.search(leaves["when"]) else ""


def _conditional(head: str, at: int) -> bool:
    """Return whether a skip has a condition; such skips are judged line by line."""
    before = head[:at].rstrip()
    line = head[at:].partition("\n")[0]
    asked = re.search(
        r"\bif\b(?P<when>[^\n]*)\{$|\bif\b(?P<same>[^\n]*)\)$",
        before.rpartition("\n")[2] if before.endswith(("{", ")")) else "",
    )
    when = (asked["when"] or asked["same"] or "") if asked else ""
    if when:
        return not re.search(r"\btrue\b|\bfalse\b|\b1\b", when)
    return bool(re.search(r"\s(?:if|unless)\s+(?!true\b|false\b)", line))


_MACHINE = re.compile(r"GOOS|platform|isWindows|Short\(\)|OSTYPE|_WIN32|cfg!")


def is_unawaited(body: str, masked: str, start: int, last: int) -> bool:
    """Return whether an `expect(promise).resolves…` is not awaited, and so checks nothing."""
    if not re.match(r"\)\s*\.(?:resolves|rejects)\b", masked[last:]):
        return False
    return not re.search(r"(?:\bawait|\breturn|=>|\(|\[|,)\s*$", body[:start])


def unawaited_callbacks(masked: str) -> list[tuple[int, int]]:
    """Return callbacks of promises that the test neither awaits nor returns: it ends before they run."""
    found = []
    for call in re.finditer(r"\.(?:then|catch|finally)\s*\(", masked):
        start = max(masked.rfind(mark, 0, call.start()) for mark in (";", "{", "}")) + 1
        if not re.search(r"\bawait\b|\breturn\b|=>|=\s|\bdone\b|\.push\(", masked[start : call.start()] or "="):
            last = closing(masked, call.end() - 1)
            if "done(" not in masked[call.end() : last] and not masked[: call.start()].lstrip().startswith(", done"):
                found.append((call.start(), last))
    return found


def dead(masked: str) -> list[tuple[int, int]]:
    """Return the ranges without effect: after `if (false)`, after a return, or in a try whose catch ignores the error."""
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
    """Return the offset of a bare return among the test's own statements, which ends it."""
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
    """Return 0 if the block begins inside its braces, 1 if a callback's brace is still to come."""
    return 1 if re.match(r"\s*,", masked) else 0
