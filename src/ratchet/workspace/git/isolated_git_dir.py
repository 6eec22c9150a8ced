"""An isolated git directory: has a repository's objects, branches and settings, but never writes to it.

Works for read-only repositories too.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec

from ratchet.files import make_private_dir, write_whole
from ratchet.workspace.base_cache import Source
from ratchet.workspace.git.command import git
from ratchet.workspace.overlay_layers import remove_tree

_LOCK, _OF = "lock", "of"
# Not the ref storage format, which may differ, and not worktree config.
_KIND = r"^(extensions\.(objectformat|partialclone|noop)|core\.repositoryformatversion)$"


@contextmanager
def isolated_git_dir(source: Source, place: Path) -> Iterator[Source]:
    """Yield the source with an isolated git directory below `place`, always the same one, so that bases can be reused.

    The first of concurrent users creates it anew: tests may have committed, tagged and configured in it.
    """
    home = make_private_dir(place / hashlib.sha256(f"{source.git_dir}\0{source.root}".encode()).hexdigest()[:24])
    with (home / _LOCK).open("ab") as lock:
        if _is_alone(lock.fileno()):
            _make(home, source)
            _sweep(place, home)
        fcntl.flock(lock, fcntl.LOCK_SH)
        _take_refs(home / "git", source)
        yield msgspec.structs.replace(source, git_dir=str(home / "git"), apart=str(home))


def _is_alone(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _make(home: Path, source: Source) -> None:
    theirs, ours = Path(source.git_dir), home / "git"
    remove_tree(ours)
    for name in ("objects/info", "refs", "info"):
        (ours / name).mkdir(parents=True)
    (home / _OF).write_text(source.git_dir)
    (ours / "objects" / "info" / "alternates").write_text(f"{theirs / 'objects'}\n")
    for name in ("info/exclude", "info/attributes", "info/grafts", "shallow"):
        with suppress(FileNotFoundError):
            shutil.copyfile(theirs / name, ours / name)
    if (theirs / "hooks").is_dir():
        shutil.copytree(theirs / "hooks", ours / "hooks", ignore=shutil.ignore_patterns("*.sample"))
    (ours / "modules").symlink_to(theirs / "modules")  # only read: a worktree has its own elsewhere
    _write_settings(ours / "config", theirs / "config")
    (ours / "HEAD").write_text("ref: refs/heads/none\n")


def _write_settings(config: Path, theirs: Path) -> None:
    """Copy the settings that define the repository format: git reads them from no included file."""
    asked = ("-z", "--get-regexp", _KIND)
    rows = git("config", "--file", str(theirs), *asked, ok=(0, 1)).decode().split("\0")
    for name, value in [("include.path", str(theirs)), *(row.split("\n", 1) for row in rows if row)]:
        git("config", "--file", str(config), name, value)


def _take_refs(ours: Path, source: Source) -> None:
    listed = git("for-each-ref", "--format=%(objectname) %(refname)", env={"GIT_DIR": source.git_dir})
    write_whole(ours / "packed-refs", listed)


def _sweep(place: Path, mine: Path) -> None:
    """Remove the directories of repositories that no longer exist."""
    for other in place.iterdir():
        with suppress(OSError):
            if other != mine and not os.path.isdir((other / _OF).read_text()):
                _remove_unused(other)


def _remove_unused(home: Path) -> None:
    with (home / _LOCK).open("ab") as lock:
        if _is_alone(lock.fileno()):
            remove_tree(home)
