"""The hash chain."""

from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from ratchet.core.ledger import GENESIS, Entry, find_break, seal


def chain(contents: list[bytes]) -> list[Entry]:
    entries: list[Entry] = []
    for seq, data in enumerate(contents, start=1):
        prev = entries[-1].sum if entries else GENESIS
        entries.append(seal(run="run-1", seq=seq, at="2026-01-01", epoch=1, kind="x", data=data, prev=prev))
    return entries


def broken(entries: list[Entry], whole: list[Entry]) -> int | None:
    found = find_break(entries, run="run-1", length=len(whole), head=whole[-1].sum if whole else GENESIS)
    return found.seq if found else None


contents = st.lists(st.binary(max_size=40), min_size=1, max_size=12)


@given(contents)
def test_an_untouched_chain_holds(rows: list[bytes]) -> None:
    whole = chain(rows)
    assert broken(whole, whole) is None


@given(contents, st.data())
def test_an_edited_row_is_named(rows: list[bytes], data: st.DataObject) -> None:
    whole = chain(rows)
    place = data.draw(st.integers(0, len(whole) - 1))
    field, value = data.draw(
        st.sampled_from([("data", b"forged"), ("kind", "y"), ("at", "2027-01-01"), ("epoch", 2), ("prev", "f" * 64)])
    )
    edited = [*whole]
    edited[place] = msgspec.structs.replace(edited[place], **{field: value})
    if edited[place] != whole[place]:
        assert broken(edited, whole) == place + 1


@given(contents, st.data())
def test_a_dropped_row_is_noticed_wherever_it_was(rows: list[bytes], data: st.DataObject) -> None:
    whole = chain(rows)
    place = data.draw(st.integers(0, len(whole) - 1))
    assert broken(whole[:place] + whole[place + 1 :], whole) is not None


@given(contents)
def test_a_row_rewritten_with_a_fresh_sum_breaks_the_row_after_it_or_the_head(rows: list[bytes]) -> None:
    whole = chain(rows)
    forged = seal(run="run-1", seq=1, at="2026-01-01", epoch=1, kind="x", data=b"forged!", prev=GENESIS)
    if forged != whole[0]:
        assert broken([forged, *whole[1:]], whole) is not None
