"""The command `ratchet`. Data to stdout, talk to stderr, `--json` everywhere, errors that end in a hint.

Exit codes: 0 yes; 1 the answer is no; 2 usage or configuration; 3 the environment cannot; 75 parked by quota;
130 interrupted.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

from ratchet import __version__
from ratchet.errors import RatchetError
from ratchet.surfaces.cli.common import EXIT_CODES, Command, say

_MODULES = (
    "running",
    "fixing",
    "queueing",
    "serving",
    "mcp",
    "working",
    "agents",
    "testing",
    "watching",
    "gating",
    "looking",
    "workspaces",
    "project",
)
# Run again and again while somebody waits: it is parsed with its own module only.
_QUICK = {"test": ("testing",)}


def commands(named: str = "") -> list[Command]:
    """Every command, or no more than is needed for the one that was named."""
    modules = [import_module(f"ratchet.surfaces.cli.{name}") for name in _QUICK.get(named, _MODULES)]
    return [command for module in modules for command in module.COMMANDS]


def parser(named: str = "") -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(
        prog="ratchet",
        description="A software factory for coding agents: every green step is kept, every red one is undone.",
        epilog=EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    top.add_argument("--version", action="version", version=f"ratchet {__version__}")
    below = top.add_subparsers(title="commands", metavar="COMMAND", required=True)
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--json", action="store_true", help="print data as JSON")
    common.add_argument("-C", "--repo", type=Path, default=Path(), metavar="DIR", help="the repository (default: here)")
    common.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="override a configuration key")
    for command in commands(named):
        command.add_to(below, common)
    return top


def main(argv: Sequence[str]) -> int:
    arguments = parser(argv[0] if argv else "").parse_args(argv)
    try:
        return int(arguments.handle(arguments))
    except RatchetError as error:
        return _explain(error)
    except OSError as error:
        if isinstance(error, BrokenPipeError):
            return _nobody_listens()
        say(f"ratchet: {error.strerror or error}{f': {error.filename}' if error.filename else ''}")
        say("  hint: check that there is room and that you may write there; `ratchet doctor` looks around")
        return 3
    except _interrupts():
        say("interrupted")
        return 130


def _interrupts() -> tuple[type[BaseException], ...]:
    """Asked for only when something was raised: whoever was cancelled has loaded this long ago."""
    from asyncio import CancelledError  # noqa: PLC0415 — as long to load as all the rest of a quick command

    return KeyboardInterrupt, CancelledError


def _nobody_listens() -> int:
    """Whoever read us has gone (`ratchet logs | head`): that is not an error, and there is nobody to tell."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


def _explain(error: RatchetError) -> int:
    say(f"ratchet: {error.message}")
    if error.hint:
        say(f"  hint: {error.hint}")
    return error.exit_code
