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
    """The records of a run's owners on this machine: a file in `folder` for each epoch that has not been replaced.

    An owner writes its own file before it looks for others. So of two that take a run at once, one sees the other:
    the later ends the earlier, or the earlier finds itself replaced.
    """

    def __init__(self, folder: Path, run: str, epoch: int) -> None:
        self.folder, self.run, self.epoch = folder, run, epoch

    def take(self) -> bool:
        """Become the owner, and end former ones. False when one of them may still be writing in the workspace."""
        self._write(left=False)
        try:
            self.check()
        except LeaseLost:
            self._path(self.epoch).unlink(missing_ok=True)
            raise
        former = [epoch for epoch in self._epochs() if epoch < self.epoch]
        records = [record for epoch in former if (record := self._read(epoch))]
        ended = [record.left or end_former_owner(record.holder) for record in records]
        for epoch in former:
            self._path(epoch).unlink(missing_ok=True)
        return all(ended)

    def check(self) -> None:
        """Raise LeaseLost when a later worker has taken the run."""
        newest = max(self._epochs(), default=0)
        if newest > self.epoch:
            owner = self._read(newest)
            raise LeaseLost(f"{self.run} was taken over by {owner.holder.worker if owner else '?'}", run=self.run)

    def leave(self) -> None:
        """Record that this worker writes nothing more. Called before the lease is released."""
        if self._path(self.epoch).exists():
            self._write(left=True)

    def _epochs(self) -> list[int]:
        with suppress(FileNotFoundError):
            return [int(path.stem) for path in self.folder.iterdir() if path.stem.isdecimal()]
        return []

    def _path(self, epoch: int) -> Path:
        return self.folder / f"{epoch}.json"

    def _read(self, epoch: int) -> OwnerRecord | None:
        with suppress(FileNotFoundError, msgspec.DecodeError):
            return msgspec.json.decode(self._path(epoch).read_bytes(), type=OwnerRecord)
        return None

    def _write(self, *, left: bool) -> None:
        record = OwnerRecord(epoch=self.epoch, holder=this_process(), left=left)
        write_whole(self._path(self.epoch), msgspec.json.encode(record))


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
