"""Records of test workspaces on disk with their artifacts; they survive a restart.

A folder without a record was never finished. A lock protects a workspace in use from removal.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec

from ratchet.core.api.test_workspaces import ArtifactChunk, TestWorkspace
from ratchet.core.timestamps import format_timestamp
from ratchet.errors import Conflict, NotFound
from ratchet.files import make_private_dir, write_durably
from ratchet.tree_files import remove_folder
from ratchet.workspace.directories import locked

RECORD = "record.json"
_NAME = re.compile(r"tw-[0-9a-f]{12}")
PIECE_BYTES = 200_000
_HINT = "create one: create_workspace, or POST /test-workspace"


class Records:
    def __init__(self, root: Path, *, most: int) -> None:
        self.root, self.most = root, most

    @contextmanager
    def create(self) -> Iterator[Path]:
        """Create a locked folder; remove it on error. Raises Conflict at the limit."""
        folder = make_private_dir(self.root) / f"tw-{secrets.token_hex(6)}"
        folder.mkdir(mode=0o700)
        with locked(str(folder), wait=True):
            try:
                # Count after creating: two concurrent calls may both be rejected, but the limit is never exceeded.
                if len(self.names()) > self.most:
                    raise Conflict(
                        f"the limit of {self.most} test workspaces is reached",
                        hint="destroy one that is no longer needed",
                    )
                yield folder
            except BaseException:
                remove_folder(folder)
                raise

    @contextmanager
    def locked(self, name: str) -> Iterator[TestWorkspace]:
        """Lock a workspace and yield its record. Raises NotFound; Conflict while another process uses it."""
        self.read(name)
        with locked(str(self.folder(name)), wait=False) as ours:
            if not ours:
                raise in_use(name)
            yield self.read(name)

    def names(self) -> list[str]:
        there = self.root.iterdir() if self.root.exists() else []
        return sorted(path.name for path in there if _NAME.fullmatch(path.name) and path.is_dir())

    def holds(self, name: str) -> bool:
        return bool(_NAME.fullmatch(name)) and self.folder(name).is_dir()

    def folder(self, name: str) -> Path:
        """Return the folder; rejects names that we did not generate, so that no path is injected."""
        if not _NAME.fullmatch(name):
            raise NotFound(f"no such test workspace: {name}", hint=_HINT, workspace=name)
        return self.root / name

    def all(self) -> list[TestWorkspace]:
        return [record for name in self.names() if (record := self._read_or_none(name)) and not is_expired(record)]

    def read(self, name: str) -> TestWorkspace:
        record = self._read_or_none(name)
        if record is None:
            raise NotFound(f"no such test workspace: {name}", hint=_HINT, workspace=name)
        if is_expired(record):
            raise NotFound(f"{name} was removed after {record.ttl_s:.0f} s without use", hint=_HINT, workspace=name)
        return record

    def _read_or_none(self, name: str) -> TestWorkspace | None:
        try:
            return msgspec.json.decode((self.folder(name) / RECORD).read_bytes(), type=TestWorkspace)
        except (OSError, msgspec.DecodeError):
            return None

    def write(self, record: TestWorkspace) -> TestWorkspace:
        write_durably(self.folder(record.id) / RECORD, msgspec.json.encode(record))
        return record

    def expired(self) -> list[str]:
        """Return expired and unfinished workspaces."""
        return [name for name in self.names() if (record := self._read_or_none(name)) is None or is_expired(record)]

    @contextmanager
    def remove(self, name: str) -> Iterator[TestWorkspace | None]:
        """Yield the record, then remove the folder. Yields None if it is in use or has no record."""
        folder = self.folder(name)
        with locked(str(folder), wait=False) as ours:
            yield self._read_or_none(name) if ours else None
            if ours:
                remove_folder(folder)

    # --- artifacts -----------------------------------------------------------------------------------------------

    def read_artifact(self, name: str, artifact: str, offset: int) -> ArtifactChunk:
        path = self.folder(self.read(name).id) / artifact
        if not path.is_file():
            raise NotFound(
                f"{name} has no artifact {artifact}", hint="the workspace's record lists its artifacts", workspace=name
            )
        with path.open("rb") as file:
            file.seek(offset)
            content = file.read(PIECE_BYTES)
        size, end = path.stat().st_size, offset + len(content)
        text = content.decode(errors="replace")
        return ArtifactChunk(name=artifact, size=size, text=text, next_offset=end if end < size else 0)


def in_use(name: str) -> Conflict:
    return Conflict(f"{name} is in use by another process", hint="retry when it has finished", workspace=name)


def is_expired(record: TestWorkspace) -> bool:
    return record.expires_at < timestamp_in(0)


def timestamp_in(seconds: float) -> str:
    return format_timestamp(datetime.now(UTC) + timedelta(seconds=seconds))
