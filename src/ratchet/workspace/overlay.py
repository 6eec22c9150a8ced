"""The overlay: a private layer mounted over a base. Creating, putting back and looking cost what changed."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import msgspec

from ratchet.files import NO_ROOM, room_for
from ratchet.process import hold, is_gone, let_go, stay
from ratchet.workspace import Record, homes
from ratchet.workspace.copying import size_of
from ratchet.workspace.layers import Composer, TooOdd, carry_built, lay_out, remove
from ratchet.workspace.syscalls import (
    is_mounted,
    mount_overlay,
    unmount,
)
from ratchet.workspace.views import View, make_below, put

HOLDER = Path(__file__).with_name("holder.py")
_FILES = ("worktree/HEAD", "worktree/gitdir", "worktree/locked", "upper/.git/HEAD")
_FOLDERS = ("worktree", "tree", "work/work", "work", "upper/.git", "upper")


class Overlay(View):
    """A mount of a private layer over the base. Creating, putting back and looking cost what changed."""

    def __init__(self, home: str, record: Record) -> None:
        super().__init__(home, record)
        self._seen = ""  # the tree last written or laid out here

    @property
    def upper(self) -> Path:
        return Path(f"{self.record.layer}/upper")

    def size_bytes(self) -> int:
        return size_of(self.upper)

    def lay_down(self) -> None:
        os.mkdir(self.record.path)
        self._new_layer()
        self.mount()
        self.register()

    def register(self) -> None:
        """The same by one link: files in the home cost a tenth of those on the source's disk, should it be in RAM."""
        folder = f"{self.record.layer}/worktree"
        os.mkdir(folder)
        self._describe(folder)
        make_below(lambda place: os.symlink(folder, place), self._registered)

    def unregister(self) -> None:
        try:
            os.unlink(self._registered)
        except FileNotFoundError:
            pass
        except (IsADirectoryError, PermissionError):
            remove(self._registered)

    def _new_layer(self) -> None:
        layer = self.record.layer
        for name in ("upper", "work", "upper/.git"):
            os.mkdir(f"{layer}/{name}")
        put(f"{layer}/upper/.git/HEAD", f"ref: {self.ref}\n")
        # The kernel does this for every other folder: one as old as the base's had nothing come or go (fsmonitor.py).
        at = os.stat(f"{self.record.base}/tree").st_mtime_ns
        os.utime(f"{layer}/upper", ns=(at, at))

    def _common(self) -> str:
        return Path(f"{self.record.base}/tree/.git/commondir").read_text()

    def mount(self) -> None:
        layer = self.record.layer
        mount_overlay(self.record.path, lower=f"{self.record.base}/tree", upper=f"{layer}/upper", work=f"{layer}/work")

    def unmount(self) -> None:
        while unmount(self.record.path):  # two who found it unmounted may both have mounted it
            pass

    def is_mounted(self) -> bool:
        return is_mounted(self.record.path)

    def mend(self) -> None:
        if not self.is_mounted():
            self._renew(keep=True)
        super().mend()

    def take_up(self) -> None:
        self.unmount()
        self.unregister()
        home = self._home
        # What `lay_down` made goes by name, without a look: mostly there is nothing else.
        try:
            for name in _FILES:
                os.unlink(f"{home}/{name}")
            for name in _FOLDERS:
                os.rmdir(f"{home}/{name}")
        except OSError:
            remove(f"{home}/upper", empty=True)
            remove(f"{home}/old", empty=True)

    # --- content -----------------------------------------------------------------------------------------------

    def checkpoint(self) -> str:
        if not self.is_mounted():
            self.mend()
        self._unhide()
        try:
            self._seen = self._compose()
        except (TooOdd, PermissionError):
            self._seen = self._through_index()
        return self._seen

    def _compose(self) -> str:
        composer = Composer(self.trees, self.record.base_tree)
        return composer.compose(self.upper, tracked_anyway=frozenset(self.base.tracked_anyway), before=self._seen)

    def _through_index(self) -> str:
        if not self.trees.index.exists():
            shutil.copyfile(f"{self.record.base}/trees.index", self.trees.index)
        return self.trees.write()

    def _unhide(self) -> None:
        """A repository inside the tree would be one opaque entry to git: without its `.git` it is a folder again."""
        for root, folders, names in os.walk(self.upper):
            inside = os.path.relpath(root, self.upper)
            if inside != "." and ".git" in [*folders, *names]:
                remove(self.path / inside / ".git")
            folders[:] = [name for name in folders if name != ".git"]

    def reset(self, to: str) -> None:
        """A new, empty layer, and in it what the tree has more than the base."""
        rows = self.trees.raw_diff(self.record.base_tree, to) if to != self.record.base_tree else []
        self._renew(keep=False)
        lay_out(self.trees, self.path, rows)
        self._seen = to
        index = Path(self.record.layer) / "index"
        if index.exists():
            self._install_index(index)

    def _renew(self, *, keep: bool) -> None:
        """Mount again; the layer is kept, or set aside, emptied of what tools built, and thrown away."""
        old = Path(self.record.layer) / "old"
        remove(old, empty=True)
        self.unmount()
        Path(self.record.path).mkdir(exist_ok=True)
        with room_for(Path(self.record.layer)):
            if not keep and self.upper.exists():
                self.upper.rename(old)
            try:
                self._mount_anew(old)
            except OSError as error:
                if keep or error.errno not in NO_ROOM:
                    raise
                # It was the old layer that filled the disk: it goes first, and what was built with it.
                self.unmount()
                remove(old, empty=True)
                remove(self.upper)
                self._mount_anew(old)
        remove(old, empty=True)

    def _mount_anew(self, old: Path) -> None:
        remove(Path(self.record.layer) / "work")
        if self.upper.exists():
            os.mkdir(f"{self.record.layer}/work")
        else:
            self._new_layer()
        if old.exists():
            carry_built(old, self.upper, Path(self.base.folder))
        self.mount()

    def restore(self, paths: list[str], to: str) -> None:
        wanted = {os.fsencode(path) for path in paths}
        rows = self.trees.raw_diff(self.checkpoint(), to)
        lay_out(self.trees, self.path, [row for row in rows if row.path in wanted])

    # --- commits -----------------------------------------------------------------------------------------------

    def _commit_tree(self) -> str:
        """The base's index, which knows every file's stat, with the changed paths taken in."""
        tree = self.checkpoint()
        index = Path(self.record.layer) / "index"
        shutil.copyfile(f"{self.record.base}/tree/.git/index", index)
        return self._with_changes(index, tree)

    def commit(self, *, message: str, parent: str, at: str) -> str:
        self._committing = True
        try:
            return super().commit(message=message, parent=parent, at=at)
        finally:
            self._committing = False

    _committing = False

    def follow(self, commit: str) -> None:
        index = Path(self.record.layer) / "index"
        if self._committing and index.exists():
            self.mend()
            self._install_index(index)
            return
        super().follow(commit)
        shutil.copyfile(self.path / ".git" / "index", index)

    def _install_index(self, index: Path) -> None:
        made = self.path / ".git" / "index.ratchet"
        shutil.copyfile(index, made)
        made.rename(self.path / ".git" / "index")


class HeldOverlay(Overlay):
    """The same without root: mounted in a user and mount namespace which a small process keeps, and others join."""

    @property
    def path(self) -> Path:
        """Through the holder's root: the mount itself is seen only by those who are in its namespace."""
        assert self.record.held_by
        return Path(f"/proc/{self.record.held_by.pid}/root{self.record.path}")

    def mount(self) -> None:
        layer = self.record.layer
        words = [self.record.path, f"{self.record.base}/tree", f"{layer}/upper", f"{layer}/work"]
        held_by = hold(HOLDER, *words)
        self.record = msgspec.structs.replace(self.record, held_by=held_by)
        self.__dict__.pop("trees", None)  # it knows the folder by the old holder's name
        finished = (self.home / homes.RECORD).exists()
        homes.write(self._home, self.record, homes.RECORD if finished else homes.MAKING)
        stay(held_by)

    def unmount(self) -> None:
        if self.record.held_by:
            let_go(self.record.held_by)

    def is_mounted(self) -> bool:
        holder = self.record.held_by
        return holder is not None and not is_gone(holder) and self.path.is_dir()
