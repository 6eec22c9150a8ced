"""Memory, processor and process limits for a step: control groups (v2 or v1) where we may make them, else rlimits."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

import msgspec

CGROUPS = Path("/sys/fs/cgroup")
_PERIOD_US = 100_000
# When the machine runs out of memory the kernel looks for somebody to kill: a step, not the developer's editor or us.
_FIRST_TO_GO = "{ echo 1000 > /proc/self/oom_score_adj; } 2>/dev/null"


class Bounds(msgspec.Struct, frozen=True, kw_only=True):
    """0 is no limit of its own."""

    memory_mb: int = 0
    cpus: float = 0.0
    processes: int = 0

    def settings(self, version: int) -> dict[str, dict[str, str]]:
        """For each controller, which files to write."""
        quota = int(self.cpus * _PERIOD_US)
        memory = str(self.memory_mb << 20)
        wanted = {
            "memory": {"memory.max": memory} if version == 2 else {"memory.limit_in_bytes": memory},
            "cpu": {"cpu.max": f"{quota} {_PERIOD_US}"} if version == 2 else {"cpu.cfs_quota_us": str(quota)},
            "pids": {"pids.max": str(self.processes)},
        }
        asked = {"memory": self.memory_mb, "cpu": self.cpus, "pids": self.processes}
        return {name: files for name, files in wanted.items() if asked[name]}


class Group:
    """The control groups of one run. Nothing is made before it is needed; `close` removes what was."""

    def __init__(self, name: str, bounds: Bounds, *, mounts: Path = CGROUPS) -> None:
        self.name, self.bounds, self._mounts = name, bounds, mounts
        self.folders: list[Path] = []
        self.missing: list[str] = []
        self._made = False

    def prefix(self) -> list[str]:
        """What to put before a command so that it and all it starts are limited."""
        if not self.bounds.settings(2):
            return []
        if not self._made:
            self._make()
        # 0 is whoever writes it: the shell moves itself, then becomes the command.
        moves = [f"echo 0 > '{folder}/cgroup.procs'" for folder in self.folders]
        return ["sh", "-c", "; ".join([_FIRST_TO_GO, *moves, *self._rlimits(), 'exec "$@"']), "sh"]

    def _make(self) -> None:
        self._made = True
        for controller in self.bounds.settings(2):
            if not any(self._try(parent, version, controller) for parent, version in self._parents(controller)):
                self.missing.append(controller)

    def _parents(self, controller: str) -> list[tuple[Path, int]]:
        """Where a group for this controller could be made, the most likely first."""
        found = []
        for line in _own_groups():
            _, names, path = line.split(":", 2)
            if controller in names.split(","):
                found.append((self._mounts / names / path.lstrip("/"), 1))
            elif not names:
                for top in (self._mounts, self._mounts / "unified"):
                    own = top / path.lstrip("/")
                    found += [(own, 2), (own.parent, 2)]
        return found

    def _try(self, parent: Path, version: int, controller: str) -> bool:
        folder = parent / self.name
        try:
            folder.mkdir(exist_ok=True)
            for name, value in self.bounds.settings(version)[controller].items():
                if not (folder / name).exists():
                    raise FileNotFoundError(name)
                (folder / name).write_text(value)
        except OSError:
            if folder not in self.folders:
                with suppress(OSError):
                    folder.rmdir()
            return False
        if folder not in self.folders:
            self.folders.append(folder)
        return True

    def _rlimits(self) -> list[str]:
        """Weaker: they count address space, and processes of the whole user."""
        words = []
        if "memory" in self.missing:
            words.append(f"ulimit -v {self.bounds.memory_mb << 10}")
        if "pids" in self.missing and os.geteuid() != 0:
            words.append(f"ulimit -u {self.bounds.processes} 2>/dev/null || true")
        return words

    def close(self) -> None:
        for folder in self.folders:
            with suppress(OSError):
                folder.rmdir()
        self.folders = []
        self._made = False


def _own_groups() -> list[str]:
    try:
        return Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        return []
