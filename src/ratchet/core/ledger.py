"""The hash chain: each row's sum covers the row before it, so no row can be edited, torn or dropped unseen."""

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


class Told(msgspec.Struct, frozen=True, kw_only=True):
    """A row as the feed of all ledgers tells it; `place` asks for what comes after it."""

    place: str
    entry: Entry


def seal(*, run: str, seq: int, at: str, epoch: int, kind: str, data: bytes, prev: str) -> Entry:
    entry = Entry(run=run, seq=seq, at=at, epoch=epoch, kind=kind, data=data, prev=prev, sum="")
    return msgspec.structs.replace(entry, sum=_sum(entry))


def _sum(row: Entry) -> str:
    # None of the fields before `data` can hold a newline, so no two rows have the same bytes.
    head = f"{row.prev}\n{row.run}\n{row.seq}\n{row.at}\n{row.epoch}\n{row.kind}\n"
    return hashlib.sha256(head.encode() + row.data).hexdigest()


class Break(msgspec.Struct, frozen=True, kw_only=True):
    """The first row that does not hold."""

    seq: int
    why: str


def first_break(entries: Iterable[Entry], *, run: str, length: int, head: str) -> Break | None:
    """Walk a run's rows; `length` and `head` are what the run itself says it ends with."""
    prev, seen = GENESIS, 0
    for entry in entries:
        seen += 1
        if why := _fault(entry, run=run, seq=seen, prev=prev):
            return Break(seq=entry.seq, why=why)
        prev = entry.sum
    if seen != length:
        return Break(seq=seen + 1, why=f"{length} rows were written, {seen} are here")
    if prev != head:
        return Break(seq=seen, why="the last row is not the one the run ends with")
    return None


def _fault(entry: Entry, *, run: str, seq: int, prev: str) -> str:
    if entry.run != run or entry.seq != seq:
        return f"expected row {seq} of {run}, found row {entry.seq} of {entry.run}"
    if entry.prev != prev:
        return "its link to the row before is wrong"
    if entry.sum != _sum(entry):
        return "its content was changed after it was written"
    return ""
