"""Nothing is unbounded: bodies, heads, texts, connections, listeners. And every no says why and what to do."""

from __future__ import annotations

import socket
import time
from pathlib import Path
from urllib.parse import urlencode

import pytest

from ratchet.interfaces.http import event_stream, server
from tests.interfaces.http.serving import TOKEN, Served, add, end_run, register, repo_path

OK = {"repo": "owner/name", "spec": "# Do it"}


def is_problem(answer: object) -> bool:
    return isinstance(answer, dict) and set(answer) == {"error", "code", "details", "hint"}


@pytest.mark.parametrize(
    ("change", "status"),
    [
        ({}, 201),
        ({"spec": "x" * 100_000}, 201),
        ({"spec": "x" * 100_001}, 422),
        ({"spec": "", "description": "x" * 50_000}, 422),
        ({"description": "both"}, 422),
        ({"spec": " \n "}, 422),
        ({"priority": "urgent"}, 422),
        ({"max_iterations": 0}, 422),
        ({"max_iterations": 201}, 422),
        ({"max_iterations": 200}, 201),
        ({"branch": "feature/a"}, 201),
        ({"branch": "-u"}, 422),
        ({"branch": "a..b"}, 422),
        ({"branch": "a.lock"}, 422),
        ({"repo": "ext::sh -c id"}, 422),
        ({"repo": "--upload-pack=id"}, 422),
        ({"repo": "https://user:secret@host/r"}, 422),
        ({"repo": "../elsewhere"}, 422),
        ({"repo": "/nowhere/at/all"}, 422),
        ({"repo": "https://host/r.git"}, 201),
        ({"repo": "git@host:owner/r.git"}, 201),
        ({"needs": ["item-none"]}, 404),
        ({"footprint": ["../outside"]}, 422),
        ({"settings": ["nothing.like.it=1"]}, 422),
        ({"source": "a\0b"}, 422),
        ({"unknown": 1}, 422),
        ({"workflow": "waterfall"}, 422),
    ],
)
def test_what_may_be_asked_for(any_served: Served, change: dict[str, object], status: int) -> None:
    answer = any_served.ask("POST", "/api/work", OK | change)
    assert answer.status == status, answer.body
    assert status == 201 or is_problem(answer.json)


def test_the_name_of_a_part_of_a_path_is_an_id_like_any_other(served: Served) -> None:
    answer = served.ask("GET", "/api/work/%7Bid%7D")
    assert answer.status == 404 and answer.json["error"] == "no such id"


def test_a_description_without_a_spec_is_enough(served: Served) -> None:
    row = served.ask("POST", "/api/work", {"repo": "owner/name", "description": "x" * 50_000}).json
    assert row["status"] == "queued"
    assert served.ask("POST", "/api/work", {"repo": "owner/name", "description": "x" * 50_001}).status == 422


def test_a_repository_here_is_pinned_to_the_commit_it_has_now(served: Served, tmp_path: Path) -> None:
    row = served.ask("POST", "/api/work", OK | {"repo": repo_path(tmp_path)}).json
    assert len(row["item"]["base_commit"]) == 40
    assert served.ask("POST", "/api/work", OK | {"repo": row["item"]["repo"], "branch": "none"}).status == 422


def test_one_repository_has_one_name_however_it_is_spelt(served: Served, tmp_path: Path) -> None:
    """Locks, limits and budgets go by it."""
    here = repo_path(tmp_path)
    (Path(here) / "sub").mkdir()
    (tmp_path / "link").symlink_to(here)
    elsewhere = ["o/n", "https://github.com/o/n", "https://github.com/o/n.git", "https://github.com/o/n/"]
    for spellings in ([here, f"{here}/", f"{here}//sub", f"{tmp_path}/link"], elsewhere):
        names = {add(served, repo=spelling)["item"]["repo"] for spelling in spellings}
        assert names == {spellings[0]}
        for spelling in spellings:
            assert len(served.ask("GET", f"/api/queue?{urlencode({'repo': spelling})}").json["rows"]) == len(spellings)
    assert served.ask("GET", "/api/queue?repo=none").json["rows"] == []


