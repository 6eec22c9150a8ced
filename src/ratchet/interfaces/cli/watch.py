"""The command `watch`: runs the tests continuously while the developer edits."""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path
from typing import TextIO

import click
import msgspec

from ratchet.core.watch import Colour, WatchStage, WatchState
from ratchet.interfaces.cli.common import Arguments, CliCommand, flag, option, print_data, run_async
from ratchet.interfaces.cli.test import open_suite
from ratchet.interfaces.terminal.watch_view import WatchView

_MORE = """Exit codes: with --once 0 passed, 1 failed; 2 no tests; 3 the tree cannot be
watched; 130 interrupted

Output: the terminal, .ratchet/watch.json (current state), and with --json one
state per line"""


def watch(arguments: Arguments) -> int:
    from ratchet.app.watch import TestWatcher, WatchOptions  # noqa: PLC0415 — imports workspaces
    from ratchet.workspace.mirror import MirrorSource  # noqa: PLC0415

    suite = open_suite(arguments)
    settings = suite.config.watch
    options = WatchOptions(
        follows=MirrorSource(arguments.on or settings.on),
        once=arguments.once,
        warm=settings.warm and not arguments.cold,
        polling=arguments.poll,
        notify=arguments.notify or settings.notify,
        desktop=arguments.desktop or settings.desktop,
    )

    async def live() -> WatchState:
        watching = TestWatcher(suite, options, _lines if arguments.json else _screen(suite.folder))
        if options.follows is MirrorSource.MANUAL and not options.once:
            _on_enter(sys.stdin, watching)
        return await watching.run()

    return exit_code(run_async(live()))


def _screen(folder: Path) -> WatchView:
    view = WatchView(sys.stdout, root=folder)
    if view.terminal:
        asyncio.get_running_loop().add_signal_handler(signal.SIGWINCH, view.redraw)
    return view


def exit_code(state: WatchState) -> int:
    if state.stage is WatchStage.GONE:
        return 3
    return 0 if state.colour is Colour.GREEN else 1


def _lines(state: WatchState) -> None:
    print_data(msgspec.json.encode(state).decode())
    sys.stdout.flush()


def _on_enter(stream: TextIO, watching: object) -> None:
    """Start a run for each line read from the stream."""

    def read() -> None:
        if stream.readline():
            watching.poke()  # type: ignore[attr-defined]  # a Watch, imported lazily
        else:
            asyncio.get_running_loop().remove_reader(stream)

    asyncio.get_running_loop().add_reader(stream, read)


COMMANDS = (
    CliCommand(
        "watch",
        "run tests on every change, affected tests first",
        watch,
        option(
            "--on",
            type=click.Choice(["save", "stage", "commit", "manual"]),
            help="what starts a run (default: save)",
        ),
        flag("--once", help="run the tests once, print the result and exit"),
        option(
            "--notify",
            default="",
            metavar="COMMAND",
            help="command to run when the result changes (RATCHET_COLOUR is set to green or red)",
        ),
        flag("--desktop", help="show a desktop notification when the result changes"),
        flag("--cold", help="start a new interpreter for each run"),
        flag("--poll", help="poll the tree every second instead of using file-system events"),
        more=_MORE,
    ),
)
