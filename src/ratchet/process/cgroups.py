"""Memory, CPU and process limits for a step: control groups (v2 or v1) where permitted, else rlimits."""

from __future__ import annotations

import itertools
import os
import re
import shutil
import subprocess
import time
from contextlib import suppress
from functools import cache
from pathlib import Path

import msgspec

CGROUPS = Path("/sys/fs/cgroup")
_PERIOD_US = 100_000
_ENTER = 'echo 0 > "$1/cgroup.procs"'  # writing 0 moves the writer
_COUNT = itertools.count(1)
# When memory runs out, the kernel should kill a step first, not the developer's editor or the worker.
_KILL_FIRST = "{ echo 1000 > /proc/self/oom_score_adj; } 2>/dev/null"


class ResourceLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of a step; 0 means no limit. `strict`: without control groups, address space is limited instead."""

    memory_mb: int = 0
    cpus: float = 0.0
    processes: int = 0
    strict: bool = True

    def settings(self, version: int) -> dict[str, dict[str, str]]:
        """Return the files to write and their content, by controller."""
        quota = int(self.cpus * _PERIOD_US)
        memory = str(self.memory_mb << 20)
        wanted = {
            "memory": {"memory.max": memory} if version == 2 else {"memory.limit_in_bytes": memory},
            "cpu": {"cpu.max": f"{quota} {_PERIOD_US}"} if version == 2 else {"cpu.cfs_quota_us": str(quota)},
            "pids": {"pids.max": str(self.processes)},
        }
        asked = {"memory": self.memory_mb, "cpu": self.cpus, "pids": self.processes}
        return {name: files for name, files in wanted.items() if asked[name]}


@cache
def own_program(name: str) -> str:
    """Return the path of a program that starts a sandbox: the PATH of a step may begin with what an agent wrote."""
    return shutil.which(name) or name


def group_name(slug: str) -> str:
    """Return a name that no other user of the workspace has: the first to end would remove the group of the others."""
    return f"ratchet-{slug}-{next(_COUNT)}-{_pid_namespace()}-{os.getpid()}"


def memory_bytes() -> int:
    """Return the memory of this machine, or of the container it is."""
    whole = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    for name in ("memory.max", "memory/memory.limit_in_bytes"):
        with suppress(OSError, ValueError):
            whole = min(whole, int((CGROUPS / name).read_text()))
    return whole


class ControlGroup:
    """The control groups of one run, created on first use; `close` removes them."""

    def __init__(self, name: str, bounds: ResourceLimits, *, mounts: Path = CGROUPS) -> None:
        self.name, self.bounds, self._mounts = name, bounds, mounts
        self.folders: list[Path] = []
        self.missing: list[str] = []
        self._made = False

    def prefix(self) -> list[str]:
        """Return the words to put before a command so that it and its descendants are limited."""
        if not self.bounds.settings(2):
            return []
        if not self._made:
            self._make()
        # The shell moves itself, then becomes the command; never without the limits.
        moves = [f"echo 0 > '{folder}/cgroup.procs' || exit 1" for folder in self.folders]
        return [own_program("sh"), "-c", "; ".join([_KILL_FIRST, *moves, *self._rlimits(), 'exec "$@"']), "sh"]

    def _make(self) -> None:
        self._made = True
        for controller in self.bounds.settings(2):
            if not any(
                self._try(parent, version, controller) for parent, version in _parents(self._mounts, controller)
            ):
                self.missing.append(controller)

    def _try(self, parent: Path, version: int, controller: str) -> bool:
        folder = parent / self.name
        try:
            folder.mkdir(exist_ok=True)
            for name, value in self.bounds.settings(version)[controller].items():
                if not (folder / name).exists():
                    raise FileNotFoundError(name)
                (folder / name).write_text(value)
            if folder not in self.folders:
                subprocess.run(
                    [own_program("sh"), "-c", _ENTER, "sh", str(folder)], stderr=subprocess.DEVNULL, check=True
                )
        except (OSError, subprocess.CalledProcessError):
            if folder not in self.folders:
                with suppress(OSError):
                    folder.rmdir()
            return False
        if folder not in self.folders:
            self.folders.append(folder)
        return True

    def _rlimits(self) -> list[str]:
        """Return weaker limits for missing controllers: they count address space, and processes of the whole user."""
        words = []
        if "memory" in self.missing:
            # Runtimes reserve far more address space than they use, so a default limit counts data only.
            kind = "-v" if self.bounds.strict else "-d"
            words.append(f"ulimit {kind} {self.bounds.memory_mb << 10}")
        if "pids" in self.missing and os.geteuid() != 0:
            # The option has another name in dash, which is `sh` on Debian, and in BusyBox.
            most = self.bounds.processes + _tasks_of_this_user()
            words.append(f"ulimit -u {most} 2>/dev/null || ulimit -p {most} 2>/dev/null || true")
        return words

    def refused_forks(self) -> int:
        """Return how often a process was not started because of the limit, as far as the kernel counts that."""
        counted = 0
        for folder in self.folders:
            with suppress(OSError, ValueError, IndexError):
                counted += int((folder / "pids.events").read_text().split()[1])
        return counted

    def close(self) -> None:
        for folder in self.folders:
            with suppress(OSError):
                folder.rmdir()
        self.folders = []
        self._made = False


def _tasks_of_this_user() -> int:
    """Return the number of threads that count towards this user's limit of processes already."""
    tasks, ours = 0, os.geteuid()
    for place in Path("/proc").glob("[0-9]*"):
        with suppress(OSError, ValueError, IndexError):
            if place.stat().st_uid == ours:
                tasks += int((place / "stat").read_bytes().rsplit(b")", 1)[1].split()[17])
    return tasks


def _parents(mounts: Path, controller: str) -> list[tuple[Path, int]]:
    """Return the directories in which a group for this controller could be created, most likely first."""
    found = []
    for line in _own_groups():
        _, names, path = line.split(":", 2)
        if controller in names.split(","):
            found.append((mounts / names / path.lstrip("/"), 1))
        elif not names:
            for top in (mounts, mounts / "unified"):
                own = top / path.lstrip("/")
                found += [(own, 2), (own.parent, 2)]
    return found


_OF_A_RUN = re.compile(r"ratchet-.+-(\d+)-(\d+)")  # as `group_name` makes them
_FOREIGN_S = 86_400.0


def remove_stale_groups(*, mounts: Path = CGROUPS) -> list[str]:
    """Remove the groups that killed workers have left; returns their names. One with processes in it stays.

    In another pid namespace (a container that shares the control groups) the number of a worker means another process:
    such a group goes when it is a day old.
    """
    removed = []
    places = {place for controller in ("memory", "cpu", "pids") for place, _ in _parents(mounts, controller)}
    for place in sorted(places):
        for folder in sorted(place.glob("ratchet-*-*")) if place.is_dir() else ():
            with suppress(OSError):
                if _is_stale(folder):
                    folder.rmdir()
                    removed.append(folder.name)
    return sorted(set(removed))


def _is_stale(group: Path) -> bool:
    if not (named := _OF_A_RUN.fullmatch(group.name)):
        return False
    if named[1] != _pid_namespace():
        return time.time() - group.stat().st_ctime > _FOREIGN_S
    return not Path(f"/proc/{named[2]}").exists()


def _pid_namespace() -> str:
    """Return what says which pids can be compared with ours."""
    try:
        return str(Path("/proc/self/ns/pid").stat().st_ino)
    except OSError:
        return "0"


def _own_groups() -> list[str]:
    try:
        return Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        return []
