"""A log may be larger than memory: what a parser holds grows with the tests, not with what they print."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import cast

import pytest

from ratchet.checks.formats import lenient_json
from tests.checks.formats.golden import load

MB = 1 << 20


class Endless(io.RawIOBase):
    """A stream made as it is read."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self.pieces = pieces
        self.rest = b""
        self.served = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: object) -> int:
        view = cast(memoryview, buffer)
        piece = self.rest or next(self.pieces, b"")
        size = min(len(piece), len(view))
        view[:size] = piece[:size]
        self.rest = piece[size:]
        self.served += size
        return size


def chatter(size: int) -> Iterator[bytes]:
    line = b"2026-11-16 INFO a line of a log that nobody will read, number 12345, and it goes on for a while\n" * 80
    for _ in range(size // len(line)):
        yield line[:8000]


def junit(size: int) -> Iterator[bytes]:
    yield b'<testsuite name="s" tests="2"><testcase name="loud"><failure message="m">'
    yield from chatter(size)
    yield b"</failure><system-out>"
    yield from chatter(size)
    yield b'</system-out></testcase><testcase name="quiet"/></testsuite>'


def malformed_junit(size: int) -> Iterator[bytes]:
    yield b'<testsuite name="s" tests="2"><testcase name="loud"><system-out>a & b'
    yield from chatter(2 * size)
    yield b'</system-out></testcase><testcase name="quiet"/></testsuite>'


def tap(size: int) -> Iterator[bytes]:
    yield b"1..2\nnot ok 1 - loud\n"
    for piece in chatter(2 * size):
        yield b"# " + piece[:7000] + b"\n"
    yield b"ok 2 - quiet\n"


def go_json(size: int) -> Iterator[bytes]:
    name = b'"Package":"p","Test":"loud"'
    yield b'{"Action":"run",' + name + b"}\n"
    for _ in range(size // 2000):
        yield b'{"Action":"output",' + name + b',"Output":"' + b"x" * 3000 + b'\\n"}\n'
    yield b'{"Action":"fail",' + name + b'}\n{"Action":"run","Package":"p","Test":"quiet"}\n'
    yield b'{"Action":"pass","Package":"p","Test":"quiet"}\n{"Action":"fail","Package":"p"}\n'


def cargo(size: int) -> Iterator[bytes]:
    yield b"running 2 tests\ntest quiet ... ok\ntest loud ... FAILED\n\nfailures:\n\n---- loud stdout ----\n"
    yield from chatter(2 * size)
    yield b"\nfailures:\n    loud\n\ntest result: FAILED. 1 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out\n"


def one_line(size: int) -> Iterator[bytes]:
    yield b"running 2 tests\ntest quiet ... ok\n"
    for _ in range(2 * size // 8000):
        yield b"x" * 8000
    yield b"\ntest loud ... FAILED\ntest result: FAILED. 1 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out\n"


STREAMS: list[tuple[str, Callable[[int], Iterator[bytes]]]] = [
    ("junit", junit),
    ("junit", malformed_junit),
    ("tap", tap),
    ("go_json", go_json),
    ("cargo", cargo),
    ("cargo", one_line),
]


@pytest.mark.parametrize(("name", "pieces"), STREAMS, ids=lambda value: getattr(value, "__name__", value))
def test_two_tests_in_a_flood_of_output_are_found_in_constant_memory(
    name: str, pieces: Callable[[int], Iterator[bytes]]
) -> None:
    raw = Endless(pieces(8 * MB))
    tracemalloc.start()
    try:
        result = load(name).parse(io.BufferedReader(raw))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert raw.served > 10 * MB
    assert peak < 24 * MB
    assert {test.name for test in result.tests} == {"loud", "quiet"}
    assert result.ended


_CHILD = """
import io, resource, sys
from tests.checks.formats import test_streaming as here
pieces = dict(here.STREAMS_BY_NAME)[sys.argv[1]]
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
raw = here.Endless(pieces(int(sys.argv[2]) * here.MB // 2))
result = here.load(here.FORMAT_OF[sys.argv[1]]).parse(io.BufferedReader(raw))
grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
print(raw.served // here.MB, len(result.tests), grown // 1024)
"""
STREAMS_BY_NAME = [(pieces.__name__, pieces) for _, pieces in STREAMS]
FORMAT_OF = {pieces.__name__: name for name, pieces in STREAMS}
_SLOW = pytest.mark.skipif(not os.environ.get("RATCHET_SLOW"), reason="takes a minute: make test-slow")


@pytest.mark.parametrize("size_mb", [24, pytest.param(1024, marks=_SLOW)])
@pytest.mark.parametrize("name", ["junit", "go_json", "cargo", "tap"])
def test_a_log_of_any_size_costs_a_process_the_same_memory(name: str, size_mb: int) -> None:
    """Measured from outside, as the operating system sees it: a gigabyte and a fortieth of it, one bound."""
    argv = [sys.executable, "-c", _CHILD, name, str(size_mb)]
    done = subprocess.run(argv, cwd=Path(__file__).parents[3], capture_output=True, text=True, check=True)
    served_mb, tests, grown_mb = map(int, done.stdout.split())
    assert served_mb > size_mb * 0.7
    assert tests == 2
    assert grown_mb < 40


def test_a_json_document_beyond_the_limit_is_read_in_part_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lenient_json, "DOCUMENT_LIMIT", 2000)
    row = b'{"status":"passed","title":"t","fullName":"t","ancestorTitles":[],"failureMessages":[]}'
    document = b'{"testResults":[{"name":"a.test.js","assertionResults":[' + b",".join([row] * 100) + b"]}]}"
    result = load("jest_json").parse(io.BytesIO(document))
    assert result.partial
    assert 0 < len(result.tests) < 100
