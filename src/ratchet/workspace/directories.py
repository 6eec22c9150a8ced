"""The home directory of a workspace: holds its record, and is locked while the workspace is created or removed.

Every workspace has a name, ROOT/SLUG. On disk the name is the home itself. A home on the RAM disk is
RAM/ratchet-SLUG-RANDOM and the name a symlink to it: little else is on disk, where removing a folder can take a
thousand times as long. After a reboot the symlink dangles, or leads to a home of another root; so each home on a RAM
disk links back to its name.

Its files are mounted at ROOT/.mounts/SLUG, an empty folder: tools look for settings in all folders above, and anybody
can write into that of a RAM disk.
"""

from __future__ import annotations

import fcntl
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec

from ratchet.core.lease import Holder
from ratchet.workspace.overlay_layers import remove_tree
from ratchet.workspace.protocol import MOUNTS, RECORD, TREE, WorkspaceRecord

PREFIX = "ratchet-"
MAKING = "making.json"
_BACK, _USER = "home", "user-"


def tree_of(name: str, home: str) -> str:
    """Return the folder with the files of a workspace."""
    root, slug = os.path.split(name)
    return f"{home}/{TREE}" if home == name else f"{root}/{MOUNTS}/{slug}"


def claim(name: str, ram: str) -> str:
    """Return the home for a name: the existing one, or a new one on `ram` if given, else on disk."""
    try:
        if not ram:
            os.mkdir(name, 0o700)
            return name
        # Any user can write to a RAM disk: one who foresees a name could take it first.
        home = f"{ram}/{PREFIX}{os.path.basename(name)}-{secrets.token_hex(8)}"
        os.symlink(home, name)
    except FileExistsError:
        home = _existing_home(name)
    if home != name:
        try:
            os.mkdir(home, 0o700)
        except FileExistsError:
            pass
        except OSError:  # the RAM disk is full
            remove_dangling_name(name)
            raise
    return home


def _existing_home(name: str) -> str:
    try:
        home = os.readlink(name)
    except OSError:
        return name
    if _is_of_another(home, name) or not os.path.isdir(os.path.dirname(home)):
        with suppress(FileNotFoundError):
            os.unlink(name)
    return home


def mark_owner(home: str, name: str) -> bool:
    """Link the home back to its name. False when the home already belongs to another name."""
    if home == name:
        return not os.listdir(home)
    try:
        os.symlink(name, f"{home}/{_BACK}")
    except FileExistsError:
        return False
    except OSError:
        delete(name, home)
        raise
    return True


def find(name: str) -> str:
    """Return the home of a name; empty when there is none."""
    try:
        home = os.readlink(name)
    except OSError:
        return name if os.path.isdir(name) else ""
    return home if os.path.isdir(home) and not _is_of_another(home, name) else ""


def delete(name: str, home: str) -> None:
    """Remove the name, then the home. A process that claims it meanwhile waits for our lock and finds no folder."""
    if home != name:
        with suppress(FileNotFoundError):
            os.unlink(name)
    os.rmdir(home)


def remove_dangling_name(name: str) -> bool:
    """Remove a name that links to a missing home. Returns False if it is not such a name."""
    if not os.path.islink(name) or find(name):
        return False
    with suppress(OSError):
        os.rmdir(tree_of(name, ""))
    with suppress(FileNotFoundError):
        os.unlink(name)
    return True


def _is_of_another(home: str, name: str) -> bool:
    try:
        if os.lstat(home).st_uid != os.geteuid():  # names on the RAM disk can be foreseen, and taken by any user
            return True
        back = os.readlink(f"{home}/{_BACK}")
    except FileNotFoundError:
        return False  # missing, or not marked yet
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
    """Hold the home's lock. Yields False if the name does not lead to the home, if it is another user's, or if the lock
    is taken and `wait` is off."""
    name = name or home
    try:
        handle = os.open(home, os.O_RDONLY | os.O_DIRECTORY | (os.O_NOFOLLOW if home != name else 0))
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        yield False
        return
    try:
        # Another user could hold the lock of an own folder for ever, and put it in the place of ours at any time.
        if home != name and os.fstat(handle).st_uid != os.geteuid():
            yield False
            return
        # The previous holder may have removed the folder, and another process created it again.
        yield _lock(handle, wait=wait) and _leads_to(name, handle) and not (home != name and _is_of_another(home, name))
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


# --- commands of people ---------------------------------------------------------------------------------------------


def add_user(home: str, holder: Holder) -> Path:
    """Note a process that uses the workspace without owning it; returns the file to remove afterwards."""
    mark = Path(home, f"{_USER}{holder.pid}")
    write_file(str(mark), msgspec.json.encode(holder))
    return mark


def users(home: str) -> list[Holder]:
    """Return the processes that were noted, dead ones too."""
    found = []
    for name in os.listdir(home):
        if name.startswith(_USER):
            with suppress(OSError, msgspec.DecodeError):
                found.append(msgspec.json.decode(read_small(f"{home}/{name}"), type=Holder))
    return found


# --- records -------------------------------------------------------------------------------------------------------


def read_record(home: str) -> WorkspaceRecord | None:
    """Return the record of a finished workspace."""
    return _decode(f"{home}/{RECORD}")


def read_any_record(home: str) -> WorkspaceRecord | None:
    """Return the record, unfinished or finished. The unfinished one is read first, in case it is finished meanwhile."""
    return _decode(f"{home}/{MAKING}") or _decode(f"{home}/{RECORD}")


def _decode(path: str) -> WorkspaceRecord | None:
    try:
        return msgspec.json.decode(read_small(path), type=WorkspaceRecord)
    except (OSError, msgspec.DecodeError):
        return None


def read_small(path: str) -> bytes:
    """Read a small file with four system calls; Python's file objects need nine."""
    handle = os.open(path, os.O_RDONLY)
    try:
        return os.read(handle, os.fstat(handle).st_size)
    finally:
        os.close(handle)


def write_record(home: str, record: WorkspaceRecord, name: str = RECORD) -> None:
    """Replace the record atomically: readers see the old one or the new one."""
    write_file(f"{home}/.record", msgspec.json.encode(record))
    os.rename(f"{home}/.record", f"{home}/{name}")


def write_file(path: str, content: bytes) -> None:
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        os.write(handle, content)
    finally:
        os.close(handle)


def list_on_ram(ram: Path) -> Iterator[tuple[str, str]]:
    """Yield every home of this user on the RAM disk with the name it links back to, or an empty string."""
    with suppress(FileNotFoundError), os.scandir(ram) as entries:
        for entry in list(entries):
            with suppress(OSError):
                if entry.name.startswith(PREFIX) and entry.stat(follow_symlinks=False).st_uid == os.geteuid():
                    yield entry.path, _back(entry.path)


def bases_in_use(ram: Path) -> set[str]:
    """Return the bases used by homes on the RAM disk, finished or not: each has its record from the start."""
    return {record.base for home, _ in list_on_ram(ram) if (record := read_any_record(home))}


def _back(home: str) -> str:
    try:
        return os.readlink(f"{home}/{_BACK}")
    except FileNotFoundError:
        return ""


def empty(home: str) -> None:
    """Remove the content. Record and back link are removed last: they identify the owner of the rest."""
    for name in os.listdir(home):
        if name not in (_BACK, RECORD):
            remove_tree(f"{home}/{name}")
    for name in (RECORD, _BACK):
        with suppress(FileNotFoundError):
            os.unlink(f"{home}/{name}")
