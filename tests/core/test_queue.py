"""Turns, rings, retries and budgets, as properties."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ratchet.core.budget import Amount, BudgetScope, Cap, OverBudget, check_cap, from_units
from ratchet.core.failure import Reason, counts_as_attempt
from ratchet.core.item import Priority
from ratchet.core.queue import find_cycle, queue_position
from ratchet.core.retry import DELAYS_S, IMMEDIATE_RETURNS, RETURNS_MAX, RetryAction, decide_retry

GRAPHS = st.dictionaries(st.sampled_from("abcde"), st.lists(st.sampled_from("abcde"), unique=True, max_size=3))
UNITS = st.integers(0, 10**9)


@given(GRAPHS)
def test_a_ring_is_found_exactly_when_there_is_no_order(needs: dict[str, list[str]]) -> None:
    left = {name: set(rest) & set(needs) for name, rest in needs.items()}
    while ready := [name for name, rest in left.items() if not rest]:
        left = {name: rest - set(ready) for name, rest in left.items() if name not in ready}
    ring = find_cycle(needs)
    assert bool(ring) is bool(left)
    assert all(after in needs[before] for before, after in pairwise(ring))
    assert not ring or ring[0] == ring[-1]


@given(st.sampled_from(list(Priority)), st.floats(0, 2e9), st.floats(1, 1e6))
def test_a_step_of_priority_is_worth_just_so_much_waiting(priority: Priority, at: float, aging_s: float) -> None:
    later = queue_position(at + aging_s * 3 + 1, Priority.CRITICAL, aging_s=aging_s)
    assert queue_position(at, priority, aging_s=aging_s) < later
    assert queue_position(at, Priority.CRITICAL, aging_s=0) < queue_position(0, Priority.HIGH, aging_s=0)


@given(st.lists(st.sampled_from(list(Reason)), min_size=40, max_size=40))
def test_no_history_of_failures_is_retried_for_ever(reasons: list[Reason]) -> None:
    attempts = returns = 0
    for reason in reasons:
        after = decide_retry(reason, attempts=attempts, returns=returns)
        assert after.attempts == attempts + counts_as_attempt(reason)
        if after.after is not RetryAction.RETRY:
            break
        attempts, returns = after.attempts, after.returns
    assert after.after is not RetryAction.RETRY and after.returns <= RETURNS_MAX + 1


@given(UNITS, UNITS, UNITS)
def test_a_reservation_fits_exactly_up_to_the_cap(asked: int, used: int, cap: int) -> None:
    over = check_cap(from_units(0, asked, 0, 0), from_units(0, used, 0, 0), Cap(tokens=cap), BudgetScope.DAY)
    assert bool(over) is (asked > 0 and asked + used > cap)


@given(UNITS, UNITS)
def test_amounts_survive_their_units(cost: int, milliseconds: int) -> None:
    assert from_units(cost, 1, milliseconds, 2).units() == (cost, 1, milliseconds, 2)
    assert Amount(cost_usd=0.1).units()[0] * 3 == Amount(cost_usd=0.3).units()[0]


def test_a_run_that_lost_one_worker_too_many_waits_the_shortest_time_first() -> None:
    waits = [
        decide_retry(Reason.WORKER_LOST, attempts=0, returns=before).delay_s for before in range(IMMEDIATE_RETURNS + 4)
    ]
    assert waits == [*[0.0] * IMMEDIATE_RETURNS, *DELAYS_S, DELAYS_S[-1]]


@pytest.mark.parametrize(
    ("reason", "attempts", "returns", "expected"),
    [
        (Reason.NO_PROGRESS, 0, 0, (RetryAction.RETRY, 60.0, 1, 1)),
        (Reason.NO_PROGRESS, 2, 7, (RetryAction.RETRY, 1800.0, 3, 8)),
        (Reason.NO_PROGRESS, 3, 3, (RetryAction.FAIL, 0.0, 4, 4)),
        (Reason.BUDGET_SPENT, 0, 0, (RetryAction.FAIL, 0.0, 1, 1)),
        (Reason.WORKER_LOST, 1, IMMEDIATE_RETURNS - 1, (RetryAction.RETRY, 0.0, 1, IMMEDIATE_RETURNS)),
        (Reason.RATE_LIMITED, 0, 0, (RetryAction.RETRY, 60.0, 0, 1)),
        (Reason.RATE_LIMITED, 0, RETURNS_MAX - 1, (RetryAction.RETRY, 1800.0, 0, RETURNS_MAX)),
        (Reason.RATE_LIMITED, 0, RETURNS_MAX, (RetryAction.PARK, 0.0, 0, RETURNS_MAX + 1)),
    ],
)
def test_what_becomes_of_a_run_that_was_given_up(
    reason: Reason, attempts: int, returns: int, expected: tuple[RetryAction, float, int, int]
) -> None:
    decided = decide_retry(reason, attempts=attempts, returns=returns)
    assert (decided.after, decided.delay_s, decided.attempts, decided.returns) == expected


def test_a_refused_reservation_says_what_was_asked_used_and_allowed() -> None:
    over = check_cap(Amount(tokens=6), Amount(tokens=5), Cap(tokens=10), BudgetScope.REPO)
    assert over == OverBudget(scope=BudgetScope.REPO, kind="tokens", cap=10, used=5, asked=6.0)
