"""Commands about agents: which are here and what they can do, and whether one really works."""

from __future__ import annotations

import argparse

import msgspec

from ratchet import config
from ratchet.agents.inventory import Standing, survey
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


COMMANDS = (
    Command(name="agents", help="list the agents that are installed here, or try one on a small task",
            handle=agents, declare=_declare),
)  # fmt: skip
