"""The kinds of workspace: how each is laid down, put back and taken up. What they share is in `GitWorkspace`."""

from __future__ import annotations

import os
import shutil
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress
from functools import cached_property
from pathlib import Path

import msgspec

from ratchet.core import trailers
from ratchet.core.snapshot import Manifest
from ratchet.errors import GitFailed
from ratchet.files import NO_ROOM, room_for, write_durably
from ratchet.process import hold, is_gone, let_go, stay
from ratchet.workspace import Record
from ratchet.workspace.bases import Base, read_base, share_ignored
from ratchet.workspace.copying import cloned, copied, copy_tree, size_of
from ratchet.workspace.git import git
from ratchet.workspace.layers import Composer, TooOdd, carry_built, lay_out, remove
from ratchet.workspace.submodules import bring, entries, is_inside
from ratchet.workspace.syscalls import (
    is_mounted,
    is_subvolume,
    mount_overlay,
    remove_subvolume,
    snapshot_subvolume,
    unmount,
)
from ratchet.workspace.trees import Trees, make_readable

BRANCH = "refs/heads/ratchet/{slug}"
HOLDER = Path(__file__).with_name("holder.py")


class GitWorkspace(ABC):
    """Trees for undo, commits into the source repository."""

    def __init__(self, home: str, record: Record) -> None:
        self._home, self.record = home, record
        self.ref = BRANCH.format(slug=record.slug)

    @cached_property
    def home(self) -> Path:
        return Path(self._home)

    @property
    def path(self) -> Path:
        return Path(self.record.path)

    @cached_property
    def base(self) -> Base:
        base = read_base(self.record.base)
        assert base
        return base

    @cached_property
    def submodules(self) -> list[str]:
        """Those that are folders here, and entries in a commit."""
        if self.record.base:
            return self.base.submodules
        return list(entries(Path(self.record.git_dir), self.record.base_commit))

    @cached_property
    def trees(self) -> Trees:
        return Trees(
            store=Path(self.record.repo) / ".ratchet" / "trees.git",
            index=self.home / "trees.index",
            folder=self.path,
            borrow=Path(self.record.git_dir) / "objects",
            enter=self.enter,
            reseed=self.reseed,
        )

    def enter(self, folder: Path) -> list[str]:  # noqa: ARG002 — where everyone sees the mount there is no need
        return []

    @abstractmethod
    def lay_down(self) -> None:
        """Make the content that of the base. Called once, on nothing."""

    @abstractmethod
    def take_up(self) -> None:
        """Remove everything outside the home folder. Removing what is gone is success."""

    @abstractmethod
    def mend(self) -> None:
        """Make the workspace usable again, whatever was done to it or its machine."""

    def reseed(self) -> None:
        """Let the trees' index know again what the base tracks, ignored or not."""
        made = f"{self.record.base}/trees.index"
        if self.record.base and os.path.exists(made):
            shutil.copyfile(made, self.home / "trees.index")
        else:
            there = [path for path in self.submodules if _has_content(self.path / path)]
            self.trees.seed(self.record.base_commit, there)
            self.trees.take_whole(there)

    def unlock(self) -> None:
        """Remove what a killed git left: locks, a torn index. Whoever holds the run's lease is the only one here."""
        for place in (self.home, Path(self.record.layer or self.home), self.path / ".git", self._worktree_folder()):
            for lock in place.glob("*.lock") if place.is_dir() else ():
                remove(lock)
        if self.trees.index.exists():
            self.trees.mend_index()

    def _worktree_folder(self) -> Path:
        kept = self.home / "dot-git"
        return Path(kept.read_text().removeprefix("gitdir:").strip()) if kept.exists() else self.home

    def size_bytes(self) -> int:
        """What the writable layer takes."""
        return size_of(Path(self.record.layer or self.record.path))

    # --- content -----------------------------------------------------------------------------------------------

    def checkpoint(self) -> str:
        return self.trees.write()

    def reset(self, to: str) -> None:
        self.mend()
        self.trees.restore(to)

    def restore(self, paths: list[str], to: str) -> None:
        self.trees.restore_paths(paths, to)

    def changes(self, before: str, after: str) -> list[str]:
        return self.trees.changes(before, after)

    def diff(self, before: str, after: str, *, max_bytes: int = 500_000) -> str:
        return self.trees.diff(before, after, max_bytes=max_bytes)

    def manifest(self, tree: str) -> Manifest:
        return self.trees.manifest(tree)

    # --- commits -----------------------------------------------------------------------------------------------

    def commit(self, *, message: str, parent: str, at: str) -> str:
        # The project's own attributes apply here (line ends, LFS): a commit is what its people expect to check out.
        tree = self._commit_tree()
        dates = {"GIT_AUTHOR_DATE": at, "GIT_COMMITTER_DATE": at}
        made = self._source("commit-tree", tree, "-p", parent, "-F", "-", env=dates, stdin=message.encode())
        commit = made.decode().strip()
        self._source("update-ref", "-m", "ratchet: green", self.ref, commit, parent)
        self.follow(commit)
        return commit

    def _commit_tree(self) -> str:
        """The base commit with exactly the checked changes: nothing ignored, excluded or cached slips in or out."""
        index = self.home / "commit.index"
        index.unlink(missing_ok=True)
        return self._with_changes(index, self.checkpoint())

    def _with_changes(self, index: Path, tree: str) -> str:
        env = {"GIT_INDEX_FILE": str(index), "GIT_WORK_TREE": ".", "GIT_LITERAL_PATHSPECS": "1"}
        if not index.exists():
            self._inside("read-tree", self.record.base_commit, env=env)
        rows = self.trees.raw_diff(self.record.base_tree, tree)
        paths = [row.path for row in rows if not is_inside(row.path, self.submodules)]
        if paths:
            how = ["--add", "--remove", "--replace", "-z", "--stdin"]
            self._inside("update-index", *how, env=env, stdin=b"".join(path + b"\0" for path in paths))
        return self._inside("write-tree", env=env).decode().strip()

    def undo_commit(self, *, commit: str, parent: str) -> None:
        if self.tip() == commit:
            self._source("update-ref", "-m", "ratchet: gate failed", self.ref, parent, commit)
        self.follow(parent)

    def follow(self, commit: str) -> None:
        """Let the workspace's own git see the commit, so that `git status` there tells the truth."""
        self.mend()
        own = {"GIT_DIR": ".git", "GIT_WORK_TREE": "."}
        with suppress(GitFailed):
            self._inside("symbolic-ref", "HEAD", self.ref, env=own)
        self._inside("reset", "--quiet", "--mixed", commit, env=own)

    def hold(self, commit: str) -> None:
        if self.tip() != commit:
            self._source("update-ref", "-m", "ratchet: put back", self.ref, commit)
            self.follow(commit)

    def read(self, tree: str, path: str) -> bytes | None:
        return next(self.trees.contents([tree.encode() + b":" + os.fsencode(path)], b"blob"))

    def tip(self) -> str:
        return self._source("rev-parse", "--verify", self.ref).decode().strip()

    def find_commit(self, key: str, *, since: str) -> str | None:
        log = self._source("log", "-z", "--format=%H%n%B", f"{since}..{self.ref}").decode(errors="replace")
        for row in log.split("\0"):
            commit, _, body = row.partition("\n")
            proof = trailers.parse(body)
            if proof and proof.key == key:
                return commit
        return None

    def _source(self, *args: str, env: dict[str, str] | None = None, stdin: bytes = b"") -> bytes:
        """Git on the source repository, where no folder is needed."""
        return git(*args, cwd=self.home, env={"GIT_DIR": self.record.git_dir, **(env or {})}, stdin=stdin)

    def _inside(self, *args: str, env: dict[str, str], stdin: bytes = b"") -> bytes:
        """Git where the content is."""
        enter = self.enter(self.path)
        whole = {"GIT_DIR": self.record.git_dir, **env}
        return git(*args, cwd=None if enter else self.path, env=whole, stdin=stdin, enter=enter)


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


