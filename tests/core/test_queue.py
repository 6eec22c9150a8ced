"""Turns, rings, retries and budgets, as properties."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from ratchet.core.budget import Amount, Cap, Scope, amount, refusal
from ratchet.core.failure import Reason, counts_as_attempt
from ratchet.core.item import Priority
from ratchet.core.queue import cycle, turn
from ratchet.core.retry import DELAYS_S, FREE_RETURNS, RETURNS_MAX, After, retry

GRAPHS = st.dictionaries(st.sampled_from("abcde"), st.lists(st.sampled_from("abcde"), unique=True, max_size=3))
UNITS = st.integers(0, 10**9)


@given(GRAPHS)
def test_a_ring_is_found_exactly_when_there_is_no_order(needs: dict[str, list[str]]) -> None:
    left = {name: set(rest) & set(needs) for name, rest in needs.items()}
    while ready := [name for name, rest in left.items() if not rest]:
        left = {name: rest - set(ready) for name, rest in left.items() if name not in ready}
    ring = cycle(needs)
    assert bool(ring) is bool(left)
    assert all(after in needs[before] for before, after in pairwise(ring))
    assert not ring or ring[0] == ring[-1]


@given(st.sampled_from(list(Priority)), st.floats(0, 2e9), st.floats(1, 1e6))
def test_a_step_of_priority_is_worth_just_so_much_waiting(priority: Priority, at: float, aging_s: float) -> None:
    later = turn(at + aging_s * 3 + 1, Priority.CRITICAL, aging_s=aging_s)
    assert turn(at, priority, aging_s=aging_s) < later
    assert turn(at, Priority.CRITICAL, aging_s=0) < turn(0, Priority.HIGH, aging_s=0)


@given(st.lists(st.sampled_from(list(Reason)), min_size=40, max_size=40))
def test_no_history_of_failures_is_retried_for_ever(reasons: list[Reason]) -> None:
    attempts = returns = 0
    for reason in reasons:
        after = retry(reason, attempts=attempts, returns=returns)
        assert after.attempts == attempts + counts_as_attempt(reason)
        if after.after is not After.RETRY:
            break
        attempts, returns = after.attempts, after.returns
    assert after.after is not After.RETRY and after.returns <= RETURNS_MAX + 1


@given(UNITS, UNITS, UNITS)
def test_a_reservation_fits_exactly_up_to_the_cap(asked: int, used: int, cap: int) -> None:
    over = refusal(amount(0, asked, 0, 0), amount(0, used, 0, 0), Cap(tokens=cap), Scope.DAY)
    assert bool(over) is (asked > 0 and asked + used > cap)


@given(UNITS, UNITS)
def test_amounts_survive_their_units(cost: int, milliseconds: int) -> None:
    assert amount(cost, 1, milliseconds, 2).units() == (cost, 1, milliseconds, 2)
    assert Amount(cost_usd=0.1).units()[0] * 3 == Amount(cost_usd=0.3).units()[0]


def test_a_run_that_lost_one_worker_too_many_waits_the_shortest_time_first() -> None:
    waits = [retry(Reason.WORKER_LOST, attempts=0, returns=before).delay_s for before in range(FREE_RETURNS + 4)]
    assert waits == [*[0.0] * FREE_RETURNS, *DELAYS_S, DELAYS_S[-1]]
