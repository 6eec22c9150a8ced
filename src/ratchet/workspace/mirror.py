"""Keep a workspace in step with a developer's working tree, index or last commit.

Only changed files are copied, so a save costs the same in a small and in a huge tree. The developer's tree is only
read; git runs there without locks. Processes of the project may change the mirror at any time, so it is read and
written by way of `tree_files` only.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from enum import StrEnum
from pathlib import Path

from ratchet.errors import GitFailed
from ratchet.tree_files import (
    copy_inside,
    link_inside,
    lstat_inside,
    open_inside,
    read_link_inside,
    remove_inside,
    replace_inside,
    walk_inside,
)
from ratchet.workspace.file_watcher import ChangeBatch
from ratchet.workspace.git.command import git, git_read_only, git_text
from ratchet.workspace.git.trees import is_excluded, is_kept
from ratchet.workspace.git_workspace import GitWorkspace
from ratchet.workspace.kinds.overlay import Overlay

_GONE = ("000000", "")
# A file was deleted or replaced in the developer's tree or, by a process of the project, in the mirror.
_DISTURBED = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EEXIST, errno.ENOTEMPTY, errno.EISDIR, errno.ENXIO)
Row = tuple[str, str]  # mode and object id


class MirrorSource(StrEnum):
    """What the mirror follows."""

    SAVE = "save"
    STAGE = "stage"
    COMMIT = "commit"
    MANUAL = "manual"


class Mirror:
    """`compare` returns outdated paths, `copy` updates them: the caller can stop a test run in between."""

    def __init__(self, workspace: GitWorkspace, repo: Path, follows: MirrorSource) -> None:
        self.workspace, self.repo, self.follows = workspace, repo, follows
        self.path, self._base = workspace.path, workspace.record.base_commit
        self.git_dir = Path(git_text("rev-parse", "--absolute-git-dir", cwd=repo))
        self._copied: dict[str, str] = {}  # what differs from the base, and how: the digest of its content
        self._rows: dict[str, Row] = {}
        self._next_rows: dict[str, Row] = {}
        self._lower = Path(workspace.record.base) / "tree" if workspace.record.base else None

    def compare(self, batch: ChangeBatch) -> list[str]:
        """Return the paths whose content in the mirror is outdated."""
        if self.follows in (MirrorSource.STAGE, MirrorSource.COMMIT):
            return self._moved_rows() if batch.git or batch.whole else []
        if batch.whole or ".gitignore" in {os.path.basename(path) for path in batch.paths}:
            return self._differing(self._candidates())
        return self._differing(self._wanted(batch.paths))

    def copy(self, paths: list[str]) -> None:
        for path in paths:
            if self.follows in (MirrorSource.STAGE, MirrorSource.COMMIT):
                self._copy_row(path)
            else:
                self._copy_file(path)

    def tree(self) -> str:
        """Return a digest of the content."""
        seen = hashlib.sha256(self._base.encode())
        for path, digest in sorted(self._copied.items()):
            seen.update(f"{path}\0{digest}\0".encode(errors="surrogateescape"))
        return seen.hexdigest()[:16]

    # --- the working tree ------------------------------------------------------------------------------------------

    def _candidates(self) -> set[str]:
        """Return all paths that may differ from the base, according to git."""
        changed = git_read_only(
            "diff", "--name-only", "-z", "--no-renames", "--no-ext-diff", self._base, "--", cwd=self.repo
        )
        new = git("ls-files", "-z", "--others", "--exclude-standard", cwd=self.repo)
        named = {os.fsdecode(name) for name in (changed + new).split(b"\0") if name}
        return {path for path in named if not _is_cache(path)} | set(self._copied)

    def _wanted(self, paths: set[str]) -> set[str]:
        """Return the files among the paths that git does not ignore. Files in the mirror need no check."""
        known = {path for path in paths if os.path.lexists(self.path / path) and not (self.repo / path).is_dir()}
        below = {inner for path in paths - known for inner in _files_below(self.repo, path)}
        gone = {path for path in paths - known if not os.path.lexists(self.repo / path)}
        return known | gone | (below - self._ignored(below))

    def _ignored(self, paths: set[str]) -> set[str]:
        unknown = {path for path in paths if not os.path.lexists(self.path / path)}
        if not unknown:
            return set()
        asked = b"".join(os.fsencode(path) + b"\0" for path in unknown)
        # --no-index: reading the index takes longer in a bigger tree.
        output = git("check-ignore", "-z", "--stdin", "--no-index", cwd=self.repo, stdin=asked, ok=(0, 1))
        return {os.fsdecode(path) for path in output.split(b"\0") if path}

    def _differing(self, paths: set[str]) -> list[str]:
        return sorted(path for path in paths if not _same(self.repo / path, self.path, path))

    def _copy_file(self, path: str) -> None:
        self._copy(path)
        if self._lower and _same(self._lower / path, self.path, path):
            self._copied.pop(path, None)
        else:
            self._copied[path] = _digest(self.path, path)

    def _copy(self, path: str) -> None:
        try:
            _put(self.repo / path, self.path, path)
        except OSError as error:
            if error.errno not in _DISTURBED:
                raise
            remove_inside(self.path, path)  # deleted meanwhile, and another event will follow; or a test is in the way

    # --- the index, or a commit ------------------------------------------------------------------------------------

    def _moved_rows(self) -> list[str]:
        now = self._next_rows = self._rows_now()
        return sorted(path for path in self._rows.keys() | now.keys() if self._rows.get(path) != now.get(path))

    def _rows_now(self) -> dict[str, Row]:
        """Return the rows of index or commit that differ from the base."""
        args = ["--cached", self._base] if self.follows is MirrorSource.STAGE else [self._base, "HEAD"]
        try:
            out = git_read_only("diff", "--raw", "-z", "--no-renames", "--no-abbrev", *args, "--", cwd=self.repo).split(
                b"\0"
            )
        except GitFailed:  # during a rebase HEAD may be missing for a moment
            return self._rows
        heads = [head.decode().split() for head in out[0::2] if head]
        return {os.fsdecode(path): (head[1], head[3]) for head, path in zip(heads, out[1::2], strict=False)}

    def _copy_row(self, path: str) -> None:
        row = self._next_rows.get(path)
        self._write_row(path, row or self._row_of_base(path))
        if row is None:
            self._rows.pop(path, None)
            self._copied.pop(path, None)
        else:
            self._rows[path] = row
            self._copied[path] = f"{row[0]} {row[1]}"

    def _write_row(self, path: str, row: Row) -> None:
        mode, oid = row
        if mode in ("100644", "100755", "120000"):
            _write(self.path, path, git("cat-file", "blob", oid, cwd=self.repo), mode)
        else:
            remove_inside(self.path, path)

    def _restore(self, path: str) -> None:
        """Restore a path, file or folder, from the base; removes it when the base does not have it."""
        args = ["ls-tree", "-r", "-z", "--name-only", self._base, "--", path]
        inner = git(*args, cwd=self.repo, env={"GIT_LITERAL_PATHSPECS": "1"}).split(b"\0")
        for name in [os.fsdecode(each) for each in inner if each] or [path]:
            if name in self._copied and self.follows in (MirrorSource.SAVE, MirrorSource.MANUAL):
                self._copy(name)
            else:
                self._write_row(name, self._rows.get(name) or self._row_of_base(name))

    def _row_of_base(self, path: str) -> Row:
        output = git("ls-tree", "-z", self._base, "--", path, cwd=self.repo, env={"GIT_LITERAL_PATHSPECS": "1"})
        words = output.split(b"\t")[0].decode().split()
        return (words[0], words[2]) if words else _GONE

    # --- what tests leave behind -------------------------------------------------------------------------------------

    def clean(self) -> None:
        """Undo what tests left or changed: the next test run must not see it."""
        if not isinstance(self.workspace, Overlay):
            return
        for path in _written(self.workspace.upper):
            laid = self._copied.get(path)
            if laid is None:
                if not (self._lower and _same(self._lower / path, self.path, path)):
                    self._restore(path)
            elif self.follows in (MirrorSource.STAGE, MirrorSource.COMMIT):
                self._write_row(path, self._rows[path])
            elif _digest(self.path, path) != laid:
                self._copy(path)


def head_of(repo: Path) -> str:
    return git_text("rev-parse", "--verify", "HEAD^{commit}", cwd=repo)


def git_operation(git_dir: Path) -> str:
    """Return the git operation in progress, or an empty string."""
    marks = {
        "rebase-merge": "a rebase",
        "rebase-apply": "a rebase",
        "MERGE_HEAD": "a merge",
        "CHERRY_PICK_HEAD": "a cherry-pick",
        "BISECT_LOG": "a bisection",
    }
    return next((name for mark, name in marks.items() if (git_dir / mark).exists()), "")


def _files_below(repo: Path, path: str) -> list[str]:
    """Return the path itself for a file, all files below it for a folder."""
    place = repo / path
    if not place.is_dir() or place.is_symlink():
        return [path] if os.path.lexists(place) and not _is_cache(path) else []
    found: list[str] = []
    for top, folders, names in os.walk(place):
        inside = os.path.relpath(top, repo)
        folders[:] = [name for name in folders if name != ".git" and not is_excluded(inside, name)]
        found += [f"{inside}/{name}" for name in names]
    return found


def _is_cache(path: str) -> bool:
    parts = path.split("/")
    return any(is_excluded("/".join(parts[:at]), name) for at, name in enumerate(parts[:-1]))


def _written(upper: Path) -> list[str]:
    """Return the files and links of a layer, without caches and build output."""
    found: list[str] = []
    for listing in walk_inside(upper):
        inside = listing.path.rstrip("/")
        listing.folders[:] = [
            name
            for name in listing.folders
            if name != ".git" and not is_excluded(inside, name) and not is_kept(inside, name)
        ]
        found += [f"{listing.path}{name}" for name in (*listing.files, *listing.links, *listing.special)]
    return found


def _same(here: Path, folder: Path, path: str) -> bool:
    """Whether a path in the mirror `folder` has the content of `here`."""
    mine, other = _lstat(here), lstat_inside(folder, path)
    if mine is None:
        return other is None
    if other is None:
        return stat.S_ISSOCK(mine.st_mode) or stat.S_ISFIFO(mine.st_mode)
    if stat.S_IFMT(mine.st_mode) != stat.S_IFMT(other.st_mode):
        return False
    if stat.S_ISLNK(mine.st_mode):
        return os.fsencode(here.readlink()) == read_link_inside(folder, path)
    if not stat.S_ISREG(mine.st_mode):
        return True
    if mine.st_size != other.st_size or (mine.st_mode ^ other.st_mode) & 0o111:
        return False
    return _same_content(here, folder, path)


def _lstat(here: Path) -> os.stat_result | None:
    try:
        return here.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return None


def _same_content(here: Path, folder: Path, path: str) -> bool:
    try:
        with here.open("rb") as mine, open_inside(folder, path, os.O_RDONLY) as file:
            while part := mine.read(1 << 18):
                if os.read(file, len(part)) != part:
                    return False
            return not os.read(file, 1)
    except OSError:
        return False


def _put(here: Path, folder: Path, path: str) -> None:
    """Copy to a temporary name, then rename: a process that reads the old file is not disturbed."""
    mine = _lstat(here)
    if mine is None:
        remove_inside(folder, path)
    elif stat.S_ISDIR(mine.st_mode):  # a submodule that is checked out, or a folder in a file's place
        other = lstat_inside(folder, path)
        if other and not stat.S_ISDIR(other.st_mode):
            remove_inside(folder, path)
    elif stat.S_ISLNK(mine.st_mode):
        link_inside(folder, path, os.fsencode(here.readlink()))
    elif stat.S_ISREG(mine.st_mode):
        copy_inside(folder, path, here)
    else:  # a pipe, a socket or a device
        remove_inside(folder, path)


def _write(folder: Path, path: str, content: bytes, mode: str) -> None:
    if mode == "120000":
        link_inside(folder, path, content)
    else:
        replace_inside(folder, path, content, int(mode, 8) & 0o777)


def _digest(folder: Path, path: str) -> str:
    if (target := read_link_inside(folder, path)) is not None:
        return f"link {os.fsdecode(target)}"
    try:
        with open_inside(folder, path, os.O_RDONLY) as file, open(file, "rb", closefd=False) as content:
            return f"{os.fstat(file).st_mode & 0o111:o} {hashlib.file_digest(content, 'sha256').hexdigest()}"
    except OSError:
        return ""
