"""Opens the queue service for a command: a remote server if one is given, else the local store."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ratchet import config, paths
from ratchet.core.api import QueueService, Requester
from ratchet.errors import UsageError
from ratchet.interfaces.cli.common import PATH, Arguments, option, repository_root

if TYPE_CHECKING:
    from ratchet.app.queue import StoreQueueService
    from ratchet.core.lease import Holder
    from ratchet.interfaces.http.client import HttpClient
    from ratchet.store.protocols import Store

VARIABLE = "RATCHET_SERVER"


def server_options() -> list[click.Parameter]:
    return [
        option("--server", metavar="URL", help=f"use this server instead of the local store (or {VARIABLE})"),
        option("--token-file", type=PATH, metavar="FILE", help="file with the server's token (or RATCHET_TOKEN)"),
    ]


def is_remote(arguments: Arguments) -> bool:
    return bool(server_address(arguments))


@contextmanager
def open_queue(arguments: Arguments) -> Iterator[QueueService]:
    server = server_address(arguments)
    queue_service: QueueService = open_server(server, arguments.token_file) if server else open_local_queue(arguments)
    try:
        yield queue_service
    finally:
        queue_service.close()


def open_local_queue(arguments: Arguments, *, serves: bool = False) -> StoreQueueService:
    from ratchet.store.protocols import open_store  # noqa: PLC0415

    folder = repository_root(arguments.repo)
    loaded = config.load(folder, flags=arguments.set).config
    address = paths.store_address(loaded, folder)
    store = open_store(address, is_dead=_is_gone, aging_s=loaded.aging_s, redis=loaded.redis)
    return queue_of(store, loaded, serves=serves)


def _is_gone(holder: Holder) -> bool:
    from ratchet.process.spawn import is_gone  # noqa: PLC0415 — listing asks about no process

    return is_gone(holder)


def queue_of(store: Store, loaded: config.Config, *, serves: bool) -> StoreQueueService:
    """Create a queue service with the configured lease time, limits and retry delays."""
    from ratchet.app.queue import StoreQueueService  # noqa: PLC0415 — commands that use a server need no store

    return StoreQueueService(
        store,
        lease_s=loaded.lease_s,
        limits=loaded.limits.counted,
        retry_s=loaded.worker.retry_s,
        day=loaded.budget.day.counted,
        serves=serves,
        learnings=loaded.learnings,
        settings=loaded,
    )


def absolute_repo(words: str) -> str:
    """Make a local path absolute, since a server runs in another directory; return URLs and names unchanged."""
    return str(Path(words).expanduser().absolute().resolve()) if words.startswith((".", "~", "/")) else words


def current_user() -> Requester:
    import getpass  # noqa: PLC0415 — only when something is changed

    try:
        return Requester(by=getpass.getuser())
    except (KeyError, OSError):  # the uid may have no passwd entry in a container
        return Requester(by=f"user {os.getuid()}")


def server_address(arguments: Arguments) -> str:
    """Return the server to use instead of a local store; empty if none is given."""
    return arguments.server or os.environ.get(VARIABLE, "")


def open_server(server: str, file: Path | None) -> HttpClient:
    from ratchet.interfaces.http.client import HttpClient  # noqa: PLC0415

    return HttpClient(server, token=server_token(file))


def server_token(file: Path | None) -> str:
    """Return the token for a server: from the file, RATCHET_TOKEN, or a server of this user on this machine."""
    from ratchet.interfaces.http import auth  # noqa: PLC0415

    kept = paths.token_file()
    token = auth.given_token(os.environ, file) or (auth.kept_token(kept) if kept.exists() else "")
    if not token:
        raise UsageError(
            "the server requires a token", hint=f"set RATCHET_TOKEN or --token-file; on the server it is in {kept}"
        )
    return token
