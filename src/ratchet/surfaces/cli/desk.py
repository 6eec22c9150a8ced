"""Where a command's answers come from: a server when one is named, else the store of the repository here."""

from __future__ import annotations

import argparse
import getpass
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from ratchet import config, places
from ratchet.core.api import By, Desk
from ratchet.errors import GitFailed, UsageError
from ratchet.surfaces.cli.common import Arguments

if TYPE_CHECKING:
    from ratchet.desk import StoreDesk
    from ratchet.store import Store

VARIABLE = "RATCHET_SERVER"


def server_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--server", metavar="URL", help=f"ask this server, not the store here ({VARIABLE})")
    parser.add_argument("--token-file", type=Path, metavar="FILE", help="the server's token (or RATCHET_TOKEN)")


@contextmanager
def open_desk(arguments: Arguments) -> Iterator[Desk]:
    server = arguments.server or os.environ.get(VARIABLE, "")
    desk: Desk = _remote(server, arguments.token_file) if server else local_desk(arguments)
    try:
        yield desk
    finally:
        desk.close()


def local_desk(arguments: Arguments, *, serves: bool = False) -> StoreDesk:
    from ratchet.process import is_gone  # noqa: PLC0415
    from ratchet.store import open_store  # noqa: PLC0415

    folder = root_of(arguments.repo)
    loaded = config.load(folder, flags=arguments.set).config
    store = open_store(places.store_address(loaded, folder), gone=is_gone, aging_s=loaded.aging_s)
    return desk_over(store, loaded, serves=serves)


def desk_over(store: Store, loaded: config.Config, *, serves: bool) -> StoreDesk:
    """One that keeps to the configuration, however it was opened."""
    from ratchet.desk import StoreDesk  # noqa: PLC0415 — a command that asks a server needs no store

    return StoreDesk(
        store,
        lease_s=loaded.lease_s,
        limits=loaded.limits.counted,
        retry_s=loaded.worker.retry_s,
        serves=serves,
    )


def root_of(folder: Path) -> Path:
    """The repository that holds a folder, or the folder itself."""
    from ratchet import repository  # noqa: PLC0415

    try:
        return repository.find(folder.absolute()).root
    except (UsageError, GitFailed):
        return folder.absolute()


def repo_named(words: str) -> str:
    """As it was named, but a path here is written out: the one who is asked stands somewhere else."""
    return str(Path(words).expanduser().absolute().resolve()) if words.startswith((".", "~", "/")) else words


def by_me() -> By:
    try:
        return By(by=getpass.getuser())
    except (KeyError, OSError):  # a container's user may have no name
        return By(by=f"user {os.getuid()}")


def _remote(server: str, file: Path | None) -> Desk:
    from ratchet.client import Client  # noqa: PLC0415
    from ratchet.surfaces.http import auth  # noqa: PLC0415

    kept = places.token_file()
    token = auth.given_token(os.environ, file) or (auth.kept_token(kept) if kept.exists() else "")
    if not token:
        raise UsageError("a server's token is needed", hint=f"RATCHET_TOKEN, or --token-file; the server has {kept}")
    return Client(server, token=token)
