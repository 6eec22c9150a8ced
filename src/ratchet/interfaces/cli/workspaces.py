"""`ratchet workspace …`: manages copy-on-write workspaces of a repository."""

from __future__ import annotations

import asyncio
import os
import sys
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import click
import msgspec

from ratchet import config
from ratchet.config import Config
from ratchet.core.timestamps import format_timestamp
from ratchet.errors import EnvironmentCannot, UsageError
from ratchet.interfaces.cli.common import (
    Arguments,
    CliCommand,
    RestCommand,
    argument,
    flag,
    option,
    print_data,
    print_json,
    print_note,
)
from ratchet.interfaces.terminal.colour import Tone, painter
from ratchet.interfaces.terminal.layout import table, terminal_width
from ratchet.process.spawn import attach, confined, process_holder
from ratchet.process.supervise import supervise
from ratchet.tree_files import temporary_folder
from ratchet.workspace.container_steps import remove_all_abandoned
from ratchet.workspace.from_config import open_workspaces, recipe_of, sandbox_settings
from ratchet.workspace.git import repository
from ratchet.workspace.git.project_root import settings_root
from ratchet.workspace.git_workspace import GitWorkspace
from ratchet.workspace.protocol import WorkspaceRefused
from ratchet.workspace.registry import WorkspaceListing, Workspaces
from ratchet.workspace.sandbox import Sandboxes

_ENVIRONMENT = ("PATH", "HOME", "USER", "LANG", "LC_ALL", "TERM", "SHELL", "TZ")


def create(arguments: Arguments) -> int:
    spaces, settings = _open(arguments)
    repo = repository.find_repository(arguments.repo.absolute())
    commit = repository.commit_of(repo.root, arguments.commit)
    if commit is None:
        raise UsageError(f"no such commit in {repo.root}: {arguments.commit!r}", hint="git log --oneline")
    spaces.gc()
    workspace = _require_workspace(
        spaces.create(
            arguments.slug,
            repo=repo.root,
            commit=commit,
            kind=arguments.kind or settings.workspace.kind,
            on=arguments.on or settings.workspace.on,
            recipe=recipe_of(settings, repo.root),
            owner=process_holder(arguments.owner) if arguments.owner else None,
            kept_until=_until(arguments.ttl),
            fill=spaces.copy_uncommitted if arguments.with_changes else None,
        )
    )
    if repo.dirty and not arguments.with_changes:
        print_note("note: uncommitted changes are not included; add --with-changes to include them")
    return _show_made(workspace, arguments)


def fork(arguments: Arguments) -> int:
    spaces, _ = _open(arguments)
    return _show_made(_require_workspace(spaces.fork(arguments.slug, arguments.into)), arguments)


def list_all(arguments: Arguments) -> int:
    spaces, _ = _open(arguments)
    rows = spaces.list()
    if arguments.json:
        print_json([_row(row) for row in rows])
    elif not rows:
        print_data("No workspaces. Create one: ratchet workspace create NAME")
    else:
        heads = ("NAME", "KIND", "ON", "OWNER", ">LAYER", "PATH")
        cells = [[(Tone.PLAIN, text) for text in _cells(row)] for row in rows]
        print_data(table(heads, cells, painter(colour=sys.stdout.isatty()), width=terminal_width(sys.stdout)))
    return 0


def _cells(row: WorkspaceListing) -> tuple[str, ...]:
    made = row.record
    owner = "orphan" if row.orphan else str(made.owner_pid or "-")
    return made.slug, made.kind, made.on, owner, f"{row.size_bytes / 1024:,.0f} KiB", made.path


def execute(arguments: Arguments) -> int:
    spaces, settings = _open(arguments)
    argv: list[str] = arguments.argv
    if not argv:
        raise UsageError("no command given", hint=f"ratchet workspace exec {arguments.slug} -- ls")
    wanted = sandbox_settings(settings)
    network = arguments.network or wanted.gate_network
    wanted = msgspec.structs.replace(wanted, gate_network=network, **({"mode": "off"} if arguments.no_sandbox else {}))
    # Typed by the user of this command.
    wanted = msgspec.structs.replace(wanted, show=(*wanted.show, *config.named_files(argv)))
    env = {name: os.environ[name] for name in (*_ENVIRONMENT, *settings.env) if name in os.environ}
    with (
        spaces.in_use(arguments.slug) as workspace,
        closing(Sandboxes(workspace, wanted)) as sandboxes,
        confined(sandboxes.for_gate()),
    ):
        if not arguments.json:
            sys.stdout.flush()
            code = attach(argv, cwd=workspace.path, env=env)
        else:
            code, output = asyncio.run(_captured(argv, workspace, env, arguments.timeout))
            print_json({"exit_code": code, "output": output})
    return code if code >= 0 else 128 - code


async def _captured(argv: list[str], workspace: GitWorkspace, env: dict[str, str], timeout_s: float) -> tuple[int, str]:
    with temporary_folder("ratchet-exec-") as folder:
        log = Path(folder) / "output"
        ended = await supervise(argv, cwd=workspace.path, env=env, output=log, timeout_s=timeout_s)
        return ended.exit_code, log.read_bytes().decode(errors="replace")


