"""Learnings and trials that a run's ledger gives."""

from __future__ import annotations

import random

from msgspec.structs import replace

from ratchet.core import events as ev
from ratchet.core.failure import Reason, RevertOutcome
from ratchet.core.learning import Learning, LearningKind, LearningSource, Matched, TrialArm, report_fingerprints
from ratchet.core.learning_sources import Derived, derive, noted_learning
from ratchet.core.report import Failure, Report, ReportStatus, TestResult, TestStatus
from tests.core.playing import REPORT, started
from tests.core.random_runs import ledger

RED = ev.RedConfirmed(step=2, tests=["test_a"], fingerprint="f", report=REPORT, failures=["red"])
GUESS = ev.ChangeProposed(step=3, paths=["a.py"], tree="t1", summary="Guess the total")
SUM = ev.ChangeProposed(step=5, paths=["a.py"], tree="t2", summary="Sum the lines")
REVERTED = ev.StepReverted(
    step=4, why="still red: test_a", paths=["a.py"], tree="t0", outcome=RevertOutcome.STILL_RED, failures=["again"]
)
KEPT = ev.StepCommitted(
    step=6, commit="c1", parent="c0", subject="Sum the lines", tests=["test_a"], report=REPORT, tree="t2"
)
VERIFIED = ev.StepVerified(step=7, gates=[], warnings=[])
DELIVERED = ev.LearningDelivered(
    step=3, learning="l1", arm=TrialArm.PACKET, matched=Matched.FINGERPRINT, fingerprint="again"
)


def derived(*events: object) -> Derived:
    return derive("run-1", [(seq, f"2026-01-01T00:00:{seq:02}Z", event) for seq, event in enumerate(events, 1)])


def taught(*events: object) -> list[Learning]:
    return derived(started(), *events).learnings


def test_a_revert_followed_by_green_teaches_what_failed_and_what_worked() -> None:
    (one,) = taught(RED, GUESS, REVERTED, SUM, KEPT, VERIFIED)
    assert "what worked is “Sum the lines” in a.py" in one.content
    assert "did not work: “Guess the total”: still red: test_a" in one.content
    assert (one.run, one.seq, one.commit, one.fingerprints) == ("run-1", 7, "c1", ["red", "again"])
    assert (one.kind, one.source, one.tags) == (LearningKind.LESSON, LearningSource.FACTORY, ["fixed"])


def test_a_green_at_the_first_attempt_teaches_nothing() -> None:
    assert taught(RED, SUM, KEPT, VERIFIED) == []


def test_what_was_given_up_refused_or_overfitted_is_a_dead_end() -> None:
    (given_up,) = taught(RED, GUESS, REVERTED, ev.TestAbandoned(why="w"))
    refused = replace(REVERTED, outcome=RevertOutcome.GATE, why="gate diff failed: a skipped test", commit="c1")
    overfitted = replace(REVERTED, outcome=RevertOutcome.OVERFITTED, why="the change does not generalise: totals")
    (cheat,), (missed,) = taught(RED, GUESS, KEPT, refused), taught(RED, GUESS, overfitted)
    assert {one.kind for one in (given_up, cheat, missed)} == {LearningKind.DEAD_END}
    assert (given_up.tags, cheat.tags, missed.tags) == (["given-up"], ["refused"], ["overfitted"])
    assert "Guess the total" in given_up.content and "a skipped test" in cheat.content and "sealed" in missed.content


def test_the_same_files_red_and_then_green_or_repeated_by_the_runner_are_a_flaky_test() -> None:
    again = replace(KEPT, tree="t1")
    found = taught(RED, GUESS, replace(REVERTED, why="test_b failed"), GUESS, again, VERIFIED)
    assert found[0].tags == ["flaky"] and "test_b" in found[0].content
    (reported,) = taught(ev.FlakyTestsFound(step=1, tests=["test_c"]))
    assert reported.tags == ["flaky"] and "test_c" in reported.content


def test_a_set_up_that_was_missing_is_learnt_once_the_tests_run() -> None:
    lost = ev.RunReturned(reason=Reason.MISCONFIGURED, detail="no module pytest; run make env")
    base = ev.BaselineTaken(step=1, report=REPORT, tests=1, failing=[], tree="t")
    assert taught(lost) == []
    (one,) = taught(lost, ev.RunClaimed(worker="w"), base)
    assert one.tags == ["set-up"] and "make env" in one.content and one.seq == 2


def test_an_agents_word_is_a_candidate() -> None:
    answer = "Add totals\n\n## Learning\nThe ledger rounds\nbefore it sums.\n\n# Other\nnothing"
    assert noted_learning(answer) == "The ledger rounds\nbefore it sums." and noted_learning("Learning: x") == ""
    (one,) = taught(RED, ev.LearningNoted(step=3, role="implementer", content=noted_learning(answer)))
    assert (one.kind, one.source, one.fingerprints) == (LearningKind.CANDIDATE, LearningSource.AGENT, ["red"])


