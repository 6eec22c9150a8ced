"""Artifacts in SQL: content by run and SHA-256, compressed. The run directory mirrors them as plain files."""

from __future__ import annotations

import hashlib
import zlib

from ratchet.core.timestamps import format_timestamp
from ratchet.store.database import Database, Transaction, reads, writes
from ratchet.store.protocols import ARTIFACT_MAX_BYTES

_LEVEL = 1  # reports shrink to a tenth; higher levels take several times as long for little more


class SqlArtifacts(Database):
    @writes
    def put_artifact(self, db: Transaction, run: str, content: bytes) -> str:
        if len(content) > ARTIFACT_MAX_BYTES:
            raise ValueError(f"an artifact of {len(content):,} bytes exceeds {ARTIFACT_MAX_BYTES:,}")
        sha256, now = hashlib.sha256(content).hexdigest(), format_timestamp(self._clock())
        db.execute(_PUT, run, sha256, len(content), zlib.compress(content, _LEVEL), now)
        return sha256

    @reads
    def artifact(self, db: Transaction, run: str, sha256: str) -> bytes | None:
        row = db.fetch_one("SELECT content FROM artifacts WHERE run = ? AND sha256 = ?", run, sha256)
        return zlib.decompress(row["content"]) if row else None

    @writes
    def forget_artifacts(self, db: Transaction, run: str, digests: list[str]) -> int:
        return sum(db.execute("DELETE FROM artifacts WHERE run = ? AND sha256 = ?", run, one) for one in digests)


_PUT = """
INSERT INTO artifacts (run, sha256, size, content, created_at) VALUES (?, ?, ?, ?, ?)
ON CONFLICT (run, sha256) DO NOTHING
"""
