"""The command replay: a recorded run under other policies."""

from __future__ import annotations

import sys

from ratchet.app.replay import ReplayReport, is_replayable, replay_run
from ratchet.core.receipt import format_cost
from ratchet.core.replay import Replayed
from ratchet.core.state import RunStatus
from ratchet.errors import UsageError
from ratchet.interfaces.cli.common import (
    Arguments,
    CliCommand,
    open_runs_of,
    option,
    print_data,
    print_json,
    run_argument,
)
from ratchet.interfaces.terminal.colour import Tone, painter
from ratchet.interfaces.terminal.layout import Cell, table, terminal_width

_MORE = """Settings of a policy:
  attempts=1, tdd.iterations=5           a bound of the workflow
  gates.lint.on=false                    whether a gate runs
  gates.lint.on_fail=warn                whether it refuses (revert) or warns
  agent=codex:gpt-5                      what the answers cost elsewhere
  roles.reviewer.model=gpt-5-mini        the same for one role
  roles.implementer.escalate_after=1     when the stronger agent takes over

Example:
  ratchet replay last --policy short:attempts=1 --policy cheap:agent=codex:o3"""


def replay(arguments: Arguments) -> int:
    policies = _policies(arguments)
    service, run = open_runs_of(arguments, arguments.run)
    with service:
        report = replay_run(service, run, policies)
    print_json(report) if arguments.json else print_data(_render(report))
    return 0


def _policies(arguments: Arguments) -> dict[str, list[str]]:
    """Read the policies of --policy, and one of all --set that a replay can vary; the others configure the command."""
    policies: dict[str, list[str]] = {}
    for text in arguments.policy:
        name, colon, settings = text.partition(":")
        if not (colon and name.strip() and settings.strip()) or "=" in name:
            raise UsageError(f"--policy {text} has no name", hint="write --policy NAME:KEY=VALUE,KEY=VALUE")
        policies[name.strip()] = [setting.strip() for setting in settings.split(",")]
    if given := [setting for setting in arguments.set if is_replayable(setting)]:
        arguments.set = [setting for setting in arguments.set if setting not in given]
        policies[", ".join(given)] = given
    if not policies:
        raise UsageError("no other policy is given", hint="for example --set attempts=1; see `ratchet replay --help`")
    return policies


def _render(report: ReplayReport) -> str:
    paint = painter(colour=sys.stdout.isatty())
    heads = ("POLICY", "END", ">STEPS", ">COMMITS", ">REVERTS", ">AGENTS", "COST")
    rows = [_cells(each) for each in (report.recorded, *report.replayed)]
    drawn = table(heads, rows, paint, width=terminal_width(sys.stdout))
    return "\n\n".join([report.run, drawn, *(_differs(each) for each in report.replayed)])


def _cells(each: Replayed) -> list[Cell]:
    least = "at least " if each.unknown else ""
    tone = (
        Tone.GOOD if each.status is RunStatus.COMPLETED else Tone.BAD if each.status is RunStatus.FAILED else Tone.DIM
    )
    return [
        (Tone.PLAIN, each.name),
        (tone, "unknown" if each.unknown else each.status),
        (Tone.PLAIN, str(each.steps)),
        (Tone.PLAIN, str(each.commits)),
        (Tone.PLAIN, str(each.reverts)),
        (Tone.PLAIN, f"{each.usage.seconds:.0f} s"),
        (Tone.PLAIN, least + format_cost(each.usage, priced=each.priced)),
    ]


def _differs(each: Replayed) -> str:
    first = each.difference
    if first is None:
        return f"{each.name}: no different step"
    lines = [
        f"{each.name}: first different at step {first.step} ({first.phase})",
        f"  recorded  {first.recorded or 'the run had ended'}",
        f"  replayed  {first.replayed or 'the run would have ended'}",
    ]
    if each.unknown:
        lines.append(f"  unknown from {each.unknown}")
    elif each.detail:
        lines.append(f"  ends with {each.detail}")
    return "\n".join(lines)


COMMANDS = (
    CliCommand(
        "replay",
        "replay a run under other policies, without tokens",
        replay,
        run_argument(),
        option(
            "--policy",
            multiple=True,
            metavar="NAME:KEY=VALUE,…",
            help="another policy, as a row of its own (repeatable); --set does the same for one",
        ),
        more=_MORE,
    ),
)