def test_control_characters_and_length_do_not_keep_a_learning_from_being_stored() -> None:
    (one,) = taught(ev.LearningNoted(step=3, role="fixer", content="a\x1b[31m\0b" + "x" * 50_000))
    assert one.content.startswith("a [31m b") and len(one.content) == 10_000


def test_a_trial_counts_from_the_first_delivery_to_green_or_giving_up() -> None:
    step = ev.StepStarted(step=3, action="implement", role="implementer", key="k", tree="t", snapshot="s")
    cost = ev.UsageMetered(step=3, role="implementer", agent="a", cost_usd=0.5)
    events = [RED, step, cost, DELIVERED, GUESS, REVERTED, step, cost, DELIVERED, SUM, KEPT, VERIFIED]
    (one,) = derived(started(), *events).trials
    assert (one.attempts, one.reverts, one.repeats, one.cost_usd, one.green, one.seq) == (2, 1, 1, 1.0, True, 5)
    (lost,) = derived(started(), RED, DELIVERED, GUESS, REVERTED, ev.TestAbandoned(why="w")).trials
    assert (lost.attempts, lost.green) == (2, False)


def test_a_run_that_was_aborted_or_failed_for_another_reason_is_no_trial() -> None:
    for end in (ev.RunAborted(by="ann"), ev.RunFailed(reason=Reason.AUTH, detail="d")):
        assert derived(started(), RED, DELIVERED, GUESS, end).trials == []
    by_title = replace(DELIVERED, matched=Matched.TITLE, arm=TrialArm.PROMPT)
    assert derived(started(), RED, by_title, SUM, KEPT, VERIFIED).trials == []


def test_the_same_ledger_gives_the_same_learnings_whatever_is_in_it() -> None:
    for seed in range(300):
        events = [event for _, event in ledger(random.Random(seed))]
        once, again = derived(*events), derived(*events)
        assert once == again and all(one.run == "run-1" and one.seq for one in once.learnings)


def test_a_failure_has_the_same_fingerprint_in_another_run_and_an_error_in_another_file() -> None:
    def fingerprints(file: str, message: str, kind: str = "ModuleNotFoundError") -> list[str]:
        failure = Failure(type=kind, message=message)
        test = TestResult(id=f"{file}::t", name="t", file=file, status=TestStatus.FAILED, failure=failure)
        return report_fingerprints(Report(status=ReportStatus.FAILED, runner="pytest", tests=[test]), [test.id])

    one = fingerprints("a.py", "No module named 'flask' at 0x7f33")
    assert one == fingerprints("a.py", "No module named 'flask' at 0x8a21") and len(one) == 2
    assert set(one) & set(fingerprints("b.py", "No module named 'flask' at 0x7f33"))
    assert not set(fingerprints("a.py", "assert 1 == 2", "AssertionError")) & set(
        fingerprints("b.py", "assert 1 == 2", "AssertionError")
    )


def test_a_lesson_names_tests_paths_and_the_last_tries_within_bounds() -> None:
    red = replace(RED, tests=[f"t{n}" for n in range(5)])
    tries = [
        (replace(GUESS, summary=f"try {n}", tree=f"x{n}"), replace(REVERTED, why=f"why {n}", failures=[]))
        for n in range(5)
    ]
    fixed = replace(SUM, paths=[f"p{n}" for n in range(7)])
    (one,) = taught(red, *(event for pair in tries for event in pair), fixed, KEPT, VERIFIED)
    assert one.content.split("\n") == [
        "t0, t1, t2 and 2 more: what worked is “Sum the lines” in p0, p1, p2, p3, p4.",
        "What did not work: “try 2”: why 2.",
        "What did not work: “try 3”: why 3.",
        "What did not work: “try 4”: why 4.",
    ]
    assert one.repo == "/r" and one.spec == "SPEC.md" and one.created_at.endswith(":15Z")


def test_a_repeated_try_is_told_once_and_long_texts_are_cut() -> None:
    long = replace(REVERTED, why="w  \n" + "x" * 400)
    (one,) = taught(RED, GUESS, long, GUESS, long, SUM, KEPT, VERIFIED)
    assert one.content.count("What did not work") == 1
    assert f"“Guess the total”: w {'x' * 298}…." in one.content


def test_without_a_red_test_the_commits_tests_or_the_title_are_named() -> None:
    task = ev.TaskBegun(task="T1", title="t")
    (one,) = taught(task, GUESS, REVERTED, SUM, KEPT, VERIFIED)
    assert one.content.startswith("test_a: what worked")
    (titled,) = taught(task, GUESS, REVERTED, SUM, replace(KEPT, tests=[]), VERIFIED)
    assert titled.content.startswith("t: what worked")
    (given_up,) = taught(task, GUESS, REVERTED, ev.TaskUnfinished(step=9, task="T1", why="w"))
    assert given_up.content.startswith("t was given up.\nWhat did not work: “Guess the total”")


