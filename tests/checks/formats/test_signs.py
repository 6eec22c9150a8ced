"""What is asked before a stream is read, or a line looked at, never keeps anybody from what he would have found."""

# Pieces side by side.
# ruff: noqa: E501

from __future__ import annotations

import io
import re
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ratchet.checks import formats
from ratchet.checks.formats import compiler
from ratchet.checks.formats.text import strip_colours
from tests.checks.formats.golden import fixtures, named, parsed
from tests.checks.formats.test_fuzz import WORDS

MODULES = {module.name: import_module(f"{formats.__name__}.{module.name}") for module in iter_modules(formats.__path__)}
SIGNED = sorted(name for name, module in MODULES.items() if hasattr(module, "SIGN"))
# What their patterns are made of.
PIECES = [
    *WORDS, b"ok", b"not ok 1", b"--- FAIL: TestA (0.00s)", b"=== RUN   TestA", b"FAIL\tp\t0.1s", b"PASS p.TestA (0.00s)",
    b"  1) a (B)", b"B [f.exs]", b"  * test a (1ms)", b"1/2 a...OK", b"  [OK] a", b"  [FAILED] a", b"a#b = 0.1 s = F",
    b"  1) Failure:", b"A#b [f:1]:", b"  1 failing", b"  1) a", b"     at b", b"Failures:", b"  1) a.b", b"test: a", b" ... ",
    b"running 1 test", b"suite a.t ..", b"a.t .. skipped: b", b"1..0 # skip", b"Testing `a'.", b"=case a:b", b"=result failed",
    b"Test suite a: RUNNING...", b"Test suite a: FAIL", b"\n", b"\n", b"\n", b" ", b"x", b"\x1b[1m",
]  # fmt: skip


def found(name: str, content: bytes) -> bool:
    reported = MODULES[name].parse(io.BytesIO(content))
    return bool(reported.tests or reported.collection_errors)


@pytest.mark.parametrize("path", [path for path in fixtures() if path.parent.name in SIGNED], ids=named)
def test_a_recorded_output_bears_the_sign_of_its_format(path: Path) -> None:
    reported = parsed(path)
    has_sign = bool(MODULES[path.parent.name].SIGN.search(strip_colours(path.read_bytes())))
    assert has_sign or not (reported.tests or reported.collection_errors) or path.parent.name == "automake"


@pytest.mark.parametrize("name", [name for name in SIGNED if name != "automake"])
@settings(max_examples=150, deadline=None)
@given(pieces=st.lists(st.sampled_from(PIECES), max_size=12))
def test_nothing_is_found_where_the_sign_is_missing(name: str, pieces: list[bytes]) -> None:
    content = strip_colours(b"\n".join(pieces))
    assert MODULES[name].SIGN.search(content) or not found(name, content)


@pytest.mark.parametrize(
    "pattern",
    [*(pattern for _, _, pattern in compiler._LINE), *(first for _, first, _ in compiler._PAIRS)],
    ids=lambda pattern: pattern.pattern[:40],
)
@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_a_line_that_a_compiler_wrote_is_worth_a_look(pattern: re.Pattern[str], data: st.DataObject) -> None:
    row = data.draw(st.from_regex(pattern))
    needle = next((needle for _, needle, known in compiler._LINE if known is pattern), "")
    assert compiler._is_worth_a_look(row) or needle not in row or "\n" in row
