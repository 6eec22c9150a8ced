"""The directory that stores a folder's test history between runs, and the log of the current run."""

from __future__ import annotations

import hashlib
import os
import secrets
import tempfile
from contextlib import suppress
from pathlib import Path

from ratchet.errors import DiskFull
from ratchet.files import is_full, make_private_dir, make_state_dir
from ratchet.paths import cache_or_state

_RUNNING = "running-"


def history_dir(folder: Path, repo: Path | None) -> Path:
    """Return the history directory: in the repository's `.ratchet`, without git in the user's state directory, else in
    the temporary one."""
    if repo and (top := _state_in(repo)):
        inside = folder.relative_to(repo).as_posix()
        return make_private_dir(top / "tests" / ("all" if inside == "." else _slug(inside)))
    return make_private_dir(cache_or_state() / "tests" / _slug(str(folder)))


def _state_in(repo: Path) -> Path | None:
    """Return the state directory, or None if the repository is read-only: then the user's directory is used."""
    try:
        folder = make_state_dir(repo)
    except (OSError, DiskFull):
        return None
    return folder if os.access(folder, os.W_OK) else None


def _slug(name: str) -> str:
    tail = "".join(c if c.isalnum() else "-" for c in name)[-40:].strip("-")
    return f"{tail}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file atomically but without fsync: the next run recreates what a power failure loses."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        Path(name).replace(path)
    finally:
        Path(name).unlink(missing_ok=True)


def new_log(folder: Path) -> Path:
    """Return a new log file, so that parallel runs do not read each other's output. Delete logs of killed runs. A
    runner that cannot print dies, so on a full disk the log is placed elsewhere."""
    if is_full(folder):
        folder = cache_or_state() / "tests" / "without-room"
    for path in make_private_dir(folder).glob(f"{_RUNNING}*.log"):
        if not _is_running(path):
            path.unlink(missing_ok=True)
    return folder / f"{_RUNNING}{os.getpid()}-{secrets.token_hex(3)}.log"


def _is_running(log: Path) -> bool:
    """Return whether the process that writes the log is alive; True if unknown."""
    pid = log.name.removeprefix(_RUNNING).partition("-")[0]
    return Path("/proc", pid).exists() or not Path("/proc/self").exists()


def publish_log(log: Path) -> Path:
    """Rename the log to `last.log`; the run that finished last wins."""
    with suppress(FileNotFoundError):
        return log.replace(log.with_name("last.log"))
    return log
