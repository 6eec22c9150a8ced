"""A run's directory: its artifacts, and the ledger mirrored as plain files for people and tools.

Artifacts are written once, durably, and checked on every read. Everything else here is derived: whoever claims the
run, and `ratchet export`, writes it anew, so nobody waits for the disk because of it.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from glob import escape as glob_escape
from pathlib import Path
from typing import Any

import msgspec

from ratchet.core.ledger import Entry
from ratchet.core.receipt import Artifact, Receipt
from ratchet.core.redact import Redactor
from ratchet.core.snapshot import Manifest
from ratchet.core.state import RunState
from ratchet.errors import ArtifactBroken
from ratchet.files import make_private_dir, open_private, room_for, write_durably, write_whole

ANSWERS = "answers/"
LOG_MAX_BYTES = 64 * 1024 * 1024


class RunDirectory:
    """What is put or logged here is rid of secrets first."""

    def __init__(self, root: Path, run: str, *, redact: Redactor | None = None) -> None:
        self.path, self.redact = root / "runs" / run, redact or Redactor()

    # --- artifacts -------------------------------------------------------------------------------------------

    def put(self, name: str, content: bytes) -> Artifact:
        """Durably keep `content`; it is on disk before anything in the ledger speaks of it."""
        content = self.redact.bytes(content)
        write_durably(self.path / name, content)
        return Artifact(path=name, sha256=hashlib.sha256(content).hexdigest(), size=len(content))

    def get(self, artifact: Artifact) -> bytes:
        try:
            content = (self.path / artifact.path).read_bytes()
        except OSError as error:
            raise ArtifactBroken(f"artifact {artifact.path} cannot be read: {error}", path=artifact.path) from error
        if hashlib.sha256(content).hexdigest() != artifact.sha256:
            raise ArtifactBroken(f"artifact {artifact.path} was changed after it was written", path=artifact.path)
        return content

    def log_path(self, name: str) -> Path:
        return make_private_dir(self.path / "logs") / name

    def clean(self, name: str) -> None:
        """Redact a log that is written to its end, and cut one that has none; so also what stands beside it."""
        for path in (self.path / "logs").glob(f"{glob_escape(Path(name).stem)}*"):
            for file in [path] if path.is_file() else path.rglob("*"):
                self._clean_file(file)

    def _clean_file(self, file: Path) -> None:
        if file.is_file() and not file.is_symlink():
            if file.stat().st_size > LOG_MAX_BYTES:
                os.truncate(file, LOG_MAX_BYTES)
            content = file.read_bytes()
            if (clean := self.redact.bytes(content)) != content:
                write_durably(file, clean)

    # --- the mirror ------------------------------------------------------------------------------------------

    def export(self, entries: Sequence[Entry], receipts: Sequence[Receipt], state: RunState) -> None:
        """Rewrite everything that is derived from the store."""
        write_whole(self.path / "ledger.ndjson", b"".join(_line(entry) for entry in entries))
        for receipt in receipts:
            self.mirror_receipt(receipt)
        write_whole(self.path / "history.md", self.history(receipts).encode())
        self.mirror_state(state)

    def mirror_entries(self, entries: Sequence[Entry]) -> None:
        path = make_private_dir(self.path) / "ledger.ndjson"
        with room_for(path), open_private(path) as file:
            file.write(b"".join(_line(entry) for entry in entries))

    def mirror_receipt(self, receipt: Receipt) -> None:
        path = self.path / "receipts" / receipt.item / f"step-{receipt.step}.json"
        write_whole(path, _pretty(receipt))

    def mirror_state(self, state: RunState) -> None:
        write_whole(self.path / "run.json", _pretty(state))

    def mirror_manifest(self, manifest: Manifest) -> None:
        path = self.path / "snapshots" / f"{manifest.snapshot_id}.manifest.json"
        if not path.exists():
            write_durably(path, _pretty(manifest))

    def history(self, receipts: Sequence[Receipt]) -> str:
        """What each role said, in order: handed to the next role, and kept as `history.md`."""
        said = [artifact for receipt in receipts for artifact in receipt.artifacts if artifact.path.startswith(ANSWERS)]
        return "".join(self.get(artifact).decode() for artifact in said)


def _line(entry: Entry) -> bytes:
    row: dict[str, Any] = msgspec.structs.asdict(entry) | {"data": msgspec.Raw(entry.data)}
    return msgspec.json.encode(row) + b"\n"


def _pretty(value: object) -> bytes:
    return msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n"