class View(GitWorkspace):
    """A view of a base, with a `.git` folder of its own whose objects and branches are the source's."""

    @property
    def _registered(self) -> str:
        return f"{self.record.git_dir}/worktrees/ratchet-{self.record.slug}"

    def register(self) -> None:
        """Tell the source's git of us: it lists us, keeps the branch from being deleted, and does not prune us."""
        self._describe(self._registered, make=True)

    def _describe(self, folder: str, *, make: bool) -> None:
        if make:
            _make_below(os.mkdir, folder)
        _put(f"{folder}/HEAD", f"ref: {self.ref}\n")
        _put(f"{folder}/gitdir", f"{self.record.path}/.git\n")
        _put(f"{folder}/locked", "a workspace of ratchet\n")

    def unregister(self) -> None:
        remove(self._registered)

    def mend(self) -> None:
        dot_git = self.path / ".git"
        wanted = self._common()
        if not dot_git.is_symlink() and _reads(dot_git / "commondir", wanted) and (dot_git / "HEAD").is_file():
            return
        remove(dot_git)
        dot_git.mkdir()
        (dot_git / "commondir").write_text(wanted)
        (dot_git / "HEAD").write_text(f"ref: {self.ref}\n")
        self._inside("reset", "--quiet", "--mixed", env={"GIT_DIR": ".git", "GIT_WORK_TREE": "."})

    def _common(self) -> str:
        """What `.git/commondir` says: where objects and branches are."""
        return f"{self.record.git_dir}\n"


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


