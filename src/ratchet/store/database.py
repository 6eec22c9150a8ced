"""What the verbs are written against: a transaction that looks the same on every backend.

SQL is written once, with `?` for values and PostgreSQL's locking clauses. SQLite has one writer at a time, so there the
clauses are left off: what they ask for holds anyway.

A verb is one transaction, and may be done more than once: after a deadlock, a server's restart, a lost connection. So
what it makes up comes from `db.key` (ids, tokens) and `db.began_at` (the time in its events), the same each time; and
when an earlier try may have been committed without our hearing so, `db.doubt` tells it to look first.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from datetime import time as clock_time
from functools import wraps
from importlib.resources import files
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

from ratchet.core.lease import Holder
from ratchet.core.ledger import Entry
from ratchet.core.signal import Topic
from ratchet.errors import StoreNewer

Row = Mapping[str, Any]
P = ParamSpec("P")
T = TypeVar("T")
S = TypeVar("S", bound="Database")
_NAME_CHARS, _SECRET_BYTES = 20, 30


def utc_now() -> datetime:
    return datetime.now(UTC)


def new_key() -> str:
    """What a verb makes its ids and tokens of. It begins with the time: rows made together lie together on the disk."""
    return f"{time.time_ns() // 1_000_000:012x}{secrets.token_hex(4 + _SECRET_BYTES)}"


def name_in(key: str) -> str:
    """The part of a key that everybody may see, and that is in no other."""
    return key[:_NAME_CHARS]


def stamp(at: datetime) -> str:
    """RFC 3339 in UTC, always as wide, so that text order is time order."""
    return f"{at.astimezone(UTC).isoformat(timespec='microseconds')[:26]}Z"


def local_midnight(at: datetime, *, days: int = 0) -> datetime:
    """When the day began that `at` is in here, or one so many days later. Not every day has 24 hours."""
    return datetime.combine(at.astimezone().date() + timedelta(days=days), clock_time()).astimezone()


class Single(Protocol):
    """A statement that is its own transaction; there can be a second only when the first found nothing to do."""

    key: str
    began_at: str
    doubt: bool

    def one(self, sql: str, *values: object) -> Row | None: ...


class Transaction(Single, Protocol):
    def all(self, sql: str, *values: object) -> list[Row]: ...

    def run(self, sql: str, *values: object) -> int:
        """Returns how many rows it touched."""
        ...

    def many(self, sql: str, rows: Iterable[tuple[object, ...]]) -> None: ...

    def add(self, entries: Sequence[Entry]) -> None:
        """To the events, all at once."""
        ...

    def hold(self, sql: str, *values: object) -> None:
        """Lock what the statement finds until this is over, where others could write meanwhile."""
        ...

    def alone(self, what: str) -> None:
        """Wait until nobody else is in a transaction that asked for the same `what`."""
        ...

    def tell(self, topic: Topic) -> None:
        """Wake who listens, once this is committed."""
        ...


class Database:
    """Connections, a clock, and a way to see that a holder is dead, which frees its lease before it expires."""

    _clock: Callable[[], datetime]
    _gone: Callable[[Holder], bool]
    _aging_s: float

    def _write(self, act: Callable[[Transaction], T], *, durable: bool = True) -> T:
        """Not `durable` is for what is said again in seconds: it does not wait for the disk."""
        raise NotImplementedError

    def _read(self, act: Callable[[Transaction], T]) -> T:
        raise NotImplementedError

    def close(self) -> None:
        raise NotImplementedError

    def _today(self) -> str:
        return stamp(local_midnight(self._clock()))


def writes(verb: Callable[Concatenate[S, Transaction, P], T]) -> Callable[Concatenate[S, P], T]:
    """The verb is one durable transaction: all of it or, when it raises, nothing."""

    @wraps(verb)
    def call(self: S, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._write(lambda db: verb(self, db, *args, **kwargs))

    return call


def reads(verb: Callable[Concatenate[S, Transaction, P], T]) -> Callable[Concatenate[S, P], T]:
    """The verb only looks, at one moment."""

    @wraps(verb)
    def call(self: S, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._read(lambda db: verb(self, db, *args, **kwargs))

    return call


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
