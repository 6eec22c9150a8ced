"""Commands `serve` and `top`."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from datetime import UTC, datetime
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from ratchet import config, paths
from ratchet.core import api
from ratchet.core.item import ItemStatus
from ratchet.errors import EnvironmentCannot, UsageError
from ratchet.files import write_whole
from ratchet.interfaces.cli.backend import VARIABLE, open_local_queue, open_queue, open_server, server_options
from ratchet.interfaces.cli.common import (
    PATH,
    WORKERS_MAX,
    Arguments,
    CliCommand,
    NumberBetween,
    flag,
    launcher_options,
    launcher_settings,
    option,
    print_data,
    print_json,
    print_note,
    repository_root,
)
from ratchet.interfaces.terminal import tables
from ratchet.interfaces.terminal.colour import painter
from ratchet.interfaces.terminal.keys import single_keys, wait_for_key
from ratchet.interfaces.terminal.layout import live_area, show, terminal_width
from ratchet.plugins import install_extra
from ratchet.store.remote.local_users import own_user

if TYPE_CHECKING:
    from ratchet.app.queue import StoreQueueService
    from ratchet.interfaces.http.server import Workers
    from ratchet.interfaces.http.sessions import Sessions

PORT = 8484


def serve(arguments: Arguments) -> int:
    """Serve the HTTP API and start workers as child processes."""
    try:
        import uvloop  # noqa: PLC0415 — the server's libraries are optional

        from ratchet.interfaces.http import server  # noqa: PLC0415
        from ratchet.interfaces.http.sessions import Sessions  # noqa: PLC0415
    except ImportError as error:
        raise EnvironmentCannot(
            f"`ratchet serve` needs the `server` extra: {error}", hint=install_extra("server")
        ) from error
    token, kept = _token(arguments)
    folder = repository_root(arguments.repo)
    arguments.set = [*arguments.set, *launcher_settings(arguments)]
    settings = config.load(folder, flags=arguments.set).config
    with ExitStack() as opened, asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        queue_service, workers = _open_service_and_workers(arguments, opened, folder, settings)
        listening = opened.enter_context(server.listen(arguments.host, arguments.port))
        host = arguments.host.strip("[]")
        address = f"http://{f'[{host}]' if ':' in host else host}:{listening.getsockname()[1]}"

        async def until_stopped() -> None:
            sessions = Sessions(token)
            where = _shown(paths.store_address(settings, folder))
            ready = partial(_print_ready, arguments, address, kept, where, sessions)
            stop = server.stop_on_signals()
            await server.serve(
                queue_service,
                listening,
                token=token,
                stop=stop,
                workers=workers,
                settings=settings,
                folder=folder,
                sessions=sessions,
                ready=ready,
            )

        with _announced(address):
            runner.run(until_stopped())
    return 0


@contextmanager
def _announced(address: str) -> Iterator[None]:
    """Store the address while the server runs, for commands on this machine that need it."""
    file = paths.server_address_file()
    write_whole(file, address.encode())
    try:
        yield
    finally:
        with suppress(OSError):
            if file.read_text() == address:
                file.unlink()


def _open_service_and_workers(
    arguments: Arguments, opened: ExitStack, folder: Path, loaded: config.Config
) -> tuple[StoreQueueService, Workers | None]:
    """Open the queue service and, unless --workers is 0, prepare the workers."""
    if arguments.workers == 0:
        return opened.enter_context(closing(open_local_queue(arguments, serves=True))), None
    serve_workers = import_module("ratchet.app.workers").serve_workers
    import_module("ratchet.app.launchers").find_launcher(loaded.worker.launcher)  # report a wrong name at once
    queue_service = opened.enter_context(closing(open_local_queue(arguments, serves=True)))
    if arguments.workers is None:
        arguments.workers = loaded.worker.count
    return queue_service, lambda stop: serve_workers(
        folder, loaded, count=arguments.workers, stop=stop, settings=arguments.set, log=print_note
    )


def _print_ready(arguments: Arguments, address: str, kept: str, where: str, sessions: Sessions) -> None:
    if arguments.json:
        print_json({"server": address, "token_file": kept, "workers": arguments.workers})
        sys.stdout.flush()
    else:
        workers = f"{arguments.workers} worker{'s' * (arguments.workers != 1)}"
        print_note(f"ratchet: serving {address}, {workers}{f'; token: {kept}' if kept else ''}")
        another = "ratchet open" if address.endswith(f":{PORT}") else f"ratchet open --server {address}"
        print_note(f"ratchet: store {where}; add work with: ratchet add SPEC.md")
        print_note(
            f"  open {address}{sessions.make_link(own_user())}  (works once, for 10 minutes; `{another}` makes another)"
        )


def open_pages(arguments: Arguments) -> int:
    """Open the web pages of a running server, signed in by a link that works once."""
    import webbrowser  # noqa: PLC0415 — only this command needs it

    server = (arguments.server or os.environ.get(VARIABLE, "") or _local_server()).rstrip("/")
    with open_server(server, arguments.token_file) as client:
        address = f"{server}{client.sign_in_link().path}"
    if arguments.json:
        print_json({"link": address})
    elif arguments.no_browser or not webbrowser.open(address):
        print_data(address)
    else:
        print_note(f"ratchet: opened {server} in the browser")
    return 0


def _local_server() -> str:
    """Return the address of this user's server on this machine."""
    try:
        return paths.server_address_file().read_text()
    except OSError as error:
        raise UsageError(
            "no server of yours is running on this machine", hint="start one: ratchet serve; or name one with --server"
        ) from error


