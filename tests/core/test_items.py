"""Names of items and runs."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from ratchet.core.item import front_matter_labels, new_id

_MOMENTS = st.datetimes(datetime(2000, 1, 1), datetime(2100, 1, 1)).map(lambda at: at.replace(tzinfo=UTC))


@given(_MOMENTS, st.integers(1, 10**9))
def test_what_was_made_later_is_named_later(at: datetime, later_ms: int) -> None:
    later = at + timedelta(milliseconds=later_ms)
    assert new_id("run", at, "ffffffff") < new_id("run", later, "00000000")


def test_an_id_holds_its_time_and_is_unique() -> None:
    at = datetime(2026, 11, 16, 19, 24, 0, 258_000, tzinfo=UTC)
    assert new_id("item", at, "ab12cd34") == "item-20261116-192400-102ab12cd34"


def test_required_labels_in_front_matter_are_taken_off_the_spec() -> None:
    assert front_matter_labels("---\nrequire_labels: gpu, arm64\n---\n\n# Do it\n") == (["arm64", "gpu"], "# Do it\n")
    for plain in ("# Do it\n", "---\ntitle: x\n---\n# Do it\n"):
        assert front_matter_labels(plain) == ([], plain)
