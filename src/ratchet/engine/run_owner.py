"""Which worker owns a run on this machine. The ledger rejects late events; this rejects late writes of files."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import wraps
from pathlib import Path
from typing import Any, cast

import msgspec

from ratchet.core.lease import Holder
from ratchet.errors import LeaseLost
from ratchet.files import write_whole
from ratchet.process.former_owner import end_former_owner
from ratchet.process.spawn import this_process
from ratchet.workspace.protocol import Workspace


class OwnerRecord(msgspec.Struct, frozen=True, kw_only=True):
    """`left` is set once the owner has stopped working, so that its process may do other work."""

    epoch: int
    holder: Holder
    left: bool = False


class RunOwner:
    """The record of a run's owner, by the epoch of its lease."""

    def __init__(self, path: Path, run: str, epoch: int) -> None:
        self.path, self.run, self.epoch = path, run, epoch

    def take(self) -> bool:
        """Become the owner, and end a former one. False when that one may still be writing in the workspace."""
        self.check()
        former = self._read()
        self._write(left=False)
        return former is None or former.left or end_former_owner(former.holder)

    def check(self) -> None:
        """Raise LeaseLost when a later worker has taken the run."""
        owner = self._read()
        if owner and owner.epoch > self.epoch:
            raise LeaseLost(f"{self.run} was taken over by {owner.holder.worker}", run=self.run)

    def leave(self) -> None:
        """Record that this worker writes nothing more. Called before the lease is released."""
        owner = self._read()
        if owner and owner.epoch == self.epoch:
            self._write(left=True)

    def _read(self) -> OwnerRecord | None:
        with suppress(FileNotFoundError, msgspec.DecodeError):
            return msgspec.json.decode(self.path.read_bytes(), type=OwnerRecord)
        return None

    def _write(self, *, left: bool) -> None:
        record = OwnerRecord(epoch=self.epoch, holder=this_process(), left=left)
        write_whole(self.path, msgspec.json.encode(record))


def fence(workspace: Workspace, owner: RunOwner) -> Workspace:
    """Return the workspace with a check of the owner before every verb."""
    return cast(Workspace, _FencedWorkspace(workspace, owner))


class _FencedWorkspace:
    def __init__(self, workspace: Workspace, owner: RunOwner) -> None:
        self._workspace, self._owner = workspace, owner

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._workspace, name)
        return _checked(found, self._owner) if callable(found) else found


def _checked(verb: Callable[..., Any], owner: RunOwner) -> Callable[..., Any]:
    @wraps(verb)
    def checked(*args: Any, **kwargs: Any) -> Any:
        owner.check()
        return verb(*args, **kwargs)

    return checked
