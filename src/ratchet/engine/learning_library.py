"""Adds learnings to the store and finds them again: redacted, embedded, by failure, words and meaning."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Protocol

from msgspec.structs import replace

from ratchet.config import LearningsConfig
from ratchet.core import events as ev
from ratchet.core.learning import Learning, LearningVector
from ratchet.core.learning_lift import Lift, LiftReport, lift_report
from ratchet.core.learning_sources import Derived, derive
from ratchet.core.redact import Redactor
from ratchet.engine.embedders import Embedder, open_embedder
from ratchet.errors import EnvironmentCannot, LedgerBroken, RatchetError, UsageError
from ratchet.store.protocols import Learnings, Ledger

_BATCH = 100
RUNS_AT_ONCE_MAX = 20
AT_ONCE_MAX = 500


class LibraryStore(Learnings, Ledger, Protocol):
    """The store verbs of learnings, and of the ledgers that they come from."""


class LearningLibrary:
    """Learnings of one store as this process sees them. Without an embedder, or where it fails, words are searched;
    `lexical_only` says why."""

    def __init__(self, store: LibraryStore, config: LearningsConfig, redact: Redactor) -> None:
        self.store, self.config, self._redact = store, config, redact
        self._opened: tuple[Embedder | None, str] | None = None
        self._embedding = threading.Lock()
        self._closing = threading.Event()

    @property
    def lexical_only(self) -> str:
        """Why only words are searched, or ''."""
        return self._embedder()[1]

    def add(self, learnings: Sequence[Learning]) -> list[Learning]:
        """Store learnings, redacted. They are embedded by the next `embed_missing`."""
        clean = [self._redacted(one) for one in learnings]
        return self.store.add_learnings(clean) if clean else []

    def _redacted(self, one: Learning) -> Learning:
        tags = [self._redact.text(tag) for tag in one.tags]
        return replace(one, content=self._redact.text(one.content), spec=self._redact.text(one.spec), tags=tags)

    def learn_from_runs(self, most: int = RUNS_AT_ONCE_MAX) -> int:
        """Store what finished runs taught and what came of deliveries, also those whose worker died; returns how many.

        Each ledger is read as a whole and always gives the same result, so any process may read it, any number of
        times."""
        stored = judged = 0
        for run in self.store.unlearnt_runs(limit=most):
            found = self._derive(run)
            stored += len(self.store.learn_run(run, [self._redacted(one) for one in found.learnings], found.trials))
            judged += len(found.trials)
        if judged:
            self.judge()
        return stored

    def _derive(self, run: str) -> Derived:
        try:
            entries = self.store.entries(run)
        except LedgerBroken:  # teaches nothing
            entries = []
        return derive(run, [(entry.seq, entry.at, ev.decode(entry.kind, entry.data)) for entry in entries])

    def report(self, repo: str = "") -> LiftReport:
        return lift_report(self.store.trial_sums(repo), trials=self.config.trials)

    def judge(self) -> None:
        """Record the proven effects, and retire learnings that had enough trials and show none."""
        due = [one for one in self.report().learnings if one.due]
        self.store.rate_learnings({one.lift.name: one.lift.saved or 0.0 for one in due})
        for one in due:
            if not (one.proven or one.retired):
                self.store.retire_learning(one.lift.name, by="ratchet", why=_no_effect(one.lift))

    def search(self, repo: str, query: str, *, spec: str = "", tag: str = "", limit: int = 10) -> list[Learning]:
        vector, name = self._vector_of(query)
        if vector:
            self._embed_new()
        if vector and not self.lexical_only:
            try:
                return self.store.learnings(
                    repo, query=query, spec=spec, tag=tag, vector=vector, embedder=name, limit=limit
                )
            except UsageError as error:  # an endpoint whose dimensions changed
                self._opened = None, error.message
        return self.store.learnings(repo, query=query, spec=spec, tag=tag, limit=limit)

    def has_any(self, repo: str) -> bool:
        """Whether a search can find anything; without, no embedding model is loaded."""
        return bool(self.store.learnings(repo, limit=1))

    def matching(
        self, repo: str, fingerprints: Sequence[str], query: str, limit: int
    ) -> tuple[list[Learning], list[Learning]]:
        """Return the learnings about these very failures, and as many that a search finds as still fit."""
        exact = self.store.learnings_of_failures(repo, fingerprints, limit=limit) if fingerprints else []
        found = self.search(repo, query, limit=2 * limit) if query and len(exact) < limit else []
        known = {one.id for one in exact}
        return exact, [one for one in found if one.id not in known][: limit - len(exact)]

    def embed_missing(self, most: int = AT_ONCE_MAX) -> int:
        """Embed learnings that the embedder has not seen, such as all of them after a change of the embedder."""
        embedder, done = self._embedder()[0], 0
        if embedder is None:
            return 0
        with self._embedding:
            while done < most and not self._closing.is_set():
                batch = self.store.learnings_without_vector(embedder.name, limit=min(_BATCH, most - done))
                if not batch:
                    break
                vectors = self._embed(embedder, [one.content for one in batch])
                if not vectors:
                    break
                rows = [LearningVector(learning=one.id, vector=v) for one, v in zip(batch, vectors, strict=True)]
                self.store.add_learning_vectors(embedder.name, rows)
                done += len(batch)
        return done

    def _embed_new(self) -> None:
        """Embed what runs have written: they do not load a model only for that."""
        try:
            self.embed_missing()
        except RatchetError as error:
            self._opened = None, error.message

    def embed_in_background(self) -> threading.Thread:
        """Embed everything that is missing without keeping the caller. Failures leave the search to words."""

        def embed() -> None:
            try:
                self.embed_missing(most=2**31)
            except RatchetError as error:
                self._opened = None, error.message

        thread = threading.Thread(target=embed, name="ratchet-embed", daemon=True)
        thread.start()
        return thread

    def close(self) -> None:
        """Stop embedding, and wait for what is being written: the store may be closed then."""
        self._closing.set()
        with self._embedding:
            pass

    def _vector_of(self, query: str) -> tuple[list[float], str]:
        embedder = self._embedder()[0] if query.strip() else None
        vectors = self._embed(embedder, [query]) if embedder else []
        return (vectors[0], embedder.name) if vectors and embedder else ([], "")

    def _embed(self, embedder: Embedder, texts: list[str]) -> list[list[float]]:
        try:
            return embedder.embed([self._redact.text(text) for text in texts])
        except EnvironmentCannot as error:
            self._opened = None, error.message
            return []

    def _embedder(self) -> tuple[Embedder | None, str]:
        if self._opened is None:
            embedder, why = open_embedder(self.config)
            why = why or self.store.vector_search_error()
            self._opened = (None, why) if why else (embedder, "")
        return self._opened


def _no_effect(lift: Lift) -> str:
    effect = lift.attempts
    assert effect
    return (
        f"no effect in {lift.delivered} deliveries, compared with {lift.held_out} times held out: "
        f"{effect.difference:+.2f} attempts ({effect.low:+.2f} to {effect.high:+.2f})"
    )
