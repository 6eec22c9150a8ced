"""Find a developer's uncommitted changes, and copy them over a fresh checkout."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

from ratchet.tree_files import remove_inside, temporary_folder
from ratchet.workspace.git.command import git, git_read_only, git_text


def untracked(folder: Path) -> list[str]:
    """Return untracked files that are not ignored, without installed dependencies."""
    out = git_read_only("ls-files", "-z", "--others", "--exclude-standard", cwd=folder)
    names = [os.fsdecode(name) for name in out.split(b"\0") if name]
    environments = tuple(name.removesuffix(_MARKER) for name in names if name.endswith(f"/{_MARKER}"))
    return [name for name in names if not name.startswith(environments) and "node_modules" not in Path(name).parts]


def commit_uncommitted(repo: Path, head: str) -> str:
    """Commit the developer's uncommitted changes and untracked files, on no branch and without touching the index or
    any file; returns the commit, or `head` if the tree is clean."""
    with temporary_folder("ratchet-index-") as scratch:
        env = {"GIT_INDEX_FILE": f"{scratch}/index", "GIT_OPTIONAL_LOCKS": "0"}
        git("read-tree", head, cwd=repo, env=env, as_committed=False)
        git("add", "--update", ".", cwd=repo, env=env, as_committed=False)
        if names := untracked(repo):
            literal = env | {"GIT_LITERAL_PATHSPECS": "1"}
            listed = b"\0".join(os.fsencode(name) for name in names)
            git("add", "--pathspec-from-file=-", "--pathspec-file-nul", cwd=repo, env=literal,
                stdin=listed, as_committed=False)  # fmt: skip
        tree = git_text("write-tree", cwd=repo, env=env)
    if tree == git_text("rev-parse", f"{head}^{{tree}}", cwd=repo):
        return head
    return git_text(
        "commit-tree", tree, "-p", head, "-m", "Uncommitted changes, as they were when ratchet began", cwd=repo
    )


_MARKER = "pyvenv.cfg"  # a virtual environment may have any name


_MADE = re.compile(r".*\.(?:pyc|pyo|o|so|log|pid|swp|tmp|egg)|(?:.*/)?\.(?:DS_Store|coverage.*)|\.ratchet/.*")


def ignored_files(folder: Path) -> list[str]:
    """Return single ignored files that no tool made, judging by their names: mostly settings."""
    out = git_read_only("ls-files", "-z", "--others", "--ignored", "--exclude-standard", "--directory", cwd=folder)
    names = [os.fsdecode(name) for name in out.split(b"\0") if name]
    return [name for name in names if not name.endswith("/") and not _MADE.fullmatch(name)]


def copy_uncommitted(source: Path, workspace: Path) -> None:
    """Copy uncommitted changes and untracked files over a fresh checkout."""
    out = git_read_only("status", "--porcelain", "-z", "--untracked-files=no", "--no-renames", cwd=source)
    names = [os.fsdecode(row[3:]) for row in out.split(b"\0") if row]
    for name in [*names, *untracked(source)]:
        here, there = source / name, workspace / name
        if here.is_symlink() or not here.is_dir():
            _put(here, there)
        elif (here / ".git").exists():
            _copy_nested(here, there)
        elif there.is_symlink() or there.is_file():
            there.unlink()


def _copy_nested(source: Path, workspace: Path) -> None:
    """Copy all tracked and untracked files of a moved submodule or nested repository."""
    _clear(workspace)
    listed = git_read_only("ls-files", "-z", "--cached", "--others", "--exclude-standard", cwd=source)
    for name in filter(None, listed.split(b"\0")):
        path = name.decode(errors="surrogateescape")
        _put(source / path, workspace / path)


def _put(here: Path, there: Path) -> None:
    """Copy or delete a file, never through an existing symlink, which may lead back to the developer's files."""
    _clear(there)
    if here.is_symlink() or here.is_file():
        there.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(here, there, follow_symlinks=False)


def _clear(there: Path) -> None:
    if there.is_dir() and not there.is_symlink():
        remove_inside(there.parent, there.name)
    else:
        there.unlink(missing_ok=True)
