"""Compare the content of a commit with the judged tree that it must hold.

The tree store holds files byte for byte. A commit holds them after the project's own attributes and filters (line
endings, LFS), and a checkout of it converts them back, not always to the same bytes. What counts is what a plain
checkout of the commit gives: that must be what was judged, byte for byte, with nothing missing.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec

from ratchet.core.snapshot import EXECUTABLE, REGULAR, SUBMODULE, SYMLINK
from ratchet.errors import CommitDiffers, GitFailed, GitStalled
from ratchet.tree_files import temporary_folder
from ratchet.workspace.git.command import git
from ratchet.workspace.git.commit_tree import update_index
from ratchet.workspace.git.filters import check_out_paths
from ratchet.workspace.git.submodules import is_inside
from ratchet.workspace.git.trees import AGENT_S, PathDifference, TreeStore, difference
from ratchet.workspace.overlay_layers import blob_id

Entry = tuple[str, str]
_ATTRIBUTES = b".gitattributes"


class JudgedTree(msgspec.Struct, frozen=True, kw_only=True):
    """A tree that was judged, and the base from which it and its commit differ."""

    tree: str
    base_tree: str
    base_commit: str
    submodules: Sequence[str] = ()


class FileContent(msgspec.Struct, frozen=True, kw_only=True):
    mode: str
    content: bytes


def differing_paths(
    git_dir: Path, commit: str, judged: JudgedTree, trees: TreeStore, *, at: Path | None = None
) -> list[str]:
    """Return the paths in which a checkout of a commit differs from the judged tree, sorted.

    `at` is a folder that holds the tree, where filters may find scripts of theirs.
    """
    rows = _changes(judged, trees)
    wanted, committed = {row.path for row in rows}, _committed(git_dir, judged.base_commit, commit)
    wrong = {path for path in committed if path not in wanted and not is_inside(path, judged.submodules)}
    if _may_convert(git_dir, judged, rows, trees):
        plain = [row for row in rows if not _is_content(row)]
        content = _content_to_compare(judged, rows, trees)
        with _index(git_dir, commit) as env, _checked_out(git_dir, env, content, at) as folder:
            wrong |= {row.path for row in content if _entry(folder, row) != (row.mode, row.oid)}
    else:
        plain = rows
    wrong |= {row.path for row in plain if committed.get(row.path) != (row.mode, row.oid)}
    return sorted(os.fsdecode(path) for path in wrong)


def changed_by_commit(git_dir: Path, judged: JudgedTree, trees: TreeStore) -> dict[str, FileContent | None]:
    """Return the files that a checkout of the commit to be made would have otherwise; None for those it would lack.

    Nothing is written to the repository. Raises CommitDiffers when git cannot convert the content, and GitStalled.
    """
    rows = _changes(judged, trees)
    if not _may_convert(git_dir, judged, rows, trees):
        return {}
    content = _content_to_compare(judged, rows, trees)
    try:
        with (
            _index(git_dir, judged.base_commit, rows, trees) as env,
            _checked_out(git_dir, env, content, trees.folder) as folder,
        ):
            other = [row for row in content if _entry(folder, row) != (row.mode, row.oid)]
            return {os.fsdecode(row.path): _read(folder, row.path) for row in other}
    except GitStalled:
        raise
    except GitFailed as error:
        raise CommitDiffers(
            f"git cannot convert the content as its attributes say: {error.message}",
            hint="correct .gitattributes",
        ) from error


def _changes(judged: JudgedTree, trees: TreeStore) -> list[PathDifference]:
    rows = trees.raw_diff(judged.base_tree, judged.tree) if judged.tree != judged.base_tree else []
    return [row for row in rows if not is_inside(row.path, judged.submodules)]


def _is_content(row: PathDifference) -> bool:
    return not row.gone and row.mode != SUBMODULE


def _content_to_compare(
    judged: JudgedTree, changes: Sequence[PathDifference], trees: TreeStore
) -> list[PathDifference]:
    """Return the changed files; all files when attributes changed, which may concern any."""
    rows = changes
    if any(os.path.basename(row.path) == _ATTRIBUTES for row in changes):
        rows = [row for row in trees.raw_diff("", judged.tree) if not is_inside(row.path, judged.submodules)]
    return [row for row in rows if _is_content(row)]


def _committed(git_dir: Path, before: str, after: str) -> dict[bytes, Entry]:
    out = _git(git_dir, "diff-tree", "-r", "-z", "--raw", "--no-renames", before, after).split(b"\0")
    rows = [difference(head, path) for head, path in zip(out[0::2], out[1::2], strict=False)]
    return {row.path: (row.mode, row.oid) for row in rows}


def _may_convert(git_dir: Path, judged: JudgedTree, rows: Sequence[PathDifference], trees: TreeStore) -> bool:
    """Whether attributes may apply to a changed file, or have changed."""
    if any(os.path.basename(row.path) == _ATTRIBUTES for row in rows) or _has_own_attributes(git_dir):
        return bool(rows)
    folders = {folder for row in rows for folder in _parents(row.path)}
    names = [judged.tree.encode() + b":" + folder + _ATTRIBUTES for folder in sorted(folders)]
    return any(content is not None for content in trees.contents(names, b"blob"))


def _parents(path: bytes) -> Iterator[bytes]:
    """Yield the folders above a path, each with a slash at its end."""
    parts = path.split(b"/")[:-1]
    yield from (b"".join(part + b"/" for part in parts[:end]) for end in range(len(parts) + 1))


def _has_own_attributes(git_dir: Path) -> bool:
    """Whether the user has attributes outside of the tree."""
    home = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
    places = (f"{git_dir}/info/attributes", f"{home}/git/attributes", "/etc/gitattributes")
    if any(os.path.exists(place) for place in places):
        return True
    return bool(git("config", "core.attributesFile", env={"GIT_DIR": str(git_dir)}, ok=(0, 1)))


# --- what a checkout gives -------------------------------------------------------------------------------------------


@contextmanager
def _index(
    git_dir: Path, commit: str, rows: Sequence[PathDifference] = (), trees: TreeStore | None = None
) -> Iterator[dict[str, str]]:
    """Yield variables that name an index with a commit's content and changes to it, and objects of its own."""
    with temporary_folder("ratchet-commit-") as made:
        place = Path(made)
        (place / "objects").mkdir()
        env = {"GIT_DIR": str(git_dir), "GIT_INDEX_FILE": f"{place}/index"}
        _git(git_dir, "read-tree", commit, env=env)
        if trees:
            update_index(git_dir, place / "index", rows, trees, apart=place)
            env |= {
                "GIT_OBJECT_DIRECTORY": f"{place}/objects",
                "GIT_ALTERNATE_OBJECT_DIRECTORIES": f"{git_dir}/objects",
            }
        yield env


