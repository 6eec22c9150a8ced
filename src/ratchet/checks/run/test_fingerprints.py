"""Computes a digest of each test's source without its name, so that a renamed test is recognised."""

from __future__ import annotations

import hashlib
import re
from functools import lru_cache
from pathlib import Path

import msgspec

from ratchet.core.lines import split_lines
from ratchet.core.report import TestResult
from ratchet.tree_files import read_source

_FILE_MAX = 2_000_000
_LINES_MAX = 200
_MARK = re.compile(r"\s*(?:@|#\[)")  # decorators and attributes precede the test
_CLOSE = re.compile(r"\s*[)\]}]")


def with_fingerprints(tests: list[TestResult], folder: Path) -> list[TestResult]:
    """Add fingerprints to tests whose line is known."""
    lines_of = lru_cache(maxsize=64)(lambda file: split_lines(read_source(folder, file, max_bytes=_FILE_MAX)))
    return [_with_fingerprint(test, lines_of(test.file)) if test.line and test.file else test for test in tests]


def _with_fingerprint(test: TestResult, lines: list[str]) -> TestResult:
    text = _block(lines[test.line - 1 : test.line - 1 + _LINES_MAX])
    name = test.name.partition("[")[0]
    body = " ".join(text.replace(name, "").split()) if name else ""
    return msgspec.structs.replace(test, body=hashlib.sha256(body.encode()).hexdigest()[:12]) if body else test


def _block(lines: list[str]) -> str:
    """Return the block that begins at the test's first line, by indentation, in any language."""
    begin = next((at for at, line in enumerate(lines) if not _MARK.match(line)), 0)
    for at in range(begin + 1, len(lines)):
        line = lines[at]
        if line.strip() and _indent(line) <= _indent(lines[begin]):
            return "\n".join(lines[: at + 1] if _CLOSE.match(line) else lines[:at])
    return "\n".join(lines)


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())
