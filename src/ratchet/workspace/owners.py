"""Find out whether a workspace still has an owner."""

from __future__ import annotations

import os
import socket

from ratchet.core.lease import Holder
from ratchet.process.spawn import is_gone, this_machine
from ratchet.workspace.protocol import WorkspaceRecord


def why_orphaned(record: WorkspaceRecord, now: str) -> str:
    """Return why the workspace may be removed; empty while it may still be needed."""
    if part := missing_part(record):
        return f"its {part} is gone"
    if record.host != socket.gethostname():
        return ""
    if record.kept_until and now < record.kept_until:
        return ""
    if not record.owner_pid:
        return "its time is over" if record.kept_until else ""
    if record.boot_id != this_machine().partition(":")[0]:
        return "its owner was of an earlier boot"
    return "its owner is gone" if is_gone(_owner(record)) else ""


def is_owned_elsewhere(record: WorkspaceRecord) -> bool:
    """Whether its owner may be alive and see other files than this process: another mount namespace or root."""
    if not record.owner_pid or record.boot_id != this_machine().partition(":")[0] or is_gone(_owner(record)):
        return False
    if record.owner_machine != this_machine():  # in another pid namespace, its number is another process here
        return True
    try:
        return _view(record.owner_pid) != _view(os.getpid())
    except FileNotFoundError:  # it has ended meanwhile
        return False
    except PermissionError:
        return True


def _view(pid: int) -> tuple[str, int, int]:
    """Return what decides which files a process sees under a name."""
    root = os.stat(f"/proc/{pid}/root")
    return os.readlink(f"/proc/{pid}/ns/mnt"), root.st_dev, root.st_ino


def _owner(record: WorkspaceRecord) -> Holder:
    return Holder(worker="", machine=record.owner_machine, pid=record.owner_pid, born=record.owner_born)


def missing_part(record: WorkspaceRecord) -> str:
    """Return the missing part without which the workspace cannot be opened, or an empty string."""
    if record.base and not os.path.isdir(f"{record.base}/tree/.git"):
        return "base"
    if record.layer and not os.path.isdir(record.layer):
        return "writable layer"
    if record.kind != "overlay-userns" and not os.path.isdir(record.path):
        return "folder"
    return ""
