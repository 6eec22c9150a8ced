"""Commands that serve and watch: serve, top."""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from datetime import UTC, datetime
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from ratchet import config, places
from ratchet.core import api
from ratchet.core.item import ItemStatus
from ratchet.errors import EnvironmentCannot, UsageError
from ratchet.surfaces import board
from ratchet.surfaces.cli.common import WORKERS_MAX, Arguments, Command, number, open_factory, say, show, show_json
from ratchet.surfaces.cli.desk import desk_over, local_desk, open_desk, root_of, server_argument
from ratchet.surfaces.paint import Paint, painter

if TYPE_CHECKING:
    from ratchet.desk import StoreDesk
    from ratchet.surfaces.http.server import Workers

PORT = 8484


def serve(arguments: Arguments) -> int:
    """The API, and workers in children of this process."""
    try:
        import uvloop  # noqa: PLC0415 — the server's libraries are optional

        from ratchet.surfaces.http import server  # noqa: PLC0415
    except ImportError as error:
        raise EnvironmentCannot(
            f"a server needs more: {error}", hint="pip install 'ratchet-factory[server]'"
        ) from error
    token, kept = _token(arguments)
    folder = root_of(arguments.repo)
    settings = config.load(folder, flags=arguments.set).config
    with ExitStack() as opened, asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        desk, workers = _staff(arguments, opened)
        listening = opened.enter_context(server.listen(arguments.host, arguments.port))
        host = arguments.host.strip("[]")
        address = f"http://{f'[{host}]' if ':' in host else host}:{listening.getsockname()[1]}"

        async def until_told() -> None:
            ready = partial(_say_ready, arguments, address, kept)
            stop = server.stop_on_signals()
            await server.serve(
                desk, listening, token=token, stop=stop, workers=workers, settings=settings, folder=folder, ready=ready
            )

        runner.run(until_told())
    return 0


def _staff(arguments: Arguments, opened: ExitStack) -> tuple[StoreDesk, Workers | None]:
    """Whoever answers, and whoever works: as many as are configured, unless told otherwise."""
    if arguments.workers == 0:
        return opened.enter_context(closing(local_desk(arguments, serves=True))), None
    serve_workers = import_module("ratchet.dispatch").serve_workers
    factory = opened.enter_context(open_factory(arguments))
    desk = desk_over(factory.store, factory.config, serves=True)
    if arguments.workers is None:
        arguments.workers = factory.config.worker.count
    return desk, lambda stop: serve_workers(factory, count=arguments.workers, stop=stop, settings=arguments.set)


def _say_ready(arguments: Arguments, address: str, kept: str) -> None:
    if arguments.json:
        show_json({"server": address, "token_file": kept, "workers": arguments.workers})
        sys.stdout.flush()
    else:
        say(f"ratchet: serving {address}, {arguments.workers} workers{f'; the token is in {kept}' if kept else ''}")


def _token(arguments: Arguments) -> tuple[str, str]:
    """The token, and the file it is in when nobody gave one. The world is let in only by a token somebody chose."""
    from ratchet.surfaces.http import auth  # noqa: PLC0415

    if given := auth.given_token(os.environ, arguments.token_file):
        return given, ""
    if not auth.is_loopback(arguments.host):
        raise UsageError(
            f"{arguments.host} can be reached by others: that takes a token of your choice",
            hint="RATCHET_TOKEN=… or --token-file FILE; or leave --host away",
        )
    return auth.kept_token(places.token_file()), str(places.token_file())


def top(arguments: Arguments) -> int:
    """A terminal gets one screen that follows the factory, a pipe a line each time."""
    live = sys.stdout.isatty() and not (arguments.once or arguments.json)
    with open_desk(arguments) as desk, _screen(live=live):
        while True:
            _show_glance(_glance(desk), arguments, live=live)
            sys.stdout.flush()
            if arguments.once:
                return 0
            time.sleep(arguments.every)


def _show_glance(glance: board.Glance, arguments: Arguments, *, live: bool) -> None:
    if arguments.json:
        show_json(glance)
    elif live:
        sys.stdout.write("\x1b[H" + _drawn(glance, painter(colour=True)).replace("\n", "\x1b[K\n") + "\x1b[J")
    elif arguments.once:
        show(_drawn(glance, painter(colour=sys.stdout.isatty())))
    else:
        show(board.line(glance))


def _drawn(glance: board.Glance, paint: Paint) -> str:
    size = shutil.get_terminal_size((120, 40))
    return board.screen(glance, paint, now=datetime.now(UTC), width=size.columns, height=size.lines - 1)


@contextmanager
def _screen(*, live: bool) -> Iterator[None]:
    """The terminal's other screen, and back to what was there before."""
    if live:
        signal.signal(signal.SIGTERM, signal.default_int_handler)  # else what was there before would not come back
        sys.stdout.write("\x1b[?1049h\x1b[?25l")
    try:
        yield
    finally:
        if live:
            sys.stdout.write("\x1b[?25h\x1b[?1049l")
            sys.stdout.flush()


def _glance(desk: api.Desk) -> board.Glance:
    waiting = [
        row
        for status in (ItemStatus.QUEUED, ItemStatus.PARKED)
        for row in desk.queue(api.QueueAsk(status=status, limit=50)).rows
    ]
    return board.Glance(
        status=desk.status(),
        metrics=desk.metrics(),
        workers=desk.workers(api.WorkersAsk(live=True)).workers,
        waiting=waiting,
    )


def _declare_serve(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--host", default="127.0.0.1", help="where to listen (default: only this machine)")
    parser.add_argument(
        "--port", type=number(0, 65_535), default=PORT, metavar="N", help=f"default {PORT}; 0 takes a free one"
    )
    parser.add_argument(
        "--workers",
        type=number(0, WORKERS_MAX),
        metavar="N",
        help="work on so many items at once (default: worker.count); 0 only serves",
    )
    parser.add_argument("--token-file", type=Path, metavar="FILE", help="the token to ask for (or RATCHET_TOKEN)")


def _declare_top(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--once", action="store_true", help="one look")
    parser.add_argument(
        "--every", type=number(0.01, 86_400, float), default=1.0, metavar="S", help="seconds between looks"
    )
    server_argument(parser)


COMMANDS = (
    Command(name="serve", help="serve the HTTP interface, with workers or without", handle=serve,
            declare=_declare_serve),
    Command(name="top", help="watch the factory", handle=top, declare=_declare_top),
)  # fmt: skip
