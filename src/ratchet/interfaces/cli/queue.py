"""Queue commands: add, queue, cancel, requeue, nudge, workers, kill; on a server or on the local store."""

from __future__ import annotations

import shlex
import sys
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Any

import click
import msgspec

from ratchet.core import api
from ratchet.core.item import ItemStatus, Priority
from ratchet.core.queue import ItemPage, ItemRow
from ratchet.core.repo import RepoKind, repo_kind
from ratchet.errors import UsageError
from ratchet.interfaces.cli.backend import absolute_repo, current_user, is_remote, open_queue, server_options
from ratchet.interfaces.cli.common import (
    LABEL,
    PATH,
    Arguments,
    CliCommand,
    NumberBetween,
    argument,
    flag,
    option,
    print_data,
    print_json,
    print_note,
    repository_root,
    spec_file,
    spec_params,
    spec_text,
)
from ratchet.interfaces.terminal import tables
from ratchet.interfaces.terminal.colour import painter
from ratchet.interfaces.terminal.layout import terminal_width

LIMIT = 50
_SHOWN = (ItemStatus.IN_PROGRESS, ItemStatus.ASSIGNED, ItemStatus.QUEUED, ItemStatus.PARKED)


def _choice(kind: type[StrEnum]) -> click.Choice[str]:
    return click.Choice([str(value) for value in kind])


def add(arguments: Arguments) -> int:
    work = _work(arguments)
    try:
        api.check_key(arguments.key)
    except ValueError as error:
        raise UsageError(str(error), hint="ratchet add --help") from error
    _check(work, arguments)
    with open_queue(arguments) as queue_service:
        added = queue_service.add(work, key=arguments.key)
        served = _is_served(queue_service.status())
    if arguments.json:
        print_json(added)
    else:
        item = added.row.item
        known = "" if added.created else " (already in the queue)"
        print_data(f"{item.id}  {added.row.status}, {item.priority}: {item.title}{known}")
    _note_if_unserved(served)
    return 0


def _check(work: api.NewItem, arguments: Arguments) -> None:
    """Reject an item that no worker could start. Only items of repositories on this machine can be checked."""
    if is_remote(arguments) or repo_kind(work.repo) is not RepoKind.PATH:
        return
    from ratchet import config  # noqa: PLC0415 — slow to import; listing does not need it
    from ratchet.app.runs import RunService  # noqa: PLC0415
    from ratchet.workspace.git import repository  # noqa: PLC0415

    repo = repository.find_repository(Path(work.repo))
    loaded = config.load(repo.root, flags=work.settings).config
    with RunService(repo, loaded) as service:
        service.check(work.workflow, needs_agent=False)
    if not loaded.agent_for("implementer"):
        print_note("note: no agent is configured for this item; workers use their own (--agent KIND names one)")


def _is_served(status: api.Status) -> bool:
    return bool(status.serving or status.workers)


def _note_if_unserved(served: bool) -> None:
    if not served:
        print_note("note: no workers are running; start them with: ratchet serve")


def _work(arguments: Arguments) -> api.NewItem:
    from ratchet.agents.protocol import absolute_spec  # noqa: PLC0415 — slow to import; listing does not need it
    from ratchet.app.runs import sealed_settings  # noqa: PLC0415

    agent = [f"agent={absolute_spec(arguments.agent)}"] if arguments.agent else []
    repo = absolute_repo(arguments.to) if arguments.to else str(repository_root(arguments.repo))
    given = {
        "repo": repo,
        "spec": spec_text(arguments.spec, "") if arguments.spec else "",
        "description": arguments.description,
        "settings": [*arguments.set, *agent, *sealed_settings(spec_file(arguments.spec), arguments.sealed, Path(repo))],
    }
    same = ("title", "priority", "branch", "workflow", "max_iterations", "needs", "footprint", "source", "source_ref")
    given["require_labels"] = list(arguments.require_label)
    try:
        return msgspec.convert(
            {
                name: value
                for name, value in (given | {name: getattr(arguments, name) for name in same}).items()
                if value not in (None, "", [])
            },
            api.NewItem,
        )
    except msgspec.ValidationError as error:
        raise UsageError(str(error), hint="ratchet add --help") from error


