"""The history of a run as a document."""

from __future__ import annotations

from ratchet.core import events as ev
from ratchet.core.failure import Reason
from ratchet.core.history import HistoryMark, find_mark, history_document
from ratchet.core.item import ParkReason
from ratchet.core.receipt import Artifact
from tests.core.playing import started


def step(number: int, action: str, role: str = "") -> ev.StepStarted:
    return ev.StepStarted(step=number, action=action, role=role, key="k", tree="t", snapshot="s")


def test_iterations_and_attempts_are_counted_and_answers_quoted() -> None:
    first = started()
    history: list[ev.AnyEvent] = [
        first,
        step(1, "baseline"),
        step(2, "audit", "auditor"),
        ev.AuditFailed(step=2, reason=Reason.NO_PROGRESS, why="wrote no test"),
        step(3, "audit", "auditor"),
        ev.RedConfirmed(step=3, tests=["a", "b"], fingerprint="f", report=_ARTIFACT),
        step(4, "implement", "implementer"),
        ev.WritesUndone(step=4, role="implementer", paths=["x", "y"]),
        ev.StepReverted(step=5, paths=["a.py", "b.py"], why="it fails", tree="t"),
        step(6, "implement", "implementer"),
        ev.StepCommitted(
            step=7, commit="0123456789abcdef", parent="p", subject="Add it", tests=["a"], tree="t", report=_ARTIFACT
        ),
        ev.FinalRefused(step=8, why="not all", reports=[]),
        ev.RunParked(reason=ParkReason.QUESTION, detail="which?"),
        ev.RunReturned(reason=Reason.AGENT_CRASHED, detail="died"),
        step(9, "audit", "auditor"),
        ev.RunFailed(reason=Reason.NO_PROGRESS, detail="no more"),
        ev.RunCompleted(commits=1, head="h"),
    ]
    answers = {2: "  I found none.\n", 4: "  ", 6: "Done."}
    whole, iteration, attempt = history_document(history, answers)
    assert whole.splitlines() == (
        [
            f"# {first.title}", "",
            f"{first.workflow} from {first.base_commit[:10]} on {first.branch}", "",
            "## Iteration 1, attempt 1: auditor (audit, step 2)", "", "I found none.", "",
            f"**FAILED** {Reason.NO_PROGRESS}: wrote no test", "",
            "## Iteration 1, attempt 2: auditor (audit, step 3)", "",
            "**RED** for the right reason: a, b", "",
            "## Iteration 1, attempt 1: implementer (implement, step 4)", "",
            "**UNDONE** x, y", "",
            "**REVERTED** a.py, b.py: it fails", "",
            "## Iteration 1, attempt 2: implementer (implement, step 6)", "", "Done.", "",
            "**KEPT** 0123456789: Add it", "",
            "**REFUSED** not all", "",
            f"**PARKED** {ParkReason.QUESTION}: which?", "",
            "**RETURNED** died", "",
            "## Iteration 2, attempt 2: auditor (audit, step 9)", "",
            "**FAILED** no more", "",
            "**COMPLETED** with 1 commits", "",
        ]
    )  # fmt: skip
    first_part, *counts = history_document(history[:8], answers)
    second_part, *ends = history_document(history[8:], answers, *counts)
    assert (first_part + second_part, *ends) == (whole, iteration, attempt)


def test_a_mark_is_read_from_the_end_of_a_file_and_nothing_else_is_one() -> None:
    mark = HistoryMark(seq=12, sum="a" * 64, size=345, iteration=3, attempt=2)
    assert find_mark(b"**KEPT** abc\n\n" + mark.line()) == mark
    for torn in (b"", b"\n", mark.line()[:-9], mark.line() + b"## more\n", b"<!-- ratchet history [] -->\n", b"\xff"):
        assert find_mark(torn) == HistoryMark()


_ARTIFACT = Artifact(path="reports/1", sha256="0" * 64, size=1)
