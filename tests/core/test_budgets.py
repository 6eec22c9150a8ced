"""Amounts are exact in units, and a reservation fits only below every cap."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ratchet.core.budget import KINDS, UNITS_MAX, Amount, BudgetScope, Cap, check_cap, from_units, overspent

UNITS = st.integers(0, 10**12)


@given(UNITS, UNITS, UNITS, UNITS)
def test_units_become_an_amount_and_the_amount_the_same_units(
    cost: int, tokens: int, seconds: int, iterations: int
) -> None:
    assert from_units(cost, tokens, seconds, iterations).units() == (cost, tokens, seconds, iterations)


def test_units_are_millionths_of_a_dollar_and_milliseconds_and_a_database_can_sum_them() -> None:
    assert Amount(cost_usd=1.25, tokens=7, seconds=2.5, iterations=3).units() == (1_250_000, 7, 2_500, 3)
    assert Amount(cost_usd=1e300, seconds=float("inf")).units() == (UNITS_MAX, 0, UNITS_MAX, 0)


@pytest.mark.parametrize("kind", KINDS)
def test_a_cap_may_be_reached_and_not_exceeded(kind: str) -> None:
    cap, used = Cap(**{kind: 10}), Amount(**{kind: 7})
    assert check_cap(Amount(**{kind: 3}), used, cap, BudgetScope.REPO) is None
    over = check_cap(Amount(**{kind: 4}), used, cap, BudgetScope.REPO)
    assert over and (over.scope, over.kind, over.cap, over.used, over.asked) == ("repo", kind, 10, 7, 4)


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_asked_of_a_kind_fits_even_if_its_cap_is_exceeded(kind: str) -> None:
    other = next(name for name in KINDS if name != kind)
    assert check_cap(Amount(**{other: 1}), Amount(**{kind: 11}), Cap(**{kind: 10}), BudgetScope.DAY) is None
    assert check_cap(Amount(**{kind: 1}), Amount(**{kind: 11}), Cap(**{kind: 10}), BudgetScope.DAY)


def test_without_a_cap_everything_fits_and_a_cap_of_nothing_lets_nothing_through() -> None:
    huge = Amount(cost_usd=1e9, tokens=10**9, seconds=1e9, iterations=10**9)
    assert check_cap(huge, huge, Cap(), BudgetScope.RUN) is None
    assert check_cap(Amount(tokens=1), Amount(), Cap(tokens=0), BudgetScope.RUN)


def test_the_second_kind_is_checked_although_the_first_fits() -> None:
    over = check_cap(Amount(cost_usd=1, iterations=2), Amount(), Cap(cost_usd=5, iterations=1), BudgetScope.ITEM)
    assert over and over.kind == "iterations"


@given(UNITS, UNITS, UNITS)
def test_what_fits_leaves_room_for_less(cap: int, used: int, asked: int) -> None:
    limit = Cap(cost_usd=cap / 1e6)
    fits = check_cap(from_units(asked, 0, 0, 0), from_units(used, 0, 0, 0), limit, BudgetScope.DAY) is None
    assert fits == (asked == 0 or used + asked <= cap)


def test_the_first_kind_that_exceeds_its_reservation_is_named() -> None:
    held = Amount(cost_usd=1, tokens=100, seconds=60, iterations=1)
    assert overspent(held, held) == overspent(Amount(), held) == ""
    for kind in KINDS:
        assert overspent(Amount(**{kind: getattr(held, kind) * 2}), held) == kind
    assert overspent(Amount(tokens=200, seconds=61), held) == "tokens"
