"""The directory of a run: its artifacts, and the ledger mirrored as plain files for people and tools.

Artifacts are written once, durably, and verified on every read. All other files are derived from the store and
rewritten by each claim and by `ratchet export`, so writing them does not wait for the disk.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Sequence
from glob import escape as glob_escape
from pathlib import Path
from typing import Any

import msgspec

from ratchet.core import events as ev
from ratchet.core import prompts
from ratchet.core.history import HistoryMark, find_mark, history_document
from ratchet.core.ledger import MESSAGE_MAX_BYTES, Entry
from ratchet.core.receipt import Artifact, Receipt
from ratchet.core.redact import Redactor
from ratchet.core.snapshot import Manifest
from ratchet.core.state import RunState
from ratchet.errors import ArtifactBroken, UsageError
from ratchet.files import (
    check_name,
    disk_full_errors,
    make_private_dir,
    open_private,
    sync_dir,
    write_durably,
    write_from,
    write_whole,
)
from ratchet.store.protocols import ARTIFACT_MAX_BYTES, Artifacts
from ratchet.tree_files import read_inside, remove_special_files, walk_inside

ANSWERS = "answers/"
PRUNED = "pruned"  # marks a directory whose logs and prompts were removed by `ratchet gc`
PRUNED_FOLDERS = ("logs", "prompts")
LOG_MAX_BYTES = 64 * 1024 * 1024
_MARK_MAX_BYTES = 512

EntriesAfter = Callable[[int], Sequence[Entry]]
"""Returns the entries of a ledger whose numbers are greater."""


def run_folder(state: Path, run: str) -> Path:
    """Return the folder of a run. Raises UsageError for a name that no run has, since it may lead elsewhere."""
    return state / "runs" / check_name(run, what="run")


class RunDirectory:
    """Redacts secrets in everything it writes.

    `epoch` is that of the writer's lease. Artifacts of later epochs carry it in their names, so that a worker that lost
    its lease cannot overwrite those of its successor. Artifacts that are not in the directory are read from `store`,
    where other hosts have put theirs; with `travels` they are put there too.
    """

    def __init__(
        self,
        root: Path,
        run: str,
        *,
        redact: Redactor | None = None,
        epoch: int = 1,
        store: Artifacts | None = None,
        travels: bool = False,
    ) -> None:
        self.path, self.redact, self.epoch = run_folder(root, run), redact or Redactor(), epoch
        self._run, self._store, self._travels = run, store, travels
        self._root, self._synced = root, set[Path]()

    # --- artifacts -------------------------------------------------------------------------------------------

    def put(self, name: str, content: bytes) -> Artifact:
        """Durably write an artifact; it is on disk before the ledger refers to it."""
        content = self.redact.document(content) if name.endswith(".json") else self.redact.log(content)
        name = _of_epoch(name, self.epoch)
        write_durably(self.path / name, content)
        if self._store and self._travels:
            put_shared(self._store, self._run, content, what=name)
        self._sync_parents((self.path / name).parent)
        return Artifact(path=name, sha256=hashlib.sha256(content).hexdigest(), size=len(content))

    def _sync_parents(self, folder: Path) -> None:
        """Make a folder's own name durable, once, and those of the folders above it."""
        if folder not in self._synced and folder != self._root.parent:
            self._synced.add(folder)
            sync_dir(folder.parent)
            self._sync_parents(folder.parent)

    def get(self, artifact: Artifact) -> bytes:
        try:
            content = self._fetch(artifact) or self._read(artifact)
        except UsageError as error:
            raise ArtifactBroken(error.message, path=artifact.path) from error
        if content is None:
            raise ArtifactBroken(f"artifact {artifact.path} cannot be read", path=artifact.path)
        if hashlib.sha256(content).hexdigest() != artifact.sha256:
            raise ArtifactBroken(f"artifact {artifact.path} was changed after it was written", path=artifact.path)
        return content

    def _fetch(self, artifact: Artifact) -> bytes | None:
        """Bring an artifact of another host into the mirror."""
        path = self.path / "/".join(check_name(part, what="artifact") for part in artifact.path.split("/"))
        content = self._store.artifact(self._run, artifact.sha256) if self._store and not path.exists() else None
        if content is not None:
            write_whole(path, content)
        return content

    def _read(self, artifact: Artifact) -> bytes | None:
        try:
            return read_inside(self.path, artifact.path, max_bytes=artifact.size + 1)
        except OSError:
            return None

    def is_pruned(self, artifact: Artifact) -> bool:
        """Whether the artifact was removed on purpose; its digest stays in the receipt."""
        return artifact.path.startswith(tuple(f"{name}/" for name in PRUNED_FOLDERS)) and (self.path / PRUNED).exists()

    def latest(self, name: str) -> Path | None:
        """Return the file of an artifact that no receipt names yet, as the last worker that got so far wrote it."""
        names = (self.path / _of_epoch(name, epoch) for epoch in range(self.epoch, 0, -1))
        return next((path for path in names if path.is_file()), None)

    def log_path(self, name: str) -> Path:
        return make_private_dir(self.path / "logs") / name

    def clean(self, name: str) -> None:
        """Redact a finished log and the files with the same stem, and truncate them to `LOG_MAX_BYTES`."""
        for path in (self.path / "logs").glob(f"{glob_escape(Path(name).stem)}*"):
            for file in _files(path):
                self._clean_file(file)

    def _clean_file(self, file: Path) -> None:
        if file.is_file() and not file.is_symlink():
            if file.stat().st_size > LOG_MAX_BYTES:
                os.truncate(file, LOG_MAX_BYTES)
            content = file.read_bytes()
            if (clean := self.redact.log(content)) != content:
                write_durably(file, clean)

    def withhold(self, name: str, why: str) -> None:
        """Replace a finished log and the files with the same stem by the reason why their content is not kept."""
        for path in (self.path / "logs").glob(f"{glob_escape(Path(name).stem)}*"):
            for file in _files(path):
                if file.is_file() and not file.is_symlink():
                    write_durably(file, f"{why}\n".encode())

    # --- the mirror ------------------------------------------------------------------------------------------

    def export(self, entries: Sequence[Entry], receipts: Sequence[Receipt], state: RunState) -> None:
        """Rewrite all files that are derived from the store."""
        write_whole(self.path / "ledger.ndjson", b"".join(_line(entry) for entry in entries))
        for receipt in receipts:
            self.mirror_receipt(receipt)
        self._add_history(HistoryMark(), entries, receipts)
        self.mirror_state(state)

    def last_mirrored(self) -> tuple[int, str]:
        """Return number and checksum of the last entry in the mirror; (0, "") if there is none, or a torn line."""
        try:
            with (self.path / "ledger.ndjson").open("rb") as file:
                file.seek(max(0, file.seek(0, os.SEEK_END) - 2 * MESSAGE_MAX_BYTES))
                last = file.read()
            row = msgspec.json.decode(last[:-1].rpartition(b"\n")[2] if last.endswith(b"\n") else b"", type=_Last)
        except (OSError, msgspec.MsgspecError):
            return 0, ""
        return row.seq, row.sum

    def mirror_missing(self, entries_after: EntriesAfter, receipts: Sequence[Receipt], state: RunState) -> None:
        for receipt in receipts:
            if not self._receipt_path(receipt).exists():
                self.mirror_receipt(receipt)
        self.mirror_history(entries_after, receipts)
        self.mirror_state(state)

    def mirror_entries(self, entries: Sequence[Entry]) -> None:
        path = make_private_dir(self.path) / "ledger.ndjson"
        with disk_full_errors(path), open_private(path) as file:
            file.write(b"".join(_line(entry) for entry in entries))

    def mirror_receipt(self, receipt: Receipt) -> None:
        write_whole(self._receipt_path(receipt), _pretty(receipt))

    def _receipt_path(self, receipt: Receipt) -> Path:
        return self.path / "receipts" / check_name(receipt.item, what="item") / f"step-{receipt.step}.json"

    def mirror_history(self, entries_after: EntriesAfter, receipts: Sequence[Receipt]) -> None:
        """Add what is new to `history.md`, one section for each iteration, attempt and role."""
        mark = self._history_mark()
        entries = entries_after(max(0, mark.seq - 1))
        if mark.seq and [entry.sum for entry in entries[:1]] != [mark.sum]:  # of another ledger
            mark, entries = HistoryMark(), entries_after(0)
        self._add_history(mark, entries[1:] if mark.seq else entries, receipts)

    def _history_mark(self) -> HistoryMark:
        try:
            with (self.path / "history.md").open("rb") as file:
                file.seek(max(0, file.seek(0, os.SEEK_END) - _MARK_MAX_BYTES))
                return find_mark(file.read())
        except OSError:
            return HistoryMark()

    def _add_history(self, mark: HistoryMark, entries: Sequence[Entry], receipts: Sequence[Receipt]) -> None:
        """Replace what follows the mark. The sections from the first unanswered step on are written anew next time."""
        events = [ev.decode(entry.kind, entry.data) for entry in entries]
        answered = {receipt.step: receipt for receipt in receipts}
        asked = [event.step if isinstance(event, ev.StepStarted) and event.role else 0 for event in events]
        finished = next((n for n, step in enumerate(asked) if step and step not in answered), len(events))
        answers = {step: self._answer(answered[step]) for step in asked if step in answered}
        text, iteration, attempt = history_document(events[:finished], answers, mark.iteration, mark.attempt)
        rest, _, _ = history_document(events[finished:], answers, iteration, attempt)
        done, more = (self.redact.text(part).encode() for part in (text, rest))
        place = mark.size
        if finished:
            last, size = entries[finished - 1], place + len(done)
            mark = HistoryMark(seq=last.seq, sum=last.sum, size=size, iteration=iteration, attempt=attempt)
        write_from(self.path / "history.md", place, done + more + mark.line())

    def _answer(self, receipt: Receipt) -> str:
        texts = [self.get(one).decode() for one in receipt.artifacts if one.path.startswith(ANSWERS)]
        return "\n\n".join(prompts.answer_of(text) for text in texts)

    def mirror_state(self, state: RunState) -> None:
        write_whole(self.path / "run.json", _pretty(state))

    def mirror_manifest(self, manifest: Manifest) -> None:
        path = self.path / "snapshots" / f"{manifest.snapshot_id}.manifest.json"
        if not path.exists():
            write_durably(path, _pretty(manifest))

    def history(self, receipts: Sequence[Receipt]) -> str:
        """Return the answers of all roles in order: input for the next role."""
        answers = [one for receipt in receipts for one in receipt.artifacts if one.path.startswith(ANSWERS)]
        return "".join(self.get(artifact).decode() for artifact in answers)


