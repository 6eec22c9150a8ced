"""Reads a run for people: its picture (kept up to date as the ledger grows), artifacts and diffs."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from ratchet import paths
from ratchet.core import events as ev
from ratchet.core.ledger import Entry
from ratchet.core.lines import split_lines
from ratchet.core.picture import Picture
from ratchet.core.queue import ItemRow
from ratchet.core.receipt import Artifact, Receipt
from ratchet.core.report import Report
from ratchet.errors import ArtifactBroken, GitFailed, RatchetError
from ratchet.files import state_dir
from ratchet.store.protocols import RunRow, Store
from ratchet.store.run_directory import RunDirectory
from ratchet.tree_files import read_tail
from ratchet.workspace.git import repository
from ratchet.workspace.git.command import git
from ratchet.workspace.git.trees import checked_store

PICTURES_MAX = 64
FETCH_AGAIN_S = 60.0  # after a fetch that did not bring a commit: pages do not wait for an origin that is away
PAGE = 1_000
DIFF_MAX_BYTES = 200_000
TEXT_MAX_BYTES = 100_000


class RunView(msgspec.Struct, frozen=True, kw_only=True):
    row: RunRow
    item: ItemRow
    picture: Picture


class RunReader:
    """Keeps the pictures of the last runs that were looked at, and folds only what was appended since."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._pictures: OrderedDict[str, Picture] = OrderedDict()
        self._not_fetched: dict[str, float] = {}
        self._lock = threading.Lock()

    def view(self, run: str) -> RunView:
        """Raises NotFound."""
        row = self.store.run(run)
        item = self.store.item_row(row.item)
        with self._lock:
            picture = self._pictures.pop(run, None) or Picture()
            self._read_on(run, picture)
            self._pictures[run] = picture
            while len(self._pictures) > PICTURES_MAX:
                self._pictures.popitem(last=False)
        if picture.ended is None:
            picture.watch(datetime.now(UTC).timestamp())
        return RunView(row=row, item=item, picture=picture)

    def _read_on(self, run: str, picture: Picture) -> None:
        while entries := self.store.entries_after(run, after=picture.seq, limit=PAGE):
            for entry in entries:
                picture.began_at = picture.began_at or entry.at
                at = datetime.fromisoformat(entry.at).timestamp()
                picture.add(entry.seq, at, ev.decode(entry.kind, entry.data))
            if len(entries) < PAGE:
                return

    def entries(self, run: str, *, after: int, limit: int) -> list[Entry]:
        return self.store.entries_after(run, after=after, limit=limit)

    def receipts(self, run: str) -> dict[int, Receipt]:
        return {receipt.step: receipt for receipt in self.store.receipts(run)}

    # --- files -----------------------------------------------------------------------------------------------

    def text(self, view: RunView, artifact: Artifact) -> str:
        """Return an artifact as text; why it cannot be read otherwise."""
        try:
            content = self._content(view, artifact)
        except RatchetError as error:
            return error.message
        shown = content[:TEXT_MAX_BYTES].decode(errors="replace")
        return shown if len(content) <= TEXT_MAX_BYTES else f"{shown}\n… {len(content) - TEXT_MAX_BYTES} more bytes"

    def report(self, view: RunView, artifact: Artifact) -> Report | None:
        try:
            return msgspec.json.decode(self._content(view, artifact), type=Report)
        except (ArtifactBroken, msgspec.MsgspecError):
            return None

    def logs(self, view: RunView, step: int) -> list[tuple[str, str]]:
        """Return the end of each log of a step."""
        folder = self._directory(view).path / "logs"
        found = sorted(folder.glob(f"step-{step}-*.log")) + sorted(folder.glob(f"step-{step}.*"))
        return [(path.name, _tail(path)) for path in found if path.is_file() and not path.is_symlink()]

    def diff(self, view: RunView, before: str, after: str) -> str:
        """Return the difference of two trees of the run. Empty if the trees are gone or on another machine."""
        if not before or not after or before == after:
            return ""
        repo = _folder(view)
        try:
            repository.check_state_dir(repo)
            trees = checked_store(state_dir(repo) / "trees.git")
        except (RatchetError, OSError):
            return ""
        env = {
            "GIT_DIR": str(trees),
            "GIT_ALTERNATE_OBJECT_DIRECTORIES": str(repo / ".git" / "objects"),
        }
        return _diff(("diff-tree", "-r", "-p", *_PLAIN, before, after), repo, env)

    def commit_diff(self, view: RunView, commit: str) -> str:
        repo = self._with_commit(view, commit)
        return _diff(("diff-tree", "-r", "-p", "--no-commit-id", *_PLAIN, commit), repo, {})

    def trailers(self, view: RunView, commit: str) -> dict[str, str]:
        """Return the proof in a commit's message; empty if the commit is not on this machine."""
        try:
            lines = split_lines(repository.message_of(self._with_commit(view, commit), commit))
        except (GitFailed, RatchetError):
            return {}
        split = [line.partition(": ") for line in lines if line.startswith("Ratchet-")]
        return {name: value for name, _, value in split}

    def _directory(self, view: RunView) -> RunDirectory:
        return RunDirectory(state_dir(_folder(view)), view.row.run)

    def _content(self, view: RunView, artifact: Artifact) -> bytes:
        """Return an artifact from the run's directory, or from the store if another host wrote it."""
        try:
            return self._directory(view).get(artifact)
        except ArtifactBroken:
            content = self.store.artifact(view.row.run, artifact.sha256)
            if content is None:
                raise
            return content

    def _with_commit(self, view: RunView, commit: str) -> Path:
        """Return the repository on this machine, after fetching a commit that another host has pushed."""
        repo, now = view.item.item.repo, time.monotonic()
        if now < self._not_fetched.get(repo, 0.0):
            return _folder(view)
        try:
            place = repository.available_repository(repo, clones=paths.clones(), commit=commit)
            is_here = repository.commit_of(place, commit) is not None
        except (RatchetError, OSError):
            is_here = False
        if not is_here:
            self._not_fetched[repo] = now + FETCH_AGAIN_S
        return _folder(view)


_PLAIN = ("--no-color", "--no-ext-diff", "--no-textconv", "--end-of-options")


def _folder(view: RunView) -> Path:
    return repository.clone_path(view.item.item.repo, clones=paths.clones())


def _diff(command: tuple[str, ...], repo: Path, env: dict[str, str]) -> str:
    try:
        out = git(*command, cwd=repo, env=env)
    except (GitFailed, RatchetError, OSError):
        return ""
    shown = out[:DIFF_MAX_BYTES].decode(errors="replace")
    return shown if len(out) <= DIFF_MAX_BYTES else f"{shown}\n… {len(out) - DIFF_MAX_BYTES} more bytes\n"


def _tail(path: Path, size: int = 20_000) -> str:
    return read_tail(path.parent, path.name, max_bytes=size).decode(errors="replace")
