"""All kinds of workspace except the overlay, and the table of all kinds."""

from __future__ import annotations

import os
import shutil
from abc import abstractmethod
from contextlib import suppress
from pathlib import Path

import msgspec

from ratchet import tree_files
from ratchet.errors import GitFailed
from ratchet.files import write_durably
from ratchet.workspace.base_cache import share_ignored
from ratchet.workspace.git.command import git
from ratchet.workspace.git.filters import check_out_filtered, filter_programs, without_programs
from ratchet.workspace.git.submodules import check_out_submodules
from ratchet.workspace.git.trees import WHOLE_S, make_readable
from ratchet.workspace.git_workspace import BaseView, GitWorkspace
from ratchet.workspace.kinds.overlay import Overlay, UserNamespaceOverlay
from ratchet.workspace.overlay_layers import remove_tree
from ratchet.workspace.protocol import CONTAINER
from ratchet.workspace.syscalls import (
    is_subvolume,
    remove_subvolume,
    snapshot_subvolume,
)
from ratchet.workspace.tree_copy import clone, clone_or_copy, copy_bytes, copy_tree


class Worktree(GitWorkspace):
    """A git worktree: works everywhere, but writes every file."""

    def create(self) -> None:
        branch = self.ref.removeprefix("refs/heads/")
        locked = ["--lock", "--force", "--force"]
        plain = without_programs(filter_programs({"GIT_DIR": self.record.git_dir}))
        self._source(*plain, "worktree", "add", "--quiet", *locked, str(self.path), branch)
        write_durably(self.home / "dot-git", (self.path / ".git").read_bytes())  # before anything else runs there
        check_out_filtered(self.path, Path(self.record.repo), self.record.base_commit)
        check_out_submodules(
            self.path, self.record.base_commit, root=Path(self.record.repo), git_dir=Path(self.record.git_dir)
        )
        if self.record.base:
            share_ignored(Path(self.base.folder), self.path)
        self.record = msgspec.structs.replace(self.record, base_tree=self.trees.write(timeout_s=WHOLE_S))

    def repair(self) -> None:
        content = (self.home / "dot-git").read_bytes()
        try:
            with tree_files.open_inside(self.path, ".git", os.O_RDONLY) as file:
                sound = os.read(file, len(content) + 1) == content
        except OSError:
            sound = False
        if not sound:
            tree_files.remove_inside(self.path, ".git")
            tree_files.replace_inside(self.path, ".git", content)

    @property
    def _own_git(self) -> Path:
        """The worktree's folder in the git directory, which no sandbox can write."""
        return Path((self.home / "dot-git").read_text().removeprefix("gitdir:").strip())

    def _remove_locks(self) -> None:
        for lock in self._own_git.glob("*.lock"):
            remove_tree(lock)

    def _install(self, index: Path) -> None:
        shutil.copyfile(index, self._own_git / "index.ratchet")
        (self._own_git / "index.ratchet").rename(self._own_git / "index")
        (self._own_git / "HEAD").write_text(f"ref: {self.ref}\n")

    def remove(self) -> None:
        with suppress(GitFailed):
            self._source("worktree", "unlock", str(self.path))
        with suppress(GitFailed):
            self._source("worktree", "remove", "--force", "--force", str(self.path))
        if self.path.exists():
            make_readable(self.path)
            remove_tree(self.path)
            with suppress(GitFailed):
                self._source("worktree", "prune")


class CopiedView(BaseView):
    """A workspace whose files are copied from the base on creation."""

    def create(self) -> None:
        self.copy_base()
        (self.path / ".git" / "HEAD").write_text(f"ref: {self.ref}\n")
        (self.path / ".git" / "commondir").write_text(self._common())
        self.register()
        shutil.copyfile(f"{self.record.base}/trees.index", self.home / "trees.index")
        own = {"GIT_DIR": ".git", "GIT_WORK_TREE": "."}  # still ours: no agent has been here
        plain = without_programs(filter_programs(own, cwd=self.path))
        git(*plain, "update-index", "-q", "--refresh", cwd=self.path, env=own, ok=(0, 1))
        shutil.copyfile(self.path / ".git" / "index", self.home / "own.index")
        self.trees.write(timeout_s=WHOLE_S)

    @abstractmethod
    def copy_base(self) -> None: ...

    def remove(self) -> None:
        self.unregister()
        if self.path.exists():
            remove_tree(self.path)


class Btrfs(CopiedView):
    """A snapshot of the base's subvolume: nothing is copied, and inode numbers stay, so git reads nothing either."""

    def copy_base(self) -> None:
        snapshot_subvolume(Path(self.base.folder), self.path)

    def remove(self) -> None:
        if is_subvolume(self.path):
            remove_subvolume(self.path)
        super().remove()


class Reflink(CopiedView):
    """A copy whose blocks are shared with the base's."""

    def copy_base(self) -> None:
        copy_tree(Path(self.base.folder), self.path, clone)


class Copy(CopiedView):
    """A full copy: slow, works everywhere."""

    def copy_base(self) -> None:
        copy_tree(Path(self.base.folder), self.path, copy_bytes)


class Container(CopiedView):
    """A copy, which any engine can mount: steps run in containers of the project's image (`container_steps`)."""

    def copy_base(self) -> None:
        copy_tree(Path(self.base.folder), self.path, clone_or_copy)


KINDS: dict[str, type[GitWorkspace]] = {
    "overlay": Overlay,
    "overlay-userns": UserNamespaceOverlay,
    "btrfs": Btrfs,
    "reflink": Reflink,
    "worktree": Worktree,
    "copy": Copy,
    CONTAINER: Container,
}
