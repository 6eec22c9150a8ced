"""The hash chain of a ledger: each row's checksum covers the previous row, so edited or missing rows are detected."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import msgspec

GENESIS = "0" * 64
MESSAGE_MAX_BYTES = 262_144


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One row of a run's ledger, exactly as stored: `data` is the event's JSON, byte for byte."""

    run: str
    seq: int
    at: str
    epoch: int
    kind: str
    data: bytes
    prev: str
    sum: str


class FeedEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A ledger entry in the feed of all ledgers. Pass `place` to get the entries after it."""

    place: str
    entry: Entry


def seal(*, run: str, seq: int, at: str, epoch: int, kind: str, data: bytes, prev: str) -> Entry:
    entry = Entry(run=run, seq=seq, at=at, epoch=epoch, kind=kind, data=data, prev=prev, sum="")
    return msgspec.structs.replace(entry, sum=_sum(entry))


def _sum(row: Entry) -> str:
    # No field before `data` contains a newline, so different rows have different bytes.
    head = f"{row.prev}\n{row.run}\n{row.seq}\n{row.at}\n{row.epoch}\n{row.kind}\n"
    return hashlib.sha256(head.encode() + row.data).hexdigest()


class ChainBreak(msgspec.Struct, frozen=True, kw_only=True):
    """The first invalid row of a ledger."""

    seq: int
    why: str


def find_break(
    entries: Iterable[Entry], *, run: str, length: int, head: str, after: int = 0, prev: str = GENESIS
) -> ChainBreak | None:
    """Verify the rows of a run against its recorded `length` and `head`; return the first break.

    With `after`, only the rows that follow the row of this number, whose checksum is `prev`.
    """
    seen = after
    for entry in entries:
        seen += 1
        if why := _entry_error(entry, run=run, seq=seen, prev=prev):
            return ChainBreak(seq=entry.seq, why=why)
        prev = entry.sum
    if seen != length:
        return ChainBreak(seq=seen + 1, why=f"{length} rows were written, {seen} are here")
    if prev != head:
        return ChainBreak(seq=seen, why="the last row is not the one the run ends with")
    return None


def _entry_error(entry: Entry, *, run: str, seq: int, prev: str) -> str:
    if entry.run != run or entry.seq != seq:
        return f"expected row {seq} of {run}, found row {entry.seq} of {entry.run}"
    if entry.prev != prev:
        return "its link to the row before is wrong"
    if entry.sum != _sum(entry):
        return "its content was changed after it was written"
    return ""
