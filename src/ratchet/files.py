"""Atomic and durable file writes: a reader sees the old or the new content, never a part."""

from __future__ import annotations

import errno
import os
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from ratchet.errors import DiskFull, EnvironmentCannot, UsageError

FILE_MODE, DIR_MODE = 0o600, 0o700
_NAME_MAX = 200
STATE_DIR = ".ratchet"
FETCHED = "ratchet-fetched"  # a file in the git directory of each clone that Ratchet made of a repository elsewhere
# Never through a link, and never waiting for the reader of a pipe: programs of others may have written the folder.
_WRITE = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK
_APPEND = _WRITE | os.O_APPEND
NO_ROOM = (errno.ENOSPC, errno.EDQUOT)


def check_name(name: str, *, what: str) -> str:
    """Return an id from a store that names a file or folder of ours. Raises UsageError if it could lead elsewhere.

    Nobody can say what wrote a store that came from another person.
    """
    if name in ("", ".", "..") or len(name) > _NAME_MAX or not name.isprintable() or "/" in name:
        raise UsageError(
            f"no {what} has the name {name[:100]!r}", hint="if a store has it, the store is forged: do not use it"
        )
    return name


def is_of_others(path: Path, *, besides: int = -1) -> bool:
    """Whether another user made a file, folder or link, or where it leads: not this user, root, or who called sudo.

    `besides` is one more user who may have.
    """
    ours = {os.geteuid(), 0, besides}
    if os.geteuid() == 0 and (caller := os.environ.get("SUDO_UID", "")).isdecimal():
        ours.add(int(caller))
    with suppress(FileNotFoundError):
        return path.lstat().st_uid not in ours or path.stat().st_uid not in ours
    return False


@contextmanager
def disk_full_errors(path: Path) -> Iterator[None]:
    """Turn ENOSPC and EDQUOT into DiskFull with the path."""
    try:
        yield
    except OSError as error:
        if error.errno in NO_ROOM:
            raise DiskFull(
                f"no space left while writing {path}",
                hint="free some space, then run `ratchet resume` again: no recorded event is lost",
            ) from error
        raise


def make_private_dir(path: Path) -> Path:
    """Create a directory and its missing parents, all private: `mkdir(parents=True)` would leave the parents open."""
    missing = [place for place in (path, *path.parents) if not place.exists()]
    with disk_full_errors(path):
        for place in reversed(missing):
            place.mkdir(mode=DIR_MODE, exist_ok=True)
    return path


# Files and folders that tools look for in all folders above a project, and run or obey.
_SETTINGS = re.compile(
    r"\.?pytest\.(?:ini|toml)|pyproject\.toml|tox\.ini|setup\.cfg|conftest\.py|\.coveragerc|\.?mypy\.ini|\.?ruff\.toml"
    r"|package\.json|node_modules|\.(?:npm|yarn)rc.*|\.pnp\..*|pnpm-workspace\.yaml|deno\.jsonc?|bunfig\.toml|tsconfig.*"
    r"|\.?(?:babel|jest|vitest|vite|mocha|ava|playwright|karma|webpack|eslint|prettier|nyc|swc|c8)(?:rc)?(?:\.config)?(?:\..*)?"
    r"|\.cargo|Cargo\.toml|rust-toolchain.*|go\.(?:mod|work)|Gemfile.*|\.bundle|\.rspec|Rakefile|composer\.json"
    r"|phpunit.*\.xml.*|mix\.exs|pom\.xml|\.mvn|(?:build|settings)\.gradle.*|gradle\.properties|global\.json"
    r"|(?i:nuget\.config|directory\.(?:build|packages|solution)\..*)|dune-(?:project|workspace)|cabal\.project.*|stack\.yaml"
    r"|pubspec\.yaml|Package\.swift|MODULE\.bazel|WORKSPACE.*|\.bazelrc|CTestConfig\.cmake|\.busted|\.prove(?:rc)?|rebar\.config"
    r"|\.git|\.hg|\.env.*|\.tool-versions|\.?mise.*\.toml|\.(?:python|ruby|node)-version|\.nvmrc|\.ratchet|ratchet\.toml"
)


def require_own_settings(folder: Path) -> None:
    """Refuse a folder below one in which another user has put settings of tools, which obey them without a sandbox.

    Raises EnvironmentCannot.
    """
    for above in filter(is_open_to_others, folder.absolute().parents):
        found = [path for path in above.iterdir() if _SETTINGS.fullmatch(path.name)]
        if foreign := [path for path in found if _owner(path) not in (0, os.geteuid())]:
            raise EnvironmentCannot(
                f"another user has made {foreign[0]}, which tests in {folder} would obey",
                hint="set workspace.root, XDG_STATE_HOME and XDG_CACHE_HOME to folders of your own",
            )


def is_open_to_others(folder: Path) -> bool:
    """Whether any user can make files in a folder, and we can see them."""
    try:
        return bool(folder.stat().st_mode & 0o002) and os.access(folder, os.R_OK)
    except OSError:
        return False


def _owner(path: Path) -> int:
    try:
        return path.lstat().st_uid
    except OSError:
        return os.geteuid()


def state_dir(repo: Path) -> Path:
    """Return the folder for our state of a repository: its `.ratchet`, or one beside a clone that Ratchet fetched.

    What is in such a clone, any checkout may replace by what its author committed; and the tree store has settings of
    git, which name programs.
    """
    if (repo / ".git" / FETCHED).exists():
        return repo.with_name(f".{repo.name}.state")
    return repo / STATE_DIR


def make_state_dir(repo: Path) -> Path:
    """Create the repository's state folder with a `.gitignore`, so that `git status` stays unchanged. Only prompts are
    committed."""
    folder = make_private_dir(state_dir(repo))
    ignore = folder / ".gitignore"
    if not ignore.exists():
        ignore.write_text("/*\n!/prompts/\n")
    return folder


def open_private(path: Path) -> IO[bytes]:
    """Open a file for appending; a new file is readable by its owner only."""
    with disk_full_errors(path):
        return os.fdopen(os.open(path, _APPEND, FILE_MODE), "ab")


def write_durably(path: Path, content: bytes) -> None:
    """Write a file durably: temporary file, fsync, rename, fsync of the directory."""
    _replace(path, content, durable=True)
    sync_dir(path.parent)


def write_whole(path: Path, content: bytes) -> None:
    """Write a file atomically but not durably, for content that can be regenerated."""
    _replace(path, content, durable=False)


def write_from(path: Path, place: int, content: bytes) -> None:
    """Replace what follows `place` in a file of ours that can be regenerated."""
    make_private_dir(path.parent)
    with disk_full_errors(path), os.fdopen(os.open(path, _WRITE, FILE_MODE), "wb") as file:
        file.seek(place)
        file.write(content)
        file.truncate()


def _replace(path: Path, content: bytes, *, durable: bool) -> None:
    make_private_dir(path.parent)
    with disk_full_errors(path):
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(content)
                file.flush()
                if durable:
                    os.fsync(file.fileno())
            Path(name).replace(path)
        except BaseException:
            with suppress(FileNotFoundError):
                Path(name).unlink()
            raise


def sync_dir(path: Path | str) -> None:
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def is_full(folder: Path | None) -> bool:
    """Whether the file system of a folder is full, which git does not always report."""
    if folder is None or not folder.exists():
        return False
    found = os.statvfs(folder)
    return found.f_bavail * found.f_frsize < 64 << 10 or (found.f_files > 0 and found.f_favail == 0)
