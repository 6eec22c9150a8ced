"""Learnings: is the right lesson found for an error text, by words, by meaning and by both, and how quickly.

`learning_pairs.txt` has a lesson per block and the error texts that it is the answer to, written for this project from
messages of real tools; lessons are paraphrased, so that few words are shared. Speed is measured with 100,000 learnings
of which each search matches many. PostgreSQL is the one `RATCHET_STORE` names, else one started here.
"""

from __future__ import annotations

import os
import random
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from statistics import quantiles

import msgspec

from bench import Goal
from bench.store import _database, _server
from ratchet.core.learning import Learning, LearningVector, index_words, learning_id
from ratchet.engine.embedders import LocalEmbedder
from ratchet.store.protocols import Store, open_store

PAIRS = Path(__file__).with_name("learning_pairs.txt")
COUNT = int(os.environ.get("RATCHET_BENCH_LEARNINGS", "100000"))
SEARCHES, LIMIT_MS, ADDED_AT_ONCE = 100, 50.0, 100
AT = "2026-01-01T00:00:00Z"


class Recall(msgspec.Struct, frozen=True, kw_only=True):
    at_1: float
    at_5: float
    mrr: float


def pairs() -> list[tuple[str, str]]:
    """Return questions with their lessons."""
    found, lesson = [], ""
    for line in PAIRS.read_text("utf-8").splitlines():
        kind, _, text = line.partition(" ")
        if kind == "=":
            lesson = text
        else:
            found.append((text, lesson))
    return found


def learning(content: str) -> Learning:
    return Learning(id=learning_id("/r", content), repo="/r", content=content, created_at=AT)


def recall(store: Store, embedder: LocalEmbedder, way: str) -> Recall:
    asked = pairs()
    vectors = embedder.embed([question for question, _ in asked])
    ranks = []
    for (question, lesson), vector in zip(asked, vectors, strict=True):
        found = store.learnings(
            "/r",
            query="" if way == "vector" else question,
            vector=() if way == "lexical" else vector,
            embedder=embedder.name,
            limit=50,
        )
        place = [one.content for one in found]
        ranks.append(place.index(lesson) + 1 if lesson in place else 0)
    return Recall(
        at_1=sum(rank == 1 for rank in ranks) / len(ranks),
        at_5=sum(0 < rank <= 5 for rank in ranks) / len(ranks),
        mrr=sum(1 / rank for rank in ranks if rank) / len(ranks),
    )


def fill_with_pairs(store: Store, embedder: LocalEmbedder) -> None:
    lessons = [learning(text) for text in dict.fromkeys(lesson for _, lesson in pairs())]
    store.add_learnings(lessons)
    _embed(store, embedder, lessons)


def _embed(store: Store, embedder: LocalEmbedder, learnings: Sequence[Learning]) -> None:
    vectors = embedder.embed([one.content for one in learnings])
    store.add_learning_vectors(
        embedder.name, [LearningVector(learning=one.id, vector=v) for one, v in zip(learnings, vectors, strict=True)]
    )


def fill(store: Store, embedder: LocalEmbedder, count: int) -> None:
    """Add learnings of random words of the pairs and of made-up names; as all differ, no similar one is looked for."""
    store._alike = lambda *_: None  # type: ignore[attr-defined]
    made = _made(count)
    for begin in range(0, count, ADDED_AT_ONCE):
        store.add_learnings(made[begin : begin + ADDED_AT_ONCE])
        _embed(store, embedder, made[begin : begin + ADDED_AT_ONCE])


def _made(count: int) -> list[Learning]:
    chance, words = random.Random(1), " ".join(lesson for _, lesson in pairs()).split()
    return [learning(f"{' '.join(chance.choices(words, k=14))} name{n % 9_000} module{n}") for n in range(count)]


