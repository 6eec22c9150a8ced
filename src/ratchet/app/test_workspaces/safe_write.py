"""Writes a file that a request names into a workspace, with errors for the user."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

from ratchet import tree_files
from ratchet.errors import UsageError
from ratchet.files import disk_full_errors


def write_inside(top: Path, name: str, content: bytes) -> None:
    """Write a file and create missing folders. An existing file keeps its mode. Raises UsageError."""
    path = _relative_path(name)
    try:
        with disk_full_errors(top / name):
            tree_files.write_inside(top, path, content)
    except OSError as error:
        raise UsageError(
            f"cannot write {name}: {error.strerror}", hint="a symlink or folder may be in the way; check with ls -la"
        ) from error


def _relative_path(name: str) -> str:
    path = PurePosixPath(name)
    if path.is_absolute() or not path.parts or {"..", ".git"} & set(path.parts) or "\0" in name or name.endswith("/"):
        raise UsageError(
            f"invalid path {name!r}",
            hint="give a path relative to the repository root, such as src/app.py; not in .git",
        )
    return str(path)
