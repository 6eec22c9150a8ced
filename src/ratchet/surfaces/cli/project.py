"""Commands about the project and this machine: init, doctor, config, schema."""

from __future__ import annotations

import argparse

from ratchet import config, doctor, repository, schemas
from ratchet.checks import Target
from ratchet.checks.detect import detect
from ratchet.errors import UsageError
from ratchet.surfaces.cli.common import Arguments, Command, show, show_json


def init(arguments: Arguments) -> int:
    """Write what was detected; never over an existing file."""
    repo = repository.find(arguments.repo.absolute())
    path = repo.root / config.FILE
    if path.exists():
        raise UsageError(f"{path} exists already", hint="edit it; `ratchet config show` explains every key")
    targets = detect(repo.root)
    path.write_text(_template(targets))
    found = "; ".join(f"{target.name}, because {target.why}" for target in targets) or "none; set [test] command"
    show_json({"path": str(path), "detected": targets}) if arguments.json else show(f"wrote {path}\ntests: {found}")
    return 0


def _template(targets: list[Target]) -> str:
    globs = ", ".join(f'"{glob}"' for target in targets for glob in target.tests)
    lines = [f"# Detected: {target.name}, because {target.why}." for target in targets]
    detected = "\n".join(lines) or "# No tests were detected."
    return f"""# How Ratchet works on this repository. Every key has a default: `ratchet config show`.

# The agent that plays every role, unless [roles.*] says otherwise. `ratchet agents` lists what is installed here.
# agent = "claude"

[test]
{detected}
# command = "python3 -m pytest"
# Only the auditor may write here:
# paths = [{globs}]

[tdd]
# iterations = 15
# attempts = 3
# refactor_interval = 3

# A gate runs after every kept step; on_fail = "revert" undoes the commit.
# [[gates]]
# name = "lint"
# command = "ruff check ."
# on_fail = "warn"
"""


def run_doctor(arguments: Arguments) -> int:
    findings = doctor.examine(arguments.repo.absolute())
    if arguments.json:
        show_json(findings)
    for finding in findings if not arguments.json else []:
        mark = "ok  " if finding.ok else "no  " if finding.needed else "-   "
        show(f"{mark} {finding.what:<24} {finding.detail}")
    return 0 if all(finding.ok or not finding.needed for finding in findings) else 3


def config_show(arguments: Arguments) -> int:
    loaded = _load(arguments)
    if arguments.json:
        show_json(loaded.settings)
    for setting in loaded.settings if not arguments.json else []:
        show(f"{setting.key:<30} {setting.value!s:<28} {setting.source}")
    return 0


def config_validate(arguments: Arguments) -> int:
    _load(arguments)
    show_json({"valid": True}) if arguments.json else show("the configuration is valid")
    return 0


def _load(arguments: Arguments) -> config.Loaded:
    folder = arguments.repo.absolute()
    root = next((place for place in (folder, *folder.parents) if (place / config.FILE).exists()), folder)
    return config.load(root, flags=arguments.set)


def configuration(arguments: Arguments) -> int:
    return config_show(arguments) if arguments.what == "show" else config_validate(arguments)


def schema(arguments: Arguments) -> int:
    known = schemas.all_schemas()
    if not arguments.name:
        show_json(sorted(known)) if arguments.json else show("\n".join(sorted(known)))
        return 0
    if arguments.name not in known:
        raise UsageError(f"there is no schema {arguments.name!r}", hint=f"schemas: {', '.join(sorted(known))}")
    show(known[arguments.name].rstrip("\n"))
    return 0


def _declare_config(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("what", choices=["show", "validate"])


def _declare_schema(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", nargs="?", help="the schema to print; without it the names are listed")


COMMANDS = (
    Command(name="init", help="write a ratchet.toml with what was detected", handle=init),
    Command(name="doctor", help="say what works on this machine and what is missing", handle=run_doctor),
    Command(name="config", help="show every setting and where it came from, or validate them",
            handle=configuration, declare=_declare_config),
    Command(name="schema", help="print the JSON Schema of a message or file", handle=schema, declare=_declare_schema),
)  # fmt: skip
