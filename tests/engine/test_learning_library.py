"""Embedding and searching learnings: the local model, an endpoint that speaks OpenAI's protocol, and neither."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest

from ratchet.app.learnings import LearningService
from ratchet.config import LearningsConfig
from ratchet.core import api
from ratchet.core.learning import Learning, learning_id
from ratchet.core.redact import Redactor
from ratchet.engine.embedders import open_embedder
from ratchet.engine.learning_library import LearningLibrary
from ratchet.store.sqlite.store import SqliteStore

WORDS = {"cat": [1.0, 0.0, 0.0], "feline": [0.9, 0.1, 0.0], "invoice": [0.0, 0.0, 1.0]}
SECRET = "hunter2-hunter2"


class Endpoint(BaseHTTPRequestHandler):
    """Knows few words; answers in the wrong order, as the protocol allows."""

    seen: ClassVar[list[dict[str, Any]]] = []
    answer = 200
    extra: ClassVar[list[float]] = []  # dimensions that were added since

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        type(self).seen.append(body | {"authorization": self.headers["authorization"], "path": self.path})
        rows = [
            {"index": n, "embedding": next((v for w, v in WORDS.items() if w in text), [0.3, 0.3, 0.3]) + self.extra}
            for n, text in enumerate(body["input"])
        ]
        content = json.dumps({"data": rows[::-1]}).encode()
        self.send_response(self.answer)
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def serving(answer: int = 200) -> Iterator[str]:
    kind = type("OneEndpoint", (Endpoint,), {"seen": Endpoint.seen, "answer": answer})
    Endpoint.seen.clear()
    server = ThreadingHTTPServer(("127.0.0.1", 0), kind)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}/v1"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    made = SqliteStore(tmp_path / "ratchet.db")
    yield made
    made.close()


def lesson(content: str) -> Learning:
    return Learning(id=learning_id("/r", content), repo="/r", content=content, created_at="2026")


def library(store: SqliteStore, **settings: Any) -> LearningLibrary:
    return LearningLibrary(store, LearningsConfig(**settings), Redactor([SECRET]))


def contents(found: list[Learning]) -> list[str]:
    return [one.content for one in found]


def test_an_endpoint_finds_by_meaning_and_gets_no_secret(store: SqliteStore, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("numpy")
    monkeypatch.setenv("EMBED_KEY", "k-123")
    with serving() as url:
        mine = library(store, embedder=url, model="m", key_env="EMBED_KEY")
        mine.add([lesson(f"feed the cat, {SECRET}"), lesson("pay the invoice")])
        assert mine.embed_missing() == 2 and mine.embed_missing() == 0
        assert contents(mine.search("/r", "feline"))[0] == "feed the cat, [redacted]" and not mine.lexical_only
        assert {(one["model"], one["authorization"], one["path"]) for one in Endpoint.seen} == {
            ("m", "Bearer k-123", "/v1/embeddings")
        }
    assert SECRET not in json.dumps(Endpoint.seen)


def test_a_changed_embedder_embeds_everything_again_in_the_background(store: SqliteStore) -> None:
    pytest.importorskip("numpy")
    with serving() as url:
        library(store, embedder=url, model="old").add([lesson("feed the cat"), lesson("pay the invoice")])
        library(store, embedder=url, model="old").embed_missing()
        changed = library(store, embedder=url, model="new")
        changed.embed_in_background().join(30)
        assert store.learnings_without_vector(f"new@{url}") == []
        assert contents(changed.search("/r", "feline"))[0] == "feed the cat"


@pytest.mark.parametrize("answer", [500, 401])
def test_an_endpoint_that_fails_leaves_the_search_to_words(store: SqliteStore, answer: int) -> None:
    with serving(answer) as url:
        mine = library(store, embedder=url, model="m")
        mine.add([lesson("feed the cat"), lesson("pay the invoice")])
        assert contents(mine.search("/r", "an invoice")) == ["pay the invoice"]
        assert url in mine.lexical_only and mine.embed_missing() == 0


@pytest.mark.parametrize("extra", [[0.5], [float("nan")]], ids=["more dimensions", "not a number"])
def test_an_endpoint_that_changes_its_vectors_leaves_the_search_to_words(
    store: SqliteStore, extra: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("numpy")
    with serving() as url:
        mine = library(store, embedder=url, model="m")
        mine.add([lesson("feed the cat")])
        assert mine.embed_missing() == 1
        monkeypatch.setattr(Endpoint, "extra", extra)
        assert contents(mine.search("/r", "a cat")) == ["feed the cat"]
        assert "vector" in mine.lexical_only
        service = LearningService(store, LearningsConfig(embedder=url, model="m"), background=False)
        request = api.LearningRequest(repo="/r", content="pay the invoice")
        assert service.add(request).content == "pay the invoice"
        assert contents(service.search(api.LearningsQuery(query="an invoice"), "/r").learnings) == ["pay the invoice"]


def test_without_an_embedder_words_are_searched_and_the_reason_is_given(store: SqliteStore) -> None:
    mine = library(store, embedder="off")
    mine.add([lesson("feed the cat")])
    assert contents(mine.search("/r", "CAT!")) == ["feed the cat"] and mine.search("/r", "feline") == []
    assert "learnings.embedder" in mine.lexical_only
    assert "learnings.model" in open_embedder(LearningsConfig(embedder="http://127.0.0.1:1"))[1]


def test_the_local_model_finds_what_shares_no_word(store: SqliteStore) -> None:
    pytest.importorskip("wordllama", reason="the extra `learn` is not installed")
    mine = library(store)
    mine.add([lesson("the database connection was refused"), lesson("the colour of a button is wrong")])
    assert mine.embed_missing() == 2
    assert contents(mine.search("/r", "postgres server unreachable"))[0] == "the database connection was refused"
