"""Names of items and runs."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from ratchet.core.item import name_of

_MOMENTS = st.datetimes(datetime(2000, 1, 1), datetime(2100, 1, 1)).map(lambda at: at.replace(tzinfo=UTC))


@given(_MOMENTS, st.integers(1, 10**9))
def test_what_was_made_later_is_named_later(at: datetime, later_ms: int) -> None:
    later = at + timedelta(milliseconds=later_ms)
    assert name_of("run", at, "ffffffff") < name_of("run", later, "00000000")


def test_a_name_tells_its_moment_and_what_makes_it_the_only_one() -> None:
    at = datetime(2026, 11, 16, 19, 24, 0, 258_000, tzinfo=UTC)
    assert name_of("item", at, "ab12cd34") == "item-20261116-192400-102ab12cd34"
