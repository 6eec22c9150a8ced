"""The command `worker`: processes items from the queue."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import closing
from datetime import datetime

from ratchet import config
from ratchet.app.launchers import find_launcher
from ratchet.app.workers import Until, WorkerSettings
from ratchet.core import events as ev
from ratchet.core.item import Item
from ratchet.core.lease import Lease
from ratchet.core.ledger import Entry
from ratchet.core.state import RunState
from ratchet.engine.run_ledger import EventCallback
from ratchet.engine.sealed_vault import KEY_VARIABLE
from ratchet.errors import UsageError
from ratchet.interfaces.cli.backend import server_address, server_options, server_token
from ratchet.interfaces.cli.common import (
    LABEL,
    WORKERS_MAX,
    Arguments,
    CliCommand,
    NumberBetween,
    flag,
    launcher_options,
    launcher_settings,
    logs_json,
    option,
    print_note,
    repository_root,
)
from ratchet.interfaces.cli.json_log import event_json
from ratchet.interfaces.terminal.narrative import event_line
from ratchet.paths import store_address
from ratchet.store.protocols import open_store


def worker(arguments: Arguments) -> int:
    if arguments.once and arguments.drain:
        raise UsageError("--once and --drain exclude each other", hint="give one of them")
    if arguments.store and server_address(arguments):
        raise UsageError("--store and --server exclude each other", hint="give one of them")
    if arguments.item and not arguments.once:
        raise UsageError("--item needs --once", hint="give both, or neither")
    if arguments.wait and not arguments.once:
        raise UsageError("--wait needs --once", hint="without --once a worker waits for items anyway")
    folder = repository_root(arguments.repo)
    loaded = config.load(folder, flags=[*arguments.set, *launcher_settings(arguments)]).config
    server = server_address(arguments)
    launch = find_launcher(loaded.worker.launcher)
    post = WorkerSettings(
        store=server or arguments.store or store_address(loaded, folder),
        token=server_token(arguments.token_file) if server else "",
        config=loaded,
        settings=arguments.set,
        until=_until(arguments),
        watch=_watch(verbose=arguments.verbose),
        log=_print_timed,
        labels=sorted({*loaded.worker.labels, *arguments.label}),
        item=arguments.item or "",
    )
    _check_store(post)
    count = 1 if arguments.once else arguments.count or loaded.worker.count
    return launch(post, count=count)


def _check_store(post: WorkerSettings) -> None:
    """Report once, and not in every worker, a store that cannot be opened and a key that other hosts do not have."""
    with closing(open_store(post.store, token=post.token)) as store:
        if store.is_shared and KEY_VARIABLE not in os.environ:
            print_note(
                f"note: {KEY_VARIABLE} is not set, so no other host can continue a run with sealed tests that began"
                " here: set it to the same value on every host"
            )


def _until(arguments: Arguments) -> Until:
    if arguments.once:
        return Until.ONE_ITEM if arguments.wait else Until.ONCE
    return Until.DRAINED if arguments.drain else Until.STOPPED


def _print_timed(text: str) -> None:
    print_note(text if logs_json() else f"{datetime.now():%H:%M:%S} {text}")


def _watch(*, verbose: bool) -> Callable[[Item, Lease], EventCallback]:
    def watching(item: Item, lease: Lease) -> EventCallback:
        def watch(entry: Entry, event: ev.Event, _state: RunState) -> None:
            if logs_json():
                print_note(event_json(entry, event, run=lease.run, item=item.id))
            elif verbose and (line := event_line(event)):
                _print_timed(f"{lease.run} {line.actor}: {line.text}")

        return watch

    return watching


COMMANDS = (
    CliCommand(
        "worker",
        "process items from the queue until stopped",
        worker,
        flag("--once", help="process one item if there is one, then exit"),
        flag("--wait", help="with --once: wait for an item"),
        option("--item", metavar="ID", help="with --once: process this item, or none"),
        flag("--drain", help="exit when only items that need a person remain"),
        option(
            "--count",
            "--max",
            "count",
            type=NumberBetween(1, WORKERS_MAX),
            metavar="N",
            help="number of items to work on in parallel (default: worker.count)",
        ),
        option(
            "--label",
            multiple=True,
            type=LABEL,
            help="also take items that require this label (repeatable; besides worker.labels)",
        ),
        *launcher_options(),
        option("--store", metavar="URL", help="take items from this store (default: the configured one)"),
        *server_options(),
        more="With --server no database is needed here: items come from a `ratchet serve`\n"
        "elsewhere. Their repositories must be given by URL.\n"
        "--once exits with 0 when it has processed an item, whatever came of it, or found\n"
        "none; with 137 when the worker was killed: its run continues elsewhere; with 3\n"
        "when it cannot reach the store.\n"
        "On Ctrl-C or SIGTERM each run finishes its step and returns to the queue; a\n"
        "second signal stops at once. With -v every event of every run is printed. With\n"
        "RATCHET_LOG=json messages and events are JSON, one object a line.",
    ),
)
