"""OpenAPI 3.1 description, generated from the route table and the request and response types."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from ratchet import __version__
from ratchet.core.api import NewItem, Problem
from ratchet.core.schemas import clean_descriptions
from ratchet.interfaces.http.routes import EVENTS, JSON, Auth, Route

_REFS = "#/components/schemas/{name}"
_ID = {"name": "id", "in": "path", "required": True, "schema": {"type": "string", "pattern": "^[A-Za-z0-9._-]{1,128}$"}}
_KEY = {
    "name": "Idempotency-Key",
    "in": "header",
    "description": "A request with a key that was used before returns the existing item; keys do not expire.",
    "schema": {"type": "string", "pattern": "^[!-~]{1,200}$"},
}
_LAST = {
    "name": "Last-Event-ID",
    "in": "header",
    "description": "The `id` of the last event received: the stream resumes after it.",
    "schema": {"type": "string", "pattern": "^[!-~]{1,200}$"},
}
# Constraints that span several fields of a type.
_MORE = {NewItem.__name__: {"oneOf": [{"required": ["spec"]}, {"required": ["description"]}]}}
_MEANING = {
    400: "The request is malformed.",
    401: "The token is missing or invalid.",
    403: "The token does not permit this.",
    404: "Not found.",
    409: "Conflict with the current state, or the lease is lost.",
    413: "The body exceeds one megabyte.",
    415: "The body is not JSON.",
    422: "Invalid request; `details` says where.",
    429: "Too many concurrent requests; retry later.",
    503: "The store is unavailable or its disk is full.",
}


def document(routes: Sequence[Route]) -> dict[str, Any]:
    routes = [route for route in routes if not route.internal]
    kinds = [kind for route in routes for kind in (route.body, route.query, route.answer) if kind is not None]
    schemas, components = msgspec.json.schema_components([*kinds, Problem], ref_template=_REFS)
    named = dict(zip(map(id, [*kinds, Problem]), schemas, strict=True))
    for name, more in _MORE.items():
        components[name] = components[name] | more
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, named, components)
    made: dict[str, Any] = {
        "openapi": "3.1.0",
        "info": {"title": "Ratchet", "version": __version__, "description": "A software factory for coding agents."},
        "paths": paths,
        "components": {"schemas": components, "securitySchemes": _SCHEMES},
    }
    return clean_descriptions(made)


_SCHEMES = {
    Auth.OWNER.value: {"type": "http", "scheme": "bearer", "description": "The server's token."},
    Auth.WORKER.value: {"type": "http", "scheme": "bearer", "description": "The token of the lease named in the path."},
}


def _operation(route: Route, named: dict[int, Any], components: dict[str, Any]) -> dict[str, Any]:
    answer = {"type": "string"} if route.media != JSON else named[id(route.answer)]
    made: dict[str, Any] = {
        "operationId": route.name,
        "summary": route.summary,
        "parameters": list(_parameters(route, components)),
        "responses": {
            str(status): {"description": "Success.", "content": {route.media.partition(";")[0]: {"schema": answer}}}
            for status in _good(route)
        }
        | {str(status): _refusal(status) for status in _refused(route)},
        "security": [] if route.auth is Auth.ANYBODY else [{route.auth.value: []}],
    }
    if route.body:
        made["requestBody"] = {"required": True, "content": {JSON: {"schema": named[id(route.body)]}}}
    return made


def _good(route: Route) -> list[int]:
    return sorted({route.status, 200} if route.keyed else {route.status})


def _refused(route: Route) -> list[int]:
    found = {503, *route.refuses}
    found |= {401, 403, 429} if route.auth is not Auth.ANYBODY else set()
    found |= {400, 413, 415, 422} if route.body else set()
    found |= {400, 422} if route.query else set()
    found |= {404} if "{id}" in route.path else set()
    return sorted(found)


def _refusal(status: int) -> dict[str, Any]:
    return {
        "description": _MEANING[status],
        "content": {JSON: {"schema": {"$ref": _REFS.format(name=Problem.__name__)}}},
    }


def _parameters(route: Route, components: dict[str, Any]) -> Iterator[dict[str, Any]]:
    if "{id}" in route.path:
        yield _ID
    if route.keyed:
        yield _KEY
    if route.media == EVENTS:
        yield _LAST
    if route.query:
        for name, schema in components[route.query.__name__]["properties"].items():
            yield {"name": name, "in": "query", "schema": _given(schema)}


def _given(schema: dict[str, Any]) -> dict[str, Any]:
    """Remove `null` from a query parameter's schema: a query string cannot express it."""
    choices = [choice for choice in schema.get("anyOf", []) if choice != {"type": "null"}]
    rest = {key: value for key, value in schema.items() if key not in ("anyOf", "default")}
    return rest | (choices[0] if choices else {})
