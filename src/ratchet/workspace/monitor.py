"""Git in an overlay of many files asks the layer what changed instead of looking at each one (`fsmonitor.py`).

What tells git so is a setting, and a worktree has none of its own. So the base has a git folder that is the source's in
everything but its settings, and those include the source's: nothing is written into the developer's repository.
"""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

from ratchet.workspace.fsmonitor import FRESH
from ratchet.workspace.git import git

MANY = 8_000  # with fewer files git has looked at all of them before Python has started
_PROGRAM = Path(__file__).with_name("fsmonitor.py")
# What linked worktrees share (gitrepository-layout(5)). These two may come later, when the source is packed or shallow.
_SHARED = ("HEAD", "branches", "hooks", "info", "lfs", "logs", "modules", "objects", "refs", "reftable", "rr-cache")
_SHARED_LATER = ("packed-refs", "shallow", "worktrees")


def has_many(tree: Path) -> bool:
    return git("ls-files", "-z", cwd=tree).count(b"\0") >= MANY


def monitor(base: Path, *, git_dir: Path, known_as: Path) -> None:
    """Give a base that is to be `known_as` such a git folder, and vouch for all files in its index."""
    tree, common = base / "tree", base / "git"
    common.mkdir()
    for name in [name for name in _SHARED if (git_dir / name).exists()] + [*_SHARED_LATER]:
        (common / name).symlink_to(git_dir / name)
    _write_settings(common / "config", git_dir)
    vouch = f"core.fsmonitor=printf '{FRESH.decode()}\\0' #"
    git("-c", vouch, "update-index", "-q", "--fsmonitor", "--refresh", cwd=tree)
    git("-c", vouch, "update-index", "-q", "--refresh", "--force-write-index", cwd=tree)
    (tree / ".git" / "commondir").write_text(f"{known_as}/git\n")


def _write_settings(config: Path, git_dir: Path) -> None:
    """Ours after the source's: the last one counts. What a repository is, git reads from no file it includes."""
    _set(config, "include.path", str(git_dir / "config"))
    asked = ("-z", "--get-regexp", r"^(extensions\.|core\.repositoryformatversion$)")
    kind = git("config", "--file", str(git_dir / "config"), *asked, ok=(0, 1)).decode().split("\0")
    for name, _, value in (row.partition("\n") for row in kind if row):
        _set(config, name, value)
    # An interpreter that is gone by then is a failure like any other: git looks at every file.
    python = shlex.quote(sys.executable)
    _set(config, "core.fsmonitor", f"test -x {python} && {python} -ISE {shlex.quote(str(_PROGRAM))}")


def _set(config: Path, name: str, value: str) -> None:
    git("config", "--file", str(config), name, value)
