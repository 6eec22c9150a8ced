"""Additive up, multiplicative down."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ratchet.core.rate_limit import ConcurrencyLimit, halve_limit, raise_limit

START = ConcurrencyLimit(limit=16, at=0.0)


def test_a_refusal_halves_and_every_quiet_interval_gives_one_back() -> None:
    pace = halve_limit(START, began=1.0, now=5.0)
    assert pace.limit == 8
    assert raise_limit(pace, now=5.0 + 59, top=16, quiet_s=60).limit == 8
    assert raise_limit(pace, now=5.0 + 60, top=16, quiet_s=60).limit == 9
    assert raise_limit(pace, now=5.0 + 185, top=16, quiet_s=60) == ConcurrencyLimit(limit=11, at=185.0, refused_at=5.0)


def test_requests_that_started_before_the_limit_was_halved_do_not_halve_it_again() -> None:
    pace = halve_limit(START, began=1.0, now=5.0)
    assert halve_limit(pace, began=4.0, now=6.0) == pace
    assert halve_limit(pace, began=5.5, now=6.0).limit == 4


@given(st.lists(st.tuples(st.booleans(), st.floats(min_value=0.1, max_value=500)), max_size=30))
def test_it_is_never_less_than_one_and_never_more_than_the_top(story: list[tuple[bool, float]]) -> None:
    pace, now = START, 0.0
    for was_refused, passed in story:
        now += passed
        pace = raise_limit(pace, now=now, top=16, quiet_s=60)
        pace = halve_limit(pace, began=now - 0.05, now=now) if was_refused else pace
        assert 1 <= pace.limit <= 16 and pace.at <= now


def test_a_limit_of_one_stays_one_and_an_odd_one_is_rounded_down() -> None:
    limits = [halve_limit(ConcurrencyLimit(limit=n, at=0.0), began=1.0, now=2.0).limit for n in (1, 2, 3, 5)]
    assert limits == [1, 1, 1, 2]


def test_a_request_that_began_when_the_limit_was_halved_is_no_new_refusal() -> None:
    pace = halve_limit(START, began=1.0, now=5.0)
    assert halve_limit(pace, began=5.0, now=6.0) == pace


def test_a_top_that_was_lowered_holds_at_once() -> None:
    assert raise_limit(START, now=1.0, top=4, quiet_s=60) == ConcurrencyLimit(limit=4, at=0.0)
    assert raise_limit(START, now=61.0, top=4, quiet_s=60) == ConcurrencyLimit(limit=4, at=60.0)


def test_a_clock_that_goes_back_raises_nothing() -> None:
    pace = ConcurrencyLimit(limit=2, at=100.0)
    assert raise_limit(pace, now=10.0, top=16, quiet_s=60) == pace
