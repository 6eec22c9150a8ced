"""Workspaces against what people do without: cp, reflinks, git worktree, git reset, and the bare system calls."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from statistics import median
from threading import Barrier

from bench import Goal, Row, medians
from ratchet.workspace.capacity import CapacityLimits
from ratchet.workspace.git_workspace import GitWorkspace
from ratchet.workspace.kinds.overlay import Overlay
from ratchet.workspace.protocol import WorkspaceRefused
from ratchet.workspace.registry import Workspaces
from ratchet.workspace.syscalls import mount_overlay, unmount

SMALL, MEDIUM, LARGE = 1_000, 20_000, 100_000
FILE_BYTES = 2_000
PhaseAction = Callable[[], object]


def main() -> list[Goal | Row]:
    with tempfile.TemporaryDirectory(prefix="ratchet-bench-", dir=os.environ.get("RATCHET_BENCH_DIR")) as folder:
        place = Path(folder)
        small, medium, large = (Project(place, size) for size in (SMALL, MEDIUM, LARGE))
        os.sync()  # a hundred thousand files still on their way to the disk would be measured, not us
        try:
            kind = medium.spaces.choose("auto")
            if not kind.startswith("overlay"):
                _say(f"auto takes {kind} here: the ratios below are its, and will be poor")
            return [
                *_against_copies(medium, place),
                _by_size(small, large),
                *_against_system_calls(medium),
                _reset(large),
                _memory(medium),
                _status(medium),
                _crowd(medium),
            ]
        finally:
            for project in (small, medium, large):
                project.close()


class Project:
    """A repository of so many files, with its workspaces."""

    def __init__(self, place: Path, files: int) -> None:
        self.files, self.repo = files, place / f"repo-{files}"
        _say(f"making a repository of {files:,} files and its base")
        for n in range(files):
            folder = self.repo / f"d{n // 1000}" / f"d{n // 100 % 10}"
            if n % 100 == 0:
                folder.mkdir(parents=True, exist_ok=True)
            (folder / f"f{n}.txt").write_bytes(f"{n}\n".encode().ljust(FILE_BYTES, b"x"))
        git = ("git", "-C", str(self.repo), "-c", "user.name=b", "-c", "user.email=b@localhost")
        _run("git", "init", "-q", str(self.repo))
        _run(*git, "add", "-A")
        _run(*git, "commit", "-q", "-m", "bench")
        self.commit = _run(*git, "rev-parse", "HEAD")
        self.spaces = Workspaces(
            place / f"ws-{files}", bases=place / f"bases-{files}", limits=CapacityLimits(max_count=200)
        )
        self._number = count()
        self.destroy(self.create())

    def create(self) -> GitWorkspace:
        made = self.spaces.create(f"bench-{os.getpid()}-{next(self._number)}", repo=self.repo, commit=self.commit)
        assert not isinstance(made, WorkspaceRefused), made
        return made

    def destroy(self, workspace: GitWorkspace) -> None:
        self.spaces.destroy(workspace.record.slug)

    def create_s(self) -> float:
        """The time of a create; the destroy after it is not counted."""
        began = time.perf_counter()
        made = self.create()
        taken = time.perf_counter() - began
        self.destroy(made)
        return taken

    def close(self) -> None:
        for record in self.spaces.records():
            self.spaces.destroy(record.slug)


def _against_copies(project: Project, place: Path) -> list[Goal]:
    _say("cp -a, git worktree add, cp --reflink")
    target = place / "copied"
    plain = {"cp -a": _timed(lambda: _run("cp", "-a", str(project.repo), str(target)))}
    shutil.rmtree(target)
    add = ("git", "-C", str(project.repo), "worktree", "add", "-q", "--detach", str(target))
    plain["git worktree add"] = _timed(lambda: _run(*add))
    _run("git", "-C", str(project.repo), "worktree", "remove", "--force", str(target))
    if reflink := _reflink_s(project, place):
        plain["cp --reflink (btrfs)"] = reflink
    os.sync()  # the copies are on their way to the disk too
    ours = median(project.create_s() for _ in range(50))
    best = min(plain.values())
    detail = ", ".join(f"{name} {seconds:.2f} s" for name, seconds in plain.items())
    return [
        _at_least(f"create, {project.files:,} files, against the best of copies", best / ours, 100, detail),
        Goal(
            measure=f"create, {project.files:,} files",
            value=ours * 1000,
            unit="ms",
            wanted="< 50",
            ok=ours < 0.05,
        ),
    ]


def _reflink_s(project: Project, place: Path) -> float | None:
    """On a loop-mounted btrfs, where root and mkfs.btrfs are there."""
    if os.geteuid() != 0 or not shutil.which("mkfs.btrfs"):
        return None
    with _btrfs(place) as mounted:
        _run("cp", "-a", str(project.repo), str(mounted / "source"))
        return _timed(lambda: _run("cp", "-a", "--reflink=always", str(mounted / "source"), str(mounted / "copy")))


@contextmanager
def _btrfs(place: Path) -> Iterator[Path]:
    image, mounted = place / "btrfs.image", place / "btrfs"
    mounted.mkdir()
    with image.open("wb") as file:
        file.truncate(2 << 30)
    _run("mkfs.btrfs", "-q", str(image))
    _run("mount", "-o", "loop", str(image), str(mounted))
    try:
        yield mounted
    finally:
        _run("umount", str(mounted))
        image.unlink()


def _by_size(small: Project, large: Project) -> Goal:
    _say("create by size")
    rounds = [(large.create_s(), small.create_s()) for _ in range(100)]
    big, little = (median(column) for column in zip(*rounds, strict=True))
    detail = f"{big * 1e3:.2f} ms, {little * 1e3:.2f} ms"
    return _at_most(f"create, {large.files:,} against {small.files:,} files", big / little, 1.5, detail)


def _against_system_calls(project: Project) -> list[Goal | Row]:
    """The floor has its layer where ours is and its mount point where the workspaces are: what a script would do.

    With all of it in the home's own file system it is told too: that is what is left when the disk costs nothing.
    """
    _say("create + destroy against the bare system calls")
    measure = "create + destroy against the bare system calls"
    if not isinstance(made := project.create(), Overlay) or os.geteuid() != 0:
        return [_at_most(measure, float("nan"), 3, "needs root's overlay")]
    record = made.record
    project.destroy(made)
    layer = f"{Path(record.layer).parent}/bare-{os.getpid()}"
    taken = medians(
        300,
        ours=lambda: project.destroy(project.create()),
        bare=lambda: _bare(f"{project.spaces.root}/.bare", layer, f"{record.base}/tree"),
        close=lambda: _bare(f"{layer}-tree", layer, f"{record.base}/tree"),
    )
    detail = f"{taken['ours'] * 1e3:.2f} ms, {taken['bare'] * 1e3:.2f} ms, layers on {record.on}"
    return [
        _at_most(measure, taken["ours"] / taken["bare"], 3, detail),
        (f"the same with the mount point on {record.on} too", "times", taken["ours"] / taken["close"]),
    ]


def _bare(target: str, layer: str, lower: str) -> None:
    upper, work = f"{layer}/upper", f"{layer}/work"
    for folder in (target, layer, upper, work):
        os.mkdir(folder)
    mount_overlay(target, lower=lower, upper=upper, work=work)
    unmount(target)
    for folder in (f"{work}/work", work, upper, layer, target):
        os.rmdir(folder)


def _reset(project: Project) -> Goal:
    _say("reset after 10 changed files")
    workspace = project.create()
    before = workspace.checkpoint()
    git = ("git", "-C", str(workspace.path))

    def change() -> None:
        for n in range(10):
            (workspace.path / f"d{n}" / "d0" / f"f{n * 1000}.txt").write_text("changed")

    def by_git() -> None:
        _run(*git, "reset", "-q", "--hard")
        _run(*git, "clean", "-q", "-fdx")

    change()
    by_git()  # once before it counts: now git has seen every file
    rounds = []
    for _ in range(3):
        change()
        by_us = _timed(lambda: workspace.reset(before))
        by_git()  # a new layer: git looks at every file once more
        change()
        rounds.append((_timed(by_git), by_us))
    theirs, ours = (median(column) for column in zip(*rounds, strict=True))
    project.destroy(workspace)
    detail = f"{theirs * 1e3:.0f} ms, {ours * 1e3:.2f} ms"
    return _at_least(f"reset, {project.files:,} files, against git reset and clean", theirs / ours, 20, detail)


def _memory(project: Project) -> Goal:
    """Of the whole machine, the kernel too; the median of some rounds, for others use memory meanwhile."""
    _say("memory")
    used = median(_fifty_kib(project) for _ in range(7))
    return Goal(measure="memory of an idle workspace", value=used, unit="KiB", wanted="< 1024", ok=used < 1024)


def _fifty_kib(project: Project) -> float:
    before = _used_bytes()
    made = [project.create() for _ in range(50)]
    used = (_used_bytes() - before) / 50 / 1024
    for workspace in made:
        project.destroy(workspace)
    return used


def _used_bytes() -> int:
    wanted = ("Shmem:", "Slab:", "KernelStack:", "PageTables:", "Percpu:", "AnonPages:")
    lines = Path("/proc/meminfo").read_text().splitlines()
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith(wanted))


def _status(project: Project) -> Goal:
    _say("git status, first and second")
    first, second = [], []
    for _ in range(15):
        workspace = project.create()
        status = ("git", "-C", str(workspace.path), "status", "--porcelain")
        first.append(_timed(lambda: _run(*status)))  # noqa: B023 — called at once
        second.append(_timed(lambda: _run(*status)))  # noqa: B023
        project.destroy(workspace)
    detail = f"{median(first) * 1e3:.0f} ms, {median(second) * 1e3:.0f} ms"
    return _at_most("first git status against the second", median(first) / median(second), 1.5, detail)


def _crowd(project: Project) -> Goal:
    """Against the mean of as many one after the other: a busy machine's pauses then fall on both sides alike."""
    _say("50 creates at once")
    rounds = [(_fifty(project, 50), _fifty(project, 1) / 50) for _ in range(11)]
    together, one = (median(column) for column in zip(*rounds, strict=True))
    detail = f"50 made in {together * 1e3:.0f} ms, one takes {one * 1e3:.2f} ms"
    return _at_most("50 concurrent creates against one", together / one, 60, detail)


