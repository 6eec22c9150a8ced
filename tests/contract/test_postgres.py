"""What only the shared store promises: a server's schema, its clock, and a connection that can be lost."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from ratchet.errors import EnvironmentCannot, StoreNewer
from ratchet.store import open_store
from ratchet.store.postgres import PostgresStore
from tests.contract.servers import World, fresh_database
from tests.contract.test_store import CLAIMED, claim, item


@pytest.fixture
def world() -> Iterator[World]:
    made = World(fresh_database())
    yield made
    made.close()


def on_the_server(world: World, sql: str) -> None:
    with psycopg.connect(str(world.address), autocommit=True) as db:
        db.execute(sql)


def test_a_database_of_a_newer_ratchet_is_refused(world: World) -> None:
    world.open()
    on_the_server(world, "INSERT INTO ratchet_schema VALUES (999)")
    with pytest.raises(StoreNewer, match="999"):
        world.open()


def test_a_lost_connection_is_told_and_made_anew(world: World) -> None:
    store = world.open()
    store.add(item())
    lease = claim(store)
    on_the_server(
        world,
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
        "WHERE datname = current_database() AND pid <> pg_backend_pid()",
    )
    with pytest.raises(EnvironmentCannot, match="cannot be used"):
        store.append(lease, [CLAIMED])
    store.append(lease, [CLAIMED])
    assert len(store.entries("run-1")) == 1


def test_an_address_opens_a_server_and_a_password_is_never_told(world: World) -> None:
    store = open_store(str(world.address))
    assert isinstance(store, PostgresStore)
    store.close()
    with pytest.raises(EnvironmentCannot) as refused:
        open_store("postgresql://ann:s3cret@127.0.0.1:1/x")
    assert "s3cret" not in str(refused.value)
