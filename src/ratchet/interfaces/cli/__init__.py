"""The command `ratchet`. Data goes to stdout, messages to stderr; every command has `--json`; errors end with a hint.

Exit codes: 0 success; 1 tests, a run or a check failed; 2 usage or configuration error; 3 a required tool or permission
is missing; 75 parked until a provider quota resets; 130 interrupted.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib import import_module

import click

from ratchet import __version__
from ratchet.errors import RatchetError
from ratchet.interfaces.cli.common import (
    COMPLETE,
    EXIT_CODES,
    logs_json,
    plain_help_option,
    print_data,
    print_error,
    verbosity,
    verbosity_options,
    write_as_is,
)

# Section → command → (module, help). `--help` prints these texts without importing any command; a test compares them
# with the commands' own.
SECTIONS: dict[str, dict[str, tuple[str, str]]] = {
    "Start here": {
        "demo": ("run", "watch a scripted agent implement a small spec, test by test"),
        "init": ("project", "detect the tests and write a ratchet.toml"),
        "doctor": ("project", "check this machine for required and optional tools"),
    },
    "Run": {
        "run": ("run", "implement a spec, or continue its interrupted run"),
        "fix": ("fix", "fix failing tests, found here or in a CI log"),
        "swarm": ("fix", "race several attempts at fixing failing tests"),
        "loop": ("fix", "work through a checklist, one task per fresh agent session"),
        "resume": ("run", "continue an interrupted or parked run"),
        "abort": ("run", "stop a run permanently; its commits stay on the branch"),
    },
    "Queue": {
        "add": ("queue", "add a spec or a description to the queue"),
        "queue": ("queue", "list open items, next first"),
        "status": ("queue", "show the queue, its workers, and what is left of today's limits"),
        "cancel": ("queue", "cancel an item, even one in progress"),
        "requeue": ("queue", "requeue a finished or parked item"),
        "nudge": ("queue", "send a message to the agents of an open run"),
        "serve": ("serve", "serve the HTTP API and run workers"),
        "open": ("serve", "open the web pages, signed in by a link that works once"),
        "worker": ("worker", "process items from the queue until stopped"),
        "workers": ("queue", "list workers, newest first"),
        "kill": ("queue", "stop a worker and requeue its run"),
        "top": ("serve", "show queue, workers and metrics live"),
        "metrics": ("figures", "show load and figures, in total or by group"),
        "report": ("figures", "report what the factory did, where time and money went"),
    },
    "Tests": {
        "test": ("test", "detect and run the tests of a folder, in any language"),
        "watch": ("watch", "run tests on every change, affected tests first"),
        "gates": ("gates", "list the gates that every step must pass, in order"),
        "workspace": ("workspaces", "create, inspect, copy and remove copy-on-write workspaces"),
    },
    "Inspect": {
        "runs": ("runs", "list runs of this repository, newest first"),
        "show": ("runs", "show a run's timeline, commits, reverts and cost"),
        "logs": ("runs", "print a run's ledger"),
        "diff": ("runs", "print the changes of a run"),
        "replay": ("replay", "replay a run under other policies, without tokens"),
        "backtest": ("backtest", "compare agents on tasks from this repository's own history"),
        "verify": ("runs", "re-run the proof of a commit, or check a whole run"),
        "export": ("runs", "write a run's ledger and receipts to files"),
        "clean": ("clean", "show and remove workspaces, branches and caches that runs left"),
        "learn": ("learn", "store, find and retire what earlier work taught"),
        "gc": ("runs", "remove logs and prompts of old runs, and archive older ones"),
    },
    "Set up": {
        "config": ("project", "show every setting and its source, or validate them"),
        "agents": ("agents", "list installed agents, or try one on a small task"),
        "agent": ("agents", "check a program that speaks the line protocol, or play a script"),
        "image": ("image", "print or build an image for workers or steps in containers"),
        "mcp": ("mcp", "serve MCP, or install it in an agent's configuration"),
        "schema": ("project", "print the JSON Schema of a message or file format"),
        "completion": ("completion", "print the completion script of a shell"),
    },
}
MODULES = {name: module for rows in SECTIONS.values() for name, (module, _) in rows.items()}
_ALIKE = 0.6
_BEGIN = """Begin with:
  ratchet demo                 watch it work; needs pytest but no agent
  ratchet init                 set up the repository you are in
  ratchet run -d "what to do"  let an agent do it, test by test"""


class LazyGroup(click.Group):
    """The top-level command: imports the module of a command when that command is used."""

    def get_help_option(self, ctx: click.Context) -> click.Option | None:
        return plain_help_option(super().get_help_option(ctx))

    def list_commands(self, _ctx: click.Context) -> list[str]:
        return list(MODULES)

    def get_command(self, _ctx: click.Context, name: str) -> click.Command | None:
        if name not in MODULES:
            return None
        module = import_module(f"ratchet.interfaces.cli.{MODULES[name]}")
        found: click.Command = next(command for command in module.COMMANDS if command.name == name)
        return found

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] not in MODULES and not args[0].startswith("-"):
            raise click.exceptions.NoSuchCommand(args[0], possibilities=MODULES, ctx=ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, _ctx: click.Context, formatter: click.HelpFormatter) -> None:
        widest = max(map(len, MODULES))
        for title, rows in SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(widest), text) for name, (_, text) in rows.items()])

    def format_epilog(self, _ctx: click.Context, formatter: click.HelpFormatter) -> None:
        write_as_is(formatter, _BEGIN)
        write_as_is(formatter, EXIT_CODES)


def _print_version(ctx: click.Context, _param: click.Parameter, value: bool) -> None:
    if value:
        print_data(f"ratchet {__version__}")
        ctx.exit()


cli = LazyGroup(
    name="ratchet",
    help="A software factory for coding agents: keeps changes that pass the tests, reverts the others.",
    params=[
        click.Option(
            ["-V", "--version"],
            is_flag=True,
            is_eager=True,
            expose_value=False,
            callback=_print_version,
            help="print the version and exit",
        ),
        *verbosity_options(),
    ],
    callback=lambda **_: None,
    context_settings={"help_option_names": ["-h", "--help"]},
    subcommand_metavar="COMMAND [ARGS]...",
)


def main(argv: Sequence[str]) -> int:
    verbosity.quiet = verbosity.verbose = False
    if instruction := os.environ.get(COMPLETE):
        return _complete(instruction)
    if logs_json():
        from ratchet.interfaces.cli.json_log import log_as_json  # noqa: PLC0415 — on request only

        log_as_json()
    try:
        return _invoke(argv)
    except RatchetError as error:
        return _print_error(error)
    except OSError as error:
        if isinstance(error, BrokenPipeError):
            return _on_broken_pipe()
        print_error(f"ratchet: {error.strerror or error}{f': {error.filename}' if error.filename else ''}")
        print_error("  hint: check free disk space and write permission; `ratchet doctor` checks this machine")
        return 3
    except _interrupt_types():
        print_error("interrupted")
        return 130


def _invoke(argv: Sequence[str]) -> int:
    # Not `cli.main`: it has answers of its own to errors, broken pipes and Ctrl-C.
    try:
        with cli.make_context("ratchet", list(argv)) as context:
            return int(cli.invoke(context) or 0)
    except click.exceptions.Exit as done:
        return done.exit_code
    except click.exceptions.NoArgsIsHelpError as error:
        print_data(error.message)
        return 0
    except click.UsageError as error:
        return _print_usage_error(error)


def _complete(instruction: str) -> int:
    """Answer the completion script of a shell."""
    from click.shell_completion import shell_complete  # noqa: PLC0415 — only for completion

    return shell_complete(cli, {}, "ratchet", COMPLETE, instruction)


def _interrupt_types() -> tuple[type[BaseException], ...]:
    """Import asyncio only when an exception was raised: a cancelled command has imported it already."""
    from asyncio import CancelledError  # noqa: PLC0415 — would double the start-up time of a quick command

    return KeyboardInterrupt, CancelledError, click.Abort, EOFError


def _on_broken_pipe() -> int:
    """The reader closed the pipe (`ratchet logs | head`): exit 0, and prevent a second error at interpreter exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


