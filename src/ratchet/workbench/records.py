"""The records of test workspaces on disk, each with its artifacts: what a restart finds again.

A folder without a record was never finished. Whoever uses one holds its lock, so nobody removes it meanwhile.
"""

from __future__ import annotations

import re
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec

from ratchet.core.workbench import Piece, TestWorkspace
from ratchet.errors import Conflict, NotFound
from ratchet.files import make_private_dir, write_durably
from ratchet.workspace.homes import locked

RECORD = "record.json"
_NAME = re.compile(r"tw-[0-9a-f]{12}")
PIECE_BYTES = 200_000
_HINT = "make one: create_workspace, or POST /test-workspace"


class Records:
    def __init__(self, root: Path, *, most: int) -> None:
        self.root, self.most = root, most

    @contextmanager
    def making(self) -> Iterator[Path]:
        """A new folder, locked. Raises Conflict when there are enough; what fails leaves nothing."""
        folder = make_private_dir(self.root) / f"tw-{secrets.token_hex(6)}"
        folder.mkdir(mode=0o700)
        with locked(str(folder), wait=True):
            try:
                # Counted with ours in it: of two that come at once both may be refused, but never one too many made.
                if len(self.names()) > self.most:
                    raise Conflict(
                        f"there are {self.most} test workspaces, and no more are allowed",
                        hint="destroy one that is not needed any more",
                    )
                yield folder
            except BaseException:
                shutil.rmtree(folder, ignore_errors=True)
                raise

    @contextmanager
    def using(self, name: str) -> Iterator[TestWorkspace]:
        """A record, ours alone. Raises NotFound; Conflict while another process works in it."""
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
        """Only a name that we gave is ever part of a path."""
        if not _NAME.fullmatch(name):
            raise NotFound(f"there is no test workspace {name}", hint=_HINT, workspace=name)
        return self.root / name

    def all(self) -> list[TestWorkspace]:
        return [record for name in self.names() if (record := self._look(name)) and not is_over(record)]

    def read(self, name: str) -> TestWorkspace:
        record = self._look(name)
        if record is None:
            raise NotFound(f"there is no test workspace {name}", hint=_HINT, workspace=name)
        if is_over(record):
            raise NotFound(f"{name} was not used for {record.ttl_s:.0f} s and is gone", hint=_HINT, workspace=name)
        return record

    def _look(self, name: str) -> TestWorkspace | None:
        try:
            return msgspec.json.decode((self.folder(name) / RECORD).read_bytes(), type=TestWorkspace)
        except (OSError, msgspec.DecodeError):
            return None

    def write(self, record: TestWorkspace) -> TestWorkspace:
        write_durably(self.folder(record.id) / RECORD, msgspec.json.encode(record))
        return record

    def over(self) -> list[str]:
        """Those whose time is over, and those that were never finished."""
        return [name for name in self.names() if (record := self._look(name)) is None or is_over(record)]

    @contextmanager
    def removing(self, name: str) -> Iterator[TestWorkspace | None]:
        """Its record while it is still there; afterwards the folder is gone. None: there is nothing to remove now."""
        folder = self.folder(name)
        with locked(str(folder), wait=False) as ours:
            yield self._look(name) if ours else None
            if ours:
                shutil.rmtree(folder, ignore_errors=True)

    # --- artifacts -----------------------------------------------------------------------------------------------

    def piece(self, name: str, artifact: str, offset: int) -> Piece:
        path = self.folder(self.read(name).id) / artifact
        if not path.is_file():
            raise NotFound(f"{name} has no artifact {artifact}", hint="its record lists them", workspace=name)
        with path.open("rb") as file:
            file.seek(offset)
            content = file.read(PIECE_BYTES)
        size, end = path.stat().st_size, offset + len(content)
        text = content.decode(errors="replace")
        return Piece(name=artifact, size=size, text=text, next_offset=end if end < size else 0)


def in_use(name: str) -> Conflict:
    return Conflict(f"{name} is in use by another process", hint="ask again when it is done", workspace=name)


def is_over(record: TestWorkspace) -> bool:
    return record.expires_at < in_s(0)


def in_s(seconds: float) -> str:
    return (datetime.now(UTC) + timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