def queue(arguments: Arguments) -> int:
    with open_queue(arguments) as queue_service:
        page = _page(queue_service, arguments)
        served = _is_served(queue_service.status())
    if arguments.json:
        print_json(page)
    else:
        print_data(tables.items(page.rows, **_look()))
        if page.after:
            print_data(f"\nMore: {_next(arguments, page.after)}")
    _note_if_unserved(served or not page.rows)
    return 0


def status(arguments: Arguments) -> int:
    with open_queue(arguments) as queue_service:
        found = queue_service.status()
    print_json(found) if arguments.json else print_data(tables.status(found))
    _note_if_unserved(_is_served(found))
    return 0


def _look() -> dict[str, Any]:
    """Return how tables are drawn here: colours and width of the terminal, if there is one."""
    return {
        "paint": painter(colour=sys.stdout.isatty()),
        "now": datetime.now(UTC),
        "width": terminal_width(sys.stdout),
    }


def _next(arguments: Arguments, after: str) -> str:
    """Return the command that prints the next page."""
    given = {"--status": arguments.status, "--priority": arguments.priority, "--to": arguments.to}
    words = [word for name, value in given.items() if value for word in (name, value)]
    words += ["--all"] if arguments.all else []
    words += ["--limit", str(arguments.limit)] if arguments.limit != LIMIT else []
    return shlex.join(["ratchet", "queue", *words, "--after", after])


def _page(queue_service: api.QueueService, arguments: Arguments) -> ItemPage:
    """Return open items, those in progress first; with --all or --status, items of every status or of that one."""
    request = api.QueueQuery(
        status=ItemStatus(arguments.status) if arguments.status else None,
        priority=Priority(arguments.priority) if arguments.priority else None,
        repo=arguments.to and absolute_repo(arguments.to),
        after=arguments.after,
        limit=arguments.limit,
    )
    status, among_open, place = arguments.after.rpartition("@")
    if arguments.all or arguments.status or (arguments.after and not among_open):
        return queue_service.queue(request)
    if among_open and status not in _SHOWN:
        raise UsageError(f"invalid page marker {arguments.after!r}", hint="use the `after` value of the previous page")
    return _open(queue_service, request, ItemStatus(status) if status else _SHOWN[0], place)


def _open(queue_service: api.QueueService, request: api.QueueQuery, first: ItemStatus, place: str) -> ItemPage:
    """List one status after the other. The `after` marker of a page includes the status it ended in."""
    rows: list[ItemRow] = []
    for status in _SHOWN[_SHOWN.index(first) :]:
        room, after = request.limit - len(rows), place if status is first else ""
        page = queue_service.queue(msgspec.structs.replace(request, status=status, after=after, limit=room or 1))
        if page.rows and not room:
            return ItemPage(rows=rows, after=f"{status}@")
        rows += page.rows
        if page.after:
            return ItemPage(rows=rows, after=f"{status}@{page.after}")
    return ItemPage(rows=rows, after="")


def cancel(arguments: Arguments) -> int:
    with open_queue(arguments) as queue_service:
        answer = queue_service.cancel(arguments.item, current_user())
    texts = {
        "done": "cancelled",
        "asked": "is in progress; its worker stops within seconds",
        "over": "has already finished",
    }
    print_json(answer) if arguments.json else print_data(f"{answer.item} {texts[answer.cancelled]}")
    return 0


def nudge(arguments: Arguments) -> int:
    if not 0 < len(arguments.message.strip()) <= api.NUDGE_MAX_CHARS:
        raise UsageError(f"a message has 1 to {api.NUDGE_MAX_CHARS:,} characters")
    with open_queue(arguments) as queue_service:
        row = queue_service.nudge(arguments.item, api.Nudge(by=current_user().by, message=arguments.message.strip()))
    print_json(row) if arguments.json else print_data(
        f"{row.item.id} nudged: the next prompt of its run has the message"
    )
    return 0


