"""What works on this machine, what does not, and what that means."""

from __future__ import annotations

import shutil
import sqlite3
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec

from ratchet import repository
from ratchet.checks.detect import detect
from ratchet.errors import RatchetError
from ratchet.process import call

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
    bwrap = shutil.which("bwrap")
    yield Finding(
        what="bubblewrap",
        ok=bool(bwrap),
        needed=False,
        detail=bwrap or "not installed: writes outside a role's paths are undone after the step, not prevented",
    )
    yield from _project(folder)


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
