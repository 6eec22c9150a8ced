"""Every contract test runs on every backend."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ratchet.store.protocols import Store
from tests.contract.servers import World, new_world


@pytest.fixture(params=["sqlite", "postgres", "remote"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    made = new_world(request.param, tmp_path)
    yield made
    made.close()


@pytest.fixture
def store(world: World) -> Store:
    return world.open()
