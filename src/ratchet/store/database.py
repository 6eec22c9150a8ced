"""The transaction interface that all store verbs use, the same on every backend.

SQL is written once, with `?` placeholders and PostgreSQL's locking clauses. SQLite has a single writer, so its backend
strips the clauses: the guarantee holds without them.

A verb is one transaction and may be executed more than once: after a deadlock, a server restart or a lost connection.
Generated values therefore come from `db.key` (ids, tokens) and `db.began_at` (event times), which are the same in each
attempt. When an earlier attempt may have been committed without an acknowledgement, `db.maybe_committed` is true and
the verb checks for its own result first.
"""

from __future__ import annotations

import hashlib
import secrets
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from datetime import time as clock_time
from functools import wraps
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

from ratchet.core.lease import Holder
from ratchet.core.ledger import Entry
from ratchet.core.signal import Topic
from ratchet.core.timestamps import format_timestamp
from ratchet.errors import StoreNewer
from ratchet.store.redis_gate import NO_GATE, AdmissionGate

Row = Mapping[str, Any]
P = ParamSpec("P")
T = TypeVar("T")
S = TypeVar("S", bound="Database")
_NAME_CHARS, _SECRET_BYTES = 20, 30


def utc_now() -> datetime:
    return datetime.now(UTC)


def new_key() -> str:
    """Generate the key from which a verb derives ids and tokens. It starts with the time, so that rows created together
    are stored together."""
    return f"{time.time_ns() // 1_000_000:012x}{secrets.token_hex(4 + _SECRET_BYTES)}"


def claim_key(request_key: str) -> str:
    """Derive the key of a claim from a secret that its caller chose, so that a repeated claim finds its lease."""
    return hashlib.sha256(f"ratchet claim {request_key}".encode()).hexdigest()


def public_part(key: str) -> str:
    """Return the unique, non-secret prefix of a key."""
    return key[:_NAME_CHARS]


def local_midnight(at: datetime, *, days: int = 0) -> datetime:
    """Return the local midnight before `at`, or the one `days` later (days may have 23 or 25 hours)."""
    return datetime.combine(at.astimezone().date() + timedelta(days=days), clock_time()).astimezone()


class SingleStatement(Protocol):
    """One statement as its own transaction. A second statement is allowed only if the first changed nothing."""

    key: str
    began_at: str
    maybe_committed: bool

    def fetch_one(self, sql: str, *values: object) -> Row | None: ...


class Transaction(SingleStatement, Protocol):
    def fetch_all(self, sql: str, *values: object) -> list[Row]: ...

    def execute(self, sql: str, *values: object) -> int:
        """Return the number of affected rows."""
        ...

    def execute_many(self, sql: str, rows: Iterable[tuple[object, ...]]) -> None: ...

    def insert_events(self, entries: Sequence[Entry]) -> None:
        """Insert ledger entries in one statement."""
        ...

    def lock_rows(self, sql: str, *values: object) -> None:
        """Lock the selected rows until the transaction ends. Does nothing where there is a single writer."""
        ...

    def advisory_lock(self, name: str) -> None:
        """Serialise all transactions that take the advisory lock `name`."""
        ...

    def notify(self, topic: Topic) -> None:
        """Wake the listeners of a topic after the commit."""
        ...


class Database:
    """Base of the store mixins: connections, a clock, and a check for dead holders, whose leases end early."""

    _clock: Callable[[], datetime]
    _is_dead: Callable[[Holder], bool]
    _aging_s: float
    gate: AdmissionGate = NO_GATE

    def _write(self, action: Callable[[Transaction], T], *, durable: bool = True) -> T:
        """Execute in a transaction. `durable=False` skips the disk flush: for writes that are soon repeated."""
        raise NotImplementedError

    def _read(self, action: Callable[[Transaction], T]) -> T:
        raise NotImplementedError

    def close(self) -> None:
        raise NotImplementedError

    def _today(self) -> str:
        return format_timestamp(local_midnight(self._clock()))


def writes(verb: Callable[Concatenate[S, Transaction, P], T]) -> Callable[Concatenate[S, P], T]:
    """Run the verb in one durable transaction, which is rolled back if it raises."""

    @wraps(verb)
    def call(self: S, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._write(lambda db: verb(self, db, *args, **kwargs))

    return call


def reads(verb: Callable[Concatenate[S, Transaction, P], T]) -> Callable[Concatenate[S, P], T]:
    """Run the verb in one read-only snapshot."""

    @wraps(verb)
    def call(self: S, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._read(lambda db: verb(self, db, *args, **kwargs))

    return call


def migrations(backend: str) -> list[tuple[int, str]]:
    """Return the numbered migration scripts of a backend, in order."""
    folder = Path(__file__).parent / "migrations" / backend
    found = sorted((f for f in folder.iterdir() if f.name.endswith(".sql")), key=lambda script: script.name)
    return [(int(script.name[:4]), script.read_text("utf-8")) for script in found]


def reject_newer_schema(where: str, version: int, newest: int) -> None:
    if version > newest:
        raise StoreNewer(
            f"{where} was written by a newer Ratchet (schema {version}, this one knows {newest})",
            hint="upgrade: pip install --upgrade ratchet-factory",
        )
