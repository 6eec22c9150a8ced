"""Learnings on every backend: appended, merged, found by failure, words and meaning, and retired."""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor

import pytest

from ratchet.core.learning import (
    Learning,
    LearningKind,
    LearningSource,
    LearningTrial,
    LearningVector,
    TrialArm,
    learning_id,
)
from ratchet.errors import NotFound, UsageError
from ratchet.store.protocols import Store
from tests.contract.test_queue import finish, named, take

SHORT = "A lock file that is older than the manifest makes the set-up fail: run the lock command first."


def lesson(content: str, *, repo: str = "/r", **fields: object) -> Learning:
    given = {"id": learning_id(repo, content), "created_at": "2026-01-01T00:00:00Z"} | fields
    return Learning(repo=repo, content=content, **given)  # type: ignore[arg-type]


def needs_vectors(store: Store) -> None:
    if why := store.vector_search_error():
        pytest.skip(why)


def test_a_near_identical_learning_is_merged_and_counted_by_run(store: Store) -> None:
    first = store.add_learning(lesson(SHORT, run="run-1", seq=3))
    again = store.add_learning(lesson(SHORT.replace("older", "Older"), run="run-2", seq=9))
    assert again.id == first.id and (first.seen, again.seen) == (1, 2)
    assert [one.id for one in store.learnings("/r")] == [first.id] == [one.id for one in store.learnings(query="lock")]
    kept = store.learning(learning_id("/r", SHORT.replace("older", "Older")))
    assert kept.merged_into == first.id and kept.run == "run-2"
    assert store.add_learning(lesson(SHORT, repo="/other")).id != first.id


def test_a_candidate_becomes_a_lesson_when_a_second_run_confirms_it(store: Store) -> None:
    one = lesson(SHORT, kind=LearningKind.CANDIDATE, source=LearningSource.AGENT, run="run-1", seq=1)
    assert store.add_learning(one).kind is LearningKind.CANDIDATE
    assert store.add_learning(one).kind is LearningKind.CANDIDATE
    again = Learning(**{name: getattr(one, name) for name in one.__struct_fields__} | {"run": "run-2", "id": "x"})
    assert store.add_learning(again).kind is LearningKind.LESSON


def test_a_dead_end_is_not_merged_into_a_lesson(store: Store) -> None:
    store.add_learning(lesson(SHORT))
    dead = store.add_learning(lesson(f"{SHORT} ", kind=LearningKind.DEAD_END))
    assert not dead.merged_into and len(store.learnings()) == 2


def test_what_was_retired_is_not_learnt_again_and_keeps_its_record(store: Store) -> None:
    one = store.add_learning(lesson(SHORT))
    gone = store.retire_learning(one.id, by="alice", why="wrong")
    assert (gone.retired_by, gone.retired_why) == ("alice", "wrong")
    assert store.retire_learning(one.id, by="bob", why="again").retired_by == "alice"
    assert store.add_learning(lesson(f"{SHORT}!", run="run-7")).retired_at and store.learnings() == []
    assert [each.id for each in store.learnings(retired=True)] == [one.id]
    with pytest.raises(NotFound):
        store.learning("nothing")


def test_learnings_are_filtered_by_repository_spec_and_tag(store: Store) -> None:
    store.add_learnings(
        [
            lesson("the parser wants a newline", spec="specs/parser-2.md", tags=["parser", "text"]),
            lesson("the printer wants a newline as well, says its driver", spec="specs/print.md", tags=["parse"]),
            lesson("everybody wants a newline at the end of each file", repo="", tags=["text"]),
        ]
    )

    def found(repo: str = "", **asked: str) -> set[str]:
        return {one.content.split()[1] for one in store.learnings(repo, **asked)}  # type: ignore[arg-type]

    assert found(spec="parser-") == {"parser"} == found(tag="parser") == found(query="newline", tag="parser")
    assert found("/other", query="newline") == {"wants"} == found("/other")
    assert found("/r", query="newline") == {"parser", "printer", "wants"}
    assert found(query="newline", spec="%") == set() == found(tag="pars")


