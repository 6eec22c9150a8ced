"""The reference of the HTTP API: every route with its fields and a curl example, as Markdown and as a page."""

from __future__ import annotations

import html
import json
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from ratchet.interfaces.http import openapi
from ratchet.interfaces.http.routes import EVENTS, JSON, Auth, Route

_INTRO = """Requests and responses are JSON; `/openapi.json` on every server describes them fully. `owner` is the
server's token, `worker` the token of the lease named in the path: `Authorization: Bearer TOKEN`. Every error response
is `{error, code, details, hint}`. In the examples:"""
_SETUP = "URL=http://127.0.0.1:8484\nTOKEN=$(cat ~/.local/state/ratchet/server-token)"
# Field values of the curl examples, where the type alone would give one that means nothing.
_VALUES: dict[str, Any] = {
    "repo": "/home/me/project", "description": "Add a --version flag", "by": "me", "paths": ["src/**"], "commits": 1,
    "head": "3f2c1a9", "reason": "agent_crashed", "after": 0, "events": [{"kind": "run_claimed", "worker": "w1"}],
    "content": "The tests need TZ=UTC", "holder": {"worker": "w1", "machine": "m", "pid": 1, "born": "1"},
    "command": ["ls", "-la"], "commit": "HEAD", "argv": ["ls", "-la"],
}  # fmt: skip


class Field(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    type: str
    default: str
    needed: bool


class RouteReference(msgspec.Struct, frozen=True, kw_only=True):
    """One route in the reference: the `fields` of its body or query, and those of the `answer`."""

    title: str
    auth: str
    summary: str
    fields: list[Field]
    answer: list[Field]
    example: str


def references(routes: Sequence[Route]) -> list[RouteReference]:
    components = openapi.document(routes)["components"]["schemas"]
    return [
        RouteReference(
            title=f"{route.method} {route.path}",
            auth=route.auth.value,
            summary=route.summary,
            fields=list(_fields(components, route.body or route.query)),
            answer=list(_fields(components, route.answer)) if route.media == JSON else [],
            example=_example(route, components),
        )
        for route in routes
        if not route.internal
    ]


def markdown(routes: Sequence[Route]) -> str:
    lines = ["# HTTP API", "", _INTRO, "", "```", _SETUP, "```", "", "| route | token | description |", "|---|---|---|"]
    every = references(routes)
    lines += [f"| `{one.title}` | {one.auth} | {one.summary} |" for one in every]
    for one in every:
        lines += ["", f"## {one.title}", "", f"{one.summary}. Token: {one.auth}.", "", "```", one.example, "```"]
        lines += _table("field", one.fields)
        lines += ["", f"Response: {_names(one.answer)}."] if one.answer else []
    return "\n".join(lines) + "\n"


def _table(title: str, fields: Sequence[Field]) -> list[str]:
    if not fields:
        return []
    rows = [f"| `{one.name}` | {one.type} | {'required' if one.needed else one.default} |" for one in fields]
    return ["", f"| {title} | type | default |", "|---|---|---|", *rows]


def _names(fields: Sequence[Field]) -> str:
    return ", ".join(f"`{one.name}` ({one.type})" for one in fields)


def page(routes: Sequence[Route]) -> str:
    """Return the reference as one page of HTML: no scripts, nothing from elsewhere."""
    parts = [_HEAD, f"<p>{html.escape(_INTRO)}</p><pre>{html.escape(_SETUP)}</pre>"]
    for one in references(routes):
        parts.append(f"<h2>{html.escape(one.title)}</h2><p>{html.escape(one.summary)}. Token: {one.auth}.</p>")
        parts.append(f"<pre>{html.escape(one.example)}</pre>")
        parts += [_html_table("Field", one.fields), _html_table("Response", one.answer)]
    return "".join(parts) + "</main></body></html>\n"


_HEAD = """<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Ratchet: HTTP API</title>
<meta name="viewport" content="width=device-width, initial-scale=1"><style>
body{font:16px/1.5 system-ui,sans-serif;margin:0 1rem}main{max-width:60rem;margin:auto}
pre{overflow:auto;padding:.6rem;border:1px solid #8886;border-radius:4px}table{border-collapse:collapse}
td,th{text-align:left;padding:.1rem .8rem .1rem 0;vertical-align:top}h2{font:600 1.05rem monospace;margin-top:2rem}
</style></head><body><main><h1>Ratchet: HTTP API</h1>"""


def _html_table(title: str, fields: Sequence[Field]) -> str:
    if not fields:
        return ""
    rows = "".join(
        f"<tr><td><code>{html.escape(one.name)}</code></td><td>{html.escape(one.type)}</td>"
        f"<td>{'required' if one.needed else html.escape(one.default)}</td></tr>"
        for one in fields
    )
    return f"<table><tr><th>{title}</th><th>Type</th><th>Default</th></tr>{rows}</table>"


# --- from the schemas ---------------------------------------------------------------------------------------------


def _fields(components: dict[str, Any], kind: Any) -> Iterator[Field]:
    schema = components.get(getattr(kind, "__name__", ""), {})
    needed = set(schema.get("required", []))
    for name, row in schema.get("properties", {}).items():
        default = json.dumps(row["default"], ensure_ascii=False) if "default" in row else ""
        yield Field(name=name, type=_type(row), default=default, needed=name in needed)


def _type(row: dict[str, Any]) -> str:
    if "$ref" in row:
        return str(row["$ref"]).rpartition("/")[2]
    if "anyOf" in row:
        return " or ".join(dict.fromkeys(_type(choice) for choice in row["anyOf"]))
    if "enum" in row:
        return " or ".join(map(str, row["enum"]))
    if row.get("type") == "array":
        return f"list of {_type(row.get('items', {}))}"
    return str(row.get("type", "any"))


def _example(route: Route, components: dict[str, Any]) -> str:
    path = route.path.replace("{id}", _id(route))
    token = "" if route.auth is Auth.ANYBODY else ' -H "Authorization: Bearer $TOKEN"'
    method = "" if route.method == "GET" else f" -X {route.method}"
    stream = " -N" if route.media == EVENTS else ""
    body = f" \\\n  --json '{json.dumps(_body(route, components))}'" if route.body else ""
    return f'curl -s{stream}{method}{token} "$URL{path}"{body}'


def _id(route: Route) -> str:
    if "worker" in route.path:
        return "WORKER"
    return "RUN" if "/runs/" in route.path else "WORKSPACE" if "test-workspace" in route.path else "ITEM"


def _body(route: Route, components: dict[str, Any]) -> dict[str, Any]:
    schema = components.get(route.body.__name__, {})
    wanted = list(schema.get("required", []))
    if route.path == "/api/work":
        wanted.append("description")
    rows = schema.get("properties", {})
    return {name: _VALUES.get(name, _value(rows[name], components)) for name in wanted}


def _value(row: dict[str, Any], components: dict[str, Any]) -> Any:
    if "$ref" in row:
        return _value(components[_type(row)], components)
    if "enum" in row:
        return row["enum"][0]
    return {
        "string": "…",
        "integer": row.get("minimum", 1),
        "number": 1.0,
        "boolean": True,
        "array": [],
        "object": {},
    }.get(str(row.get("type", "string")), "…")