@pytest.mark.parametrize(
    ("body", "headers", "status", "code"),
    [
        (b"{", {}, 400, "bad_json"),
        (b'{"repo": "\xff"}', {}, 400, "bad_json"),
        (b"[]", {}, 422, "invalid"),
        (b"", {}, 422, "invalid"),
        (b"{}", {"content-type": "text/plain"}, 415, "unsupported_media_type"),
        (b"x" * 1_000_001, {}, 413, "too_large"),
    ],
)
def test_malformed_requests_are_distinguished(
    served: Served, body: bytes, headers: dict[str, str], status: int, code: str
) -> None:
    answer = served.ask("POST", "/api/work", body, headers=headers)
    assert (answer.status, answer.code) == (status, code)


def test_a_body_without_bottom_is_refused(served: Served) -> None:
    mine = register(served)
    body = b'{"after": 0, "events": [{"kind": %s' % (b"[" * 400_000)
    answer = served.ask("POST", f"/api/worker/{mine['worker']}/events", body, token=mine["token"])
    assert (answer.status, answer.code) == (400, "bad_json")


def test_a_body_in_chunks_is_counted_as_it_comes(served: Served) -> None:
    """There is no length to look at, and no end: the answer comes when it is too much, not when it is over."""
    with socket.create_connection(("127.0.0.1", served.port), timeout=20) as link:
        link.sendall(
            b"POST /api/work HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer %s\r\n"
            b"content-type: application/json\r\n"
            b"transfer-encoding: chunked\r\n\r\n" % TOKEN.encode()
        )
        piece = b"10000\r\n" + b"x" * 65_536 + b"\r\n"
        for _ in range(16):
            link.sendall(piece)
        assert link.recv(100).startswith(b"HTTP/1.1 413")


def test_paths_and_methods_that_are_not_there(served: Served) -> None:
    assert served.ask("GET", "/api/nothing").code == "not_found"
    wrong = served.ask("DELETE", "/api/work")
    assert (wrong.status, wrong.headers["allow"]) == (405, "POST")
    assert served.ask("GET", "/api/work/item-none").status == 404
    assert served.ask("GET", "/api/work/%00").status == 404
    assert served.ask("GET", "/api/work/" + "x" * 200).status == 404
    assert served.ask("HEAD", "/api/status").body == b""


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ("limit=0", 422),
        ("limit=501", 422),
        ("limit=x", 422),
        ("limit=1&limit=2", 422),
        ("nonsense=1", 422),
        ("status=nonsense", 422),
        ("after=nonsense", 422),
        ("after=99999999999999999999:x", 422),
        ("repo=%00", 422),
        ("repo=%ff", 400),
        ("status=queued&priority=high&limit=500", 200),
    ],
)
def test_queries(any_served: Served, query: str, status: int) -> None:
    assert any_served.ask("GET", f"/api/queue?{query}").status == status


def test_a_head_without_end_is_cut_off(served: Served) -> None:
    with socket.create_connection(("127.0.0.1", served.port), timeout=20) as link:
        link.sendall(b"GET /health HTTP/1.1\r\nhost: localhost\r\n")
        with pytest.raises(OSError):
            for _ in range(1_000):
                link.sendall(b"x-more: " + b"x" * 4_000 + b"\r\n")


def test_a_client_that_sends_byte_by_byte_is_disconnected(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "REQUEST_S", 0.3)
    with socket.create_connection(("127.0.0.1", served.port), timeout=20) as link:
        link.sendall(b"GET /health HT")
        began = time.monotonic()
        assert link.recv(100) == b""
        assert time.monotonic() - began < 10
    with socket.create_connection(("127.0.0.1", served.port), timeout=20) as link:
        link.sendall(b"POST /api/work HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer %s\r\n" % TOKEN.encode())
        link.sendall(b"content-type: application/json\r\ncontent-length: 100\r\n\r\n{")
        assert link.recv(100) == b""


def test_there_are_only_so_many_seats_for_listeners(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_stream, "STREAMS_MAX", 1)
    asked = b"GET /api/events HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer %s\r\n\r\n" % TOKEN.encode()
    with socket.create_connection(("127.0.0.1", served.port), timeout=20) as link:
        link.sendall(asked)
        assert link.recv(20).startswith(b"HTTP/1.1 200")
        answer = served.ask("GET", "/api/events")
        assert (answer.status, answer.code, answer.headers["retry-after"]) == (429, "too_many", "5")


# --- asking twice -------------------------------------------------------------------------------------------------