def _fifty(project: Project, callers: int) -> float:
    """Fifty creates by so many callers, all of them there before the first begins."""
    ready = Barrier(callers + 1)

    def call() -> list[GitWorkspace]:
        ready.wait()
        return [project.create() for _ in range(50 // callers)]

    with ThreadPoolExecutor(callers) as crowd:
        asked = [crowd.submit(call) for _ in range(callers)]
        ready.wait()
        began = time.perf_counter()
        made = [workspace for answer in asked for workspace in answer.result()]
        taken = time.perf_counter() - began
    for workspace in made:
        project.destroy(workspace)
    return taken


def _at_least(measure: str, value: float, wanted: float, detail: str) -> Goal:
    ok = value >= wanted
    return Goal(measure=measure, value=value, unit="times", wanted=f">= {wanted:g}", ok=ok, detail=detail)


def _at_most(measure: str, value: float, wanted: float, detail: str) -> Goal:
    ok = value <= wanted
    return Goal(measure=measure, value=value, unit="times", wanted=f"<= {wanted:g}", ok=ok, detail=detail)


def _timed(act: PhaseAction) -> float:
    began = time.perf_counter()
    act()
    return time.perf_counter() - began


def _run(*argv: str) -> str:
    return subprocess.run(argv, check=True, capture_output=True, text=True).stdout.strip()


def _say(text: str) -> None:
    print(text, file=sys.stderr)