def diff(arguments: Arguments) -> int:
    spaces, _ = _open(arguments)
    workspace = spaces.open(arguments.slug)
    before, after = workspace.record.base_tree, workspace.checkpoint()
    text = workspace.diff(before, after)
    if arguments.json:
        print_json({"slug": arguments.slug, "paths": workspace.changes(before, after), "diff": text})
    else:
        print_data(text.rstrip("\n")) if text else print_note("no changes since the base")
    return 0


def destroy(arguments: Arguments) -> int:
    spaces, _ = _open(arguments)
    removed = {slug: spaces.destroy(slug) for slug in arguments.slugs}
    if arguments.json:
        print_json(removed)
    for slug, was_there in removed.items() if not arguments.json else []:
        print_note(f"destroyed {slug}; its branch is kept" if was_there else f"no such workspace: {slug}")
    return 0


def gc(arguments: Arguments) -> int:
    spaces, settings = _open(arguments)
    remove_all_abandoned(settings.containers.engine)
    before = {base.path: base.size_bytes for base in spaces.bases.list()}
    removed = spaces.gc()
    if arguments.bases:
        spaces.bases.evict(max_bytes=0)
    gone = before.keys() - {base.path for base in spaces.bases.list()}
    freed = sum(before[path] for path in gone)
    if arguments.json:
        print_json({"removed": removed, "bases": sorted(gone), "freed_bytes": freed})
        return 0
    parts = [f"removed workspaces {', '.join(removed)}"] if removed else []
    parts += [f"removed {len(gone)} prepared checkouts, {freed / 1e6:,.0f} MB"] if gone else []
    print_note("; ".join(parts) or "nothing to remove")
    return 0


def _open(arguments: Arguments) -> tuple[Workspaces, Config]:
    settings = config.load(settings_root(arguments.repo), flags=arguments.set).config
    return open_workspaces(settings), settings


def _require_workspace(made: GitWorkspace | WorkspaceRefused) -> GitWorkspace:
    if isinstance(made, WorkspaceRefused):
        raise EnvironmentCannot(f"cannot create a workspace: {made.reason}", hint=made.hint)
    return made


def _until(ttl_s: float | None) -> str:
    return format_timestamp(datetime.now(UTC) + timedelta(seconds=ttl_s)) if ttl_s is not None else ""


def _show_made(workspace: GitWorkspace, arguments: Arguments) -> int:
    if arguments.json:
        print_json(workspace.record)
    else:
        print_data(workspace.record.path)
        if workspace.record.held_by:
            print_note(
                f"only visible in its mount namespace: ratchet workspace exec {workspace.record.slug} -- COMMAND"
            )
    return 0


def _row(row: WorkspaceListing) -> dict[str, Any]:
    return {**msgspec.structs.asdict(row.record), "size_bytes": row.size_bytes, "orphan": row.orphan}


def _slug() -> click.Argument:
    return argument("slug", metavar="NAME", help="workspace name")


VERBS = (
    CliCommand(
        "create",
        "create a workspace and print its path",
        create,
        _slug(),
        option("--commit", default="HEAD", help="commit to check out (default: HEAD)"),
        option("--kind", help="workspace kind; `ratchet doctor` lists them (default: the first that works)"),
        option("--on", type=click.Choice(["ram", "disk"]), help="where to keep the writable layer"),
        flag("--with-changes", help="include uncommitted changes"),
        option("--owner", type=int, metavar="PID", help="let `gc` remove it when this process has exited"),
        option("--ttl", type=float, metavar="SECONDS", help="let `gc` remove it after this time"),
    ),
    CliCommand("list", "list workspaces with kind, owner and size", list_all),
    RestCommand(
        "exec",
        "run a command in a workspace",
        execute,
        _slug(),
        argument(
            "argv",
            nargs=-1,
            type=click.UNPROCESSED,
            metavar="-- COMMAND...",
            help="the command and its arguments",
        ),
        flag("--no-sandbox", help="run without the bubblewrap sandbox"),
        flag("--network", help="allow network access"),
        option("--timeout", type=float, default=3600.0, metavar="SECONDS", help="with --json: time limit"),
        context_settings={"allow_interspersed_args": False},
    ),
    CliCommand("diff", "print the changes since the base", diff, _slug()),
    CliCommand(
        "fork",
        "copy a workspace with its current state",
        fork,
        _slug(),
        argument("into", metavar="NEW", help="name of the copy"),
    ),
    CliCommand(
        "destroy",
        "remove workspaces; branches are kept",
        destroy,
        argument("slugs", nargs=-1, required=True, metavar="NAME...", help="workspace name"),
    ),
    CliCommand(
        "gc",
        "remove workspaces whose owner has exited or whose time is up",
        gc,
        flag("--bases", help="also remove unused base checkouts"),
    ),
)
_HELP = "create, inspect, copy and remove copy-on-write workspaces"
COMMANDS = (
    click.Group(
        "workspace",
        commands=VERBS,
        short_help=_HELP,
        help=f"{_HELP.capitalize()}.",
        subcommand_metavar="COMMAND [ARGS]...",
    ),
)
