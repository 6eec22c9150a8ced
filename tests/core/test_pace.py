"""Additive up, multiplicative down."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ratchet.core.pace import Pace, eased, refused

START = Pace(limit=16, at=0.0)


def test_a_refusal_halves_and_every_quiet_interval_gives_one_back() -> None:
    pace = refused(START, began=1.0, now=5.0)
    assert pace.limit == 8
    assert eased(pace, now=5.0 + 59, top=16, quiet_s=60).limit == 8
    assert eased(pace, now=5.0 + 60, top=16, quiet_s=60).limit == 9
    assert eased(pace, now=5.0 + 185, top=16, quiet_s=60) == Pace(limit=11, at=185.0, refused_at=5.0)


def test_those_who_were_asked_before_it_was_halved_do_not_halve_it_again() -> None:
    pace = refused(START, began=1.0, now=5.0)
    assert refused(pace, began=4.0, now=6.0) == pace
    assert refused(pace, began=5.5, now=6.0).limit == 4


@given(st.lists(st.tuples(st.booleans(), st.floats(min_value=0.1, max_value=500)), max_size=30))
def test_it_is_never_less_than_one_and_never_more_than_the_top(story: list[tuple[bool, float]]) -> None:
    pace, now = START, 0.0
    for was_refused, passed in story:
        now += passed
        pace = eased(pace, now=now, top=16, quiet_s=60)
        pace = refused(pace, began=now - 0.05, now=now) if was_refused else pace
        assert 1 <= pace.limit <= 16 and pace.at <= now
