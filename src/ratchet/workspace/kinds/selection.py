"""Probe which kinds of workspace work on this machine, best first, and why the others do not.

Used by `auto`, by the error for an unavailable kind, and by `ratchet doctor`.
"""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import msgspec

from ratchet.errors import EnvironmentCannot, UsageError
from ratchet.process.spawn import start_namespace_holder, stop_namespace_holder
from ratchet.tree_files import temporary_folder
from ratchet.workspace.kinds.overlay import HOLDER
from ratchet.workspace.overlay_layers import remove_tree
from ratchet.workspace.protocol import CONTAINER
from ratchet.workspace.syscalls import BTRFS_MAGIC, clone_file, file_system, is_mounted, mount_overlay, unmount
from ratchet.workspace.tree_copy import NO_CLONES

_TRY = ".ratchet-try-"
_TRY_MAX_S = 600.0


class KindProbe(msgspec.Struct, frozen=True, kw_only=True):
    """The result for one kind: `why` it does not work, or empty."""

    kind: str
    why: str = ""

    @property
    def works(self) -> bool:
        return not self.why


class KindPaths(msgspec.Struct, frozen=True, kw_only=True):
    """The directories of workspaces, bases and writable layers."""

    workspaces: Path
    bases: Path
    layers: Path


class KindMissing(EnvironmentCannot):
    """A kind that was requested by name does not work here: choose another, or remove the cause."""


def probe_kinds(places: KindPaths) -> list[KindProbe]:
    """Try every kind, in order of preference."""
    for place in (places.workspaces, places.bases):
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
    return [KindProbe(kind=kind, why=why_not(places)) for kind, why_not in _RUNGS.items()]


def choose(kind: str, places: KindPaths) -> str:
    """Return the kind to use for `auto` or a kind given by name."""
    names = [*_RUNGS, CONTAINER, "auto"]
    if kind == CONTAINER:
        return kind  # needs an engine and an image, which are looked for when a step starts
    if kind not in names:
        raise UsageError(f"there is no workspace kind {kind}", hint=f"kinds: {', '.join(names)}")
    rungs = probe_kinds(places)
    working = next(rung.kind for rung in rungs if rung.works)
    if kind == "auto":
        return working
    asked = [rung for rung in rungs if rung.kind == kind or (kind == "overlay" and rung.kind == "overlay-userns")]
    if found := next((rung.kind for rung in asked if rung.works), None):
        return found
    raise KindMissing(f"{kind}: {asked[0].why}; {working} would work", hint=f"--kind {working}, or --kind auto")


def remove_stale_probes(places: KindPaths) -> None:
    """Remove leftovers of killed probes; a running probe is younger."""
    for place in (places.workspaces, places.bases, places.layers):
        for path in place.glob(f"{_TRY}*") if place.exists() else []:
            with suppress(OSError):
                found = path.lstat()
                if found.st_uid == os.geteuid() and found.st_mtime < time.time() - _TRY_MAX_S:
                    if is_mounted(str(path)):
                        unmount(str(path))
                    remove_tree(path)


def _overlay(places: KindPaths) -> str:
    if os.geteuid() != 0:
        return "mounting needs root"
    return _try_overlay(places, _mount_and_unmount)


def _overlay_userns(places: KindPaths) -> str:
    if os.geteuid() == 0:
        return "not needed: root can mount"
    if not shutil.which("nsenter"):
        return "nsenter is not installed (package util-linux)"
    return _try_overlay(places, lambda words: stop_namespace_holder(start_namespace_holder(HOLDER, *words)))


def _try_overlay(places: KindPaths, attempt: Callable[[list[str]], None]) -> str:
    """Mount a real overlay: only that shows what kernel, container and file systems allow together."""
    if not Path("/proc/self/ns/mnt").exists():
        return "only Linux has overlay mounts"
    try:
        with (
            temporary_folder(_TRY, within=places.bases) as lower,
            temporary_folder(_TRY, within=places.layers) as layer,
            temporary_folder(_TRY, within=places.workspaces) as target,
        ):
            for name in ("upper", "work"):
                (Path(layer) / name).mkdir()
            attempt([str(target), str(lower), f"{layer}/upper", f"{layer}/work"])
    except OSError as error:
        return _mount_words(error)
    return ""


def _mount_and_unmount(words: list[str]) -> None:
    target, lower, upper, work = words
    mount_overlay(target, lower=lower, upper=upper, work=work)
    unmount(target)


def _mount_words(error: OSError) -> str:
    match error.errno:
        case errno.EPERM | errno.EACCES:
            return "mounts are not permitted here"
        case errno.ENODEV:
            return "the kernel has no overlay file system"
        case errno.ENOSPC | errno.EUSERS:
            return "no more user namespaces are allowed (user.max_user_namespaces)"
        case _:
            return f"the mount failed: {error.strerror}"


def _btrfs(places: KindPaths) -> str:
    if file_system(places.bases) != BTRFS_MAGIC:
        return f"the bases are not on btrfs ({places.bases})"
    if places.bases.stat().st_dev != places.workspaces.stat().st_dev and (
        file_system(places.workspaces) != BTRFS_MAGIC
    ):
        return "source and target are on different file systems"
    return ""


def _reflink(places: KindPaths) -> str:
    try:
        with (
            tempfile.NamedTemporaryFile(dir=places.bases, prefix=_TRY) as source,
            temporary_folder(_TRY, within=places.workspaces) as target,
        ):
            source.write(b"x" * 4096)
            source.flush()
            clone_file(source.name, f"{target}/clone")
    except OSError as error:
        if error.errno == errno.EXDEV or (error.errno in NO_CLONES and _apart(places)):
            return "source and target are on different file systems"
        if error.errno in NO_CLONES:
            return "the file system has no reflinks"
        return f"the clone failed: {error.strerror}"
    return ""


def _apart(places: KindPaths) -> bool:
    return places.bases.stat().st_dev != places.workspaces.stat().st_dev


def _worktree(_places: KindPaths) -> str:
    return "" if shutil.which("git") else "git is not installed"


def _copy(_places: KindPaths) -> str:
    return ""


_RUNGS: dict[str, Callable[[KindPaths], str]] = {
    "overlay": _overlay,
    "overlay-userns": _overlay_userns,
    "btrfs": _btrfs,
    "reflink": _reflink,
    "worktree": _worktree,
    "copy": _copy,
}
