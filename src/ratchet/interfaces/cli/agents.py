"""Commands `agents` (list installed agents, try one) and `agent` (play a script, check a line-protocol program)."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path

import click
import msgspec

from ratchet import config
from ratchet.agents.conformance import ConformanceTarget, check
from ratchet.agents.drivers import scripted, scripted_server
from ratchet.agents.drivers.command import split_command
from ratchet.agents.installed_agents import AgentStatus, find_agents
from ratchet.agents.protocol import open_agent
from ratchet.core import line_protocol
from ratchet.errors import UsageError
from ratchet.interfaces.cli.common import (
    PATH,
    Arguments,
    CliCommand,
    argument,
    option,
    print_data,
    print_json,
    print_note,
    run_async,
)
from ratchet.interfaces.terminal.layout import hanging
from ratchet.tree_files import temporary_folder
from ratchet.workspace.git.project_root import settings_root


def agents(arguments: Arguments) -> int:
    if arguments.what == "try":
        return _try(arguments)
    if arguments.name:
        raise UsageError("`ratchet agents` takes no name", hint=f"did you mean `ratchet agents try {arguments.name}`?")
    found = run_async(find_agents())
    if arguments.json:
        print_json([msgspec.to_builtins(one) | {"installed": one.installed} for one in found])
    for one in found if not arguments.json else []:
        print_data(hanging(_line(one), sys.stdout, indent=5))
        if one.warning:
            print_note(hanging(f"     {one.warning}", sys.stderr, indent=5))
    return 0 if any(one.installed for one in found) else 1


def _line(one: AgentStatus) -> str:
    if not one.installed:
        return f"-    {one.name:<9} not installed"
    login = f"logged in by {one.login}" if one.login else "no login found"
    more = [login, *one.can, *([f"{one.acp}"] if one.acp else [])]
    return f"ok   {one.name:<9} {one.version or '?':<9} {' · '.join(more)}"


def _try(arguments: Arguments) -> int:
    # Imported here: it loads workspaces and sandboxes, which listing agents does not need.
    from ratchet.app import agents as trial  # noqa: PLC0415

    if not arguments.name:
        raise UsageError("no agent given", hint="ratchet agents try claude")
    flags = [*arguments.set, f"agent={arguments.name}"]
    settings = config.load(settings_root(arguments.repo), flags=flags).config
    open_agent(arguments.name)  # fail on an unknown agent before creating a workspace
    print_note(
        f"trying {arguments.name} on a small task in a scratch repository; this calls a model and may cost money"
    )
    findings = run_async(
        trial.try_agent(arguments.name, settings, env=trial.environment(settings), timeout_s=arguments.timeout)
    )
    if arguments.json:
        print_json(findings)
    for finding in findings if not arguments.json else []:
        mark = "ok  " if finding.ok else "no  " if finding.needed else "-   "
        print_data(hanging(f"{mark} {finding.what:<20} {finding.detail}", sys.stdout, indent=5))
    return 0 if all(finding.ok or not finding.needed for finding in findings) else 1


# --- the line protocol ------------------------------------------------------------------------------------------------


def agent(arguments: Arguments) -> int:
    return {"scripted": _play, "check": _check}[arguments.kind](arguments)


def _play(arguments: Arguments) -> int:
    if arguments.script is None:
        raise UsageError("no script given", hint="ratchet agent scripted --script FILE")
    script = scripted.load(arguments.script)
    return scripted_server.serve(script, folder=Path.cwd(), stdin=sys.stdin.buffer, stdout=sys.stdout.buffer)


def _check(arguments: Arguments) -> int:
    if not arguments.program:
        raise UsageError("no program given", hint="ratchet agent check -- PROGRAM ARGS…")
    with temporary_folder("ratchet-check-") as folder:
        trial = ConformanceTarget(
            argv=split_command(arguments.program[0] if len(arguments.program) == 1 else shlex.join(arguments.program)),
            env=dict(os.environ),
            folder=Path(folder),
            action=line_protocol.Action(arguments.action),
            prompt=arguments.prompt,
            timeout_s=arguments.timeout,
        )
        return run_async(_checked(trial, arguments))


async def _checked(trial: ConformanceTarget, arguments: Arguments) -> int:
    found = []
    async for finding in check(trial):
        found.append(finding)
        if not arguments.json:
            print_data(f"{'ok  ' if finding.ok else 'no  '} {finding.check:<10} {finding.detail}")
    if arguments.json:
        print_json(found)
    return 0 if all(finding.ok for finding in found) else 1


_SCRIPT_FORMAT = """`check CMD…` tests whether a program implements the line protocol. Each check
sends a request, which costs money if the program calls a model.

`scripted` plays a script in TOML or JSON, a list of turns for each action:

  [[audit]]
  say = "one more requirement"             # the answer
  write = { "tests/test_a.py" = "…" }      # full file contents; also append,
                                           # replace, delete, patch (a diff)
  calls = [{ name = "grep", detail = "x", result = "", times = 3 }]
  session = "s-1"                          # session id for resuming
  ask = "which one?"                       # a question
  usage = { tokens_in = 900, tokens_out = 80, cost_usd = 0.01 }
  delay_s = 0.5
  fail = "crash"                           # or hang, garbage, oversize, auth,
                                           # rate_limit, overloaded, …
"""


COMMANDS = (
    CliCommand(
        "agent",
        "check a program that speaks the line protocol, or play a script",
        agent,
        argument("kind", type=click.Choice(["scripted", "check"])),
        argument(
            "program",
            nargs=-1,
            type=click.UNPROCESSED,
            metavar="[CMD]...",
            help="program to check with its options, after --; starts in a scratch directory: use absolute paths",
        ),
        option("--script", type=PATH, metavar="FILE", help="script to play"),
        option(
            "--action",
            type=click.Choice([str(action) for action in line_protocol.Action]),
            default="implement",
            metavar="ACTION",
            help="action to request: implement, review, audit, …",
        ),
        option("--prompt", default="Answer with the word done. Change no files.", help="prompt to send"),
        option("--timeout", type=float, default=120.0, metavar="SECONDS", help="time limit for one response"),
        more=_SCRIPT_FORMAT,
    ),
    CliCommand(
        "agents",
        "list installed agents, or try one on a small task",
        agents,
        argument("what", required=False, default="list", type=click.Choice(["list", "try"])),
        argument("name", required=False, metavar="[NAME]", help="agent to try, written as for --agent"),
        option("--timeout", type=float, default=60.0, metavar="SECONDS", help="time limit for each of the two turns"),
    ),
)