def requeue(arguments: Arguments) -> int:
    with open_queue(arguments) as queue_service:
        row = queue_service.requeue(arguments.item)
    print_json(row) if arguments.json else print_data(f"{row.item.id} is {row.status} again")
    return 0


def workers(arguments: Arguments) -> int:
    with open_queue(arguments) as queue_service:
        found = queue_service.workers(api.WorkersQuery(live=not arguments.all, limit=arguments.limit))
    if arguments.json:
        print_json(found)
    else:
        print_data(tables.workers(found.workers, **_look()))
    return 0


def kill(arguments: Arguments) -> int:
    with open_queue(arguments) as queue_service:
        done = queue_service.kill(arguments.worker, current_user())
    if arguments.json:
        print_json(done)
    else:
        print_data(
            f"{arguments.worker} {'stopped; its run is back in the queue' if done.changed else 'has already finished'}"
        )
    return 0


COMMANDS = (
    CliCommand(
        "add",
        "add a spec or a description to the queue",
        add,
        *spec_params(),
        option("--agent", metavar="KIND:…", help="agent to use (default: `agent` in ratchet.toml, then the worker's)"),
        option(
            "--to", default="", metavar="REPO", help="path, git URL or owner/name (default: the current repository)"
        ),
        option("--title", default="", help="title (default: first heading of the spec)"),
        option("--priority", type=_choice(Priority), default="medium"),
        option("--branch", default="", help="branch to start from and to land on"),
        option("--workflow", default="tdd"),
        option("--sealed", type=PATH, metavar="DIR", help="folder of tests outside the repository for no agent to see"),
        option("--max-iterations", type=int, metavar="N", help="iteration limit (1 to 200)"),
        option("--needs", multiple=True, metavar="ITEM", help="wait until this item is completed (repeatable)"),
        option("--footprint", multiple=True, metavar="PATH", help="path the work is expected to change (repeatable)"),
        option(
            "--require-label",
            multiple=True,
            type=LABEL,
            help="only workers with this label take it (repeatable; `require_labels` in a spec's front matter too)",
        ),
        option("--source", default="", help="system the work comes from, such as github"),
        option(
            "--source-ref", default="", metavar="REF", help="its reference there; at most one open item per reference"
        ),
        option("--key", default="", help="idempotency key: the same key returns the same item"),
        *server_options(),
    ),
    CliCommand(
        "queue",
        "list open items, next first",
        queue,
        option(
            "--status",
            type=_choice(ItemStatus),
            metavar="STATUS",
            help="only items with this status: queued, parked, failed, … (default: open items)",
        ),
        option("--priority", type=_choice(Priority)),
        option("--to", default="", metavar="REPO", help="only items of this repository"),
        flag("--all", help="include finished items"),
        option("--limit", type=NumberBetween(1, api.PAGE_MAX), default=LIMIT, metavar="N"),
        option("--after", default="", metavar="PAGE", help="page marker printed by the previous page"),
        *server_options(),
    ),
    CliCommand("status", "show the queue, its workers, and what is left of today's limits", status, *server_options()),
    CliCommand("cancel", "cancel an item, even one in progress", cancel, argument("item"), *server_options()),
    CliCommand("requeue", "requeue a finished or parked item", requeue, argument("item"), *server_options()),
    CliCommand(
        "nudge",
        "send a message to the agents of an open run",
        nudge,
        argument("item"),
        argument("message", help="what the next prompt is to say"),
        *server_options(),
    ),
    CliCommand(
        "workers",
        "list workers, newest first",
        workers,
        flag("--all", help="include finished workers"),
        option("--limit", type=NumberBetween(1, api.PAGE_MAX), default=100, metavar="N"),
        *server_options(),
    ),
    CliCommand("kill", "stop a worker and requeue its run", kill, argument("worker"), *server_options()),
)
