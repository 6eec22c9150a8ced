"""Commands that inspect runs: runs, show, logs, diff, verify, export, gc."""

from __future__ import annotations

import sys
import time
from contextlib import closing

import msgspec

from ratchet.app.retention import collect_garbage
from ratchet.app.runs import RunService, names_of
from ratchet.core import events as ev
from ratchet.core.item import ItemStatus
from ratchet.core.ledger import Entry
from ratchet.core.state import RunStatus
from ratchet.interfaces.cli.backend import server_options
from ratchet.interfaces.cli.common import (
    Arguments,
    CliCommand,
    argument,
    flag,
    open_runs,
    open_runs_of,
    print_data,
    print_json,
    repository_root,
    run_argument,
    run_async,
    run_store,
)
from ratchet.interfaces.terminal.colour import Paint, Tone, painter
from ratchet.interfaces.terminal.layout import table, terminal_width
from ratchet.interfaces.terminal.narrative import event_line, how_to_go_on, render, render_history, seconds_between
from ratchet.process.spawn import is_gone
from ratchet.store.protocols import RunRow, open_store

_FOLLOW_S = 0.3


def runs(arguments: Arguments) -> int:
    folder = repository_root(arguments.repo)
    repo = folder if (folder / ".git").exists() and not arguments.all else None
    address, token = run_store(arguments, folder)
    with closing(open_store(address, token=token)) as store:
        rows = [row for name in names_of(repo) for row in store.runs(name)]
    rows.sort(key=lambda row: row.created_at, reverse=True)
    if arguments.json:
        print_json(rows)
    elif not rows:
        print_data(f"No runs yet{' in this repository' if repo else ''}. Start one: ratchet run SPEC.md --agent KIND:…")
    else:
        heads = ("RUN", "STATUS", "WORKER", *(() if repo else ("REPOSITORY",)), "TITLE")
        words = [
            (row.run, _status(row), row.holder.worker if row.holder else "-", *(() if repo else (row.repo,)), row.title)
            for row in rows
        ]
        cells = [[(Tone.PLAIN, text) for text in row] for row in words]
        print_data(table(heads, cells, painter(colour=sys.stdout.isatty()), width=terminal_width(sys.stdout)))
    return 0


def _status(row: RunRow) -> str:
    """Return the status to show: an unfinished run without a live worker is waiting, parked or interrupted."""
    if row.status is not RunStatus.RUNNING:
        return row.status
    if row.item_status is ItemStatus.PARKED or row.holder is None:
        return row.item_status
    return "interrupted" if is_gone(row.holder) else row.status


def show_run(arguments: Arguments) -> int:
    service, run = open_runs_of(arguments, arguments.run)
    with service:
        history = service.history(run)
        directory = service.directory(history.row.run).path
    if arguments.json:
        print_json({"row": history.row, "state": history.state, "receipts": history.receipts})
        return 0
    print_data(render_history(history, painter(colour=sys.stdout.isatty()), width=terminal_width(sys.stdout)))
    print_data(f"Files: {directory}")
    if history.row.status is RunStatus.RUNNING and _status(history.row) != RunStatus.RUNNING:
        print_data(how_to_go_on(history.state))
    return 0


def logs(arguments: Arguments) -> int:
    paint = painter(colour=sys.stdout.isatty())
    service, named = open_runs_of(arguments, arguments.run)
    with service:
        run = service.find_run(named).run
        shown = 0
        while True:
            entries = service.store.entries(run)
            for entry in entries[shown:]:
                _show_entry(entry, entries[0].at, as_json=arguments.json, paint=paint)
            sys.stdout.flush()
            shown = len(entries)
            if not arguments.follow or _is_final(service, run):
                return 0
            time.sleep(_FOLLOW_S)


def _is_final(service: RunService, run: str) -> bool:
    return service.store.run(run).status is not RunStatus.RUNNING


def _show_entry(entry: Entry, start: str, *, as_json: bool, paint: Paint) -> None:
    if as_json:
        row = msgspec.structs.asdict(entry) | {"data": msgspec.Raw(entry.data)}
        print_data(msgspec.json.encode(row).decode())
        return
    line = event_line(ev.decode(entry.kind, entry.data))
    width = terminal_width(sys.stdout)
    clock = seconds_between(start, entry.at)
    print_data(render(line, clock, paint, width=width) if line else paint(Tone.DIM, f"{'':9}· {entry.kind}"))


def diff(arguments: Arguments) -> int:
    service, run = open_runs_of(arguments, arguments.run)
    with service:
        text = service.diff(run)
    print_json({"diff": text}) if arguments.json else print_data(text)
    return 0


def verify(arguments: Arguments) -> int:
    paint = painter(colour=sys.stdout.isatty())
    is_run = arguments.target == "last" or arguments.target.startswith("run-")
    service, target = open_runs_of(arguments, arguments.target) if is_run else (open_runs(arguments), arguments.target)
    with service:
        results = run_async(service.verify(target))
    holds = all(result.holds for result in results)
    if arguments.json:
        print_json({"holds": holds, "results": results})
        return 0 if holds else 1
    for result in results:
        print_data(result.subject)
        for claim in result.claims:
            tone, mark = (Tone.GOOD, "✔") if claim.holds else (Tone.BAD, "✘")
            print_data(f"  {paint(tone, mark)} {claim.what}{f': {claim.detail}' if claim.detail else ''}")
    return 0 if holds else 1


def export(arguments: Arguments) -> int:
    service, run = open_runs_of(arguments, arguments.run)
    with service:
        path = service.export(run)
    print_json({"path": str(path)}) if arguments.json else print_data(str(path))
    return 0


def gc(arguments: Arguments) -> int:
    with open_runs(arguments) as service:
        report = collect_garbage(service, dry_run=arguments.dry_run)
    if arguments.json:
        print_json(report)
        return 0
    would = "would remove" if report.dry_run else "removed"
    for run in report.archived:
        print_data(f"{would} {run}: archived to .ratchet/archive/{run}.tar.gz")
    for run in report.pruned:
        print_data(f"{would} logs and prompts of {run}")
    if report.repacked_objects:
        print_data(f"{'would pack' if report.dry_run else 'packed'} {report.repacked_objects} objects of old trees")
    print_data(
        f"{would} {report.freed_bytes / 1e6:.1f} MB" if report.pruned or report.archived else "nothing to remove"
    )
    return 0


COMMANDS = (
    CliCommand(
        "runs",
        "list runs of this repository, newest first",
        runs,
        flag("--all", help="list the runs of all repositories (the default outside of one)"),
        *server_options(),
    ),
    CliCommand("show", "show a run's timeline, commits, reverts and cost", show_run, run_argument(), *server_options()),
    CliCommand(
        "logs",
        "print a run's ledger",
        logs,
        run_argument(),
        flag("-f", "--follow", help="keep printing until the run ends"),
        *server_options(),
    ),
    CliCommand("diff", "print the changes of a run", diff, run_argument(), *server_options()),
    CliCommand(
        "verify",
        "re-run the proof of a commit, or check a whole run",
        verify,
        argument(
            "target",
            required=False,
            default="last",
            metavar="[COMMIT|RUN]",
            help="commit made by a run, or run id (default: the last run)",
        ),
        *server_options(),
    ),
    CliCommand("export", "write a run's ledger and receipts to files", export, run_argument(), *server_options()),
    CliCommand(
        "gc",
        "remove logs and prompts of old runs, and archive older ones",
        gc,
        flag("--dry-run", help="only print what would be removed"),
        *server_options(),
    ),
)
