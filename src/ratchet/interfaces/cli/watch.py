"""The command `watch`: runs the tests continuously while the developer edits."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from pathlib import Path

import click
import msgspec

from ratchet.core.watch import Colour, WatchStage, WatchState
from ratchet.interfaces.cli.common import Arguments, CliCommand, flag, option, print_data, run_async
from ratchet.interfaces.cli.test import open_suite
from ratchet.interfaces.terminal.keys import ENTER, read_key, single_keys
from ratchet.interfaces.terminal.watch_view import WatchView

_MORE = """Exit codes: with --once 0 passed, 1 failed; 2 no tests; 3 the tree cannot be
watched; 130 interrupted

Keys on a terminal: a all tests, f failed tests, Enter run, q quit

Output: the terminal, .ratchet/watch.json (current state), and with --json one
state per line"""


def watch(arguments: Arguments) -> int:
    from ratchet.app.watch import RunScope, TestWatcher, WatchOptions  # noqa: PLC0415 — imports workspaces
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
        watcher = TestWatcher(suite, options, _lines if arguments.json else _screen(suite.folder, keys=with_keys))
        actions = {ENTER: watcher.trigger, "q": watcher.stop}
        actions |= {"a": partial(watcher.trigger, RunScope.ALL), "f": partial(watcher.trigger, RunScope.FAILED)}
        if with_keys:
            _on_input(lambda: read_key(sys.stdin), actions)
        elif options.follows is MirrorSource.MANUAL and not options.once:
            _on_input(lambda: ENTER if sys.stdin.readline() else "", actions)
        return await watcher.run()

    with nullcontext(False) if options.once or arguments.json else single_keys(sys.stdin) as with_keys:
        return exit_code(run_async(live()))


def _screen(folder: Path, *, keys: bool) -> WatchView:
    view = WatchView(sys.stdout, root=folder, keys=keys)
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


def _on_input(read: Callable[[], str], actions: dict[str, Callable[[], None]]) -> None:
    """Start the action of each key that is read from stdin."""

    def on_readable() -> None:
        if key := read():
            actions.get(key, lambda: None)()
        else:
            asyncio.get_running_loop().remove_reader(sys.stdin)

    asyncio.get_running_loop().add_reader(sys.stdin, on_readable)


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
