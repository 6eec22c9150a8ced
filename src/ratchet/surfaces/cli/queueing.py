"""Commands of the queue: add, queue, cancel, requeue, workers, kill, metrics. Of a server or of the store here."""

from __future__ import annotations

import argparse
import shlex
import sys
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from ratchet.core import api
from ratchet.core.item import ItemStatus, Priority
from ratchet.core.queue import ItemRow, Page
from ratchet.errors import UsageError
from ratchet.surfaces import board
from ratchet.surfaces.cli.common import Arguments, Command, number, show, show_json
from ratchet.surfaces.cli.desk import by_me, open_desk, repo_named, root_of, server_argument
from ratchet.surfaces.paint import painter

LIMIT = 50
_SHOWN = (ItemStatus.IN_PROGRESS, ItemStatus.ASSIGNED, ItemStatus.QUEUED, ItemStatus.PARKED)


def add(arguments: Arguments) -> int:
    work = _work(arguments)
    try:
        api.check_key(arguments.key)
    except ValueError as error:
        raise UsageError(str(error), hint="ratchet add --help") from error
    with open_desk(arguments) as desk:
        added = desk.add(work, key=arguments.key)
    if arguments.json:
        show_json(added)
    else:
        item = added.row.item
        known = "" if added.created else " (asked for before)"
        show(f"{item.id}  {added.row.status}, {item.priority}: {item.title}{known}")
    return 0


def _work(arguments: Arguments) -> api.Work:
    from ratchet.factory import read_spec  # noqa: PLC0415 — who only looks does not wait for it

    given = {
        "repo": repo_named(arguments.to) if arguments.to else str(root_of(arguments.repo)),
        "spec": read_spec(arguments.spec) if arguments.spec else "",
        "description": arguments.description,
        "settings": arguments.set,
    }
    same = ("title", "priority", "branch", "workflow", "max_iterations", "needs", "footprint", "source", "source_ref")
    try:
        return msgspec.convert(
            {
                name: value
                for name, value in (given | {name: getattr(arguments, name) for name in same}).items()
                if value not in (None, "", [])
            },
            api.Work,
        )
    except msgspec.ValidationError as error:
        raise UsageError(str(error), hint="ratchet add --help") from error


def queue(arguments: Arguments) -> int:
    with open_desk(arguments) as desk:
        page = _page(desk, arguments)
    if arguments.json:
        show_json(page)
    else:
        show(board.items(page.rows, painter(colour=sys.stdout.isatty()), now=datetime.now(UTC)))
        if page.after:
            show(f"\nMore: {_next(arguments, page.after)}")
    return 0


def _next(arguments: Arguments, after: str) -> str:
    """The command for what comes after: the same one, further on."""
    given = {"--status": arguments.status, "--priority": arguments.priority, "--to": arguments.to}
    words = [word for name, value in given.items() if value for word in (name, value)]
    words += ["--all"] if arguments.all else []
    words += ["--limit", str(arguments.limit)] if arguments.limit != LIMIT else []
    return shlex.join(["ratchet", "queue", *words, "--after", after])


def _page(desk: api.Desk, arguments: Arguments) -> Page:
    """What is open, the busiest first; everything, or one status, when asked for."""
    ask = api.QueueAsk(
        status=ItemStatus(arguments.status) if arguments.status else None,
        priority=Priority(arguments.priority) if arguments.priority else None,
        repo=arguments.to and repo_named(arguments.to),
        after=arguments.after,
        limit=arguments.limit,
    )
    status, among_open, place = arguments.after.rpartition("@")
    if arguments.all or arguments.status or (arguments.after and not among_open):
        return desk.queue(ask)
    if among_open and status not in _SHOWN:
        raise UsageError(f"{arguments.after!r} is no page", hint="take `after` from the page before")
    return _open(desk, ask, ItemStatus(status) if status else _SHOWN[0], place)


def _open(desk: api.Desk, ask: api.QueueAsk, first: ItemStatus, place: str) -> Page:
    """One status after the other. Where a page ends, its `after` names the status, too."""
    rows: list[ItemRow] = []
    for status in _SHOWN[_SHOWN.index(first) :]:
        room, after = ask.limit - len(rows), place if status is first else ""
        page = desk.queue(msgspec.structs.replace(ask, status=status, after=after, limit=room or 1))
        if page.rows and not room:
            return Page(rows=rows, after=f"{status}@")
        rows += page.rows
        if page.after:
            return Page(rows=rows, after=f"{status}@{page.after}")
    return Page(rows=rows, after="")


