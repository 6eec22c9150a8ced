"""`ratchet workspace …`: private copy-on-write views of a repository, by hand."""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import tempfile
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec

from ratchet import config, repository
from ratchet.config import Config
from ratchet.errors import EnvironmentCannot, UsageError
from ratchet.places import open_workspaces, recipe_of, sandbox_settings
from ratchet.process import attach, confined, holder_of
from ratchet.store.sqlite import stamp
from ratchet.supervision import supervise
from ratchet.surfaces.cli.common import Arguments, Command, say, show, show_json
from ratchet.workspace import Refused
from ratchet.workspace.registry import Listing, Workspaces
from ratchet.workspace.sandbox import Sandboxes
from ratchet.workspace.views import GitWorkspace

_ENVIRONMENT = ("PATH", "HOME", "USER", "LANG", "LC_ALL", "TERM", "SHELL", "TZ")


def create(arguments: Arguments) -> int:
    spaces, settings = _open(arguments)
    repo = repository.find(arguments.repo.absolute())
    commit = repository.commit_of(repo.root, arguments.commit)
    if commit is None:
        raise UsageError(f"there is no commit {arguments.commit!r} in {repo.root}", hint="git log --oneline")
    spaces.gc()
    workspace = _granted(
        spaces.create(
            arguments.slug,
            repo=repo.root,
            commit=commit,
            kind=arguments.kind or settings.workspace.kind,
            on=arguments.on or settings.workspace.on,
            recipe=recipe_of(settings, repo.root),
            owner=holder_of(arguments.owner) if arguments.owner else None,
            kept_until=_until(arguments.ttl),
            fill=spaces.lay_changes if arguments.with_changes else None,
        )
    )
    if repo.dirty and not arguments.with_changes:
        say("note: uncommitted changes are left out; --with-changes lays them on top")
    return _show_made(workspace, arguments)


def fork(arguments: Arguments) -> int:
    spaces, _ = _open(arguments)
    return _show_made(_granted(spaces.fork(arguments.slug, arguments.into)), arguments)


def list_all(arguments: Arguments) -> int:
    spaces, _ = _open(arguments)
    rows = spaces.list()
    if arguments.json:
        show_json([_row(row) for row in rows])
    elif not rows:
        show("No workspaces. Make one: ratchet workspace create NAME")
    else:
        show(f"{'NAME':<32} {'KIND':<15} {'ON':<5} {'OWNER':<9} {'LAYER':>9}  PATH")
    for row in rows if not arguments.json else []:
        owner = str(row.record.owner_pid or "-") if not row.orphan else "orphan"
        size = f"{row.size_bytes / 1024:,.0f} KiB"
        show(f"{row.record.slug:<32} {row.record.kind:<15} {row.record.on:<5} {owner:<9} {size:>9}  {row.record.path}")
    return 0


def execute(arguments: Arguments) -> int:
    spaces, settings = _open(arguments)
    argv = _options_first(arguments)
    if not argv:
        raise UsageError("there is no command to run", hint=f"ratchet workspace exec {arguments.slug} -- ls")
    workspace = spaces.open(arguments.slug)
    wanted = sandbox_settings(settings)
    network = arguments.network or wanted.gate_network
    wanted = msgspec.structs.replace(wanted, gate_network=network, **({"mode": "off"} if arguments.no_sandbox else {}))
    env = {name: os.environ[name] for name in (*_ENVIRONMENT, *settings.env) if name in os.environ}
    with closing(Sandboxes(workspace, wanted)) as sandboxes, confined(sandboxes.for_gate()):
        if not arguments.json:
            sys.stdout.flush()
            code = attach(argv, cwd=workspace.path, env=env)
        else:
            code, output = asyncio.run(_captured(argv, workspace, env, arguments.timeout))
            show_json({"exit_code": code, "output": output})
    return code if code >= 0 else 128 - code


def _options_first(arguments: Arguments) -> list[str]:
    """The command; what stands between the name and `--` are options of ours that argparse left to us."""
    words: list[str] = arguments.argv
    if "--" not in words or not words[0].startswith("-"):
        return words
    end = words.index("--")
    parser = argparse.ArgumentParser(prog="ratchet workspace exec")
    parser.add_argument("--json", action="store_true")
    _declare_exec_options(parser)
    parser.parse_args(words[:end], namespace=arguments)
    return words[end + 1 :]


async def _captured(argv: list[str], workspace: GitWorkspace, env: dict[str, str], timeout_s: float) -> tuple[int, str]:
    with tempfile.TemporaryDirectory(prefix="ratchet-exec-") as folder:
        log = Path(folder) / "output"
        ended = await supervise(argv, cwd=workspace.path, env=env, output=log, timeout_s=timeout_s)
        return ended.exit_code, log.read_bytes().decode(errors="replace")


def diff(arguments: Arguments) -> int:
    spaces, _ = _open(arguments)
    workspace = spaces.open(arguments.slug)
    before, after = workspace.record.base_tree, workspace.checkpoint()
    text = workspace.diff(before, after)
    if arguments.json:
        show_json({"slug": arguments.slug, "paths": workspace.changes(before, after), "diff": text})
    else:
        show(text.rstrip("\n")) if text else say("nothing differs from the base")
    return 0


