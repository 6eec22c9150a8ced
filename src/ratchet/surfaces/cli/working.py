"""Commands that work through the queue: worker."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from datetime import datetime

from ratchet import config, repository
from ratchet.core import events as ev
from ratchet.core.item import Item
from ratchet.core.lease import Lease
from ratchet.core.ledger import Entry
from ratchet.core.state import RunState
from ratchet.dispatch import Post, Until, dispatch
from ratchet.engine import Watcher
from ratchet.places import store_address
from ratchet.store import open_store
from ratchet.surfaces.cli.common import WORKERS_MAX, Arguments, Command, number, say
from ratchet.surfaces.story import line_of


def worker(arguments: Arguments) -> int:
    repo = repository.find(arguments.repo.absolute())
    loaded = config.load(repo.root, flags=arguments.set).config
    post = Post(
        store=store_address(loaded, repo.root),
        config=loaded,
        settings=arguments.set,
        until=Until.ONCE if arguments.once else Until.DRAINED if arguments.drain else Until.STOPPED,
        watch=_watch(verbose=arguments.verbose),
        tell=_tell,
    )
    open_store(post.store).close()  # a store that cannot be opened is said once, here
    count = 1 if arguments.once else arguments.count or loaded.worker.count
    return dispatch(post, count=count)


def _tell(text: str) -> None:
    say(f"{datetime.now():%H:%M:%S} {text}")


def _watch(*, verbose: bool) -> Callable[[Item, Lease], Watcher]:
    def watching(_item: Item, lease: Lease) -> Watcher:
        def watch(_entry: Entry, event: ev.Event, _state: RunState) -> None:
            if verbose and (line := line_of(event)):
                _tell(f"{lease.run} {line.who}: {line.text}")

        return watch

    return watching


def _declare_worker(parser: argparse.ArgumentParser) -> None:
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--once", action="store_true", help="work on one item, if there is one now, and end")
    how.add_argument("--drain", action="store_true", help="end when nothing is left to do but for people")
    parser.add_argument(
        "--count", type=number(1, WORKERS_MAX), metavar="N", help="items at once (default: worker.count)"
    )
    parser.add_argument("-v", "--verbose", action="store_true", help="tell every event of every run")


COMMANDS = (
    Command(
        name="worker",
        help="pull items from the queue and carry their runs, until stopped",
        handle=worker,
        declare=_declare_worker,
        more="Told to stop (Ctrl-C, SIGTERM), each run finishes its step and goes back to the queue; told twice, now.",
    ),
)
