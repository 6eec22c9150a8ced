"""Find the project that a folder is in: the only climb through its parents whose settings Ratchet obeys.

A parent may be everybody's, as `/tmp` is: what another user puts there decides nothing, unless git is told to trust it.
"""

from __future__ import annotations

import os
import shlex
from pathlib import Path

from ratchet.config import FILE
from ratchet.errors import GitFailed, UntrustedRepository
from ratchet.files import is_of_others

_GIT = ".git"


def repository_root(folder: Path) -> Path:
    """Return the root of the repository that contains a folder, or the folder itself. Raises UntrustedRepository."""
    place = folder.absolute()
    root = next((above for above in (place, *place.parents) if os.path.lexists(above / _GIT)), place)
    return _trusted(root)


def settings_root(folder: Path) -> Path:
    """Return the nearest folder with settings, in the repository that contains a folder, or the folder itself.

    Raises UntrustedRepository.
    """
    place = folder.absolute()
    marked = next((at for at in (place, *place.parents) if any(os.path.lexists(at / x) for x in (FILE, _GIT))), place)
    return _trusted(marked) if os.path.lexists(marked / FILE) else place


def _trusted(root: Path) -> Path:
    """Return the folder. Raises UntrustedRepository if another user made it a repository, or its settings."""
    named = [root / name for name in (_GIT, FILE) if os.path.lexists(root / name)]
    wrong = next((path for path in named if is_of_others(path) or is_of_others(root)), None)
    if wrong and not _git_trusts(root):
        raise UntrustedRepository(
            f"{wrong} belongs to another user, so Ratchet does not obey it",
            hint=f"if you trust it: git config --global --add safe.directory {shlex.quote(str(root))}; "
            "else work in a folder of your own with `git init`",
            root=str(root),
        )
    return root


def _git_trusts(root: Path) -> bool:
    """Whether the user's or the system's settings of git name the folder as safe."""
    from ratchet.process.spawn import ProgramMissing  # noqa: PLC0415 — rarely needed, and slow to load
    from ratchet.workspace.git.command import git  # noqa: PLC0415

    try:
        rows = git("config", "-z", "--type=path", "--get-all", "safe.directory", cwd=Path("/"), ok=(0, 1)).decode()
    except (GitFailed, ProgramMissing):
        return False
    names = rows.split("\0")[:-1]
    last = len(names) - names[::-1].index("") if "" in names else 0  # an empty one forgets those before
    return any(
        name in ("*", str(root)) or (name.endswith("/*") and root.is_relative_to(name[:-2])) for name in names[last:]
    )