class Overlay(View):
    """A mount of a private layer over the base. Creating, putting back and looking cost what changed."""

    def __init__(self, home: str, record: Record) -> None:
        super().__init__(home, record)
        self._seen = ""  # the tree last written or laid out here

    @property
    def upper(self) -> Path:
        return Path(f"{self.record.layer}/upper")

    def lay_down(self) -> None:
        os.mkdir(self.record.path)
        self._new_layer()
        self.mount()
        self.register()

    def register(self) -> None:
        """The same by one link: files in the layer's folder cost a tenth of those on the source's disk."""
        folder = f"{self.record.layer}/worktree"
        os.mkdir(folder)
        self._describe(folder, make=False)
        _make_below(lambda place: os.symlink(folder, place), self._registered)

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
        _put(f"{layer}/upper/.git/HEAD", f"ref: {self.ref}\n")
        # The kernel does this for every other folder: one as old as the base's had nothing come or go (fsmonitor.py).
        at = os.stat(f"{self.record.base}/tree").st_mtime_ns
        os.utime(f"{layer}/upper", ns=(at, at))

    def _common(self) -> str:
        return Path(f"{self.record.base}/tree/.git/commondir").read_text()

    def mount(self) -> None:
        layer = self.record.layer
        mount_overlay(self.record.path, lower=f"{self.record.base}/tree", upper=f"{layer}/upper", work=f"{layer}/work")

    def unmount(self) -> None:
        while unmount(self.record.path):
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
        if owns_layer(self.record, self._home):
            remove(self.record.layer, empty=True)

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

    def enter(self, folder: Path) -> list[str]:
        assert self.record.held_by
        inside = str(folder).removeprefix(f"/proc/{self.record.held_by.pid}/root")
        join = ["nsenter", "--preserve-credentials", "--user", "--mount", f"--target={self.record.held_by.pid}", "--"]
        return [*join, "sh", "-c", 'cd "$1" && shift && exec "$@"', "sh", inside]

    def mount(self) -> None:
        layer = self.record.layer
        words = [self.record.path, f"{self.record.base}/tree", f"{layer}/upper", f"{layer}/work"]
        held_by = hold(HOLDER, *words)
        self.record = msgspec.structs.replace(self.record, held_by=held_by)
        self.__dict__.pop("trees", None)  # it knows the folder by the old holder's name
        whole = self.home / "workspace.json"
        name = whole if whole.exists() else self.home / "making.json"
        made = self.home / ".record"
        made.write_bytes(msgspec.json.encode(self.record))
        made.rename(name)
        stay(held_by)

    def unmount(self) -> None:
        if self.record.held_by:
            let_go(self.record.held_by)

    def is_mounted(self) -> bool:
        holder = self.record.held_by
        return holder is not None and not is_gone(holder) and self.path.is_dir()


KINDS: dict[str, type[GitWorkspace]] = {
    "overlay": Overlay,
    "overlay-userns": HeldOverlay,
    "btrfs": Btrfs,
    "reflink": Reflink,
    "worktree": Worktree,
    "copy": Copy,
}


def owns_layer(record: Record, home: str) -> bool:
    """Whether the layer's folder is this workspace's; on the RAM disk one of the same slug may be another's."""
    if record.on != "ram":
        return bool(record.layer)
    try:
        return os.readlink(f"{record.layer}/home") == home
    except FileNotFoundError:
        with suppress(OSError):
            os.rmdir(record.layer)  # killed between making it and marking it: then it is empty
        return False
    except OSError:
        return False


def _make_below(make: Callable[[str], None], place: str) -> None:
    """Make something in a folder that may not be there yet; what an earlier maker left gives way."""
    try:
        make(place)
    except FileNotFoundError:
        os.makedirs(os.path.dirname(place), exist_ok=True)
        make(place)
    except FileExistsError:
        remove(place)
        make(place)


def _put(path: str, content: str) -> None:
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    try:
        os.write(handle, content.encode())
    finally:
        os.close(handle)


def _has_content(folder: Path) -> bool:
    return folder.is_dir() and any(folder.iterdir())


def _reads(path: Path, wanted: str) -> bool:
    try:
        return path.read_text() == wanted
    except (OSError, UnicodeDecodeError):
        return False
