"""A watch on a small real repository, and its states one after the other."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from ratchet import config
from ratchet.app.tests import Suite
from ratchet.app.watch import TestWatcher, WatchOptions
from ratchet.core.watch import WatchStage, WatchState
from tests.support import make_repository

PATIENCE_S = 60
FILES = {
    "pyproject.toml": '[tool.pytest.ini_options]\npythonpath = ["."]\n',
    ".gitignore": "ignored.txt\n__pycache__/\n",
    "shapes.py": (
        "def area(a, b):\n    return a * b\n\n\ndef edge(a, b):\n    return 2 * (a + b)\n\n\n"
        "def words(path):\n    return open(path).read().split()\n"
    ),
    "words.txt": "one two\n",
    "tests/test_area.py": "from shapes import area\n\n\ndef test_area():\n    assert area(2, 3) == 6\n",
    "tests/test_edge.py": "from shapes import edge\n\n\ndef test_edge():\n    assert edge(2, 3) == 10\n",
    "tests/test_words.py": (
        "from shapes import words\n\n\ndef test_words():\n    assert words('words.txt') == ['one', 'two']\n"
    ),
}


def small(tmp_path: Path, **files: str) -> Path:
    return make_repository(tmp_path / "project", FILES | files)


def edit(path: Path, old: str, new: str) -> None:
    before = path.read_text()
    assert old in before
    path.write_text(before.replace(old, new))


class Told:
    """The states of a running watch."""

    def __init__(self, patience_s: float = PATIENCE_S) -> None:
        self.patience_s = patience_s
        self.queue: asyncio.Queue[WatchState] = asyncio.Queue()
        self.seen: list[WatchState] = []

    async def until(self, wanted: Callable[[WatchState], bool]) -> WatchState:
        async with asyncio.timeout(self.patience_s):
            while True:
                self.seen.append(state := await self.queue.get())
                if wanted(state):
                    return state

    async def idle(self) -> WatchState:
        return await self.until(lambda state: state.stage is WatchStage.IDLE)


@asynccontextmanager
async def watched(
    repo: Path, wishes: WatchOptions | None = None, *settings: str
) -> AsyncIterator[tuple[TestWatcher, Told]]:
    reported = Told()
    suite = Suite(repo, config.load(repo, environ={}, flags=settings).config)
    watch = TestWatcher(suite, wishes or WatchOptions(), reported.queue.put_nowait)
    life = asyncio.create_task(watch.run())
    try:
        yield watch, reported
    finally:
        life.cancel()
        await asyncio.wait({life})
        if not life.cancelled() and life.exception():
            raise life.exception() or RuntimeError
