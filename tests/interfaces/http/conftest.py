"""A server on every backend, or on the embedded one where the backend makes no difference."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ratchet.store.protocols import Store, open_store
from tests.contract.servers import fresh_database
from tests.interfaces.http.serving import Served, serving


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    store = open_store(tmp_path / "ratchet.db")
    with serving(store) as made:
        yield made
    store.close()


@pytest.fixture(params=["sqlite", "postgres"])
def any_store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    store = open_store(tmp_path / "ratchet.db" if request.param == "sqlite" else fresh_database())
    yield store
    store.close()


@pytest.fixture
def any_served(any_store: Store) -> Iterator[Served]:
    with serving(any_store) as made:
        yield made
