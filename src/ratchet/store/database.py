"""What the verbs are written against: a transaction that looks the same on every backend.

SQL is written once, with `?` for values and PostgreSQL's locking clauses. SQLite has one writer at a time, so there the
clauses are left off: what they ask for holds anyway.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from importlib.resources import files
from typing import Any, Protocol

from ratchet.core.lease import Holder
from ratchet.errors import StoreNewer

Row = Mapping[str, Any]


def utc_now() -> datetime:
    return datetime.now(UTC)


def stamp(at: datetime) -> str:
    """RFC 3339 in UTC, always as wide, so that text order is time order."""
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def local_midnight(at: datetime) -> datetime:
    return at.astimezone().replace(hour=0, minute=0, second=0, microsecond=0)


class Transaction(Protocol):
    def all(self, sql: str, *values: object) -> list[Row]: ...

    def one(self, sql: str, *values: object) -> Row | None: ...

    def run(self, sql: str, *values: object) -> int:
        """Returns how many rows it touched."""
        ...

    def many(self, sql: str, rows: Iterable[tuple[object, ...]]) -> None: ...

    def alone(self, what: str) -> None:
        """Wait until nobody else is in a transaction that asked for the same `what`."""
        ...


class Database:
    """A connection, a clock, and a way to see that a holder is dead, which frees its lease before it expires."""

    _clock: Callable[[], datetime]
    _gone: Callable[[Holder], bool]
    _midnight: Callable[[datetime], datetime] = staticmethod(local_midnight)
    _aging_s: float

    def _write(self) -> AbstractContextManager[Transaction]:
        raise NotImplementedError

    def _read(self) -> AbstractContextManager[Transaction]:
        raise NotImplementedError

    def close(self) -> None:
        raise NotImplementedError

    def _today(self) -> str:
        return stamp(self._midnight(self._clock()))


def scripts(backend: str) -> list[tuple[int, str]]:
    """The numbered migrations of a backend, in order."""
    folder = files("ratchet.store") / "sql" / backend
    found = sorted((f for f in folder.iterdir() if f.name.endswith(".sql")), key=lambda script: script.name)
    return [(int(script.name[:4]), script.read_text("utf-8")) for script in found]


def refuse_newer(where: str, version: int, newest: int) -> None:
    if version > newest:
        raise StoreNewer(
            f"{where} was written by a newer Ratchet (schema {version}, this one knows {newest})",
            hint="upgrade: pip install --upgrade ratchet-factory",
        )
