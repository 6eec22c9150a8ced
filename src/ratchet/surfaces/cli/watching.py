"""The command `watch`: the tests of a tree, run beside the developer all the time, and what they say, live."""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
from pathlib import Path
from typing import TextIO

import msgspec

from ratchet.core.watching import Colour, Stage, WatchState
from ratchet.surfaces.cli.common import Arguments, Command, show, wait_for
from ratchet.surfaces.cli.testing import open_suite
from ratchet.surfaces.watchview import WatchView

_MORE = """exit codes: with --once 0 green, 1 red; 2 no tests; 3 the tree is gone or cannot be watched; 130 interrupted

what is told: the terminal, .ratchet/watch.json (the newest state), and with --json one state a line"""


def watch(arguments: Arguments) -> int:
    from ratchet.watch import Watch, Wishes  # noqa: PLC0415 — brings workspaces along
    from ratchet.workspace.mirror import Follows  # noqa: PLC0415

    suite = open_suite(arguments)
    settings = suite.config.watch
    wishes = Wishes(
        follows=Follows(arguments.on or settings.on),
        once=arguments.once,
        warm=settings.warm and not arguments.cold,
        polling=arguments.poll,
        notify=arguments.notify or settings.notify,
        desktop=arguments.desktop or settings.desktop,
    )

    async def live() -> WatchState:
        watching = Watch(suite, wishes, _lines if arguments.json else _screen(suite.folder))
        if wishes.follows is Follows.MANUAL and not wishes.once:
            _on_enter(sys.stdin, watching)
        return await watching.run()

    return exit_code(wait_for(live()))


def _screen(folder: Path) -> WatchView:
    view = WatchView(sys.stdout, root=folder)
    if view.terminal:
        asyncio.get_running_loop().add_signal_handler(signal.SIGWINCH, view.again)
    return view


def exit_code(state: WatchState) -> int:
    if state.stage is Stage.GONE:
        return 3
    return 0 if state.colour is Colour.GREEN else 1


def _lines(state: WatchState) -> None:
    show(msgspec.json.encode(state).decode())
    sys.stdout.flush()


def _on_enter(stream: TextIO, watching: object) -> None:
    """Each line asks for a run."""

    def read() -> None:
        if stream.readline():
            watching.poke()  # type: ignore[attr-defined]  # a Watch, imported when it is needed
        else:
            asyncio.get_running_loop().remove_reader(stream)

    asyncio.get_running_loop().add_reader(stream, read)


def _declare(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--on", choices=("save", "stage", "commit", "manual"), help="what starts a run (default: save)")
    add("--once", action="store_true", help="run what is there now, say the colour, and end")
    add("--notify", default="", metavar="COMMAND", help="run this when the colour changes; it finds RATCHET_COLOUR")
    add("--desktop", action="store_true", help="a desktop notification when the colour changes")
    add("--cold", action="store_true", help="start a new interpreter for each run")
    add("--poll", action="store_true", help="look at the tree every second instead of being told")


COMMANDS = (
    Command(
        name="watch",
        help="test the tree all the time in a mirror of it, affected tests first",
        handle=watch,
        declare=_declare,
        more=_MORE,
    ),
)
