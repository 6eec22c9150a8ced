"""The ledger: durable appends against the disk's own floor, and the fold of a long run."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from bench import Row, medians
from ratchet.core import events as ev
from ratchet.core.item import Item
from ratchet.core.lease import Holder
from ratchet.store.sqlite.store import SqliteStore

EVENT = ev.StepResumed(step=1)


def main() -> list[Row]:
    with tempfile.TemporaryDirectory() as folder:
        return _measure(Path(folder))


def _measure(folder: Path) -> list[Row]:
    store = SqliteStore(folder / "ratchet.db")
    store.add(Item(id="i", repo="/r", spec="s", title="t", base_commit="c", slug="s", created_at="2026"))
    lease = store.claim("i", run="run-1", holder=Holder(worker="w", machine="m", pid=1, born="1"), ttl_s=3600)
    floor = os.open(folder / "floor", os.O_CREAT | os.O_WRONLY | os.O_APPEND)

    def fsync() -> None:
        os.write(floor, b"x" * 300)
        os.fdatasync(floor)

    taken = medians(
        300,
        floor=fsync,
        one=lambda: store.append(lease, [EVENT]),
        hundred=lambda: store.append(lease, [EVENT] * 100),
    )
    read = medians(5, read=lambda: store.entries("run-1"))["read"]
    rows = len(store.entries("run-1"))
    store.close()
    return [
        ("one durable append, against write + fdatasync", "x", taken["one"] / taken["floor"]),
        ("an event in a batch of 100, against a single append", "x faster", taken["one"] / (taken["hundred"] / 100)),
        ("reading and checking the chain", "events/s", rows / read),
    ]
