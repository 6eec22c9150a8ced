"""What a person reads of each event."""

from __future__ import annotations

from ratchet.core import events as ev
from ratchet.core.prompts import finding_text
from ratchet.core.verdict import ReviewFinding
from ratchet.interfaces.terminal.colour import painter
from ratchet.interfaces.terminal.narrative import event_line, render


def reported(event: ev.Event) -> str:
    line = event_line(event)
    assert line
    return render(line, 0.0, painter(colour=False))


def test_a_reviewers_findings_are_shown_with_their_location() -> None:
    finding = finding_text(ReviewFinding(file="calc.py", line=5, issue="no docstring"))
    one = reported(ev.ChangesRequested(step=1, summary="", findings=[finding]))
    assert one.endswith("requests 1 change: calc.py:5: no docstring")
    two = reported(ev.ChangesRequested(step=1, summary="nearly", findings=[finding, finding[:20]]))
    assert f"requests 2 changes: nearly; calc.py:5: no docstring; {finding[:20]}" in two


def test_what_has_several_lines_stays_in_its_column() -> None:
    lines = reported(
        ev.TaskUnfinished(step=1, task="T1", why="exit 1: Traceback\n  File x\nImportError: y\n")
    ).splitlines()
    assert len({len(line) - len(line.lstrip()) for line in lines[1:]} - {23, 25}) == 0
    assert lines[0].index("T1") == 23 and lines[-1].strip() == "ImportError: y"


def test_every_gate_that_passed_is_named() -> None:
    gates = ["compile", "unit", "lint", "cheats", "judge"]
    assert reported(ev.StepVerified(step=1, gates=gates, warnings=[])).endswith(
        "passed: compile, unit, lint, cheats, judge"
    )