def _print_usage_error(error: click.UsageError) -> int:
    """Print click's error as ours: a message in lower case without a full stop, then a hint."""
    path = error.ctx.command_path if error.ctx else "ratchet"
    near = _near(error)
    message = error.message if getattr(error, "possibilities", None) else error.format_message()
    print_error(f"ratchet: {message[0].lower()}{message[1:].rstrip('.')}")
    meant = f"did you mean `{path} {near[0]}`? " if near else ""
    print_error(f"  hint: {meant}see `{path} --help`")
    return error.exit_code


def _near(error: click.UsageError) -> list[str]:
    """Return what was probably meant. Of options click proposes any that share a letter or two."""
    near: list[str] = getattr(error, "possibilities", None) or []
    if not isinstance(error, click.NoSuchOption):
        return near
    from difflib import SequenceMatcher  # noqa: PLC0415 — seldom needed

    name = error.option_name.strip("-")
    return [one for one in near if SequenceMatcher(None, name, one.strip("-")).ratio() > _ALIKE]


def _print_error(error: RatchetError) -> int:
    if verbosity.verbose:
        import traceback  # noqa: PLC0415

        traceback.print_exception(error)
    print_error(f"ratchet: {error.message}")
    if error.hint:
        print_error(f"  hint: {error.hint}")
    return error.exit_code
