"""What only the shared store promises: a server's schema, its clock, and a connection that can be lost."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from ratchet.core.signal import Topic
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


def cut(world: World) -> None:
    """Every connection of everybody, as a restart of the server does."""
    on_the_server(
        world,
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
        "WHERE datname = current_database() AND pid <> pg_backend_pid()",
    )


def test_a_database_of_a_newer_ratchet_is_refused(world: World) -> None:
    world.open()
    on_the_server(world, "INSERT INTO ratchet_schema VALUES (999)")
    with pytest.raises(StoreNewer, match="999"):
        world.open()


def test_a_lost_connection_is_made_anew_and_nobody_notices(world: World) -> None:
    store = world.open()
    store.add(item())
    lease = claim(store)
    for _ in range(3):
        cut(world)
        world.pass_time(1)
        store.append(lease, [CLAIMED])
        assert store.renew(lease, ttl_s=60) == ""
    assert len(store.entries("run-1")) == 3


def test_who_listens_over_a_lost_connection_is_woken_for_what_was_missed(world: World) -> None:
    store = world.open()
    with store.listen(Topic.WORK) as work:
        cut(world)
        store.add(item())
        assert work.wait(30)


def test_an_address_opens_a_server_and_a_password_is_never_told(world: World) -> None:
    store = open_store(str(world.address))
    assert isinstance(store, PostgresStore)
    store.close()
    with pytest.raises(EnvironmentCannot) as refused:
        open_store("postgresql://ann:s3cret@127.0.0.1:1/x")
    assert "s3cret" not in str(refused.value)
