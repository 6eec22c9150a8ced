"""Removes what finished runs no longer need: logs and prompts first, whole runs into one archive file each later."""

from __future__ import annotations

import io
import os
import tarfile
from collections.abc import Iterable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec

from ratchet.app.runs import RunService, names_of
from ratchet.core.timestamps import format_timestamp
from ratchet.errors import ArtifactBroken, Conflict
from ratchet.files import make_private_dir, write_durably
from ratchet.store.run_directory import PRUNED, PRUNED_FOLDERS
from ratchet.tree_files import remove_inside
from ratchet.workspace.git.trees import repack

LOOSE_MAX = 2_000


class GcReport(msgspec.Struct, kw_only=True):
    """What was removed, or with `dry_run` would be."""

    dry_run: bool
    pruned: list[str] = []
    archived: list[str] = []
    freed_bytes: int = 0
    repacked_objects: int = 0


def collect_garbage(service: RunService, *, dry_run: bool = False, now: datetime | None = None) -> GcReport:
    report, settings, at = GcReport(dry_run=dry_run), service.config.retention, now or datetime.now(UTC)
    old = _finished(service, at, settings.archive_days)
    for run in old:
        _archive(service, run, report)
    for run in _finished(service, at, settings.logs_days):
        if run not in report.archived:
            _prune(service, run, report)
    report.repacked_objects = repack(service.repo.state / "trees.git", more_than=LOOSE_MAX, dry_run=dry_run)
    if report.archived and not dry_run:
        service.store.vacuum()
    return report


def _finished(service: RunService, now: datetime, days: int) -> list[str]:
    before = format_timestamp(now - timedelta(days=days))
    names = names_of(service.repo.root) if days else []
    return [run for name in names for run in service.store.finished_runs(name, before=before)]


def _prune(service: RunService, run: str, report: GcReport) -> None:
    """Remove logs and prompts; ledger, receipts, reports and answers stay."""
    folder = service.directory(run).path
    found = [folder / name for name in PRUNED_FOLDERS if (folder / name).is_dir()]
    if not found:
        return
    report.pruned.append(run)
    report.freed_bytes += _size(found)
    if not report.dry_run:
        write_durably(folder / PRUNED, b"")  # first: `verify` then expects no prompts
        for part in found:
            remove_inside(folder, part.name)


def _archive(service: RunService, run: str, report: GcReport) -> None:
    """Write the run directory to one file, then delete the run from the store and the folder."""
    folder = service.directory(run).path
    if not report.dry_run:
        service.export(run)
        _fetch_artifacts(service, run)
        write_durably(make_private_dir(service.repo.state / "archive") / f"{run}.tar.gz", _packed(folder))
        try:
            service.store.forget_run(run)
        except Conflict:
            return
    report.archived.append(run)
    report.freed_bytes += _size([folder])
    if not report.dry_run:
        remove_inside(folder.parent, folder.name)


def _fetch_artifacts(service: RunService, run: str) -> None:
    """Bring what other hosts stored of a run into its directory, because the store forgets it."""
    directory = service.directory(run)
    for receipt in service.store.receipts(run):
        for artifact in receipt.artifacts:
            if not directory.is_pruned(artifact):
                with suppress(ArtifactBroken):  # it is missing in the archive as it is now
                    directory.get(artifact)


def _packed(folder: Path) -> bytes:
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w:gz") as archive:
        archive.add(folder, arcname=folder.name)
    return content.getvalue()


def _size(folders: Iterable[Path]) -> int:
    files = (Path(at) / name for folder in folders for at, _, names in os.walk(folder) for name in names)
    return sum(file.lstat().st_size for file in files)
