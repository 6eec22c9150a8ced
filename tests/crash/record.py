"""Carries the demo's run to its end and copies the whole disk state before every durable write on the way.

Run as a program: `python -m tests.crash.record PLACE COPIES`. A copy is what a power cut at that moment leaves behind.
"""

from __future__ import annotations

import asyncio
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ratchet.store import rundir
from ratchet.store.sqlite import SqliteStore
from ratchet.surfaces import demo
from ratchet.surfaces.live import silent
from ratchet.workspace import kinds, trees
from tests.support import open_factory

# Git commands that change something; the others only look.
_WRITES = {"add", "read-tree", "clean", "restore", "commit-tree", "update-ref", "write-tree", "reset", "worktree"}


class Recorder:
    def __init__(self, base: Path, copies: Path) -> None:
        self.base, self.copies, self.count, self.on = base, copies, 0, True

    def copy(self, what: str) -> None:
        """One state of the disk: everything the run has written anywhere."""
        if self.on:
            target = self.copies / f"{self.count:03d}-{what}"
            shutil.copytree(self.base, target, symlinks=True)
            self.count += 1

    def before(self, owner: Any, name: str, what: Callable[..., str]) -> None:
        real = getattr(owner, name)

        def recorded(*args: Any, **kwargs: Any) -> Any:
            label = what(*args, **kwargs)
            if label:
                self.copy(label)
            return real(*args, **kwargs)

        setattr(owner, name, recorded)


def watch_writes(recorder: Recorder, *, git_too: bool) -> None:
    """`git_too`: also between the git commands that one durable step is made of."""
    for verb in ("add", "claim", "append", "release"):
        recorder.before(SqliteStore, verb, lambda *_args, _verb=verb, **_: f"store-{_verb}")
    recorder.before(rundir.RunDirectory, "put", lambda _self, name, _content: f"put-{name.replace('/', '-')}")
    recorder.before(kinds, "git", lambda *args, **_: f"git-{args[0]}" if _moves_a_ref(args) or git_too else "")
    if git_too:
        recorder.before(trees, "git", lambda *args, **_: f"trees-{args[0]}" if args[0] in _WRITES else "")


def _moves_a_ref(args: tuple[str, ...]) -> bool:
    return args[0] in ("update-ref", "commit-tree", "worktree")


def main(place: Path, copies: Path, *, git_too: bool) -> None:
    recorder = Recorder(place.parent, copies)
    watch_writes(recorder, git_too=git_too)
    with open_factory(place, agent=f"scripted:{place / demo.SCRIPT}") as factory:
        lease = factory.claim(factory.add(place / demo.SPEC).id)
        asyncio.run(factory.work(lease, watch=silent, tell=lambda _said: None))
        recorder.copy("end")
        recorder.on = False


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), git_too="--git" in sys.argv)
