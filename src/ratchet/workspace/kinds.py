"""The kinds of workspace besides the overlay, and the list of all of them."""

from __future__ import annotations

import shutil
from abc import abstractmethod
from contextlib import suppress
from pathlib import Path

import msgspec

from ratchet.errors import GitFailed
from ratchet.files import write_durably
from ratchet.workspace.bases import share_ignored
from ratchet.workspace.copying import cloned, copied, copy_tree
from ratchet.workspace.layers import remove
from ratchet.workspace.overlay import HeldOverlay, Overlay
from ratchet.workspace.submodules import bring
from ratchet.workspace.syscalls import (
    is_subvolume,
    remove_subvolume,
    snapshot_subvolume,
)
from ratchet.workspace.trees import make_readable
from ratchet.workspace.views import GitWorkspace, View


class Worktree(GitWorkspace):
    """`git worktree add`: works wherever git does, at the price of writing every file."""

    def lay_down(self) -> None:
        branch = self.ref.removeprefix("refs/heads/")
        locked = ["--lock", "--force", "--force"]
        self._source("worktree", "add", "--quiet", *locked, str(self.path), branch)
        write_durably(self.home / "dot-git", (self.path / ".git").read_bytes())
        bring(self.path, self.record.base_commit, root=Path(self.record.repo), git_dir=Path(self.record.git_dir))
        if self.record.base:
            share_ignored(Path(self.base.folder), self.path)
        self.record = msgspec.structs.replace(self.record, base_tree=self.trees.write())

    def mend(self) -> None:
        dot_git = self.path / ".git"
        content = (self.home / "dot-git").read_bytes()
        if dot_git.is_symlink() or not dot_git.is_file() or dot_git.read_bytes() != content:
            remove(dot_git)
            dot_git.write_bytes(content)

    def take_up(self) -> None:
        with suppress(GitFailed):
            self._source("worktree", "unlock", str(self.path))
        with suppress(GitFailed):
            self._source("worktree", "remove", "--force", "--force", str(self.path))
        if self.path.exists():
            make_readable(self.path)
            remove(self.path)
            with suppress(GitFailed):
                self._source("worktree", "prune")


class CopiedView(View):
    """A view whose files are its own from the start."""

    def lay_down(self) -> None:
        self.lay()
        (self.path / ".git" / "HEAD").write_text(f"ref: {self.ref}\n")
        (self.path / ".git" / "commondir").write_text(self._common())
        self.register()
        shutil.copyfile(f"{self.record.base}/trees.index", self.home / "trees.index")
        self._inside("update-index", "-q", "--refresh", env={"GIT_DIR": ".git", "GIT_WORK_TREE": "."})
        self.trees.write()

    @abstractmethod
    def lay(self) -> None: ...

    def take_up(self) -> None:
        self.unregister()
        if self.path.exists():
            remove(self.path)


class Btrfs(CopiedView):
    """A snapshot of the base's subvolume: nothing is copied, and inode numbers stay, so neither is anything read."""

    def lay(self) -> None:
        snapshot_subvolume(Path(self.base.folder), self.path)

    def take_up(self) -> None:
        if is_subvolume(self.path):
            remove_subvolume(self.path)
        super().take_up()


class Reflink(CopiedView):
    """A copy whose blocks are shared with the base's."""

    def lay(self) -> None:
        copy_tree(Path(self.base.folder), self.path, cloned)


class Copy(CopiedView):
    """Every byte again: slow, and works everywhere."""

    def lay(self) -> None:
        copy_tree(Path(self.base.folder), self.path, copied)


KINDS: dict[str, type[GitWorkspace]] = {
    "overlay": Overlay,
    "overlay-userns": HeldOverlay,
    "btrfs": Btrfs,
    "reflink": Reflink,
    "worktree": Worktree,
    "copy": Copy,
}
