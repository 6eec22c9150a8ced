"""Commands about the project and the machine: init, doctor, config, schema."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import click
import msgspec

from ratchet import config
from ratchet.agents.installed_agents import NATIVE, AgentStatus, find_agents
from ratchet.agents.protocol import open_agent
from ratchet.app import doctor
from ratchet.checks.detect.project_gates import detect_gates
from ratchet.checks.detect.targets import detect
from ratchet.checks.protocol import Target
from ratchet.core import schemas
from ratchet.core.gates import Gate
from ratchet.errors import UsageError
from ratchet.interfaces import config_help
from ratchet.interfaces.cli.common import (
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
from ratchet.workspace.git import repository
from ratchet.workspace.git.project_root import settings_root


def init(arguments: Arguments) -> int:
    """Write a ratchet.toml with the detected settings; never overwrite an existing one."""
    repo = repository.find_repository(arguments.repo.absolute())
    path = repo.root / config.FILE
    if path.exists():
        raise UsageError(f"{path} already exists", hint="edit it; `ratchet config show` lists every key")
    if arguments.agent:
        open_agent(arguments.agent)  # a name that no run could use is refused before it is written
    targets = detect(repo.root)
    gates, absent = detect_gates(repo.root, targets)
    installed = run_async(find_agents())
    agent = arguments.agent or _choose_agent([one.name for one in installed if one.installed], as_json=arguments.json)
    path.write_text(_template(targets, gates, [one for one in installed if one.installed], agent))
    if arguments.json:
        print_json({"path": str(path), "detected": targets, "agent": agent, "gates": gates, "absent": absent})
        return 0
    found = "; ".join(f"{target.name}, because {target.why}" for target in targets) or "none; set [test] command"
    print_data(f"wrote {path}\nagent: {agent or 'none; name one with --agent, or in the file'}\ntests: {found}")
    for gate in gates:
        print_data(f"gate:  {gate.name:<12} {gate.command or '(built in)'} ({gate.why})")
    for missing in absent:
        print_data(f"off:   {missing.name:<12} {missing.why}")
    _note_missing(agent, [one.name for one in installed if one.installed])
    return 0


def _note_missing(agent: str, installed: list[str]) -> None:
    kind = agent.partition(":")[0]
    if kind in NATIVE and kind not in installed:
        print_note(f"note: {kind} is not installed; `ratchet agents` lists what is")


def _portable(command: list[str]) -> list[str]:
    """Return the command without the path of this machine's interpreter: the file is committed."""
    return ["python3", *command[1:]] if Path(command[0]).name.startswith("python") else command


def _choose_agent(installed: list[str], *, as_json: bool) -> str:
    """Ask for the agent on a terminal; elsewhere choose none."""
    if not installed or as_json or not (sys.stdin.isatty() and sys.stdout.isatty()):
        return ""
    choice: str = click.prompt("Agent", type=click.Choice(installed), default=installed[0], show_choices=True)
    return choice


def _template(targets: list[Target], gates: list[Gate], installed: list[AgentStatus], agent: str) -> str:
    logins = ", ".join(f"{one.name} ({one.login or 'no login found'})" for one in installed) or "none"
    named = f'agent = "{agent}"' if agent else '# agent = "KIND"'
    command = shlex.join(_portable(targets[0].command)) if targets else "COMMAND"
    listed = "\n".join(f"#   {gate.name:<10} {gate.command or '(built in)'}: {gate.why}" for gate in gates)
    globs = ", ".join(f'"{glob}"' for target in targets for glob in target.tests)
    lines = [f"# Detected: {target.name}, because {target.why}." for target in targets]
    detected = "\n".join(lines) or "# No tests were detected."
    return f"""# Ratchet configuration. Every key has a default: `ratchet config show`.

# The agent for every role, unless [roles.*] overrides it. Installed here: {logins}.
{named}

[test]
{detected}
# command = "{command}"
# Only the auditor may write to these paths:
# paths = [{globs}]

[tdd]
# iterations = 15
# attempts = 3
# refactor_interval = 3

# These gates were found and run after every kept step; a failing one undoes the commit:
{listed}
# To change or switch off one of them, or to add your own:
# [[gates]]
# name = "lint"
# on = false
"""


def run_doctor(arguments: Arguments) -> int:
    findings = doctor.examine(_own_folder(arguments.repo))
    if arguments.json:
        print_json(findings)
    for finding in findings if not arguments.json else []:
        mark = "ok  " if finding.ok else "no  " if finding.needed else "-   "
        print_data(hanging(f"{mark} {finding.what:<24} {finding.detail}", sys.stdout, indent=5))
    return 0 if all(finding.ok or not finding.needed for finding in findings) else 3


def _own_folder(folder: Path) -> Path:
    settings_root(folder)  # settings of another user are refused
    return folder.absolute()


def config_show(arguments: Arguments) -> int:
    loaded = _load(arguments)
    if arguments.json:
        print_json(loaded.settings)
    for setting in loaded.settings if not arguments.json else []:
        print_data(f"{setting.key:<30} {setting.value!s:<28} {setting.source}")
    return 0


def config_validate(arguments: Arguments) -> int:
    _load(arguments)
    print_json({"valid": True}) if arguments.json else print_data("the configuration is valid")
    return 0


def _load(arguments: Arguments) -> config.LoadedConfig:
    return config.load(settings_root(arguments.repo), flags=arguments.set)


def configuration(arguments: Arguments) -> int:
    if arguments.what == "explain":
        return config_explain(arguments)
    if arguments.key:
        raise UsageError(f"`config {arguments.what}` takes no key", hint=f"ratchet config explain {arguments.key}")
    return config_show(arguments) if arguments.what == "show" else config_validate(arguments)


def config_explain(arguments: Arguments) -> int:
    if not arguments.key:
        raise UsageError("no key given", hint="ratchet config explain budget.item.cost_usd; `config show` lists all")
    found = config_help.explain(arguments.key)
    value = next(setting for setting in _load(arguments).settings if setting.key == arguments.key)
    if arguments.json:
        print_json({**msgspec.to_builtins(found), "value": value.value, "source": value.source})
        return 0
    print_data(f"{found.key} ({found.type}, default {found.default})\n  {found.text}")
    print_data(f"  example: {found.example}\n  variable: {config.environment_name(found.key)}")
    print_data(f"  here: {value.value!s} ({value.source})")
    return 0


def schema(arguments: Arguments) -> int:
    known = schemas.all_schemas()
    if not arguments.name:
        print_json(sorted(known)) if arguments.json else print_data("\n".join(sorted(known)))
        return 0
    if arguments.name not in known:
        raise UsageError(f"no such schema: {arguments.name!r}", hint=f"schemas: {', '.join(sorted(known))}")
    print_data(known[arguments.name].rstrip("\n"))
    return 0


COMMANDS = (
    CliCommand(
        "init",
        "detect the tests and write a ratchet.toml",
        init,
        option(
            "--agent", default="", metavar="KIND:…", help="agent to write into the file (default: asked on a terminal)"
        ),
    ),
    CliCommand("doctor", "check this machine for required and optional tools", run_doctor),
    CliCommand(
        "config",
        "show every setting and its source, or validate them",
        configuration,
        argument("what", type=click.Choice(["show", "validate", "explain"])),
        argument("key", required=False, metavar="[KEY]", help="key to explain"),
    ),
    CliCommand(
        "schema",
        "print the JSON Schema of a message or file format",
        schema,
        argument("name", required=False, metavar="[NAME]", help="schema to print (without it: list all names)"),
    ),
)
