"""The command `clean`: shows and removes what runs have left behind."""

from __future__ import annotations

import re
import sys
from contextlib import closing

from ratchet import config, paths
from ratchet.app.clean import Cleaner, Leftover
from ratchet.errors import UsageError
from ratchet.interfaces.cli.common import (
    Arguments,
    CliCommand,
    flag,
    option,
    print_data,
    print_json,
    print_note,
    repository_root,
)
from ratchet.interfaces.terminal.layout import hanging
from ratchet.process.spawn import is_gone
from ratchet.store.protocols import open_store

_UNITS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}
_MORE = """Removes workspaces of finished runs whose time is over, and branches without
commits of their own or merged into HEAD. With --older-than also prepared
checkouts, clones, and branches of failed and aborted runs. Commits of completed
runs stay until they are merged; runs and their ledgers stay."""


def clean(arguments: Arguments) -> int:
    folder = repository_root(arguments.repo)
    loaded = config.load(folder, flags=arguments.set).config
    older_s = _seconds(arguments.older_than) if arguments.older_than else None
    with closing(open_store(paths.store_address(loaded, folder), is_dead=is_gone)) as store:
        cleaner = Cleaner(store, loaded, older_s=older_s)
        found = cleaner.find()
        removed = [] if arguments.dry_run else cleaner.remove(found)
    if arguments.json:
        print_json({"found": found, "removed": removed})
        return 0
    gone = {(one.kind, one.where, one.name) for one in removed}
    for one in found:
        line = _line(one, removed=(one.kind, one.where, one.name) in gone, dry=arguments.dry_run)
        print_data(hanging(line, sys.stdout, indent=13))
    freed = sum(one.size_bytes for one in removed)
    if arguments.dry_run and found:
        print_note(f"would remove {sum(not one.kept for one in found)} of {len(found)}; nothing was removed")
        return 0
    kept = len(found) - len(removed)
    size = f", {freed / 1e6:,.0f} MB" if freed else ""
    print_note(f"removed {len(removed)}{size}; kept {kept}" if found else "nothing to remove")
    return 0


def _line(one: Leftover, *, removed: bool, dry: bool) -> str:
    fate = "removed" if removed else "kept" if one.kept else "would remove" if dry else "failed"
    size = f", {one.size_bytes / 1e6:,.0f} MB" if one.size_bytes else ""
    return f"{fate:<13}{one.kind:<10} {one.name}  ({one.why}{size}){f': {one.kept}' if one.kept else ''}"


def _seconds(text: str) -> float:
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([smhdw])", text.strip())
    if not found:
        raise UsageError(f"{text!r} is not a duration", hint="a number and a unit: 30m, 12h, 7d, 2w")
    return float(found[1]) * _UNITS[found[2]]


COMMANDS = (
    CliCommand(
        "clean",
        "show and remove workspaces, branches and caches that runs left",
        clean,
        option(
            "--older-than", default="", metavar="AGE", help="also remove what was not used for so long: 12h, 7d, 2w"
        ),
        flag("--dry-run", help="only show what would be removed, and until when the rest is kept"),
        more=_MORE,
    ),
)