def destroy(arguments: Arguments) -> int:
    spaces, _ = _open(arguments)
    removed = {slug: spaces.destroy(slug) for slug in arguments.slugs}
    if arguments.json:
        show_json(removed)
    for slug, was_there in removed.items() if not arguments.json else []:
        say(f"{slug} is destroyed; its branch stays" if was_there else f"there is no workspace {slug}")
    return 0


def gc(arguments: Arguments) -> int:
    spaces, _ = _open(arguments)
    removed = spaces.gc()
    if arguments.bases:
        spaces.bases.evict(max_bytes=0)
    show_json({"removed": removed}) if arguments.json else say(f"removed {len(removed)}: {', '.join(removed) or '-'}")
    return 0


def _open(arguments: Arguments) -> tuple[Workspaces, Config]:
    folder = arguments.repo.absolute()
    root = next((place for place in (folder, *folder.parents) if (place / config.FILE).exists()), folder)
    settings = config.load(root, flags=arguments.set).config
    return open_workspaces(settings), settings


def _granted(made: GitWorkspace | Refused) -> GitWorkspace:
    if isinstance(made, Refused):
        raise EnvironmentCannot(f"refused: {made.reason}", hint=made.hint)
    return made


def _until(ttl_s: float | None) -> str:
    return stamp(datetime.now(UTC) + timedelta(seconds=ttl_s)) if ttl_s is not None else ""


def _show_made(workspace: GitWorkspace, arguments: Arguments) -> int:
    if arguments.json:
        show_json(workspace.record)
    else:
        show(workspace.record.path)
        if workspace.record.held_by:
            say(f"only commands in its namespace see it: ratchet workspace exec {workspace.record.slug} -- COMMAND")
    return 0


def _row(row: Listing) -> dict[str, Any]:
    return {**msgspec.structs.asdict(row.record), "size_bytes": row.size_bytes, "orphan": row.orphan}


def _declare_create(parser: argparse.ArgumentParser) -> None:
    _slug(parser)
    parser.add_argument("--commit", default="HEAD", help="what to start from (default: HEAD)")
    parser.add_argument("--kind", help="force a kind; `ratchet doctor` lists them (default: the first that works)")
    parser.add_argument("--on", choices=["ram", "disk"], help="force where the writable layer is")
    parser.add_argument("--with-changes", action="store_true", help="lay the uncommitted changes on top")
    parser.add_argument("--owner", type=int, metavar="PID", help="let `gc` remove it when this process is gone")
    parser.add_argument("--ttl", type=float, metavar="SECONDS", help="let `gc` remove it after this time")


def _declare_exec(parser: argparse.ArgumentParser) -> None:
    _slug(parser)
    _declare_exec_options(parser)
    parser.add_argument("argv", nargs=argparse.REMAINDER, metavar="-- COMMAND", help="the command and its arguments")


def _declare_exec_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--no-sandbox", action="store_true", help="run it without bubblewrap")
    parser.add_argument("--network", action="store_true", help="let it reach the network")
    parser.add_argument("--timeout", type=float, default=3600.0, metavar="SECONDS", help="with --json: when to stop it")


def _declare_fork(parser: argparse.ArgumentParser) -> None:
    _slug(parser)
    parser.add_argument("into", metavar="NEW", help="the copy's name")


def _declare_destroy(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("slugs", nargs="+", metavar="NAME", help="which")


def _declare_gc(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--bases", action="store_true", help="also remove every prepared checkout not in use")


def _slug(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("slug", metavar="NAME", help="the workspace's name")


VERBS = (
    Command(name="create", help="make a workspace and print its path", handle=create, declare=_declare_create),
    Command(name="list", help="list the workspaces with kind, owner and size", handle=list_all),
    Command(name="exec", help="run a command in a workspace", handle=execute, declare=_declare_exec),
    Command(name="diff", help="print what differs from the base", handle=diff, declare=_slug),
    Command(name="fork", help="copy a workspace as it is now", handle=fork, declare=_declare_fork),
    Command(name="destroy", help="remove workspaces; branches stay", handle=destroy, declare=_declare_destroy),
    Command(name="gc", help="remove what nobody owns any more", handle=gc, declare=_declare_gc),
)


class Nested(Command, frozen=True, kw_only=True):
    """A command of commands."""

    verbs: tuple[Command, ...]

    def add_to(self, commands: Any, common: argparse.ArgumentParser) -> None:
        made = commands.add_parser(self.name, help=self.help, description=f"{self.help[0].upper()}{self.help[1:]}.")
        below = made.add_subparsers(title="commands", metavar="COMMAND", required=True)
        for verb in self.verbs:
            verb.add_to(below, common)


COMMANDS = (
    Nested(
        name="workspace",
        help="make, look into, copy and remove copy-on-write workspaces",
        handle=lambda _arguments: 2,
        verbs=VERBS,
    ),
)
