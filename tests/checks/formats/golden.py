"""Recorded outputs of test runners, `fixtures/<format>/<name>`, and what is right about each, `<name>.expected.json`.

`python -m tests.checks.formats.golden` writes the expectations of new fixtures; read them before you commit.
"""

from __future__ import annotations

import importlib
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, Protocol, cast

from ratchet.checks.formats import Parsed
from ratchet.core.report import Diagnostic, TestResult

FIXTURES = Path(__file__).with_name("fixtures")
SUFFIX = ".expected.json"


class Format(Protocol):
    def parse(self, stream: BinaryIO) -> Parsed: ...


def fixtures() -> list[Path]:
    return sorted(path for path in FIXTURES.glob("*/*") if not path.name.endswith(SUFFIX))


def named(path: Path) -> str:
    return f"{path.parent.name}/{path.name}"


def load(name: str) -> Format:
    return cast(Format, importlib.import_module(f"ratchet.checks.formats.{name}"))


def parsed(path: Path) -> Parsed:
    with path.open("rb") as stream:
        return load(path.parent.name).parse(stream)


def expected(path: Path) -> dict[str, Any]:
    found = json.loads(path.with_name(path.name + SUFFIX).read_text())
    assert isinstance(found, dict)
    return found


def facts(result: Parsed) -> dict[str, Any]:
    """What must be right: how many, which, how each ended, where it failed, what was expected."""
    return {
        "counts": dict(sorted(Counter(test.status.value for test in result.tests).items())),
        "tests": [_test(test) for test in result.tests],
        "collection_errors": [_place(error) for error in result.collection_errors],
        "compile_errors": [_place(error) for error in result.compile_errors],
        "reported": result.reported,
        "ended": result.ended,
        "partial": result.partial,
        "notes": result.notes,
        "running": result.running,
    }


def _test(test: TestResult) -> dict[str, Any]:
    failure = test.failure
    row: dict[str, Any] = {"id": test.id, "status": test.status.value}
    row |= {"at": f"{test.file}:{test.line}"} if test.file else {}
    row |= {"reason": test.reason} if test.reason else {}
    row |= {"phase": test.phase} if test.phase != "call" else {}
    row |= {"attempts": test.attempts} if test.attempts > 1 else {}
    if failure:
        row["failure"] = {
            "at": f"{failure.file}:{failure.line}",
            "type": failure.type,
            "message": failure.message[:200],
        }
        row["failure"] |= {"expected": failure.expected, "actual": failure.actual}
    return row


def _place(error: Diagnostic) -> str:
    return f"{error.file}:{error.line}:{error.column}: {error.type} {error.code} {error.message.splitlines()[0]}"


def write_missing() -> Iterator[Path]:
    for path in fixtures():
        target = path.with_name(path.name + SUFFIX)
        if not target.exists():
            target.write_text(json.dumps(facts(parsed(path)), indent=1, ensure_ascii=False) + "\n")
            yield target


if __name__ == "__main__":
    for written in write_missing():
        print(written)