def test_the_same_key_is_the_same_item_for_ever(any_served: Served) -> None:
    key = {"idempotency-key": "abc"}
    first = any_served.ask("POST", "/api/work", OK, headers=key)
    again = any_served.ask("POST", "/api/work", OK, headers=key)
    assert (first.status, again.status) == (201, 200)
    assert first.json["item"]["id"] == again.json["item"]["id"]
    assert len(any_served.ask("GET", "/api/queue").json["rows"]) == 1


@pytest.mark.parametrize("change", [{"spec": "# Else"}, {"priority": "low"}, {"branch": "x"}])
def test_the_same_key_for_something_else_is_a_conflict(served: Served, change: dict[str, str]) -> None:
    key = {"idempotency-key": "abc"}
    served.ask("POST", "/api/work", OK, headers=key)
    answer = served.ask("POST", "/api/work", OK | change, headers=key)
    assert (answer.status, answer.code) == (409, "conflict")
    assert served.ask("POST", "/api/work", OK, headers={"idempotency-key": "x" * 201}).status == 400


def test_one_open_source_is_one_item(served: Served) -> None:
    """[14], [29]."""
    source = {"source": "github", "source_ref": "owner/name#1"}
    assert add(served, **source)["item"]["id"] == add(served, **source)["item"]["id"]


def test_one_open_source_is_one_item_whatever_the_key(any_served: Served) -> None:
    """The client sends a key with everything: the source still is one piece of work, in other words or not."""
    source = {"source": "github", "source_ref": "owner/name#1"}
    there = add(any_served, **source)["item"]["id"]
    for spec in ("# Do it", "# Do it well"):
        sent = {"repo": "owner/name", "spec": spec, **source}
        answer = any_served.ask("POST", "/api/work", sent, headers={"idempotency-key": f"key-{len(spec)}"})
        assert (answer.status, answer.json["item"]["id"]) == (200, there)


# --- moving ------------------------------------------------------------------------------------------------------


def test_an_item_goes_from_the_queue_to_its_end_and_back(any_served: Served) -> None:
    mine = register(any_served)
    name = mine["item"]["id"]
    assert any_served.ask("GET", f"/api/work/{name}").json["status"] == "assigned"
    assert any_served.ask("POST", f"/api/work/{name}/requeue").status == 409
    reported = any_served.ask("POST", f"/api/work/{name}/cancel", {"by": "me"}).json
    assert reported == {"item": name, "cancelled": "asked"}
    own = f"/api/worker/{mine['worker']}"
    assert any_served.ask("POST", f"{own}/heartbeat", {}, token=mine["token"]).json == {"stop": "me"}
    events = {"after": 0, "events": [{"kind": "run_aborted", "by": "me"}]}
    first = any_served.ask("POST", f"{own}/events", events, token=mine["token"])
    again = any_served.ask("POST", f"{own}/events", events, token=mine["token"])
    assert first.status == 200 and first.json == again.json
    assert any_served.ask("GET", f"/api/work/{name}").json["status"] == "cancelled"
    assert any_served.ask("POST", f"/api/work/{name}/requeue").json["status"] == "queued"
    run = any_served.ask("GET", f"/api/runs/{mine['run']}").json
    assert run["row"]["status"] == "aborted" and run["state"]["status"] == "aborted"
    ledger = any_served.ask("GET", f"/api/runs/{mine['run']}/ledger?limit=1").json
    assert [entry["kind"] for entry in ledger["entries"]] == ["run_aborted"] and ledger["length"] == 1
    assert any_served.ask("GET", "/api/runs?status=aborted").json["runs"][0]["run"] == mine["run"]
    assert any_served.ask("GET", f"/api/workers/{mine['worker']}/logs").json["entries"] == ledger["entries"]
    assert any_served.ask("GET", f"/api/runs/{mine['run']}/diff").json["diff"] == ""


@pytest.mark.parametrize("change", [{"worker": "a\0b"}, {"worker": ""}, {"born": "\0"}, {"pid": 2**63}, {"pid": -1}])
def test_an_impossible_holder_gets_no_work(any_served: Served, change: dict[str, object]) -> None:
    add(any_served)
    holder = {"worker": "w", "machine": "m", "pid": 1, "born": "1"} | change
    assert any_served.ask("POST", "/api/worker/register", {"holder": holder}).status == 422
    assert [count.status for count in any_served.store.stats()] == ["queued"]


