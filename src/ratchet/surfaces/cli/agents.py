"""Commands about agents: which are here and what they can do, whether one really works, and the line protocol's own."""

from __future__ import annotations

import argparse
import os
import shlex
import sys
import tempfile
from pathlib import Path

import msgspec

from ratchet import config
from ratchet.agents import open_agent, scripted, serving
from ratchet.agents.command import words_of
from ratchet.agents.conformance import Trial, check
from ratchet.agents.inventory import Standing, survey
from ratchet.core import wire
from ratchet.errors import UsageError
from ratchet.surfaces.cli.common import Arguments, Command, say, show, show_json, wait_for


def agents(arguments: Arguments) -> int:
    if arguments.what == "try":
        return _try(arguments)
    if arguments.name:
        raise UsageError("`ratchet agents` takes no name", hint=f"did you mean `ratchet agents try {arguments.name}`?")
    found = wait_for(survey())
    if arguments.json:
        show_json([msgspec.to_builtins(one) | {"installed": one.installed} for one in found])
    for one in found if not arguments.json else []:
        show(_line(one))
        if one.warning:
            say(f"  {one.warning}")
    return 0 if any(one.installed for one in found) else 1


def _line(one: Standing) -> str:
    if not one.installed:
        return f"-    {one.name:<9} not installed"
    login = f"logged in by {one.login}" if one.login else "not logged in, as far as can be seen"
    more = [login, *one.can, *([f"{one.acp}"] if one.acp else [])]
    return f"ok   {one.name:<9} {one.version or '?':<9} {' · '.join(more)}"


def _try(arguments: Arguments) -> int:
    # Only here: it stands on workspaces and sandboxes, which a list of agents does not need.
    from ratchet import trial  # noqa: PLC0415

    if not arguments.name:
        raise UsageError("which agent is to be tried?", hint="ratchet agents try claude")
    settings = config.load(arguments.repo.absolute(), flags=arguments.set).config
    open_agent(arguments.name)  # first: who does not exist costs nothing
    say(f"trying {arguments.name} on a small task in a scratch repository; this asks a model and may cost a little")
    findings = wait_for(
        trial.trial(arguments.name, settings, env=trial.environment(settings), timeout_s=arguments.timeout)
    )
    if arguments.json:
        show_json(findings)
    for finding in findings if not arguments.json else []:
        mark = "ok  " if finding.ok else "no  " if finding.needed else "-   "
        show(f"{mark} {finding.what:<20} {finding.detail}")
    return 0 if all(finding.ok or not finding.needed for finding in findings) else 1


def _declare(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("what", nargs="?", choices=["list", "try"], default="list")
    parser.add_argument(
        "--timeout", type=float, default=60.0, metavar="SECONDS", help="for each of the trial's two turns"
    )
    parser.add_argument("name", nargs="?", metavar="NAME", help="the agent to try, as --agent takes it")


# --- the line protocol ------------------------------------------------------------------------------------------------


def agent(arguments: Arguments) -> int:
    return {"scripted": _play, "check": _check}[arguments.kind](arguments)


def _play(arguments: Arguments) -> int:
    if arguments.script is None:
        raise UsageError("which script is to be played?", hint="ratchet agent scripted --script FILE")
    script = scripted.load(arguments.script)
    return serving.serve(script, folder=Path.cwd(), stdin=sys.stdin.buffer, stdout=sys.stdout.buffer)


def _check(arguments: Arguments) -> int:
    if not arguments.program:
        raise UsageError("which program is to be checked?", hint="ratchet agent check -- PROGRAM ARGS…")
    with tempfile.TemporaryDirectory(prefix="ratchet-check-") as folder:
        trial = Trial(
            argv=words_of(arguments.program[0] if len(arguments.program) == 1 else shlex.join(arguments.program)),
            env=dict(os.environ),
            folder=Path(folder),
            action=wire.Action(arguments.action),
            prompt=arguments.prompt,
            timeout_s=arguments.timeout,
        )
        return wait_for(_checked(trial, arguments))


async def _checked(trial: Trial, arguments: Arguments) -> int:
    found = []
    async for finding in check(trial):
        found.append(finding)
        if not arguments.json:
            show(f"{'ok  ' if finding.ok else 'no  '} {finding.check:<10} {finding.detail}")
    if arguments.json:
        show_json(found)
    return 0 if all(finding.ok for finding in found) else 1


_SCRIPT_FORMAT = """`check CMD…` tries whether a program keeps what the line protocol promises; every check asks it
anew, so of a real agent this costs something. `scripted` plays a script, TOML or JSON, a list of turns for each action:

  [[audit]]
  say = "one more requirement"             # what the agent answers
  write = { "tests/test_a.py" = "…" }      # whole files; also append, replace, delete, patch (a diff)
  calls = [{ name = "grep", detail = "x", result = "", times = 3 }]
  session = "s-1"                          # what it can be continued by
  ask = "which one?"                       # a question
  usage = { tokens_in = 900, tokens_out = 80, cost_usd = 0.01 }
  delay_s = 0.5
  fail = "crash"                           # or hang, garbage, oversize, wrong_version, rate_limit, overloaded, auth
"""


def _declare_agent(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("kind", choices=["scripted", "check"])
    parser.add_argument("--script", type=Path, metavar="FILE", help="the turns to play")
    parser.add_argument("--action", choices=list(wire.Action), default="implement", help="what to ask of it")
    parser.add_argument("--prompt", default="Answer with the word done. Change no files.", help="what it is asked with")
    parser.add_argument("--timeout", type=float, default=120.0, metavar="SECONDS", help="for one answer")
    parser.add_argument(
        "program",
        nargs="*",
        metavar="CMD",
        help="the program to check, after -- with its options; it starts in a scratch folder, so name files whole",
    )


COMMANDS = (
    Command(name="agent", help="play a script over the line protocol, or check whether a program speaks it",
            handle=agent, declare=_declare_agent, more=_SCRIPT_FORMAT),
    Command(name="agents", help="list the agents that are installed here, or try one on a small task",
            handle=agents, declare=_declare),
)  # fmt: skip
