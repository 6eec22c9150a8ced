"""Git, asked precisely: no hooks, no prompts, no signing, durable writes, and the error in its own words."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

from ratchet.errors import DiskFull, GitFailed
from ratchet.process import call

# Loose objects and refs are not synced by default: a commit we announced must survive a power cut.
_ALWAYS = [
    "core.hooksPath=/dev/null",
    "core.fsmonitor=false",
    "core.fsync=loose-object,reference,pack,pack-metadata",
    "core.fsyncMethod=batch",
    "core.quotePath=false",
    "diff.autoRefreshIndex=false",  # who only asks writes nothing
    "commit.gpgSign=false",
    "gc.auto=0",
    "maintenance.auto=false",
    "advice.detachedHead=false",
    "submodule.recurse=false",
]
_IDENTITY = {"NAME": "Ratchet", "EMAIL": "ratchet@localhost"}


def git(
    *args: str,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    stdin: bytes = b"",
    ok: tuple[int, ...] = (0,),
) -> bytes:
    """Run git and return what it printed. Exit codes not in `ok` raise GitFailed."""
    settings = [word for setting in _ALWAYS for word in ("-c", setting)]
    answer = call([*_ends_with_us(), "git", *settings, *args], cwd=cwd, env=_environment(env or {}), stdin=stdin)
    if answer.exit_code not in ok:
        said = (answer.stderr or answer.stdout).decode(errors="replace").strip()
        full = next((place for place in _written(cwd, env or {}) if is_full(place)), None)
        if "No space left on device" in said or ("unable to write" in said and full):
            raise DiskFull(
                f"no room left at {full or cwd} while git wrote: {said}", hint="free some space, then resume"
            )
        raise GitFailed(f"git {args[0]} failed: {said}", exit_code=answer.exit_code)
    return answer.stdout


@lru_cache(maxsize=1)
def _ends_with_us() -> tuple[str, ...]:
    """A git that outlived a killed factory would go on writing where the next one has begun."""
    found = shutil.which("setpriv")
    return (found, "--pdeathsig", "KILL") if found else ()


def _written(cwd: Path | None, env: Mapping[str, str]) -> list[Path | None]:
    """Where git writes: objects, index, files."""
    named = [env.get("GIT_DIR", ".git"), os.path.dirname(env.get("GIT_INDEX_FILE", ""))]
    return [*((cwd or Path("/")) / name for name in named if name), cwd]


def is_full(folder: Path | None) -> bool:
    """Whether the file system of a folder has no room for one more file. Git does not always say so."""
    if folder is None or not folder.exists():
        return False
    found = os.statvfs(folder)
    return found.f_bavail * found.f_frsize < 64 << 10 or (found.f_files > 0 and found.f_favail == 0)


def look(*args: str, cwd: Path) -> bytes:
    """Ask about somebody's own tree. Not even its index is refreshed, which takes a lock, and room on the disk."""
    return git(*args, cwd=cwd, env={"GIT_OPTIONAL_LOCKS": "0"})


def text(*args: str, cwd: Path | None = None, env: Mapping[str, str] | None = None) -> str:
    return git(*args, cwd=cwd, env=env).decode(errors="replace").strip()


def _environment(extra: Mapping[str, str]) -> dict[str, str]:
    # A hook or an agent above us may have left GIT_DIR and friends behind: they would point us at another repository.
    env = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    who = {f"GIT_{role}_{part}": value for role in ("AUTHOR", "COMMITTER") for part, value in _IDENTITY.items()}
    return env | who | {"GIT_TERMINAL_PROMPT": "0", "GIT_OPTIONAL_LOCKS": "0", "LC_ALL": "C"} | dict(extra)
