"""What a developer has changed and not committed: which files are new, and all of it laid over a fresh checkout."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

from ratchet.workspace.git import look


def untracked(folder: Path) -> list[str]:
    """The files that git neither knows nor ignores; without installed dependencies, which nobody here has written."""
    out = look("ls-files", "-z", "--others", "--exclude-standard", cwd=folder)
    names = [os.fsdecode(name) for name in out.split(b"\0") if name]
    environments = tuple(name.removesuffix(_MARKER) for name in names if name.endswith(f"/{_MARKER}"))
    return [name for name in names if not name.startswith(environments) and "node_modules" not in Path(name).parts]


_MARKER = "pyvenv.cfg"  # a virtual environment may have any name


_MADE = re.compile(r".*\.(?:pyc|pyo|o|so|log|pid|swp|tmp|egg)|(?:.*/)?\.(?:DS_Store|coverage.*)|\.ratchet/.*")


def ignored_files(folder: Path) -> list[str]:
    """Single files that git ignores and that no tool has made, as far as their names tell: settings, mostly."""
    out = look("ls-files", "-z", "--others", "--ignored", "--exclude-standard", "--directory", cwd=folder)
    names = [os.fsdecode(name) for name in out.split(b"\0") if name]
    return [name for name in names if not name.endswith("/") and not _MADE.fullmatch(name)]


def lay_over(source: Path, workspace: Path) -> None:
    """The uncommitted changes, untracked files included, over a fresh checkout."""
    out = look("status", "--porcelain", "-z", "--untracked-files=no", "--no-renames", cwd=source)
    names = [os.fsdecode(row[3:]) for row in out.split(b"\0") if row]
    for name in [*names, *untracked(source)]:
        here, there = source / name, workspace / name
        if here.is_symlink() or not here.is_dir():
            _put(here, there)
        elif (here / ".git").exists():
            _lay_nested(here, there)
        elif there.is_symlink() or there.is_file():
            there.unlink()


def _lay_nested(source: Path, workspace: Path) -> None:
    """A submodule that has moved on, or a repository inside of ours: all that its developer sees in it."""
    _clear(workspace)
    listed = look("ls-files", "-z", "--cached", "--others", "--exclude-standard", cwd=source)
    for name in filter(None, listed.split(b"\0")):
        path = name.decode(errors="surrogateescape")
        _put(source / path, workspace / path)


def _put(here: Path, there: Path) -> None:
    """As it is here, or gone; never through a link that stood there, which may lead back to the developer's files."""
    _clear(there)
    if here.is_symlink() or here.is_file():
        there.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(here, there, follow_symlinks=False)


def _clear(there: Path) -> None:
    if there.is_dir() and not there.is_symlink():
        shutil.rmtree(there)
    else:
        there.unlink(missing_ok=True)