@contextmanager
def _checked_out(
    git_dir: Path, env: Mapping[str, str], rows: Sequence[PathDifference], at: Path | None
) -> Iterator[Path]:
    """Yield a folder with files of an index, as a checkout lays them out; those that it lacks are not there."""
    with temporary_folder("ratchet-checkout-") as folder:
        check_out_paths(Path(folder), git_dir, [row.path for row in rows], env=env, at=at, timeout_s=AGENT_S)
        yield Path(folder)


def _entry(folder: Path, row: PathDifference) -> Entry | None:
    found = _read(folder, row.path)
    return (found.mode, blob_id(found.content, like=row.oid)) if found else None


def _read(folder: Path, path: bytes) -> FileContent | None:
    """Return a file that git has laid out; the folder is ours and no program runs there any more."""
    place = folder / os.fsdecode(path)
    try:
        if place.is_symlink():
            return FileContent(mode=SYMLINK, content=os.readlink(os.fsencode(place)))
        mode = EXECUTABLE if place.stat().st_mode & 0o100 else REGULAR
        return FileContent(mode=mode, content=place.read_bytes())
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return None


def _git(git_dir: Path, *args: str, env: Mapping[str, str] | None = None) -> bytes:
    return git(*args, cwd=git_dir, env={"GIT_DIR": str(git_dir), **(env or {})})
