"""Set up the fsmonitor hook (`fsmonitor.py`) for bases with many files.

The hook is a git setting, and a worktree shares the settings of its repository. So the base gets a git directory that
links to the source's in everything but its config, which includes the source's: the developer's repository is not
changed.
"""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

from ratchet.workspace.git.command import git
from ratchet.workspace.git.filters import filter_programs, without_programs
from ratchet.workspace.git.fsmonitor import FRESH

MANY = 8_000  # with fewer files git checks all of them before Python has started
_PROGRAM = Path(__file__).with_name("fsmonitor.py")
# What linked worktrees share (gitrepository-layout(5)). These two may come later, when the source is packed or shallow.
_SHARED = ("HEAD", "branches", "hooks", "info", "lfs", "logs", "modules", "objects", "refs", "reftable", "rr-cache")
_SHARED_LATER = ("packed-refs", "shallow", "worktrees")


def has_many_files(tree: Path) -> bool:
    return git("ls-files", "-z", cwd=tree).count(b"\0") >= MANY


def enable_fsmonitor(base: Path, *, git_dir: Path, known_as: Path) -> None:
    """Create such a git directory for a base (later named `known_as`), and mark all files in its index as valid."""
    tree, common = base / "tree", base / "git"
    common.mkdir()
    for name in [name for name in _SHARED if (git_dir / name).exists()] + [*_SHARED_LATER]:
        (common / name).symlink_to(git_dir / name)
    _write_settings(common / "config", git_dir)
    vouch = f"core.fsmonitor=printf '{FRESH.decode()}\\0' #"
    as_stored = ("-c", vouch, *without_programs(filter_programs({}, cwd=tree)), "update-index", "-q")
    git(*as_stored, "--fsmonitor", "--refresh", cwd=tree, ok=(0, 1))
    git(*as_stored, "--refresh", "--force-write-index", cwd=tree, ok=(0, 1))
    (tree / ".git" / "commondir").write_text(f"{known_as}/git\n")


def _write_settings(config: Path, git_dir: Path) -> None:
    """Write our settings after the source's, so that they win. Git reads `extensions.*` from no included file."""
    _set(config, "include.path", str(git_dir / "config"))
    asked = ("-z", "--get-regexp", r"^(extensions\.|core\.repositoryformatversion$)")
    kind = git("config", "--file", str(git_dir / "config"), *asked, ok=(0, 1)).decode().split("\0")
    for name, _, value in (row.partition("\n") for row in kind if row):
        _set(config, name, value)
    # If the interpreter is gone later, the hook fails and git checks every file.
    python = shlex.quote(sys.executable)
    _set(config, "core.fsmonitor", f"test -x {python} && {python} -ISE {shlex.quote(str(_PROGRAM))}")


def _set(config: Path, name: str, value: str) -> None:
    git("config", "--file", str(config), name, value)
