"""A workspace's home: the folder that is locked while it is made or removed, and holds its record.

Every workspace has a name, ROOT/SLUG. On disk that is its home. A home on the RAM disk is RAM/ratchet-SLUG, and the
name a link to it: nothing else is on disk, where a folder can cost a thousand times as much to remove. After a reboot
the link leads nowhere, or to a namesake of another root; so each home on a RAM disk has a link back to its name.
"""

from __future__ import annotations

import fcntl
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec

from ratchet.workspace import Record
from ratchet.workspace.layers import remove

PREFIX = "ratchet-"
RECORD, MAKING = "workspace.json", "making.json"
_BACK = "home"


def claim(name: str, ram: str) -> str:
    """The folder that is to be the home of that name: what is there already, or a new one on `ram`, else on disk."""
    try:
        if not ram:
            os.mkdir(name, 0o700)
            return name
        home = f"{ram}/{PREFIX}{os.path.basename(name)}"
        if _is_anothers(home, name):
            home = f"{home}-{secrets.token_hex(3)}"
        os.symlink(home, name)
    except FileExistsError:
        home = _led_to(name)
    if home != name:
        try:
            os.mkdir(home, 0o700)
        except FileExistsError:
            pass
        except OSError:  # the RAM disk is full
            drop_name(name)
            raise
    return home


def _led_to(name: str) -> str:
    try:
        home = os.readlink(name)
    except OSError:
        return name
    if _is_anothers(home, name) or not os.path.isdir(os.path.dirname(home)):
        with suppress(FileNotFoundError):
            os.unlink(name)
    return home


def mark(home: str, name: str) -> bool:
    """Say whose home this is. False when somebody was here before."""
    if home == name:
        return not os.listdir(home)
    try:
        os.symlink(name, f"{home}/{_BACK}")
    except FileExistsError:
        return False
    except OSError:
        let_go(name, home)
        raise
    return True


def find(name: str) -> str:
    """The home of that name; empty when there is none."""
    try:
        home = os.readlink(name)
    except OSError:
        return name if os.path.isdir(name) else ""
    return home if os.path.isdir(home) and not _is_anothers(home, name) else ""


def let_go(name: str, home: str) -> None:
    """The name first: who claims it in between waits for our lock, and then finds that the folder is gone."""
    if home != name:
        with suppress(FileNotFoundError):
            os.unlink(name)
    os.rmdir(home)


def drop_name(name: str) -> bool:
    """Remove a name that leads nowhere. False when it is none."""
    if not os.path.islink(name) or find(name):
        return False
    with suppress(FileNotFoundError):
        os.unlink(name)
    return True


def _is_anothers(home: str, name: str) -> bool:
    try:
        back = os.readlink(f"{home}/{_BACK}")
    except FileNotFoundError:
        return False  # not there, or nobody's yet
    except OSError:
        return True
    return back != name and not _is_same(os.path.dirname(back), os.path.dirname(name))


def _is_same(one: str, other: str) -> bool:
    try:
        return os.path.samefile(one, other)
    except OSError:
        return False


@contextmanager
def locked(home: str, name: str = "", *, wait: bool) -> Iterator[bool]:
    """Hold the home's lock. False when the name does not lead there, or another holds it and we do not wait."""
    name = name or home
    try:
        handle = os.open(home, os.O_RDONLY | os.O_DIRECTORY)
    except (FileNotFoundError, NotADirectoryError):
        yield False
        return
    try:
        # Whoever held it before us may have removed the folder, and another made it anew.
        yield _lock(handle, wait=wait) and _leads_to(name, handle) and not (home != name and _is_anothers(home, name))
    finally:
        os.close(handle)


def _lock(handle: int, *, wait: bool) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        return False
    return True


def _leads_to(name: str, handle: int) -> bool:
    try:
        return os.path.samestat(os.fstat(handle), os.stat(name))
    except FileNotFoundError:
        return False


# --- records -------------------------------------------------------------------------------------------------------


def read(home: str) -> Record | None:
    """The record of a finished workspace."""
    return _decode(f"{home}/{RECORD}")


def read_any(home: str) -> Record | None:
    """The record, finished or not. In this order: one that is finished in between is still found."""
    return _decode(f"{home}/{MAKING}") or _decode(f"{home}/{RECORD}")


def _decode(path: str) -> Record | None:
    try:
        return msgspec.json.decode(read_small(path), type=Record)
    except (OSError, msgspec.DecodeError):
        return None


def read_small(path: str) -> bytes:
    """Four system calls, where Python's own files need nine."""
    handle = os.open(path, os.O_RDONLY)
    try:
        return os.read(handle, os.fstat(handle).st_size)
    finally:
        os.close(handle)


def write(home: str, record: Record, name: str = RECORD) -> None:
    """Whoever reads meanwhile sees the old one or the new."""
    put(f"{home}/.record", msgspec.json.encode(record))
    os.rename(f"{home}/.record", f"{home}/{name}")


def put(path: str, content: bytes) -> None:
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        os.write(handle, content)
    finally:
        os.close(handle)


def on_ram(ram: Path) -> Iterator[tuple[str, str]]:
    """Every home of ours on the RAM disk with the name it says is its; empty where it says none."""
    with suppress(FileNotFoundError), os.scandir(ram) as entries:
        for entry in list(entries):
            with suppress(OSError):
                if entry.name.startswith(PREFIX) and entry.stat(follow_symlinks=False).st_uid == os.geteuid():
                    yield entry.path, _back(entry.path)


def bases_in_use(ram: Path) -> set[str]:
    """What homes on the RAM disk are laid over, finished or not: each has its record there from the first moment."""
    return {record.base for home, _ in on_ram(ram) if (record := read_any(home))}


def _back(home: str) -> str:
    try:
        return os.readlink(f"{home}/{_BACK}")
    except FileNotFoundError:
        return ""


def empty(home: str) -> None:
    """Whose it is goes last: found without that, it would be nobody's to remove."""
    for name in os.listdir(home):
        if name not in (_BACK, RECORD):
            remove(f"{home}/{name}")
    for name in (RECORD, _BACK):
        with suppress(FileNotFoundError):
            os.unlink(f"{home}/{name}")
