"""Learnings as people and agents use them: add, search, show, retire, export and import."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime

import msgspec
from msgspec.structs import replace

from ratchet.config import LearningsConfig
from ratchet.core import api
from ratchet.core.learning import CONTENT_MAX_CHARS, Learning, LearningKind, LearningSource, learning_error, learning_id
from ratchet.core.learning_lift import LiftReport
from ratchet.core.redact import Redactor, secrets_in
from ratchet.core.timestamps import format_timestamp
from ratchet.engine.learning_library import LearningLibrary, LibraryStore
from ratchet.errors import RatchetError, UsageError

IMPORT_BATCH, LINE_MAX_CHARS = 200, 4 * CONTENT_MAX_CHARS
EXPORT_PAGE = 500


class LearningService:
    """`background`: embed without keeping the caller, as a server does."""

    def __init__(self, store: LibraryStore, config: LearningsConfig, *, background: bool) -> None:
        self._store, self._background = store, background
        self.library = LearningLibrary(store, config, Redactor(secrets_in(os.environ)))

    def add(self, request: api.LearningRequest, *, source: LearningSource = LearningSource.PERSON) -> Learning:
        """Store a learning. Idempotent: the id is a hash of repository and content. An agent's is a candidate."""
        fields = msgspec.structs.asdict(request)
        learning = Learning(
            id=learning_id(request.repo, request.content),
            created_at=format_timestamp(datetime.now(UTC)),
            source=LearningSource.AGENT if request.kind is LearningKind.CANDIDATE else source,
            **fields,
        )
        if learning.source is LearningSource.AGENT and learning.kind is LearningKind.LESSON:
            learning = replace(learning, kind=LearningKind.CANDIDATE)
        (kept,) = self.library.add([learning])
        self._embed()
        return kept

    def search(self, request: api.LearningsQuery, repo: str) -> api.LearningList:
        query = request.query or request.text
        if query:
            found = self.library.search(repo, query, spec=request.spec, tag=request.tag, limit=request.limit)
            return api.LearningList(learnings=found, lexical_only=self.library.lexical_only)
        found = self._store.learnings(
            repo, spec=request.spec, tag=request.tag, retired=request.retired, limit=request.limit
        )
        return api.LearningList(learnings=found)

    def show(self, learning: str) -> Learning:
        return self._store.learning(learning)

    def lift(self, repo: str) -> LiftReport:
        """Return the effect of learnings; ledgers that no worker has read yet are read first."""
        self.library.learn_from_runs()
        return self.library.report(repo)

    def retire(self, learning: str, request: api.RetireRequest) -> Learning:
        return self._store.retire_learning(learning, by=request.by, why=request.why)

    def load(self, lines: Iterable[str], repo: str) -> list[Learning]:
        """Store learnings from JSON lines, all of them or, if one line is wrong, none. Learnings that name no
        repository get `repo`."""
        given = [_imported(number, line, repo) for number, line in enumerate(lines, 1) if line.strip()]
        kept: list[Learning] = []
        for begin in range(0, len(given), IMPORT_BATCH):
            kept += self.library.add(given[begin : begin + IMPORT_BATCH])
        self._embed()
        return kept

    def dump(self, repo: str) -> Iterator[str]:
        """Yield the learnings that are live, newest first, as JSON lines."""
        last = ""
        while page := self._store.older_learnings(repo, than=last, limit=EXPORT_PAGE):
            yield from (msgspec.json.encode(one).decode() for one in page)
            last = page[-1].id

    def _embed(self) -> None:
        if self._background:
            self.library.embed_in_background()
            return
        try:
            self.library.embed_missing()
        except RatchetError:
            return  # the learning is stored, and found by its words


def _imported(number: int, line: str, repo: str) -> Learning:
    if len(line) > LINE_MAX_CHARS:
        raise UsageError(f"line {number} has {len(line):,} characters, more than {LINE_MAX_CHARS:,}")
    try:
        given = msgspec.json.decode(line, type=dict[str, msgspec.Raw])
        content = msgspec.json.decode(given.get("content", msgspec.Raw(b'""')), type=str)
        there = msgspec.json.decode(given["repo"], type=str) if "repo" in given else repo
        defaults = {"repo": there, "created_at": format_timestamp(datetime.now(UTC))}
        fields = defaults | {name: msgspec.json.decode(raw) for name, raw in given.items()}
        one = msgspec.convert(fields | {"id": learning_id(there, content)}, Learning)
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        raise UsageError(
            f"line {number} is not a learning: {error}", hint="ratchet learn export writes such lines"
        ) from error
    if wrong := learning_error(one):
        raise UsageError(f"line {number}: {wrong}", hint="nothing was imported")
    # What became of it elsewhere does not count here: no effect was measured in this store.
    return replace(one, merged_into="", retired_at="", retired_by="", retired_why="", lift=None, seen=1)
