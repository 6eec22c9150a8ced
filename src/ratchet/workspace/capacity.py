"""Capacity for workspaces: how many there may be, and where the writable layer of each is stored."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path

import msgspec

from ratchet.core.lines import split_lines
from ratchet.errors import UsageError
from ratchet.workspace.protocol import WorkspaceRefused

RAM = Path("/dev/shm")  # noqa: S108 — the RAM disk; names below it are used only if they are the own user's
_RAM_ASK_S = 0.05
OVERLAYS = ("overlay", "overlay-userns")


class CapacityLimits(msgspec.Struct, frozen=True, kw_only=True):
    """When a workspace is refused, and how much disk the bases may use."""

    max_count: int = 64
    min_free_ram_bytes: int = 512 << 20
    min_free_disk_bytes: int = 1 << 30
    max_bases_bytes: int = 20 << 30


class Capacity:
    def __init__(self, limits: CapacityLimits, *, root: Path, ram: Path) -> None:
        self.limits, self.root, self.ram = limits, root, ram
        self._ram_asked = (-1.0, "")

    def layer_directory(self, kind: str, on: str) -> str | WorkspaceRefused:
        """Return the directory of the writable layer: the RAM disk if it has room, else the workspace root."""
        if on not in ("auto", "ram", "disk"):
            raise UsageError(f"a workspace cannot be on {on!r}", hint="--on ram or --on disk")
        if on == "ram" and kind not in ("auto", *OVERLAYS):
            raise UsageError(f"only an overlay's layer can be on a RAM disk, not a {kind}", hint="--kind overlay")
        no_ram = self.why_no_ram() if on != "disk" and kind in ("auto", *OVERLAYS) else "not asked for"
        if not no_ram:
            return str(self.ram)
        if on == "ram":
            return WorkspaceRefused(reason=no_ram, hint="--on disk, or lower workspace.min_free_ram_mb")
        free, needed = _free(self.root), self.limits.min_free_disk_bytes
        if free < needed:
            return WorkspaceRefused(
                reason=f"{_mib(free)} are free on the disk of {self.root}, {_mib(needed)} must be",
                hint="free some space, or lower workspace.min_free_disk_mb",
            )
        return str(self.root)

    def why_no_ram(self) -> str:
        """Return why the layer cannot be on the RAM disk. Cached for 50 ms, because the check is slow."""
        now = time.monotonic()
        if now - self._ram_asked[0] > _RAM_ASK_S:
            self._ram_asked = now, self._ask_ram()
        return self._ram_asked[1]

    def _ask_ram(self) -> str:
        try:
            free = min(_free(self.ram), _free_ram(self.limits.min_free_ram_bytes))
        except FileNotFoundError:
            return f"there is no RAM disk at {self.ram}"
        if not os.access(self.ram, os.W_OK):
            return f"the RAM disk at {self.ram} is not writable"
        if free < self.limits.min_free_ram_bytes:
            return f"{_mib(free)} of RAM are free, {_mib(self.limits.min_free_ram_bytes)} must be"
        return ""


def _free(path: Path) -> int:
    while True:
        try:
            found = os.statvfs(path)
        except FileNotFoundError:
            path = path.parent
        else:
            return found.f_bavail * found.f_frsize


def _free_ram(enough: int) -> int:
    free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if free >= enough:
        return free
    with suppress(OSError):
        for line in split_lines(Path("/proc/meminfo").read_text()):
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    return free


def _mib(count: int) -> str:
    return f"{count >> 20:,} MiB"
