"""No one gets in. Numbers in brackets are the faults of an earlier factory made impossible."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from ratchet.core import events as ev
from ratchet.core.lease import Holder, Lease
from ratchet.errors import EnvironmentCannot, UsageError
from ratchet.interfaces.http import auth
from ratchet.interfaces.http.routes import Auth, Route, table
from tests.interfaces.http.serving import TOKEN, Served, add, end_run, register
from tests.support import ratchet

HOLDER = Holder(worker="other", machine="m", pid=1, born="1")
GUARDED = [route for route in table() if route.auth is not Auth.ANYBODY]


def path_of(route: Route, name: str = "item-1") -> str:
    return route.path.replace("{id}", name)


@pytest.mark.parametrize("route", GUARDED, ids=lambda route: f"{route.method} {route.path}")
def test_no_request_is_answered_without_the_right_token(served: Served, route: Route) -> None:
    body = b"{}" if route.body else None
    for token in (None, "", "wrong", TOKEN + "x", TOKEN[:-1], "é" * 20):
        headers = None if token is None else {"authorization": f"Bearer {token}".encode().decode("latin-1")}
        answer = served.ask(route.method, path_of(route), body, token=None, headers=headers)
        assert (answer.status, answer.code) == (401, "unauthorized"), token
        assert answer.headers["www-authenticate"].startswith("Bearer")
    answer = served.ask(route.method, path_of(route), body, token=None, headers={"authorization": f"Basic {TOKEN}"})
    assert answer.status == 401


def test_requests_without_a_token_are_refused_before_their_body_is_read(served: Served) -> None:
    answer = served.ask("POST", "/api/work", b"x" * 500_000, token=None)
    assert answer.status == 401


def test_a_worker_token_is_accepted_for_its_own_lease_only(served: Served) -> None:
    """[35]: worker endpoints carried no secret."""
    mine, other = register(served), register(served)
    beat = f"/api/worker/{mine['worker']}/heartbeat"
    assert served.ask("POST", beat, {}, token=mine["token"]).json == {"stop": ""}
    for token in (other["token"], TOKEN):
        answer = served.ask("POST", beat, {}, token=token)
        assert (answer.status, answer.code) == (403, "forbidden")


def test_a_workers_token_opens_nothing_else(served: Served) -> None:
    mine = register(served)
    for method, path in (("GET", "/api/queue"), ("POST", f"/api/workers/{mine['worker']}/kill"), ("GET", "/metrics")):
        assert served.ask(method, path, token=mine["token"]).status == 403


def test_a_worker_that_lost_its_lease_hears_so_and_writes_nothing(served: Served) -> None:
    """[3], [5]: whoever knew a worker's id could move its item."""
    mine = register(served)
    assert served.ask("POST", f"/api/workers/{mine['worker']}/kill").json == {"changed": True}
    own = f"/api/worker/{mine['worker']}"
    for verb, body in (
        ("heartbeat", {}),
        ("complete", {"commits": 1, "head": "h"}),
        ("lock", {"paths": ["a"]}),
        ("fail", {"reason": "agent_crashed"}),
        ("stuck", {}),
        ("events", {"after": 0, "events": [{"kind": "run_claimed", "worker": "w"}]}),
    ):
        answer = served.ask("POST", f"{own}/{verb}", body, token=mine["token"])
        assert answer.status == 409, (verb, answer.body)
    assert served.store.item_row(mine["item"]["id"]).status == "queued"
    assert served.ask("POST", f"/api/workers/{mine['worker']}/kill").json == {"changed": False}


def test_a_completion_whose_response_was_lost_can_be_repeated(served: Served) -> None:
    mine = register(served)
    end_run(served, mine)
    for _ in range(2):
        done = served.ask(
            "POST", f"/api/worker/{mine['worker']}/complete", {"commits": 1, "head": "h"}, token=mine["token"]
        )
        assert done.json == {"changed": True}
    assert served.store.item_row(mine["item"]["id"]).status == "completed"


@pytest.mark.parametrize(
    ("verb", "body"),
    [
        ("complete", {"commits": 1, "head": "h"}),
        ("events", {"after": 0, "events": [{"kind": "run_completed", "commits": 1, "head": "h"}]}),
    ],
)
def test_a_run_whose_ledger_shows_no_verified_end_cannot_be_completed(
    any_served: Served, verb: str, body: dict[str, object]
) -> None:
    mine = register(any_served)
    refused = any_served.ask("POST", f"/api/worker/{mine['worker']}/{verb}", body, token=mine["token"])
    assert (refused.status, refused.code) == (409, "conflict") and "no verified end" in refused.json["error"]
    assert any_served.store.item_row(mine["item"]["id"]).status == "assigned"
    end_run(any_served, mine)
    body = {"commits": 1, "head": "h"}
    done = any_served.ask("POST", f"/api/worker/{mine['worker']}/complete", body, token=mine["token"])
    assert done.json == {"changed": True}
    assert any_served.store.item_row(mine["item"]["id"]).status == "completed"


def test_a_failure_whose_response_was_lost_can_be_repeated(any_served: Served) -> None:
    mine = register(any_served)
    path = f"/api/worker/{mine['worker']}/fail"
    text = {"reason": "agent_crashed", "detail": "boom"}
    first = any_served.ask("POST", path, text, token=mine["token"])
    any_served.store.requeue(mine["item"]["id"])
    next_one = any_served.store.claim_next(HOLDER, run="run-2", ttl_s=60)
    again = any_served.ask("POST", path, text, token=mine["token"])
    assert (first.status, again.status) == (200, 200) and again.json["retry"]["after"] == "retry"
    assert isinstance(next_one, Lease) and any_served.store.fenced_writes() == []


