"""The interface held to its own description: no 5xx, no way in without a token, no answer that was not announced."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis import Case
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from ratchet.store import open_store
from ratchet.surfaces.http.openapi import document
from ratchet.surfaces.http.routes import table
from tests.http.serving import TOKEN, Served, add, register, serving

EXAMPLES = int(os.environ.get("RATCHET_EXAMPLES", "4"))
CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]
# A stream has no end to wait for; its own tests listen to it.
schema = schemathesis.openapi.from_dict(document(table())).exclude(path="/api/events")


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Served, dict[str, Any]]]:
    """A server with something in it, and a worker that holds a lease."""
    store = open_store(tmp_path_factory.mktemp("schema") / "ratchet.db")
    with serving(store) as served:
        mine = register(served)
        add(served, priority="low")
        yield served, mine
    store.close()


@schema.parametrize()
@settings(
    max_examples=EXAMPLES, deadline=None, database=None, suppress_health_check=list(HealthCheck), derandomize=True
)
def test_every_answer_is_one_that_was_announced(case: Case[Any], shop: tuple[Served, dict[str, Any]]) -> None:
    served, mine = shop
    for token in (TOKEN, mine["token"]):
        answer = case.call(base_url=served.url, headers={"authorization": f"Bearer {token}"}, timeout=30)
        case.validate_response(answer, checks=CHECKS)


@schema.parametrize()
@settings(max_examples=1, deadline=None, database=None, suppress_health_check=list(HealthCheck), derandomize=True)
def test_nothing_is_answered_to_a_stranger(case: Case[Any], shop: tuple[Served, dict[str, Any]]) -> None:
    served, _ = shop
    answer = case.call(base_url=served.url, headers={"authorization": ""}, timeout=30)
    assert answer.status_code in ((200,) if case.path in ("/health", "/openapi.json") else (401, 404, 405)), case.path


def test_the_description_names_every_route() -> None:
    found = {(method.upper(), path) for path, there in document(table())["paths"].items() for method in there}
    assert found == {(route.method, route.path) for route in table()}
    names = [there["operationId"] for paths in document(table())["paths"].values() for there in paths.values()]
    assert len(names) == len(set(names))
