"""Overlay workspaces: a private layer mounted over a base. The cost of every operation depends on the changes only."""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from functools import partial
from pathlib import Path

import msgspec

from ratchet import tree_files
from ratchet.files import NO_ROOM, disk_full_errors
from ratchet.process.spawn import detach_namespace_holder, is_gone, start_namespace_holder, stop_namespace_holder
from ratchet.workspace import directories
from ratchet.workspace.git_workspace import BaseView, make_with_parents, write_file
from ratchet.workspace.overlay_layers import (
    NeedsIndex,
    TreeComposer,
    apply_differences,
    move_built_folders,
    remove_tree,
)
from ratchet.workspace.protocol import RECORD, WorkspaceRecord
from ratchet.workspace.syscalls import (
    is_mounted,
    mount_overlay,
    unmount,
)
from ratchet.workspace.tree_copy import size_of

HOLDER = Path(__file__).parents[1] / "namespace_holder.py"
_FILES = ("worktree/HEAD", "worktree/gitdir", "worktree/locked", "upper/.git/HEAD")
_FOLDERS = ("worktree", "work/work", "work", "upper/.git", "upper")


class Overlay(BaseView):
    """A private layer mounted over the base, as root."""

    def __init__(self, home: str, record: WorkspaceRecord) -> None:
        super().__init__(home, record)
        self._seen = ""  # the tree last written or laid out here

    @property
    def upper(self) -> Path:
        return Path(f"{self.record.layer}/upper")

    def size_bytes(self) -> int:
        return size_of(self.upper)

    def create(self) -> None:
        Path(self.record.path).mkdir(parents=True, exist_ok=True)
        self._new_layer()
        self.mount()
        self.register()

    def register(self) -> None:
        """Register by a symlink to the home, where files are much cheaper to create if it is in RAM."""
        folder = f"{self.record.layer}/worktree"
        os.mkdir(folder)
        self._describe(folder)
        make_with_parents(lambda place: os.symlink(folder, place), self._registered)

    def unregister(self) -> None:
        try:
            os.unlink(self._registered)
        except (FileNotFoundError, NotADirectoryError):
            pass
        except (IsADirectoryError, PermissionError):
            with suppress(PermissionError):  # the source is closed to us: git forgets what leads nowhere
                remove_tree(self._registered)

    def _new_layer(self) -> None:
        layer = self.record.layer
        for name in ("upper", "work", "upper/.git"):
            os.mkdir(f"{layer}/{name}")
        write_file(f"{layer}/upper/.git/HEAD", f"ref: {self.ref}\n")
        # The kernel does this for every other folder: one as old as the base's had nothing come or go (fsmonitor.py).
        at = os.stat(f"{self.record.base}/tree").st_mtime_ns
        os.utime(f"{layer}/upper", ns=(at, at))

    def _common(self) -> str:
        return Path(f"{self.record.base}/tree/.git/commondir").read_text()

    def mount(self) -> None:
        layer = self.record.layer
        mount_overlay(self.record.path, lower=f"{self.record.base}/tree", upper=f"{layer}/upper", work=f"{layer}/work")

    def unmount(self) -> None:
        while unmount(self.record.path):  # two processes may both have mounted it
            pass

    def is_mounted(self) -> bool:
        return is_mounted(self.record.path)

    def repair(self) -> None:
        if not self.is_mounted():
            self._renew(keep=True)
        super().repair()

    def remove(self) -> None:
        self.unmount()
        self.unregister()
        home = self._home
        # Remove what `create` made by name, without listing: usually there is nothing else.
        try:
            for name in _FILES:
                os.unlink(f"{home}/{name}")
            os.rmdir(self.record.path)
            for name in _FOLDERS:
                os.rmdir(f"{home}/{name}")
        except OSError:
            remove_tree(f"{home}/upper", empty=True)
            remove_tree(f"{home}/old", empty=True)

    # --- content -----------------------------------------------------------------------------------------------

    def checkpoint(self) -> str:
        if not self.is_mounted():
            self.repair()
        self.tidy()
        self.remove_refused()
        try:
            self._seen = self._compose()
        except (NeedsIndex, PermissionError):
            self._seen = self._through_index()
        return self.trees.sync(self._seen)

    def _compose(self) -> str:
        composer = TreeComposer(self.trees, self.record.base_tree)
        return composer.compose(self.upper, tracked_anyway=frozenset(self.base.tracked_anyway), before=self._seen)

    def _through_index(self) -> str:
        if not self.trees.index.exists():
            shutil.copyfile(f"{self.record.base}/trees.index", self.trees.index)
        return self.trees.write()

    def remove_refused(self) -> list[str]:
        return self.trees.remove_refused(self.upper)

    def tidy(self) -> None:
        holes = tree_files.Holes()
        for listing in tree_files.walk_inside(self.upper, locked=partial(tree_files.unlock_inside, self.path)):
            special = [name for name in listing.special if not tree_files.is_whiteout(listing.at, name)]
            for name in (*special, *listing.too_deep, *holes.too_large(listing)):
                tree_files.remove_inside(self.path, f"{listing.path}{name}")

    def reset(self, to: str) -> None:
        """Mount a new, empty layer and write the differences between base and tree into it."""
        rows = self.trees.raw_diff(self.record.base_tree, to) if to != self.record.base_tree else []
        self._renew(keep=False)
        apply_differences(self.trees, self.path, rows)
        self._seen = to
        index = Path(self.record.layer) / "index"
        if index.exists():
            self._install(index)

    def _renew(self, *, keep: bool) -> None:
        """Mount again, with the same layer (`keep`) or a new one that takes over only what tools have built."""
        old = Path(self.record.layer) / "old"
        remove_tree(old, empty=True)
        self.unmount()
        Path(self.record.path).mkdir(parents=True, exist_ok=True)
        with disk_full_errors(Path(self.record.layer)):
            if not keep and self.upper.exists():
                self.upper.rename(old)
            try:
                self._mount_anew(old)
            except OSError as error:
                if keep or error.errno not in NO_ROOM:
                    raise
                # The old layer has filled the disk: remove it first, with what was built in it.
                self.unmount()
                remove_tree(old, empty=True)
                remove_tree(self.upper)
                self._mount_anew(old)
        remove_tree(old, empty=True)

    def _mount_anew(self, old: Path) -> None:
        remove_tree(Path(self.record.layer) / "work")
        if self.upper.exists():
            os.mkdir(f"{self.record.layer}/work")
        else:
            self._new_layer()
        if old.exists():
            move_built_folders(old, self.upper, Path(self.base.folder))
        self.mount()

    def restore(self, paths: list[str], to: str) -> None:
        wanted = {os.fsencode(path) for path in paths}
        rows = self.trees.raw_diff(self.checkpoint(), to)
        apply_differences(self.trees, self.path, [row for row in rows if row.path in wanted])

    # --- commits -----------------------------------------------------------------------------------------------

    def _commit_tree(self, tree: str) -> str:
        """Write the tree from the base's index, which has the stat of every file, updated by the changed paths."""
        index = Path(self.record.layer) / "index"
        shutil.copyfile(f"{self.record.base}/tree/.git/index", index)
        return self._with_changes(index, tree)

    def commit(self, *, tree: str, message: str, parent: str, at: str, replaces: str = "") -> str:
        self._committing = True
        try:
            return super().commit(tree=tree, message=message, parent=parent, at=at, replaces=replaces)
        finally:
            self._committing = False

    _committing = False

    def follow(self, commit: str) -> None:
        index = Path(self.record.layer) / "index"
        if not (self._committing and index.exists()):
            # From the base's index, which has the stat of every file.
            shutil.copyfile(f"{self.record.base}/tree/.git/index", index)
            self._source("read-tree", "-m", commit, env={"GIT_INDEX_FILE": str(index)})
        self.repair()
        self._install(index)


class UserNamespaceOverlay(Overlay):
    """An overlay without root: mounted in a user and mount namespace that a small process keeps alive."""

    @property
    def path(self) -> Path:
        """The path through the holder's root: the mount is visible only inside its namespace."""
        assert self.record.held_by
        return Path(f"/proc/{self.record.held_by.pid}/root{self.record.path}")

    def mount(self) -> None:
        layer = self.record.layer
        words = [self.record.path, f"{self.record.base}/tree", f"{layer}/upper", f"{layer}/work"]
        held_by = start_namespace_holder(HOLDER, *words)
        self.record = msgspec.structs.replace(self.record, held_by=held_by)
        self.__dict__.pop("trees", None)  # it caches the path through the old holder
        finished = (self.home / RECORD).exists()
        directories.write_record(self._home, self.record, RECORD if finished else directories.MAKING)
        detach_namespace_holder(held_by)

    def unmount(self) -> None:
        if self.record.held_by:
            stop_namespace_holder(self.record.held_by)

    def is_mounted(self) -> bool:
        holder = self.record.held_by
        return holder is not None and not is_gone(holder) and self.path.is_dir()
