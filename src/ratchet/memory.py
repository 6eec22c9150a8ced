"""Where what is known of a folder's tests is kept between runs, and the output of the one that goes on."""

from __future__ import annotations

import hashlib
import os
import secrets
import tempfile
from contextlib import suppress
from pathlib import Path

from ratchet.errors import DiskFull
from ratchet.files import make_private_dir, make_state_dir
from ratchet.workspace.git import is_full

_RUNNING = "running-"


def place_of(folder: Path, repo: Path | None) -> Path:
    """In the repository's `.ratchet`, without git in the user's own folder, without that in the temporary one."""
    if repo and (top := _state_in(repo)):
        inside = folder.relative_to(repo).as_posix()
        return make_private_dir(top / "tests" / ("all" if inside == "." else _slug(inside)))
    from ratchet.places import remade  # noqa: PLC0415 — brings all there is about workspaces

    return make_private_dir(remade() / "tests" / _slug(str(folder)))


def _state_in(repo: Path) -> Path | None:
    """None where the repository cannot be written to: it is tested all the same, and remembered with those without."""
    try:
        folder = make_state_dir(repo)
    except (OSError, DiskFull):
        return None
    return folder if os.access(folder, os.W_OK) else None


def _slug(name: str) -> str:
    tail = "".join(c if c.isalnum() else "-" for c in name)[-40:].strip("-")
    return f"{tail}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"


def keep(path: Path, content: bytes) -> None:
    """Whole or not at all, but not synced: what is lost in a power cut is made again by the next run."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        Path(name).replace(path)
    finally:
        Path(name).unlink(missing_ok=True)


def own_log(folder: Path) -> Path:
    """Two runs at once must not read each other's output. What a killed one left goes. A runner that cannot print dies:
    where there is no room, it prints elsewhere."""
    if is_full(folder):
        from ratchet.places import remade  # noqa: PLC0415 — see above

        folder = remade() / "tests" / "without-room"
    for path in make_private_dir(folder).glob(f"{_RUNNING}*.log"):
        if not _is_running(path):
            path.unlink(missing_ok=True)
    return folder / f"{_RUNNING}{os.getpid()}-{secrets.token_hex(3)}.log"


def _is_running(log: Path) -> bool:
    """Where nobody can tell, it is."""
    pid = log.name.removeprefix(_RUNNING).partition("-")[0]
    return Path("/proc", pid).exists() or not Path("/proc/self").exists()


def keep_log(log: Path) -> Path:
    """Under the name people know; what ended last is there."""
    with suppress(FileNotFoundError):
        return log.replace(log.with_name("last.log"))
    return log
