"""Learnings: kept with where they came from, found by their words, best first.

How words are looked up is each database's own; what a question may hold is not. A vector beside the words would be one
more column and one more list to fuse: nothing here stands in its way.
"""

from __future__ import annotations

import msgspec

from ratchet.core.learning import Learning, words_of
from ratchet.errors import NotFound, UsageError
from ratchet.store.database import Database, Row, Transaction, reads, stamp, writes


class Learnings(Database):
    _index_words: str
    _find_words: str

    def _asked(self, words: list[str]) -> str:
        raise NotImplementedError

    @writes
    def learn(self, db: Transaction, learning: Learning) -> Learning:
        learning = _checked(learning)
        fixed = (learning.id, learning.repo, learning.run, learning.seq, learning.created_at)
        if db.run(_LEARN, *fixed, msgspec.json.encode(learning)) == 1:
            db.run(self._index_words, learning.content, " ".join(learning.tags), learning.id)
        return learning

    @reads
    def learnings(self, db: Transaction, repo: str = "", *, query: str = "", limit: int = 50) -> list[Learning]:
        limit, repos = max(1, min(limit, 500)), (repo, repo)
        if not query:
            return [_learning(row) for row in db.all(_NEWEST, *repos, limit)]
        words = words_of(query)
        rows = db.all(self._find_words, self._asked(words), *repos, limit) if words else []
        return [_learning(row) for row in rows]

    @writes
    def retire(self, db: Transaction, learning: str) -> Learning:
        db.run("UPDATE learnings SET retired_at = ? WHERE id = ? AND retired_at = ''", stamp(self._clock()), learning)
        row = db.one("SELECT body, retired_at FROM learnings WHERE id = ?", learning)
        if row is None:
            raise NotFound(f"there is no learning {learning}", learning=learning)
        return _learning(row)


def _checked(learning: Learning) -> Learning:
    try:
        return msgspec.convert(msgspec.to_builtins(learning), Learning)
    except msgspec.ValidationError as error:
        raise UsageError(f"learning {learning.id}: {error}", hint="say it shorter", learning=learning.id) from error


def _learning(row: Row) -> Learning:
    kept = msgspec.json.decode(row["body"], type=Learning)
    return msgspec.structs.replace(kept, retired_at=row["retired_at"])


_LEARN = """
INSERT INTO learnings (id, repo, run, seq, created_at, body) VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING
"""
_NEWEST = """
SELECT body, retired_at FROM learnings WHERE retired_at = '' AND (repo = ? OR ? = '')
ORDER BY created_at DESC, id DESC LIMIT ?
"""
