"""Run git: no hooks, prompts or signing, durable writes, and its own error messages."""

from __future__ import annotations

import os
import re
import shlex
import shutil
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

from ratchet.errors import CommandTimedOut, DiskFull, GitFailed, GitStalled, UntrustedRepository
from ratchet.files import is_full
from ratchet.process.spawn import run_command
from ratchet.workspace.protocol import AGENT_HOME, MOUNTS, RECORD, TREE

# Loose objects and refs are not synced by default: a commit we announced must survive a power cut.
_ALWAYS = [
    "core.hooksPath=/dev/null",
    "core.fsmonitor=false",
    "core.fsync=loose-object,reference,pack,pack-metadata",
    "core.fsyncMethod=batch",
    "core.quotePath=false",
    "diff.autoRefreshIndex=false",  # reading commands write nothing
    "commit.gpgSign=false",
    "gc.auto=0",
    "maintenance.auto=false",
    "advice.detachedHead=false",
    "core.protectHFS=true",  # refuses names that are `.git` on a Mac, where a branch may be checked out
    "submodule.recurse=false",
    "diff.ignoreSubmodules=dirty",  # else git runs in a nested repository, with its settings
]
# Checkouts hold the bytes that were committed, whatever line endings the user's settings ask for: tests compare bytes.
_AS_COMMITTED = ["core.autocrlf=false", "core.eol=lf"]
# The words of git 2.38 and later, and those of 2.36 and 2.37.
_UNTRUSTED = re.compile(r"(?:dubious ownership in repository at |unsafe repository \()'(.+?)'")
_PROGRESS = re.compile(r"^(?:[^\n]*\r)?(?:(?:remote: )?[A-Z][a-z ]+: +\d+%.*\n?)?", re.MULTILINE)
IDENTITY = {"NAME": "Ratchet", "EMAIL": "ratchet@localhost"}


def git(
    *args: str,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    stdin: bytes = b"",
    ok: tuple[int, ...] = (0,),
    as_committed: bool = True,
    timeout_s: float = 300.0,
    silence_s: float = 0.0,
    output_max_bytes: int = 0,
) -> bytes:
    """Run git and return what it printed. Exit codes not in `ok` raise GitFailed.

    It is killed after `timeout_s`, or when it prints nothing, not even progress, for `silence_s`: GitStalled.

    Never with the settings of a workspace: its `.git` may be an agent's, and settings name programs.
    """
    named = Path(cwd or "/", (env or {}).get("GIT_DIR", ""))
    if _is_in_workspace(named) or _is_in_workspace(Path(os.path.realpath(named))):  # a link may lead there
        raise GitFailed(f"{named} is in a workspace of ratchet, whose .git is not trusted", exit_code=128)
    wanted = [*_ALWAYS, *(_AS_COMMITTED if as_committed else [])]
    settings = [word for setting in wanted for word in ("-c", setting)]
    try:
        answer = run_command(
            ["git", *settings, *args], cwd=cwd, env=_environment(env or {}), stdin=stdin,
            timeout_s=timeout_s, silence_s=silence_s, output_max_bytes=output_max_bytes, prefix=_ends_with_us(),
        )  # fmt: skip
    except CommandTimedOut as error:
        raise GitStalled(f"git {_verb(args)}: {error.message}", exit_code=-9) from error
    if answer.exit_code not in ok:
        message = _PROGRESS.sub("", (answer.stderr or answer.stdout).decode(errors="replace")).strip()
        full = next((place for place in _written(cwd, env or {}) if is_full(place)), None)
        if "No space left on device" in message or ("unable to write" in message and full):
            raise DiskFull(
                f"no room left at {full or cwd} while git wrote: {message}", hint="free some space, then resume"
            )
        if untrusted := _UNTRUSTED.search(message):
            raise UntrustedRepository(
                f"{untrusted[1]} belongs to another user, so git refuses to read it",
                hint=f"if you trust it: git config --global --add safe.directory {shlex.quote(untrusted[1])}",
                root=untrusted[1],
            )
        raise GitFailed(f"git {_verb(args)} failed: {message}", exit_code=answer.exit_code)
    return answer.stdout


def _verb(args: tuple[str, ...]) -> str:
    return next(word for before, word in zip(("", *args[:-1]), args, strict=True) if "-c" not in (before, word))


def _is_in_workspace(folder: Path) -> bool:
    around = (folder, *folder.parents)
    homes = (place.parent for place in around if place.name in (TREE, AGENT_HOME))
    return any(place.parent.name == MOUNTS for place in around) or any((home / RECORD).exists() for home in homes)


@lru_cache(maxsize=1)
def _ends_with_us() -> tuple[str, ...]:
    """Return a prefix that kills git when this process dies: it must not write beside the next worker."""
    found = shutil.which("setpriv")
    return (found, "--pdeathsig", "KILL") if found else ()


def _written(cwd: Path | None, env: Mapping[str, str]) -> list[Path | None]:
    """Return where git writes: objects, index, files."""
    named = [env.get("GIT_DIR", ".git"), os.path.dirname(env.get("GIT_INDEX_FILE", ""))]
    return [*((cwd or Path("/")) / name for name in named if name), cwd]


def git_read_only(*args: str, cwd: Path) -> bytes:
    """Run a reading git command in a developer's tree, with the line endings of its owner's settings.

    Not even the index is refreshed: that needs a lock and space.
    """
    return git(*args, cwd=cwd, env={"GIT_OPTIONAL_LOCKS": "0"}, as_committed=False)


def git_text(*args: str, cwd: Path | None = None, env: Mapping[str, str] | None = None) -> str:
    return git(*args, cwd=cwd, env=env).decode(errors="replace").strip()


def _environment(extra: Mapping[str, str]) -> dict[str, str]:
    # A hook or agent that started us may have set GIT_DIR and similar variables for another repository.
    env = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    who = {f"GIT_{role}_{part}": value for role in ("AUTHOR", "COMMITTER") for part, value in IDENTITY.items()}
    return env | who | {"GIT_TERMINAL_PROMPT": "0", "GIT_OPTIONAL_LOCKS": "0", "LC_ALL": "C"} | dict(extra)