def fill_server(url: str, embedder: LocalEmbedder, count: int) -> None:
    """Do the same in bulk: one by one it takes a server half an hour. The first ones are added by the store, which
    creates the table of vectors."""
    import psycopg  # noqa: PLC0415 — may be missing

    store = open_store(url)
    fill(store, embedder, ADDED_AT_ONCE)
    store.close()
    made = _made(count)[ADDED_AT_ONCE:]
    words = [index_words(one)[0] for one in made]
    terms = Counter(word for text in words for word in {"", *text.split()})
    vectors = embedder.embed([one.content for one in made])
    with psycopg.connect(url) as db:
        db.execute("CREATE TEMP TABLE given (id TEXT, created_at TEXT, body BYTEA, content TEXT)")
        with db.cursor().copy("COPY given FROM STDIN") as copy:
            for one, text in zip(made, words, strict=True):
                copy.write_row((one.id, AT, msgspec.json.encode(one), text))
        db.execute(_LEARN_ALL)
        db.execute("CREATE TEMP TABLE counted (term TEXT, count BIGINT)")
        with db.cursor().copy("COPY counted FROM STDIN") as copy:
            for term, much in terms.items():
                copy.write_row((term, much))
        db.execute(_COUNT_ALL)
        row = db.execute("SELECT indexdef FROM pg_indexes WHERE indexname = 'learning_vectors_1'").fetchone()
        assert row
        db.execute("DROP INDEX learning_vectors_1")
        with db.cursor().copy("COPY learning_vectors (embedder, learning, repo, vector) FROM STDIN") as copy:
            for one, vector in zip(made, vectors, strict=True):
                copy.write_row((1, one.id, "/r", str(vector)))
        db.execute(row[0])
    with psycopg.connect(url, autocommit=True) as db:
        db.execute("VACUUM ANALYZE")


_LEARN_ALL = """
INSERT INTO learnings (id, repo, run, seq, created_at, body, words)
SELECT id, '/r', '', 0, created_at, body, setweight(to_tsvector('english', content), 'B') FROM given
ON CONFLICT DO NOTHING
"""
_COUNT_ALL = """
INSERT INTO learning_terms (term, count) SELECT term, count FROM counted
ON CONFLICT (term) DO UPDATE SET count = learning_terms.count + excluded.count
"""


def milliseconds(store: Store, embedder: LocalEmbedder) -> tuple[list[float], list[float]]:
    """Search as a run does, the question embedded each time. Returns what searches took, and their share of processor
    time in this process, both sorted and without the first ones, which warm up."""
    took, worked = [], []
    for question, _ in pairs()[: SEARCHES + 5]:
        began, used = time.perf_counter(), time.process_time()
        (vector,) = embedder.embed([question])
        store.learnings("/r", query=question, vector=vector, embedder=embedder.name, limit=10)
        took.append((time.perf_counter() - began) * 1e3)
        worked.append((time.process_time() - used) * 1e3)
    return sorted(took[5:]), sorted(worked[5:])


def main() -> list[Goal]:
    goals: list[Goal] = []
    embedder = LocalEmbedder()
    address = os.environ.get("RATCHET_STORE", "") or _server()
    with tempfile.TemporaryDirectory() as folder:
        stores = {"SQLite": (str(Path(folder) / "a.db"), str(Path(folder) / "b.db"))}
        if address:
            stores["PostgreSQL"] = _database(address, 0), _database(address, 0)
        for name, (small, large) in stores.items():
            goals += _found(name, open_store(small), embedder)
            if name == "PostgreSQL":
                fill_server(large, embedder, COUNT)
            else:
                fill(open_store(large), embedder, COUNT)
            goals.append(_speed(name, open_store(large), embedder))
    return goals


def _found(name: str, store: Store, embedder: LocalEmbedder) -> list[Goal]:
    fill_with_pairs(store, embedder)
    by_way = {way: recall(store, embedder, way) for way in ("lexical", "vector", "fused")}
    store.close()
    shown = {way: f"{one.at_1:.3f} / {one.at_5:.3f} / {one.mrr:.3f}" for way, one in by_way.items()}
    best = max(by_way["lexical"].mrr, by_way["vector"].mrr)
    return [
        Goal(
            measure=f"{name}: recall@1 / recall@5 / MRR of {len(pairs())} questions",
            value=by_way["fused"].mrr - best,
            unit="MRR more",
            wanted="> 0 than each alone",
            ok=by_way["fused"].mrr > best,
            ours=shown["fused"],
            other=f"words {shown['lexical']}, meaning {shown['vector']}",
        )
    ]


def _speed(name: str, store: Store, embedder: LocalEmbedder) -> Goal:
    took, worked = milliseconds(store, embedder)
    store.close()
    p95 = quantiles(took, n=20)[-1]
    return Goal(
        measure=f"{name}: search in {COUNT:,} learnings, 95th percentile",
        value=p95,
        unit="ms",
        wanted=f"< {LIMIT_MS:.0f} ms",
        ok=p95 < LIMIT_MS,
        ours=f"median {took[len(took) // 2]:.1f} ms",
        detail=f"processor time here: median {worked[len(worked) // 2]:.1f} ms, load {os.getloadavg()[0]:.1f}",
    )
