"""What works on this machine, what does not, and what that means."""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec

from ratchet import config, repository
from ratchet.checks.detect import detect
from ratchet.errors import RatchetError
from ratchet.places import open_workspaces
from ratchet.process import call
from ratchet.workspace import limits, sandbox

GIT_NEEDED = (2, 36)


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    what: str
    ok: bool
    detail: str
    needed: bool = True


def examine(folder: Path) -> list[Finding]:
    return list(_findings(folder))


def _findings(folder: Path) -> Iterator[Finding]:
    version = ".".join(map(str, sys.version_info[:3]))
    yield Finding(what="python", ok=sys.version_info >= (3, 11), detail=f"{version} (3.11 or newer is needed)")
    yield _git()
    yield Finding(what="sqlite", ok=sqlite3.sqlite_version_info >= (3, 37), detail=sqlite3.sqlite_version)
    proc = Path("/proc/self/stat").exists()
    yield Finding(
        what="process tree",
        ok=proc,
        needed=False,
        detail="every descendant of a step is killed with it" if proc else "no /proc: only process groups are killed",
    )
    missing = sandbox.why_not()
    yield Finding(
        what="sandbox",
        ok=not missing,
        needed=False,
        detail=f"{missing}: writes outside a role's paths are undone after the step, not prevented"
        if missing
        else "bubblewrap: steps see a read-only root, a private /tmp and home, and no network unless allowed",
    )
    yield _limits()
    yield from _ladder(folder)
    yield from _project(folder)


def _limits() -> Finding:
    group = limits.Group("ratchet-doctor", limits.Bounds(memory_mb=64, cpus=1.0, processes=64))
    group.prefix()
    missing = ", ".join(group.missing)
    group.close()
    detail = (
        f"no control group for {missing}: rlimits where they can" if missing else "control groups: memory, cpu, pids"
    )
    return Finding(what="limits", ok=not missing, needed=False, detail=detail)


def _ladder(folder: Path) -> Iterator[Finding]:
    """The kinds of workspace, best first; `auto` takes the first that works."""
    try:
        spaces = open_workspaces(config.load(folder).config)
        rungs = spaces.ladder()
    except (RatchetError, OSError) as error:
        yield Finding(what="workspaces", ok=False, detail=str(error))
        return
    chosen = next((rung.kind for rung in rungs if rung.works), "")
    for rung in rungs:
        good = "works, and is what auto takes" if rung.kind == chosen else "works"
        yield Finding(what=f"workspace {rung.kind}", ok=rung.works, needed=False, detail=rung.why or good)


def _git() -> Finding:
    try:
        said = call(["git", "--version"]).stdout.decode().split()[2]
    except RatchetError as error:
        return Finding(what="git", ok=False, detail=error.message)
    numbers = tuple(int(part) for part in said.split(".")[:2])
    return Finding(what="git", ok=numbers >= GIT_NEEDED, detail=f"{said} (2.36 or newer is needed)")


def _project(folder: Path) -> Iterator[Finding]:
    try:
        repo = repository.find(folder)
    except RatchetError as error:
        yield Finding(what="repository", ok=False, needed=False, detail=error.message)
        return
    state = "uncommitted changes are left out of runs" if repo.dirty else "clean"
    yield Finding(what="repository", ok=True, detail=f"{repo.root} at {repo.head[:10]}, {state}")
    targets = detect(repo.root)
    for target in targets:
        yield Finding(what="tests", ok=True, detail=f"{target.name}: {' '.join(target.command)} ({target.why})")
    if not targets:
        yield Finding(what="tests", ok=False, needed=False, detail="none found: set [test] command in ratchet.toml")
