"""Where workspaces live and how they are confined, as the configuration says."""

from __future__ import annotations

import os
import stat
import tempfile
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path

from ratchet.config import Config
from ratchet.files import make_private_dir, make_state_dir
from ratchet.workspace.bases import Recipe, carried
from ratchet.workspace.limits import Bounds
from ratchet.workspace.registry import Workspaces
from ratchet.workspace.room import Limits
from ratchet.workspace.sandbox import Settings


def open_workspaces(config: Config) -> Workspaces:
    wanted = config.workspace
    return Workspaces(
        Path(wanted.root).absolute() if wanted.root else remade() / "workspaces",
        bases=Path(wanted.bases).absolute() if wanted.bases else _or_passing("XDG_CACHE_HOME", ".cache") / "bases",
        limits=Limits(
            max_count=wanted.max_count,
            min_free_ram_bytes=wanted.min_free_ram_mb << 20,
            min_free_disk_bytes=wanted.min_free_disk_mb << 20,
            max_bases_bytes=wanted.max_bases_mb << 20,
        ),
    )


def user_state() -> Path:
    return _own_folder("XDG_STATE_HOME", ".local/state")


def remade() -> Path:
    """The user's state that can be made again: where there is no home to write to, a temporary folder will do."""
    return _or_passing("XDG_STATE_HOME", ".local/state")


def clones() -> Path:
    """Where repositories that are named by a URL or as owner/name are kept."""
    return _own_folder("XDG_CACHE_HOME", ".cache") / "clones"


def stand_ins() -> Path:
    """Where the git folders of isolated test runs are kept."""
    return _or_passing("XDG_CACHE_HOME", ".cache") / "stand-ins"


def token_file() -> Path:
    """Where this user's server keeps its token, so that the same user's commands find it."""
    return user_state() / "server-token"


def store_address(config: Config, folder: Path) -> str | Path:
    """A database's URL as it is; a path from the repository at `folder`, which keeps its own when nothing is said.

    Outside of any repository it is the user's."""
    if "://" in config.store:
        return config.store
    if config.store:
        return folder / config.store
    return (make_state_dir(folder) if (folder / ".git").exists() else user_state()) / "ratchet.db"


def _own_folder(variable: str, default: str) -> Path:
    return Path(os.environ.get(variable) or _home() / default) / "ratchet"


def _home() -> Path:
    try:
        return Path.home()
    except RuntimeError:  # a user of whom this machine knows nothing, as in many containers
        return Path("/")


def _or_passing(variable: str, default: str) -> Path:
    wanted = _own_folder(variable, default)
    nearest = next((place for place in (wanted, *wanted.parents) if place.exists()), wanted)
    return wanted if os.access(nearest, os.W_OK) else _passing() / Path(default).name


@cache
def _passing() -> Path:
    """Its name can be guessed by others: one that is not ours alone is not used."""
    place = Path(tempfile.gettempdir(), f"ratchet-{os.getuid()}")
    with suppress(OSError):
        found = make_private_dir(place).lstat()
        if stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o077:
            return place
    return Path(tempfile.mkdtemp(prefix="ratchet-"))


def recipe_of(config: Config, root: Path) -> Recipe:
    """How the repository's bases are prepared; the parts of a monorepo have folders of their own to take along."""
    wanted = config.workspace
    return Recipe(setup=tuple(wanted.setup), carry=tuple(carried(root, wanted.carry)))


def sandbox_settings(config: Config) -> Settings:
    wanted = config.sandbox
    return Settings(
        mode=wanted.mode,
        agent_network=wanted.agent_network,
        test_network=wanted.test_network,
        gate_network=wanted.gate_network,
        bounds=Bounds(memory_mb=wanted.memory_mb, cpus=wanted.cpus, processes=wanted.max_processes),
        share=tuple(wanted.share),
        hide=tuple(wanted.hide),
        secret=(str(token_file()),),
    )


def kept_until(config: Config) -> str:
    at = datetime.now(UTC) + timedelta(seconds=config.workspace.keep_s)
    return at.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
