"""Whose a workspace is, and whether anybody still needs it."""

from __future__ import annotations

import os
import socket

from ratchet.core.lease import Holder
from ratchet.process import is_gone, this_machine
from ratchet.workspace import Record


def orphaned(record: Record, now: str) -> str:
    """Why nobody needs the workspace any more; empty while somebody may."""
    if part := lost(record):
        return f"its {part} is gone"
    if record.host != socket.gethostname():
        return ""
    if record.kept_until and now < record.kept_until:
        return ""
    if not record.owner_pid:
        return "its time is over" if record.kept_until else ""
    if record.boot_id != this_machine().partition(":")[0]:
        return "its owner was of an earlier boot"
    owner = Holder(worker="", machine=record.owner_machine, pid=record.owner_pid, born=record.owner_born)
    return "its owner is gone" if is_gone(owner) else ""


def lost(record: Record) -> str:
    """The part without which it cannot be opened."""
    if record.base and not os.path.isdir(f"{record.base}/tree/.git"):
        return "base"
    if record.layer and not os.path.isdir(record.layer):
        return "writable layer"
    if record.kind != "overlay-userns" and not os.path.isdir(record.path):
        return "folder"
    return ""
