"""Paths of the user's state, caches and stores."""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from functools import cache
from pathlib import Path

from ratchet.config import Config
from ratchet.files import STATE_DIR, make_private_dir, make_state_dir


def user_state() -> Path:
    return _own_folder("XDG_STATE_HOME", ".local/state")


def cache_or_state() -> Path:
    """Return the folder for state that can be regenerated; a temporary one if the home is not writable."""
    return _or_temporary("XDG_STATE_HOME", ".local/state")


def clones() -> Path:
    """Return the folder of clones of remote repositories."""
    return _own_folder("XDG_CACHE_HOME", ".cache") / "clones"


def bases() -> Path:
    """Return the cache of prepared checkouts."""
    return _or_temporary("XDG_CACHE_HOME", ".cache") / "bases"


def isolated_git_dirs() -> Path:
    """Return the folder of the git directories of isolated test runs."""
    return _or_temporary("XDG_CACHE_HOME", ".cache") / "stand-ins"


def isolated_copies() -> Path:
    """Return the folder of copies of projects without git: not a temporary one, in which others can put settings."""
    return _or_temporary("XDG_CACHE_HOME", ".cache") / "isolated"


def token_file() -> Path:
    """Return the file in which the server stores its token for commands of the same user."""
    return user_state() / "server-token"


def server_address_file() -> Path:
    """Return the file in which a running server stores its address for commands of the same user."""
    return user_state() / "server-address"


def sealing_key_file() -> Path:
    """Return the file of the key that encrypts sealed tests."""
    return user_state() / "sealing-key"


def store_address(config: Config, folder: Path) -> str | Path:
    """Return the configured store: a URL, or a path relative to `folder`. The default is the user's own store."""
    if "://" in config.store:
        return config.store
    if not config.store:
        return user_state() / "ratchet.db"
    where = folder / Path(config.store).expanduser()
    if where.parent == folder / STATE_DIR:
        make_state_dir(folder)
    return where


def _own_folder(variable: str, default: str) -> Path:
    return Path(os.environ.get(variable) or _home() / default) / "ratchet"


def _home() -> Path:
    try:
        return Path.home()
    except RuntimeError:  # the user has no passwd entry, as in many containers
        return Path("/")


def _or_temporary(variable: str, default: str) -> Path:
    wanted = _own_folder(variable, default)
    nearest = next((place for place in (wanted, *wanted.parents) if place.exists()), wanted)
    return wanted if os.access(nearest, os.W_OK) else _temporary_root() / Path(default).name


@cache
def _temporary_root() -> Path:
    """Return a private temporary folder. Its name is predictable, so a folder of another user is not used."""
    import tempfile  # noqa: PLC0415 — seldom needed, and slow to import

    place = Path(tempfile.gettempdir(), f"ratchet-{os.getuid()}")
    with suppress(OSError):
        found = make_private_dir(place).lstat()
        if stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o077:
            return place
    return Path(tempfile.mkdtemp(prefix="ratchet-"))