def test_learnings_about_a_failure_are_found_by_its_fingerprint(store: Store) -> None:
    one = store.add_learning(lesson(SHORT, fingerprints=["f1", "f2"]))
    other = store.add_learning(lesson("Quite another thing happened here, with other words", fingerprints=["f2"]))
    assert [each.id for each in store.learnings_of_failures("/r", ["f1"])] == [one.id]
    store.rate_learnings({other.id: 0.4})
    assert [each.id for each in store.learnings_of_failures("/r", ["f2", "f1"])] == [other.id, one.id]
    store.retire_learning(other.id)
    assert [each.id for each in store.learnings_of_failures("/r", ["f2"])] == [one.id]
    assert store.learnings_of_failures("/other", ["f1"]) == []


def test_a_search_with_a_vector_finds_what_shares_no_word(store: Store) -> None:
    needs_vectors(store)
    near, far = store.add_learning(lesson("alpha beta")), store.add_learning(lesson("gamma delta"))
    assert [one.id for one in store.learnings_without_vector("tiny")] == sorted([near.id, far.id], reverse=True)
    store.add_learning_vectors("tiny", [LearningVector(learning=near.id, vector=[0.0, 2.0])])
    store.add_learning_vectors("tiny", [LearningVector(learning=far.id, vector=[1.0, 0.0])])
    assert store.learnings_without_vector("tiny") == []
    found = store.learnings("/r", query="unheard", vector=[0.1, 0.9], embedder="tiny")
    assert [one.id for one in found] == [near.id, far.id]
    assert [one.id for one in store.learnings(vector=[1, 0], embedder="tiny", limit=1)] == [far.id]
    assert store.learnings(query="unheard", vector=[0.1, 0.9], embedder="unknown") == []
    store.retire_learning(near.id)
    assert [one.id for one in store.learnings("/r", vector=[0.1, 0.9], embedder="tiny")] == [far.id]
    assert store.learnings("/other", vector=[0.1, 0.9], embedder="tiny") == []


@pytest.mark.parametrize("dimensions", [256, 1536, 3072])
def test_vectors_of_any_dimension_are_searched(store: Store, dimensions: int) -> None:
    needs_vectors(store)
    kept = store.add_learnings([lesson(word) for word in ("one", "two", "three")])
    vectors = [[math.sin(at * (n + 1.5)) for at in range(dimensions)] for n in range(3)]
    given = [LearningVector(learning=one.id, vector=vector) for one, vector in zip(kept, vectors, strict=True)]
    store.add_learning_vectors("wide", given)
    for one, vector in zip(kept, vectors, strict=True):
        assert store.learnings(vector=vector, embedder="wide", limit=1)[0].id == one.id


def test_bad_input_is_refused_with_a_reason(store: Store) -> None:
    for content, why in [("", "empty"), (" \n", "empty"), ("x" * 1_000_000, "1,000,000"), ("a\x1b[2J", "U\\+001B")]:
        with pytest.raises(UsageError, match=why):
            store.add_learning(lesson(content))
    for fields in ({"spec": "a\0b"}, {"tags": ["a\x1b[2J"]}, {"run": "a\x9b"}, {"spec": "a\u202eb"}):
        with pytest.raises(UsageError, match="control character"):
            store.add_learning(lesson("fine", **fields))
    with pytest.raises(UsageError, match="NUL"):
        store.add_learning(lesson("fine", repo="/r\0"))
    with pytest.raises(UsageError, match="ledger entry"):
        store.add_learning(lesson("fine", seq=2**70))
    with pytest.raises(UsageError, match="reason has a control character"):
        store.retire_learning(store.add_learning(lesson("in use")).id, why="\x1b[2J")
    needs_vectors(store)
    one = store.add_learning(lesson("fine"))
    store.add_learning_vectors("tiny", [LearningVector(learning=one.id, vector=[1.0, 0.0])])
    with pytest.raises(UsageError, match="has 2 dimensions, and this vector has 3"):
        store.add_learning_vectors("tiny", [LearningVector(learning=one.id, vector=[1.0, 0.0, 0.0])])
    with pytest.raises(UsageError, match="has 2 dimensions"):
        store.learnings(vector=[1.0], embedder="tiny")
    with pytest.raises(UsageError, match="dimension"):
        store.add_learning_vectors("", [LearningVector(learning=one.id, vector=[])])
    with pytest.raises(NotFound):
        store.add_learning_vectors("tiny", [LearningVector(learning="nothing", vector=[1.0, 0.0])])