def cancel(arguments: Arguments) -> int:
    with open_desk(arguments) as desk:
        answer = desk.cancel(arguments.item, by_me())
    said = {
        "done": "is cancelled",
        "asked": "is worked on: its worker was told and stops within seconds",
        "over": "had ended before",
    }
    show_json(answer) if arguments.json else show(f"{answer.item} {said[answer.cancelled]}")
    return 0


def requeue(arguments: Arguments) -> int:
    with open_desk(arguments) as desk:
        row = desk.requeue(arguments.item)
    show_json(row) if arguments.json else show(f"{row.item.id} is {row.status} again")
    return 0


def workers(arguments: Arguments) -> int:
    with open_desk(arguments) as desk:
        found = desk.workers(api.WorkersAsk(live=not arguments.all, limit=arguments.limit))
    if arguments.json:
        show_json(found)
    else:
        show(board.workers(found.workers, painter(colour=sys.stdout.isatty()), now=datetime.now(UTC)))
    return 0


def kill(arguments: Arguments) -> int:
    with open_desk(arguments) as desk:
        done = desk.kill(arguments.worker, by_me())
    if arguments.json:
        show_json(done)
    else:
        show(f"{arguments.worker} {'is killed; its run is in the queue again' if done.changed else 'was over before'}")
    return 0


def metrics(arguments: Arguments) -> int:
    with open_desk(arguments) as desk:
        found = desk.metrics()
    show_json(found) if arguments.json else show(board.metrics(found))
    return 0


def _declare_add(parser: argparse.ArgumentParser) -> None:
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("spec", nargs="?", type=Path, metavar="SPEC.md", help="a file that says what is wanted")
    what.add_argument("-d", "--description", default="", metavar="TEXT", help="or say it here")
    parser.add_argument("--to", default="", metavar="REPO", help="path, git URL or owner/name (default: the one here)")
    parser.add_argument("--title", default="", help="default: the spec's first heading")
    parser.add_argument("--priority", choices=list(Priority), default="medium")
    parser.add_argument("--branch", default="", help="where it starts from and lands")
    parser.add_argument("--workflow", default="tdd")
    parser.add_argument("--max-iterations", type=int, metavar="N", help="at most so many, 1 to 200")
    parser.add_argument("--needs", action="append", default=[], metavar="ITEM", help="wait until this one is completed")
    parser.add_argument(
        "--footprint", action="append", default=[], metavar="PATH", help="what it is expected to change"
    )
    parser.add_argument("--source", default="", help="where it comes from, such as github")
    parser.add_argument("--source-ref", default="", metavar="REF", help="what it is there; while it is open, one item")
    parser.add_argument("--key", default="", help="asked again with the same key it is the same item")
    server_argument(parser)


def _declare_queue(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--status", choices=list(ItemStatus), help="only these (default: what is open)")
    parser.add_argument("--priority", choices=list(Priority))
    parser.add_argument("--to", default="", metavar="REPO", help="only for this repository")
    parser.add_argument("--all", action="store_true", help="also what is over")
    parser.add_argument("--limit", type=number(1, api.PAGE_MAX), default=LIMIT, metavar="N")
    parser.add_argument("--after", default="", metavar="PAGE", help="the next page")
    server_argument(parser)


def _declare_item(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("item", metavar="ITEM")
    server_argument(parser)


def _declare_workers(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--all", action="store_true", help="also those that are over")
    parser.add_argument("--limit", type=number(1, api.PAGE_MAX), default=100, metavar="N")
    server_argument(parser)


def _declare_kill(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("worker", metavar="WORKER")
    server_argument(parser)


COMMANDS = (
    Command(name="add", help="queue a spec, or a description", handle=add, declare=_declare_add),
    Command(name="queue", help="list what is open, in the order of its turn", handle=queue, declare=_declare_queue),
    Command(name="cancel", help="cancel an item, also one that is worked on", handle=cancel, declare=_declare_item),
    Command(name="requeue", help="queue again what failed, was cancelled or is parked", handle=requeue,
            declare=_declare_item),
    Command(name="workers", help="list the workers, newest first", handle=workers, declare=_declare_workers),
    Command(name="kill", help="take its run away from a worker", handle=kill, declare=_declare_kill),
    Command(name="metrics", help="print the numbers of the day", handle=metrics, declare=server_argument),
)  # fmt: skip