def _shown(where: str | Path) -> str:
    """Return the address of the store without a password."""
    return re.sub(r"//[^@/]*@", "//", str(where))


def _token(arguments: Arguments) -> tuple[str, str]:
    """Return the token and, if it was generated, its file. A public address requires a token chosen by the user."""
    from ratchet.interfaces.http import auth  # noqa: PLC0415

    if given := auth.given_token(os.environ, arguments.token_file):
        return given, ""
    if not auth.is_loopback(arguments.host):
        raise UsageError(
            f"{arguments.host} is reachable from other machines: set a token",
            hint="RATCHET_TOKEN=… or --token-file FILE; or omit --host",
        )
    return auth.kept_token(paths.token_file()), str(paths.token_file())


def top(arguments: Arguments) -> int:
    """Show a live screen on a terminal, with keys where the `tui` extra is installed; print lines to a pipe."""
    with open_queue(arguments) as queue_service, ExitStack() as opened:
        if sys.stdout.isatty() and not (arguments.once or arguments.json) and find_spec("textual"):
            app = import_module("ratchet.interfaces.terminal.top_app").TopApp
            app(queue_service, every_s=arguments.every).run()
            return 0
        draw: Callable[[tables.Overview], None] = partial(_print_overview, arguments)
        if sys.stdout.isatty() and not (arguments.once or arguments.json):
            signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that SIGTERM also restores the screen
            live = opened.enter_context(live_area(sys.stdout, screen=True))
            draw = lambda overview: show(live, f"{_render(overview)}\nq quit")  # noqa: E731
        with_keys = opened.enter_context(single_keys(sys.stdin))
        while True:
            draw(_overview(queue_service))
            sys.stdout.flush()
            if arguments.once:
                return 0
            if not with_keys:
                time.sleep(arguments.every)
            elif wait_for_key(sys.stdin, "q", timeout_s=arguments.every):
                return 0


def _print_overview(arguments: Arguments, overview: tables.Overview) -> None:
    if arguments.json:
        print_json(overview)
    else:
        print_data(_render(overview) if arguments.once else tables.line(overview))


def _render(overview: tables.Overview) -> str:
    terminal = sys.stdout.isatty()
    height = shutil.get_terminal_size((80, 24)).lines - 2 if terminal else 1_000
    return tables.screen(
        overview,
        painter(colour=terminal),
        now=datetime.now(UTC),
        width=terminal_width(sys.stdout),
        height=height,
    )


def _overview(queue_service: api.QueueService) -> tables.Overview:
    waiting = [
        row
        for status in (ItemStatus.QUEUED, ItemStatus.PARKED)
        for row in queue_service.queue(api.QueueQuery(status=status, limit=50)).rows
    ]
    return tables.Overview(
        status=queue_service.status(),
        metrics=queue_service.metrics(),
        workers=queue_service.workers(api.WorkersQuery(live=True)).workers,
        waiting=waiting,
    )


COMMANDS = (
    CliCommand(
        "serve",
        "serve the HTTP API and run workers",
        serve,
        option("--host", default="127.0.0.1", help="address to listen on (default: 127.0.0.1)"),
        option(
            "--port",
            type=NumberBetween(0, 65_535),
            default=PORT,
            metavar="N",
            help=f"port (default: {PORT}; 0: any free port)",
        ),
        option(
            "--workers",
            type=NumberBetween(0, WORKERS_MAX),
            metavar="N",
            help="number of items to work on in parallel (default: worker.count; 0: serve only)",
        ),
        *launcher_options(),
        option(
            "--token-file",
            type=PATH,
            metavar="FILE",
            help="file with the token that clients must send (or RATCHET_TOKEN)",
        ),
    ),
    CliCommand(
        "open",
        "open the web pages, signed in by a link that works once",
        open_pages,
        flag("--no-browser", help="print the link instead of opening a browser"),
        *server_options(),
    ),
    CliCommand(
        "top",
        "show queue, workers and metrics live",
        top,
        flag("--once", help="print once and exit"),
        option(
            "--every",
            type=NumberBetween(0.01, 86_400, float),
            default=1.0,
            metavar="S",
            help="seconds between refreshes",
        ),
        *server_options(),
    ),
)