def test_all_learnings_are_read_in_pages_newest_first(store: Store) -> None:
    times = ["2026-01-01", "2026-01-02", "2026-01-02", "2026-01-03"]
    made = [store.add_learning(lesson(f"{word} needs a lock", created_at=time))
            for word, time in zip(("cache", "parser", "network", "store"), times, strict=True)]  # fmt: skip
    store.add_learning(lesson("not of this repository", repo="/other"))
    store.retire_learning(store.add_learning(lesson("wrong from the start")).id)
    pages = [store.older_learnings("/r", limit=3)]
    pages.append(store.older_learnings("/r", than=pages[0][-1].id, limit=3))
    ordered = sorted(made, key=lambda one: (one.created_at, one.id), reverse=True)
    assert [[one.id for one in page] for page in pages] == [[o.id for o in ordered[:3]], [ordered[3].id]]
    assert store.older_learnings("/r", than=ordered[3].id) == [] and len(store.older_learnings()) == 5


def test_a_key_in_a_learning_is_redacted_before_it_is_stored(store: Store) -> None:
    key = "ghp_" + "a1B2" * 9
    kept = store.add_learning(lesson(f"push with {key} in the header", id="k"))
    assert key not in kept.content and "[redacted]" in kept.content


def test_concurrent_writers_store_one_learning(store: Store) -> None:
    with ThreadPoolExecutor(4) as threads:
        kept = list(threads.map(lambda n: store.add_learning(lesson(f"{SHORT} {'!' * n}", run=f"run-{n}")), range(8)))
    assert len({one.id for one in kept}) == 1 == len(store.learnings()) and store.learnings()[0].seen == 8


def test_what_a_run_taught_is_written_once_and_its_trials_are_summed(store: Store) -> None:
    one, arms = lesson(SHORT, run="run-1", seq=3), (TrialArm.PACKET, TrialArm.HELD_OUT)
    drawn = [("run-2", 1, TrialArm.PACKET), ("run-3", 2, TrialArm.PACKET), ("run-4", 2, TrialArm.HELD_OUT)]
    trials = [
        LearningTrial(learning=one.id, run=run, seq=7, arm=arm, attempts=attempts, cost_usd=0.5, green=True)
        for run, attempts, arm in drawn
    ]
    for _ in range(2):
        (kept,) = store.learn_run("run-1", [one], [])
        store.learn_run("run-2", [], trials)
    assert (kept.id, kept.seen) == (one.id, 1) and len(store.learnings("/r")) == 1
    sums = {row.arm: row for row in store.trial_sums("/r")}
    assert [(sums[arm].trials, sums[arm].sums["attempts"], sums[arm].squares["attempts"]) for arm in arms] == [
        (2, 3.0, 5.0),
        (1, 2.0, 4.0),
    ]
    assert sums[TrialArm.PACKET].sums["cost_usd"] == 1.0 and sums[TrialArm.PACKET].green == 2
    assert store.trial_sums("/elsewhere") == [] and not sums[TrialArm.PACKET].retired
    store.retire_learning(one.id)
    assert all(row.retired for row in store.trial_sums())


def test_only_finished_runs_are_read_for_learnings_and_each_once(store: Store) -> None:
    store.add(named("1"))
    store.add(named("2"))
    lease, _ = take(store, "1"), take(store, "2")
    assert store.unlearnt_runs() == []
    finish(store, lease)
    assert store.unlearnt_runs() == [lease.run]
    store.learn_run(lease.run, [], [])
    assert store.unlearnt_runs() == []
