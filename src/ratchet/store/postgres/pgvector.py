"""Vectors of learnings in pgvector, with an HNSW index for each embedder. The extension is created on first use."""

from __future__ import annotations

from collections.abc import Sequence

from ratchet.errors import EnvironmentCannot
from ratchet.store.database import Transaction

INDEXED_MAX, HALF_INDEXED_MAX = 2_000, 4_000  # pgvector indexes no more dimensions, as single and half floats
_SEARCHED = 200

_TABLE = """
CREATE TABLE IF NOT EXISTS learning_vectors (
  embedder BIGINT NOT NULL,
  learning TEXT COLLATE "C" NOT NULL,
  repo     TEXT COLLATE "C" NOT NULL,
  vector   VECTOR NOT NULL,
  PRIMARY KEY (embedder, learning)
)
"""


def missing(db: Transaction) -> str:
    """Return why vectors cannot be searched, or ''."""
    row = db.fetch_one("SELECT 1 AS there FROM pg_available_extensions WHERE name = 'vector'")
    if row is None:
        return "the PostgreSQL server has no pgvector"
    return "" if _has_table(db) or _may_create(db) else "this user may not create the extension pgvector"


def store(db: Transaction, embedder: int, rows: list[tuple[str, str, list[float]]]) -> None:
    """Store vectors, after creating the table and the embedder's index. Raises EnvironmentCannot without pgvector."""
    if why := missing(db):
        raise EnvironmentCannot(why, hint="CREATE EXTENSION vector, as a superuser; until then words are searched")
    if not _has_table(db):
        db.execute("CREATE EXTENSION IF NOT EXISTS vector")
        db.execute(_TABLE)
    dimensions = len(rows[0][2])
    if dimensions <= HALF_INDEXED_MAX:
        db.execute(_index(embedder, dimensions))
    db.execute_many(
        "INSERT INTO learning_vectors (embedder, learning, repo, vector) VALUES (?, ?, ?, CAST(? AS VECTOR))"
        " ON CONFLICT DO NOTHING",
        [(embedder, learning, repo, _text(vector)) for learning, repo, vector in rows],
    )


def nearest(db: Transaction, embedder: int, vector: Sequence[float], repo: str, limit: int) -> list[str]:
    if not _has_table(db):
        return []
    db.execute(_SETTINGS)
    kind = _kind(len(vector))
    # The numbers are ours; as parameters they would hide from the planner that the index is of this very embedder.
    sql = f"""
SELECT learning FROM learning_vectors WHERE embedder = {embedder} AND (? = '' OR repo IN (?, ''))
ORDER BY CAST(vector AS {kind}) <=> CAST(? AS {kind}) LIMIT ?
"""  # noqa: S608 — see above
    return [row["learning"] for row in db.fetch_all(sql, repo, repo, _text(vector), limit)]


# Without it a repository with few learnings among many would get none of its own.
_SETTINGS = f"""
SELECT set_config('hnsw.ef_search', '{_SEARCHED}', false), set_config('hnsw.iterative_scan', 'relaxed_order', false)
"""


def _kind(dimensions: int) -> str:
    return f"{'vector' if dimensions <= INDEXED_MAX else 'halfvec'}({dimensions})"


def _index(embedder: int, dimensions: int) -> str:
    kind = _kind(dimensions)
    return f"""
CREATE INDEX IF NOT EXISTS learning_vectors_{embedder} ON learning_vectors
USING hnsw (CAST(vector AS {kind}) {kind.partition("(")[0]}_cosine_ops) WHERE embedder = {embedder}
"""


def _text(vector: Sequence[float]) -> str:
    return f"[{','.join(map(repr, vector))}]"


def _has_table(db: Transaction) -> bool:
    row = db.fetch_one("SELECT to_regclass('learning_vectors') IS NOT NULL AS there")
    return bool(row and row["there"])


def _may_create(db: Transaction) -> bool:
    row = db.fetch_one(
        "SELECT EXISTS (SELECT 1 FROM pg_extension WHERE extname = 'vector')"
        " OR (SELECT trusted OR superuser IS FALSE FROM pg_available_extension_versions WHERE name = 'vector' LIMIT 1)"
        " OR (SELECT rolsuper FROM pg_roles WHERE rolname = current_user) AS may"
    )
    return bool(row and row["may"])
