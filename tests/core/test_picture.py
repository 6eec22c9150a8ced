"""The picture of a run agrees with the run's state, for every history of every workflow."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ratchet.core import events as ev
from ratchet.core.card import RunCard, advance, decode_card, encode_card
from ratchet.core.picture import AttemptEnd, Lane, PartKind, Picture, StepOutcome, fold_picture, lane_of
from ratchet.core.receipt import Artifact
from ratchet.core.state import fold
from ratchet.core.workflows.build import BUILD
from ratchet.core.workflows.fix import FIX
from ratchet.core.workflows.loop import LOOP
from ratchet.core.workflows.swarm import SWARM
from ratchet.core.workflows.tdd import TDD
from ratchet.core.workflows.workflow import Workflow
from tests.core.playing import play, started

WORKFLOWS = {workflow.name: workflow for workflow in (TDD, BUILD, FIX, SWARM, LOOP)}
CHOICES = st.lists(st.integers(0, 6), max_size=60)
# In tdd: a sealed test is replaced, the same change is committed, and a gate undoes it.
REPLACED = [0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 0, 1, 0, 1, 0, 1]
POLICY = {"iterations": 20, "attempts": 3, "review_rounds": 3}


def timed(history: list[ev.Event]) -> list[tuple[int, float, object]]:
    return [(seq, 1000.0 + 7 * seq, event) for seq, event in enumerate(history, 1)]


@pytest.mark.parametrize("name", WORKFLOWS)
@given(choices=CHOICES)
@example(choices=REPLACED)
def test_the_teeth_are_the_kept_commits_and_the_slips_are_the_reverts(name: str, choices: list[int]) -> None:
    workflow: Workflow = WORKFLOWS[name]
    history = play(workflow, choices, POLICY)
    state, picture = fold("run-1", workflow.table, history), fold_picture(timed(history))
    assert picture.kept == len(state.commits)
    assert [one.commit for one in picture.attempts if one.end is AttemptEnd.KEPT] == [c.commit for c in state.commits]
    assert picture.slips == state.reverts
    assert (picture.running is None) == (state.final or state.in_doubt is None)
    assert [step.number for step in picture.steps] == list(range(1, state.step + 1))
    assert round(sum(step.cost_usd for step in picture.steps), 6) == state.usage.cost_usd


@pytest.mark.parametrize("name", WORKFLOWS)
@given(choices=CHOICES, cut=st.integers(0, 100))
def test_a_picture_that_is_folded_on_equals_one_that_is_folded_at_once(name: str, choices: list[int], cut: int) -> None:
    history = timed(play(WORKFLOWS[name], choices, POLICY))
    whole, parts = fold_picture(history), Picture()
    for row in [*history[:cut], *history]:  # what was folded before is skipped
        parts.add(*row)
    assert (parts.steps, parts.attempts, parts.spans, parts.parts) == (
        whole.steps,
        whole.attempts,
        whole.spans,
        whole.parts,
    )


@pytest.mark.parametrize("name", WORKFLOWS)
@given(choices=CHOICES)
@example(choices=REPLACED)
def test_the_short_string_of_a_board_says_the_same_as_the_picture(name: str, choices: list[int]) -> None:
    history, card = play(WORKFLOWS[name], choices, POLICY), RunCard()
    for event in history:
        card = decode_card(encode_card(advance(card, "2026-01-01T00:00:00Z", event)))
    picture = fold_picture(timed(history))
    assert card.shape == picture.shape
    assert card.kept == picture.kept


@pytest.mark.parametrize("name", WORKFLOWS)
@given(choices=CHOICES)
def test_every_step_has_a_lane_and_belongs_to_one_part(name: str, choices: list[int]) -> None:
    picture = fold_picture(timed(play(WORKFLOWS[name], choices, POLICY)))
    assert all(step.lane in Lane for step in picture.steps)
    assert sorted(index for part in picture.parts for index in part.steps) == list(range(len(picture.steps)))


def step(number: int, action: str, role: str = "") -> ev.StepStarted:
    return ev.StepStarted(step=number, action=action, role=role, key="ik:1", tree="t", snapshot="s")


def reverted(number: int, why: str, commit: str = "") -> ev.StepReverted:
    return ev.StepReverted(step=number, why=why, paths=["a.py"], tree="t", commit=commit)


def test_changes_caught_by_a_sealed_test_are_distinguished() -> None:
    history: list[ev.Event] = [
        started(),
        step(1, "implement", "implementer"),
        step(2, "judge"),
        reverted(2, "overfitted"),
    ]
    picture = fold_picture(timed(history))
    assert (picture.shape, picture.sealed, picture.slips) == ("s", 1, 1)


def test_a_gate_that_undoes_a_commit_turns_its_tooth_into_a_slip() -> None:
    kept = ev.StepCommitted(step=2, commit="c1", parent="c0", subject="s", tests=[], tree="t", report=fold_report())
    history: list[ev.Event] = [
        started(),
        step(1, "implement", "implementer"),
        step(2, "judge"),
        kept,
        step(3, "verify"),
        reverted(3, "coverage fell", commit="c1"),
    ]
    picture = fold_picture(timed(history))
    assert (picture.shape, picture.kept) == ("r", 0)
    assert picture.attempts[0].gate == 2


def test_a_wait_for_a_person_is_a_gap_and_no_active_time() -> None:
    parked = ev.RunParked(reason="question", detail="question: which?")  # type: ignore[arg-type]  # as decoded
    history: list[tuple[int, float, object]] = [
        (1, 0.0, started()),
        (2, 0.0, step(1, "audit", "auditor")),
        (3, 10.0, ev.UsageMetered(step=1, role="auditor", agent="a")),
        (4, 10.0, parked),
        (5, 610.0, ev.RunClaimed(worker="w")),
        (6, 610.0, ev.StepResumed(step=1)),
        (7, 615.0, ev.RequirementsMet(step=1, summary="done")),
    ]
    picture = fold_picture(history)
    assert (picture.active_s, picture.waited_s) == (15.0, 600.0)
    assert [span.step for span in picture.spans] == [0, None, 0]


def test_a_step_that_its_run_never_finished_is_not_running() -> None:
    history = [started(), step(1, "implement", "implementer"), ev.RunAborted(by="me")]
    picture = fold_picture(timed(history))
    assert picture.running is None
    assert picture.steps[0].outcome is StepOutcome.FAILED
    assert picture.shape == ""


def test_a_step_of_an_unknown_workflow_is_placed_by_its_name_and_role() -> None:
    assert lane_of("judge_docs", "") is Lane.JUDGE
    assert lane_of("translate", "implementer") is Lane.CHANGE
    assert lane_of("measure", "") is Lane.GATES


def fold_report() -> Artifact:
    return Artifact(path="reports/step-2.json", sha256="0" * 64, size=1)


def test_a_watched_picture_grows_with_the_clock_while_its_step_runs_and_not_after_its_end() -> None:
    picture = fold_picture([(1, 100.0, started()), (2, 110.0, step(1, "implement", "implementer"))])
    picture.watch(125.0)
    assert (picture.at, picture.steps[0].end, picture.spans[-1].end, picture.steps[0].active_s) == (
        25.0,
        25.0,
        25.0,
        15.0,
    )
    picture.watch(120.0)
    assert picture.at == 25.0, "a clock that goes back moves nothing"
    picture.add(3, 130.0, ev.RunAborted(by="me"))
    picture.watch(500.0)
    assert picture.at == 30.0
    empty = Picture()
    empty.watch(5.0)
    assert (empty.at, empty.spans) == (0.0, [])


def test_a_watched_gap_grows_and_its_step_does_not() -> None:
    parked = ev.RunParked(reason="question", detail="question: which?", until="later")  # type: ignore[arg-type]  # as decoded
    picture = fold_picture([(1, 0.0, started()), (2, 0.0, step(1, "audit", "auditor")), (3, 10.0, parked)])
    picture.watch(70.0)
    assert picture.gap and (picture.gap.seconds, picture.gap.until, picture.running) == (60.0, "later", None)
    assert picture.gap.waits_for_person and picture.steps[0].end == 0.0


def test_what_people_said_is_noted_with_the_steps_before_it() -> None:
    history = [
        started(), step(1, "audit", "auditor"), ev.RunNudged(by="ann", message="smaller"), step(2, "verify_red"),
        ev.QuestionAnswered(by="bob", answer="yes"),
    ]  # fmt: skip
    notes = fold_picture(timed(history)).notes
    assert [(note.steps, note.by, note.text) for note in notes] == [(1, "ann", "smaller"), (2, "bob", "yes")]


@pytest.mark.parametrize(
    ("action", "role", "lane"),
    [
        ("audit", "auditor", Lane.TEST),
        ("analyse", "", Lane.TEST),
        ("verify_red", "", Lane.RED_CHECK),
        ("judge", "", Lane.JUDGE),
        ("baseline", "", Lane.GATES),
        ("implement", "implementer", Lane.CHANGE),
        ("fix", "fixer", Lane.CHANGE),
        ("swarm", "fixer", Lane.CHANGE),
        ("update_spec", "scribe", Lane.CHANGE),
        ("audit.contest", "auditor", Lane.TEST),
        ("review", "reviewer", Lane.REVIEW),
        ("second_opinion", "reviewer", Lane.REVIEW),
        ("land", "", Lane.REVIEW),
    ],
)
def test_each_step_has_its_lane(action: str, role: str, lane: Lane) -> None:
    assert lane_of(action, role) is lane


def test_a_tdd_run_is_told_in_parts_with_titles() -> None:
    report = fold_report()
    history: list[ev.Event] = [
        started(),
        step(1, "baseline"), ev.BaselineTaken(step=1, report=report, tests=1, failing=[], tree="t"),
        step(2, "audit", "auditor"), ev.TestWritten(step=2, paths=["t.py"], tree="t", summary="adds two"),
        step(3, "implement", "implementer"), ev.ChangeProposed(step=3, paths=["a.py"], tree="t", summary="sum them"),
        step(4, "judge"),
        ev.StepCommitted(step=4, commit="c1", parent="c0", subject="s", tests=[], tree="t", report=report),
        step(5, "refactor", "architect"), ev.ChangeProposed(step=5, paths=["a.py"], tree="t", summary="tidy"),
        step(6, "audit", "auditor"), ev.RequirementsMet(step=6, summary="all there"),
        step(7, "review", "reviewer"), ev.ReviewApproved(step=7, summary="fine"),
        step(8, "final"), step(9, "land"),
    ]  # fmt: skip
    picture = fold_picture(timed(history))
    assert [(part.kind, part.number, part.title, part.steps) for part in picture.parts] == [
        (PartKind.BEFORE, 0, "", [0]),
        (PartKind.ITERATION, 1, "adds two", [1, 2, 3]),
        (PartKind.REFACTOR, 0, "tidy", [4]),
        (PartKind.END, 0, "", [5, 6, 7, 8]),
    ]
    assert [part.closed for part in picture.parts] == [False, True, False, False]
    kept = picture.attempts[0]
    assert (kept.change, kept.judge, kept.level, kept.commit, kept.subject) == (2, 3, 0, "c1", "s")