def test_a_run_is_parked_until_a_moment_and_never_until_a_word(any_served: Served) -> None:
    """Moments are compared as texts: one in another zone comes as late as it says, one that is none is refused."""
    mine = register(any_served)
    own = f"/api/worker/{mine['worker']}/events"
    parked = {"kind": "run_parked", "reason": "quota", "detail": "?", "until": "2126-01-01T12:00:00+02:00"}
    for wrong in ("for ever", "2126-01-01T12:00:00", "9999-99-99", "0001-01-01T00:00:00+14:00"):
        text = {"after": 0, "events": [parked | {"until": wrong}]}
        assert any_served.ask("POST", own, text, token=mine["token"]).status == 422
    assert any_served.ask("POST", own, {"after": 0, "events": [parked]}, token=mine["token"]).status == 200
    assert any_served.store.item_row(mine["item"]["id"]).not_before == "2126-01-01T10:00:00.000000Z"


def test_locks_are_all_or_nothing_and_a_refusal_names_the_holder(served: Served) -> None:
    """[17]."""
    one, other = register(served), register(served)
    lock = "/api/worker/{}/lock"
    assert served.ask("POST", lock.format(one["worker"]), {"paths": ["src/"]}, token=one["token"]).status == 200
    refused = served.ask("POST", lock.format(other["worker"]), {"paths": ["a", "src/b"]}, token=other["token"])
    assert refused.status == 409 and refused.json["details"]["run"] == one["run"]
    unlock = f"/api/worker/{one['worker']}/unlock"
    assert served.ask("POST", unlock, {}, token=one["token"]).json == {"paths": []}
    granted = served.ask("POST", lock.format(other["worker"]), {"paths": ["a", "src/b"]}, token=other["token"])
    assert granted.json == {"paths": ["a", "src/b"]}


def test_stuck_is_a_nudge_and_then_a_fresh_start(served: Served) -> None:
    """[2]: stuck was a dead end."""
    mine = register(served)
    path = f"/api/worker/{mine['worker']}/stuck"
    assert served.ask("POST", path, {"detail": "?"}, token=mine["token"]).json == {"retry": None}
    assert served.ask("POST", path, {"detail": "?"}, token=mine["token"]).json["retry"]["after"] == "retry"
    assert served.store.item_row(mine["item"]["id"]).status == "queued"


def test_iterations_past_the_most_that_is_allowed_stop_the_run(served: Served) -> None:
    """[12]: maxIterations was not enforced by the server."""
    add(served, max_iterations=2)
    holder = {"worker": "w", "machine": "m", "pid": 1, "born": "1"}
    mine = served.ask("POST", "/api/worker/register", {"holder": holder}).json["assignment"]
    beat = f"/api/worker/{mine['worker']}/heartbeat"
    assert served.ask("POST", beat, {"iteration": 2}, token=mine["token"]).json["stop"] == ""
    assert (
        "3 iterations, the limit is 2" in served.ask("POST", beat, {"iteration": 3}, token=mine["token"]).json["stop"]
    )


def test_metrics_are_served_as_prometheus_and_json(any_served: Served) -> None:
    """[16], [32], [33]: what is shown is counted from what is there."""
    mine = register(any_served)
    add(any_served, priority="low")
    end_run(any_served, mine)
    any_served.ask("POST", f"/api/worker/{mine['worker']}/complete", {"commits": 1, "head": "h"}, token=mine["token"])
    found = any_served.ask("GET", "/api/metrics").json
    assert (found["completed_today"], found["failed_today"], found["success_rate"]) == (1, 0, 1.0)
    status = any_served.ask("GET", "/api/status").json
    assert {(one["status"], one["priority"], one["items"]) for one in status["queue"]} == {
        ("completed", "medium", 1),
        ("queued", "low", 1),
    }
    assert status["workers"] == 0 and status["oldest_queued_at"]
    lines = any_served.ask("GET", "/metrics").body.decode().splitlines()
    assert 'ratchet_items{status="queued",priority="low"} 1' in lines
    assert "ratchet_runs_completed_today 1" in lines
    assert 'ratchet_http_requests_total{method="POST",path="/api/work",status="201"} 2' in lines


def test_pages_hold_every_item_once(served: Served) -> None:
    names = {add(served)["item"]["id"] for _ in range(7)}
    seen: list[str] = []
    after = ""
    while True:
        page = served.ask("GET", f"/api/queue?limit=3&after={after}").json
        seen += [row["item"]["id"] for row in page["rows"]]
        after = page["after"]
        if not after:
            break
    assert len(seen) == 7 and set(seen) == names
