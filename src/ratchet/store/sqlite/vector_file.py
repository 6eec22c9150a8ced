"""Vectors of learnings as a memory-mapped matrix beside the database, searched exactly. Derived from its rows."""

from __future__ import annotations

import fcntl
import hashlib
import importlib.util
import os
import struct
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from ratchet.files import FILE_MODE
from ratchet.store.database import Row

_BATCH = 2_000
_ROW = struct.Struct("<qq")  # the row's number and the digest of its repository
NewRows = Callable[[int, int], list[Row]]


@cache
def missing() -> str:
    """Return why vectors cannot be searched, or ''."""
    there = importlib.util.find_spec("numpy")
    return "" if there else "numpy is not installed: pip install 'ratchet-factory[learn]'"


def pack(vector: Sequence[float]) -> bytes:
    return struct.pack(f"<{len(vector)}f", *vector)


class VectorFile:
    """One row for each vector of one embedder, appended by whichever process searches next, under a file lock."""

    def __init__(self, database: Path, embedder: int, dimensions: int) -> None:
        self._dimensions = dimensions
        self._matrix = database.with_name(f"{database.name}-vectors-{embedder}")
        self._rows = database.with_name(f"{database.name}-vectors-{embedder}.rows")
        self._mapped: tuple[Any, Any, Any] | None = None  # matrix, numbers, repositories
        self._lock = threading.Lock()

    def refresh(self, new_rows: NewRows) -> None:
        """Append the rows that the database has and the file does not."""
        with self._lock:
            self._map()
            if not new_rows(self._last(), 1):
                return
            with self._locked():
                self._map()
                while rows := new_rows(self._last(), _BATCH):
                    self._append(rows)
                    self._map()

    def nearest(self, vector: Sequence[float], repo: str, limit: int) -> list[int]:
        """Return the numbers of the rows with the highest cosine similarity, best first."""
        import numpy as np  # noqa: PLC0415 — optional and slow to import

        if self._mapped is None or not len(self._mapped[1]):
            return []
        matrix, numbers, repos = self._mapped
        query = np.asarray(vector, dtype=np.float32)
        scores = matrix @ (query / (np.linalg.norm(query) or 1.0))
        if repo:
            scores = np.where((repos == _digest(repo)) | (repos == _digest("")), scores, -np.inf)
        limit = min(limit, len(scores))
        best = np.argpartition(-scores, limit - 1)[:limit]
        best = best[np.argsort(-scores[best], kind="stable")]
        return [int(numbers[at]) for at in best if scores[at] > -np.inf]

    def _last(self) -> int:
        return int(self._mapped[1][-1]) if self._mapped and len(self._mapped[1]) else 0

    def _map(self) -> None:
        """Map what both files have in whole rows: a writer may have been stopped between them."""
        import numpy as np  # noqa: PLC0415 — optional and slow to import

        count = self._count()
        if self._mapped and len(self._mapped[1]) == count:
            return
        if count == 0:
            self._mapped = None
            return
        matrix = np.memmap(self._matrix, dtype="<f4", mode="r", shape=(count, self._dimensions))
        rows = np.fromfile(self._rows, dtype="<i8", count=2 * count).reshape(count, 2)
        self._mapped = matrix, rows[:, 0].copy(), rows[:, 1].copy()

    def _count(self) -> int:
        return min(_size(self._matrix) // (4 * self._dimensions), _size(self._rows) // _ROW.size)

    def _append(self, rows: list[Row]) -> None:
        count = self._count()
        vectors = b"".join(bytes(row["vector"]) for row in rows)
        _write_at(self._matrix, 4 * self._dimensions * count, vectors)
        marks = b"".join(_ROW.pack(int(row["n"]), _digest(row["repo"])) for row in rows)
        _write_at(self._rows, _ROW.size * count, marks)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        handle = os.open(self._rows, os.O_CREAT | os.O_RDWR, FILE_MODE)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield
        finally:
            os.close(handle)


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _write_at(path: Path, at: int, content: bytes) -> None:
    handle = os.open(path, os.O_CREAT | os.O_RDWR, FILE_MODE)
    try:
        os.pwrite(handle, content, at)
    finally:
        os.close(handle)


def _digest(repo: str) -> int:
    return int.from_bytes(hashlib.sha256(repo.encode()).digest()[:8], "little", signed=True)
