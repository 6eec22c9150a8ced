"""The interface held to its own description: no 5xx, no way in without a token, no answer that was not announced."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from importlib import import_module
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from ratchet.interfaces.http.openapi import document
from ratchet.interfaces.http.routes import EVENTS, Auth, Route, table
from ratchet.store.protocols import open_store
from tests.interfaces.http.serving import TOKEN, Served, add, register, serving

EXAMPLES = int(os.environ.get("RATCHET_EXAMPLES", "1"))
# A stream has no end to wait for; its own tests listen to it.
ROUTES = [route for route in table() if route.media != EVENTS and not route.internal]


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Served, dict[str, Any]]]:
    """A server with something in it, and a worker that holds a lease."""
    with suppress(ImportError):  # hypothesis looks at a numpy that a thread of the server may just be importing
        import_module("numpy")
    store = open_store(tmp_path_factory.mktemp("schema") / "ratchet.db")
    with serving(store) as served:
        mine = register(served)
        add(served, priority="low")
        yield served, mine
    store.close()


@pytest.fixture(scope="module")
def described() -> Any:
    """Loaded here and not as a plugin of pytest: it takes seconds, which no other test should wait for."""
    import schemathesis  # noqa: PLC0415

    return schemathesis.openapi.from_dict(document(table()))


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: f"{route.method} {route.path}")
def test_every_answer_is_one_that_was_announced(
    route: Route, shop: tuple[Served, dict[str, Any]], described: Any
) -> None:
    served, mine = shop

    @given(case=described[route.path][route.method].as_strategy())
    @settings(
        max_examples=EXAMPLES, deadline=None, database=None, derandomize=True, suppress_health_check=list(HealthCheck)
    )
    def ask(case: Any) -> None:
        stranger = case.call(base_url=served.url, headers={"authorization": ""}, timeout=30)
        assert route.auth is Auth.ANYBODY or stranger.status_code == 401, stranger.text
        for token in (TOKEN, mine["token"]):
            answer = case.call(base_url=served.url, headers={"authorization": f"Bearer {token}"}, timeout=30)
            assert answer.status_code < 500, answer.text
            case.validate_response(answer, checks=_checks())

    ask()


def _checks() -> list[Any]:
    from schemathesis.specs.openapi import checks  # noqa: PLC0415

    return [checks.status_code_conformance, checks.content_type_conformance, checks.response_schema_conformance]


def test_the_description_names_every_route_that_is_not_internal() -> None:
    found = {(method.upper(), path) for path, there in document(table())["paths"].items() for method in there}
    assert found == {(route.method, route.path) for route in table() if not route.internal}
    names = [there["operationId"] for paths in document(table())["paths"].values() for there in paths.values()]
    assert len(names) == len(set(names))
