"""How the state of a watch is shown in a terminal."""

from __future__ import annotations

import io
import re
from pathlib import Path

import pytest

from ratchet.core.report import Failure, Report, ReportStatus, TestResult, TestStatus
from ratchet.core.watch import (
    Colour,
    WatchStage,
    WatchState,
    after_everything,
)
from ratchet.interfaces.terminal.watch_view import WatchView

PASSED = TestResult(id="t::a", status=TestStatus.PASSED, duration_s=1.0)
FAILED = TestResult(
    id="t::a",
    status=TestStatus.FAILED,
    failure=Failure(type="AssertionError", message="no", expected="6", actual="5", operator="==", file="t", line=3),
)


def test_the_view_shows_what_fails_with_expected_and_actual() -> None:
    stream = io.StringIO()
    view = WatchView(stream, root=Path("/home/me/shapes"))
    state = WatchState(colour=Colour.RED, stage=WatchStage.IDLE, failing=[FAILED], changed=["a.py"])
    assert [text for _, text in view.lines(state)] == [
        "RED · waiting for a change · shapes",
        "  changed: a.py",
        "  ✗ t::a",
        "      t:3 AssertionError: no",
        "      expected 6",
        "      actual   5",
    ]
    view(state)
    view(state)
    assert stream.getvalue().count("RED") == 1, "a pipe hears only what is new"


def test_a_red_without_a_failing_test_says_why() -> None:
    output = "usage: pytest [options]\n\npytest: error: unrecognized arguments: --no-such-option\n"
    report = Report(runner="pytest", status=ReportStatus.CRASHED, output=output)
    state = after_everything(WatchState(), report, flaky=[], seconds=1.0)
    assert state.colour is Colour.RED
    assert "unrecognized arguments: --no-such-option" in state.note
    stream = io.StringIO()
    WatchView(stream, root=Path())(state)
    assert "unrecognized arguments" in stream.getvalue()


@pytest.mark.parametrize(("columns", "lines"), [(80, 24), (20, 10), (12, 4), (5, 2)])
def test_the_colour_stays_in_sight_on_a_narrow_and_low_terminal(
    columns: int, lines: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("LINES", str(lines))
    stream = Terminal()
    WatchView(stream, root=Path("/home/me/shapes"))(
        WatchState(colour=Colour.RED, stage=WatchStage.IDLE, failing=[FAILED] * 9, changed=["a.py"], note="long " * 20)
    )
    screen = re.sub(r"\x1b\[[0-9;]*[A-Za-z]", "", stream.getvalue()).splitlines()
    assert screen[0].startswith("RED"), "what the terminal breaks by itself would push it out"
    assert len(screen) < lines
    assert max(len(row) for row in screen) <= columns


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True