def test_what_a_late_worker_had_committed_is_noted_though_another_has_written_since(any_served: Served) -> None:
    """[late results]: over HTTP as from here, refused and not thrown away, and nobody's rows are taken for its own."""
    mine = register(any_served)
    own, store = f"/api/worker/{mine['worker']}/events", any_served.store
    assert store.kill(mine["worker"], by="me")
    store.requeue(mine["item"]["id"])
    other = store.claim_next(HOLDER, run="run-2", ttl_s=60)
    assert isinstance(other, Lease)
    length = store.run(mine["run"]).length
    store.append(other, [ev.RunClaimed(worker="w"), ev.RunClaimed(worker="w")])
    claimed = {"after": length, "events": [{"kind": "run_claimed", "worker": "w"}]}
    done = {"after": 0, "events": [{"kind": "run_completed", "commits": 1, "head": "c1"}]}
    for text in (claimed, done):
        answer = any_served.ask("POST", own, text, token=mine["token"])
        assert (answer.status, answer.code) == (409, "lease_lost")
    assert [(late.kind, late.head) for late in store.fenced_writes()] == [("run_completed", "c1")]


def test_the_store_keeps_no_token(served: Served, tmp_path: Path) -> None:
    token = register(served)["token"]
    kept = b"".join(file.read_bytes() for file in tmp_path.glob("ratchet.db*") if file.is_file())
    assert token.encode() not in kept


@pytest.mark.parametrize(
    ("error", "status"), [(RuntimeError("secret.py"), 500), (EnvironmentCannot("secret.db is gone"), 503)]
)
def test_responses_contain_no_stack_trace_and_no_internals(
    served: Served, monkeypatch: pytest.MonkeyPatch, error: Exception, status: int
) -> None:
    """[35]: error messages were returned raw."""

    def broken(**_asked: object) -> None:
        raise error

    monkeypatch.setattr(served.store, "items", broken)
    answer = served.ask("GET", "/api/queue")
    assert answer.status == status
    assert b"Traceback" not in answer.body and b"secret" not in answer.body
    assert set(answer.json) == {"error", "code", "details", "hint"}


def test_all_built_in_clients_send_the_token(served: Served, tmp_path: Path) -> None:
    """[31]: switching authentication on broke the command line and the worker."""
    done = ratchet(
        "add", "-d", "Do it", "--to", "owner/name", cwd=tmp_path, RATCHET_SERVER=served.url, RATCHET_TOKEN=TOKEN
    )
    assert done.returncode == 0, done.stderr
    wrong = ratchet("queue", cwd=tmp_path, RATCHET_SERVER=served.url, RATCHET_TOKEN="not-the-right-token")
    assert wrong.returncode == 2 and "RATCHET_TOKEN" in wrong.stderr


def test_comparison_takes_tokens_of_any_length() -> None:
    """[35]: key comparison was not constant-time. Digests of one length are compared, by `hmac.compare_digest`."""
    assert auth.is_same_token(b"abc", b"abc")
    assert not auth.is_same_token(b"abc", b"abcd") and not auth.is_same_token(b"", b"abc")


# --- where the token comes from -----------------------------------------------------------------------------------


def test_a_token_is_made_once_for_its_owner_only(tmp_path: Path) -> None:
    file = tmp_path / "state" / "server-token"
    token = auth.kept_token(file)
    assert len(token) >= 40 and auth.kept_token(file) == token
    assert stat.S_IMODE(file.stat().st_mode) == 0o600 and stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    assert [left.name for left in file.parent.iterdir()] == ["server-token"]


def test_a_token_file_that_others_can_read_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("x" * 40)
    file.chmod(0o644)
    with pytest.raises(UsageError, match="readable by other users"):
        auth.kept_token(file)


@pytest.mark.parametrize("token", ["", "short", "has a space in the middle", "x" * 501, "ünïcödé-ünïcödé"])
def test_a_token_that_is_none_is_refused(token: str) -> None:
    with pytest.raises(UsageError):
        auth.given_token({"RATCHET_TOKEN": token}, None)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.5", "example.com"])
def test_the_world_is_not_let_in_without_a_token_of_somebodys_choice(tmp_path: Path, host: str) -> None:
    done = ratchet("serve", "--host", host, "--port", "0", cwd=tmp_path)
    assert done.returncode == 2
    assert "set a token" in done.stderr and "hint" in done.stderr


def test_health_and_the_description_are_for_everybody(served: Served) -> None:
    assert served.ask("GET", "/health", token=None).json["status"] == "ok"
    assert served.ask("GET", "/openapi.json", token=None).json["openapi"] == "3.1.0"


def test_a_killed_worker_is_not_resurrected_by_a_late_heartbeat(served: Served) -> None:
    mine = register(served)
    served.ask("POST", f"/api/workers/{mine['worker']}/kill")
    served.ask("POST", f"/api/worker/{mine['worker']}/heartbeat", {}, token=mine["token"])
    assert served.ask("GET", "/api/workers?live=true").json == {"workers": []}
    assert add(served)["status"] == "queued"
