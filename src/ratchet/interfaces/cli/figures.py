"""Commands that show figures of the factory: `metrics` and `report`."""

from __future__ import annotations

import sys

from ratchet.app.report import collect
from ratchet.core import api
from ratchet.core.figures import GROUPINGS
from ratchet.errors import UsageError
from ratchet.interfaces.cli.backend import absolute_repo, open_queue, server_options
from ratchet.interfaces.cli.common import PATH, Arguments, CliCommand, option, print_data, print_json, print_note
from ratchet.interfaces.plots import save_plot
from ratchet.interfaces.report import FORMS, as_markdown, write_report
from ratchet.interfaces.terminal import figures, tables
from ratchet.interfaces.terminal.colour import painter
from ratchet.interfaces.terminal.layout import terminal_width


def metrics(arguments: Arguments) -> int:
    if arguments.plot:
        return _plot(arguments)
    ask = api.MetricsQuery(since=arguments.since, until=arguments.until, by=arguments.by, repo=_repo(arguments))
    with open_queue(arguments) as queue_service:
        found = queue_service.metrics(ask)
    if arguments.json:
        print_json(found)
    elif arguments.by:
        paint, width = painter(colour=sys.stdout.isatty()), terminal_width(sys.stdout)
        print_data(f"{figures.period(found)}\n\n{figures.groups(found.groups, paint, width=width)}")
    else:
        print_data(f"{tables.load(found)}\n\n{figures.period(found)}\n{figures.summary(found.figures)}".lstrip())
    return 0


def _plot(arguments: Arguments) -> int:
    if arguments.by:
        raise UsageError("--plot and --by exclude each other", hint="the plot shows days, phases, models and roles")
    with open_queue(arguments) as queue_service:
        found = collect(queue_service, since=arguments.since or "7d", until=arguments.until, repo=_repo(arguments))
    save_plot(found, arguments.plot)
    print_note(f"wrote {arguments.plot}")
    return 0


def report(arguments: Arguments) -> int:
    """Print a report as Markdown, or write it to a file: Markdown, or HTML with plots."""
    if arguments.output and arguments.output.suffix.lower() not in FORMS:
        raise UsageError(f"cannot write a report as {arguments.output.name}", hint=f"use {', '.join(FORMS)}")
    with open_queue(arguments) as queue_service:
        found = collect(queue_service, since=arguments.since, until=arguments.until, repo=_repo(arguments))
    if arguments.json:
        print_json(found)
    elif arguments.output:
        write_report(found, arguments.output)
        print_note(f"wrote {arguments.output}")
    else:
        print_data(as_markdown(found).rstrip())
    return 0


def _repo(arguments: Arguments) -> str:
    return absolute_repo(arguments.to) if arguments.to else ""


_WINDOW = (
    option("--until", default="", metavar="WHEN", help="a date or a time (default: now)"),
    option("--to", default="", metavar="REPO", help="only figures of this repository"),
)
COMMANDS = (
    CliCommand(
        "metrics",
        "show load and figures, in total or by group",
        metrics,
        option("--since", default="", metavar="WHEN", help="7d, 24h, 90m, 2w, a date or a time (default: midnight)"),
        *_WINDOW,
        option("--plot", type=PATH, metavar="FILE", help="draw the window (default: 7d) to a file: .svg, .png or .pdf"),
        option("--by", default="", metavar="NAMES", help=f"group by up to four of {', '.join(GROUPINGS)}"),
        *server_options(),
    ),
    CliCommand(
        "report",
        "report what the factory did, where time and money went",
        report,
        option("--since", default="7d", metavar="WHEN", help="7d, 24h, 90m, 2w, a date or a time (default: 7d)"),
        *_WINDOW,
        option(
            "-o", "--output", type=PATH, metavar="FILE", help="write .md, or .html with plots (default: print Markdown)"
        ),
        *server_options(),
    ),
)
