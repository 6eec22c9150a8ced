"""Carries a run to its end and copies the whole disk state before every durable write on the way.

Run as a program: `python -m tests.crash.record PLACE COPIES [--git] [--scene NAME]`: the demo's run, or a workflow's
scene. A copy is what a power cut at that moment leaves behind.
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ratchet.app.runs import RunService
from ratchet.interfaces.cli import demo
from ratchet.interfaces.terminal.live_view import ignore_event
from ratchet.store import run_directory
from ratchet.store.sqlite.store import SqliteStore
from ratchet.workspace import git_workspace
from ratchet.workspace.git import trees
from tests.engine.workflows import scenes
from tests.support import open_factory

# Git commands that change something; the others only look.
_WRITES = {"add", "read-tree", "clean", "restore", "commit-tree", "update-ref", "write-tree", "reset", "worktree"}


_PIPES = shutil.ignore_patterns("*-signals")  # who waits for a signal does not outlive the power


class Recorder:
    def __init__(self, base: Path, copies: Path) -> None:
        self.base, self.copies, self.count, self.on = base, copies, 0, True
        self._turn = threading.Lock()  # a swarm writes from many threads

    def copy(self, what: str) -> None:
        """One state of the disk: everything the run has written anywhere."""
        with self._turn:
            if self.on:
                target = self.copies / f"{self.count:03d}-{what}"
                shutil.copytree(self.base, target, symlinks=True, ignore=_PIPES, copy_function=_still_there)
                self.count += 1

    def before(self, owner: Any, name: str, what: Callable[..., str]) -> None:
        real = getattr(owner, name)

        def recorded(*args: Any, **kwargs: Any) -> Any:
            label = what(*args, **kwargs)
            if label:
                self.copy(label)
            return real(*args, **kwargs)

        setattr(owner, name, recorded)


def _still_there(source: str, target: str, *, follow_symlinks: bool = True) -> str:
    """What another thread removed meanwhile is a file that was gone when the power was."""
    try:
        return str(shutil.copy2(source, target, follow_symlinks=follow_symlinks))
    except FileNotFoundError:
        return target


def watch_writes(recorder: Recorder, *, git_too: bool) -> None:
    """`git_too`: also between the git commands that one durable step is made of."""
    for verb in ("add", "claim", "append", "release"):
        recorder.before(SqliteStore, verb, lambda *_args, _verb=verb, **_: f"store-{_verb}")
    recorder.before(run_directory.RunDirectory, "put", lambda _self, name, _content: f"put-{name.replace('/', '-')}")
    recorder.before(git_workspace, "git", lambda *args, **_: f"git-{args[0]}" if _moves_a_ref(args) or git_too else "")
    if git_too:
        recorder.before(trees, "git", lambda *args, **_: f"trees-{args[0]}" if args[0] in _WRITES else "")


def _moves_a_ref(args: tuple[str, ...]) -> bool:
    return args[0] in ("update-ref", "commit-tree", "worktree")


def main(place: Path, copies: Path, *, git_too: bool, scene: str) -> None:
    recorder = Recorder(place.parent, copies)
    watch_writes(recorder, git_too=git_too)
    with open_run(place, scene) as factory:
        lease = factory.claim(ask(factory, place, scene))
        asyncio.run(factory.work(lease, watch=ignore_event, on_agent_event=lambda _text: None))
        recorder.copy("end")
        recorder.on = False


STORE = "store=.ratchet/ratchet.db"  # within what is copied and put back


def open_run(place: Path, scene: str = "") -> RunService:
    if scene:
        return scenes.open_scene(place, scenes.SCENES[scene], STORE)
    return open_factory(place, STORE, "tdd.sealed=true", agent=f"scripted:{place / demo.SCRIPT}")


def ask(factory: RunService, place: Path, scene: str = "") -> str:
    if scene:
        return scenes.ask(factory, scenes.SCENES[scene], place).id
    return factory.add(place / demo.SPEC).id


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("place", type=Path)
    parser.add_argument("copies", type=Path)
    parser.add_argument("--git", action="store_true")
    parser.add_argument("--scene", default="")
    given = parser.parse_args()
    main(given.place, given.copies, git_too=given.git, scene=given.scene)
