"""Commands that look: runs, show, logs, diff, verify, export."""

from __future__ import annotations

import argparse
import sys
import time

import msgspec

from ratchet.core import events as ev
from ratchet.core.item import ItemStatus
from ratchet.core.ledger import Entry
from ratchet.core.state import RunStatus
from ratchet.factory import Factory
from ratchet.process import is_gone
from ratchet.store import RunRow
from ratchet.surfaces.cli.common import Arguments, Command, open_factory, run_argument, show, show_json, wait_for
from ratchet.surfaces.paint import Paint, Tone, painter
from ratchet.surfaces.story import line_of, render, seconds_between, tell

_FOLLOW_S = 0.3


def runs(arguments: Arguments) -> int:
    with open_factory(arguments) as factory:
        rows = factory.store.runs()
    if arguments.json:
        show_json(rows)
    elif not rows:
        show("No runs yet. Start one: ratchet run SPEC.md --agent KIND:…")
    else:
        show(f"{'RUN':<31} {'STATUS':<12} {'WORKER':<24} TITLE")
    for row in rows if not arguments.json else []:
        show(f"{row.run:<31} {_status(row):<12} {row.holder.worker if row.holder else '-':<24} {row.title}")
    return 0


def _status(row: RunRow) -> str:
    """A run goes on only while somebody carries it."""
    if row.status is not RunStatus.RUNNING:
        return row.status
    if row.item_status is ItemStatus.PARKED or row.holder is None:
        return row.item_status
    return "cut off" if is_gone(row.holder) else row.status


def show_run(arguments: Arguments) -> int:
    with open_factory(arguments) as factory:
        story = factory.story(arguments.run)
        directory = factory.directory(story.row.run).path
    if arguments.json:
        show_json({"row": story.row, "state": story.state, "receipts": story.receipts})
        return 0
    show(tell(story, painter(colour=sys.stdout.isatty())))
    show(f"Files: {directory}")
    if story.row.status is RunStatus.RUNNING and _status(story.row) != RunStatus.RUNNING:
        show(f"Continue with: ratchet resume {story.row.run}")
    return 0


def logs(arguments: Arguments) -> int:
    paint = painter(colour=sys.stdout.isatty())
    with open_factory(arguments) as factory:
        run = factory.find_run(arguments.run).run
        shown = 0
        while True:
            entries = factory.store.entries(run)
            for entry in entries[shown:]:
                _show_entry(entry, entries[0].at, as_json=arguments.json, paint=paint)
            sys.stdout.flush()
            shown = len(entries)
            if not arguments.follow or _is_over(factory, run):
                return 0
            time.sleep(_FOLLOW_S)


def _is_over(factory: Factory, run: str) -> bool:
    return factory.store.run(run).status is not RunStatus.RUNNING


def _show_entry(entry: Entry, start: str, *, as_json: bool, paint: Paint) -> None:
    if as_json:
        row = msgspec.structs.asdict(entry) | {"data": msgspec.Raw(entry.data)}
        show(msgspec.json.encode(row).decode())
        return
    line = line_of(ev.decode(entry.kind, entry.data))
    text = render(line, seconds_between(start, entry.at), paint) if line else paint(Tone.DIM, f"{'':9}· {entry.kind}")
    show(text)


def diff(arguments: Arguments) -> int:
    with open_factory(arguments) as factory:
        text = factory.diff(arguments.run)
    show_json({"diff": text}) if arguments.json else show(text)
    return 0


def verify(arguments: Arguments) -> int:
    paint = painter(colour=sys.stdout.isatty())
    with open_factory(arguments) as factory:
        results = wait_for(factory.verify(arguments.target))
    holds = all(result.holds for result in results)
    if arguments.json:
        show_json({"holds": holds, "results": results})
        return 0 if holds else 1
    for result in results:
        show(result.subject)
        for claim in result.claims:
            tone, mark = (Tone.GOOD, "✔") if claim.holds else (Tone.BAD, "✘")
            show(f"  {paint(tone, mark)} {claim.what}{f': {claim.detail}' if claim.detail else ''}")
    return 0 if holds else 1


def export(arguments: Arguments) -> int:
    with open_factory(arguments) as factory:
        path = factory.export(arguments.run)
    show_json({"path": str(path)}) if arguments.json else show(str(path))
    return 0


def _declare_logs(parser: argparse.ArgumentParser) -> None:
    run_argument(parser)
    parser.add_argument("-f", "--follow", action="store_true", help="keep printing until the run is over")


def _declare_verify(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("target", metavar="COMMIT|RUN", help="a commit of the factory, a run's id, or `last`")


COMMANDS = (
    Command(name="runs", help="list the runs of this repository, newest first", handle=runs),
    Command(name="show", help="tell a run's story: asked, tried, refused, reverted, kept, and the cost",
            handle=show_run, declare=run_argument),
    Command(name="logs", help="print a run's ledger", handle=logs, declare=_declare_logs),
    Command(name="diff", help="print what a run changed", handle=diff, declare=run_argument),
    Command(name="verify", help="re-enact the proof of a commit, or of a run with its ledger and artifacts",
            handle=verify, declare=_declare_verify),
    Command(name="export", help="rewrite a run's plain files from the store", handle=export, declare=run_argument),
)  # fmt: skip