def _files(path: Path) -> list[Path]:
    """Return the file, or the files in the scratch folder of an agent, which may have nested folders without end."""
    if path.is_symlink() or not path.is_dir():
        return [path]
    remove_special_files(path)
    return [path / one.path / name for one in walk_inside(path, unlock=True) for name in one.files]


def put_shared(store: Artifacts, run: str, content: bytes, *, what: str) -> str:
    """Store content where other hosts find it. Raises UsageError above the limit, since a repetition would fail too."""
    if len(content) > ARTIFACT_MAX_BYTES:
        raise UsageError(
            f"{what} has {len(content):,} bytes; a store keeps at most {ARTIFACT_MAX_BYTES:,} of it for other hosts",
            hint="keep large files out of the change, and run fewer tests at once: test.command, test.paths",
        )
    return store.put_artifact(run, content)


class _Last(msgspec.Struct):
    seq: int
    sum: str


def _of_epoch(name: str, epoch: int) -> str:
    stem, dot, suffix = name.rpartition(".")
    return f"{stem}.e{epoch}{dot}{suffix}" if epoch > 1 else name


def _line(entry: Entry) -> bytes:
    row: dict[str, Any] = msgspec.structs.asdict(entry) | {"data": msgspec.Raw(entry.data)}
    return msgspec.json.encode(row) + b"\n"


def _pretty(value: object) -> bytes:
    return msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n"