def test_the_commit_of_a_lesson_is_the_one_with_its_sealed_tests() -> None:
    completed = replace(VERIFIED, completion=ev.Completion(commit="c2", tree="t3", report=REPORT, sealed=1, doubts=[]))
    assert taught(RED, GUESS, REVERTED, SUM, KEPT, completed)[0].commit == "c2"


def test_tries_of_one_test_are_no_tries_of_the_next() -> None:
    assert taught(RED, GUESS, REVERTED, RED, SUM, KEPT, VERIFIED) == []
    assert taught(RED, GUESS, REVERTED, SUM, KEPT, VERIFIED, SUM, KEPT, VERIFIED)[1:] == []
    assert taught(RED, ev.TestAbandoned(why="w")) == []


def test_a_refusal_by_a_gate_and_a_missed_sealed_test_say_what_was_tried() -> None:
    gate = replace(
        REVERTED, outcome=RevertOutcome.GATE, why="lint fails", paths=["a.py", "b.py"], commit="c1", failures=["x"]
    )
    (refused,) = taught(RED, GUESS, gate)
    assert refused.content == "Refused after the tests had passed: “Guess the total” in a.py, b.py: lint fails"
    assert (refused.commit, refused.fingerprints, refused.seq) == ("c1", ["x"], 4)
    assert "in no file: lint fails" in taught(RED, GUESS, replace(gate, paths=[]))[0].content
    sealed = replace(REVERTED, outcome=RevertOutcome.OVERFITTED, why="totals", failures=["x", "red"])
    (missed,) = taught(RED, GUESS, sealed)
    assert missed.content == "“Guess the total” passed the visible test of test_a and missed the sealed one: totals"
    assert missed.fingerprints == ["x", "red"]


def test_a_reverted_refactoring_is_no_try_at_a_failure() -> None:
    refactoring = ev.RefactorReverted(step=4, why="red", paths=["a.py"], tree="t0")
    assert taught(RED, GUESS, refactoring, SUM, KEPT, VERIFIED) == []


def test_a_run_that_failed_for_want_of_progress_teaches_a_dead_end_and_others_do_not() -> None:
    def end(reason: Reason) -> list[Learning]:
        return taught(RED, GUESS, REVERTED, ev.RunFailed(reason=reason, detail="d"))

    for reason in (Reason.NO_PROGRESS, Reason.BUDGET_SPENT, Reason.AGENT_REFUSED):
        assert [one.tags for one in end(reason)] == [["given-up"]]
    assert end(Reason.AUTH) == end(Reason.MISCONFIGURED) == []


def test_a_set_up_that_came_before_the_base_is_learnt_once() -> None:
    lost = ev.RunReturned(reason=Reason.WORKSPACE, detail="no space")
    base = ev.BaselineTaken(step=1, report=REPORT, tests=1, failing=[], tree="t")
    (one,) = taught(lost, base, base)
    assert one.content == "The tests of this project run only after a set-up. Without it: no space"
    assert taught(ev.RunReturned(reason=Reason.AUTH, detail="d"), base) == []


def test_a_learning_of_a_run_is_bounded_in_number() -> None:
    notes = [ev.LearningNoted(step=1, role="fixer", content=f"note {n}") for n in range(60)]
    assert [one.content for one in taught(*notes)] == [f"note {n}" for n in range(50)]
    assert taught(ev.LearningNoted(step=1, role="fixer", content=" \0 ")) == []


def test_what_an_agent_notes_ends_at_the_next_heading() -> None:
    for heading in ("# Learning", "## lessons:", "### LEARNINGS"):
        assert noted_learning(f"x\n{heading}\n\n a\nb \n# More\nc") == "a\nb"
    assert noted_learning("# Learnings of today\na") == noted_learning("") == ""
    assert len(noted_learning("# Lesson\n" + "x" * 2_000)) == 1_000


def test_a_trial_counts_failed_attempts_and_repeats_of_its_own_failure_only() -> None:
    other = replace(REVERTED, failures=["other"])
    failed = ev.AttemptFailed(step=4, reason=Reason.NO_PROGRESS, why="w")
    events = [RED, DELIVERED, GUESS, other, failed, GUESS, REVERTED, SUM, KEPT, VERIFIED]
    (one,) = derived(started(), *events).trials
    assert (one.attempts, one.reverts, one.repeats) == (4, 2, 1)
    assert (one.learning, one.run, one.arm, one.at) == ("l1", "run-1", TrialArm.PACKET, "2026-01-01T00:00:03Z")
    unnamed = derived(
        started(), RED, replace(DELIVERED, fingerprint=""), GUESS, replace(REVERTED, failures=[""]), SUM, KEPT, VERIFIED
    )
    assert unnamed.trials[0].repeats == 0
    (untried,) = derived(started(), RED, DELIVERED, KEPT, VERIFIED).trials
    assert (untried.attempts, untried.green) == (1, True)
