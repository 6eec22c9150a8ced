"""The command `mcp`: serve agents over stdio, and tell their programs of it."""

from __future__ import annotations

import argparse
import shutil
import sys
from contextlib import closing

from ratchet import config
from ratchet.errors import EnvironmentCannot, UsageError
from ratchet.files import write_durably
from ratchet.surfaces.cli.common import Arguments, Command, say, show, show_json, wait_for
from ratchet.surfaces.cli.desk import local_desk, root_of
from ratchet.surfaces.mcp.clients import CLIENTS, Client, Entry


def mcp(arguments: Arguments) -> int:
    if arguments.verb == "install":
        return _install(arguments)
    try:
        from ratchet.surfaces.mcp.serving import serve_stdio  # noqa: PLC0415 — the protocol's library is optional
    except ImportError as error:
        raise EnvironmentCannot(f"this needs more: {error}", hint="pip install 'ratchet-factory[mcp]'") from error
    from ratchet.surfaces.mcp.tools import Shop  # noqa: PLC0415
    from ratchet.workbench import Workbench  # noqa: PLC0415

    settings = config.load(root_of(arguments.repo), flags=arguments.set).config
    with closing(local_desk(arguments)) as desk:
        wait_for(serve_stdio(Shop(desk=desk, workbench=Workbench(settings, learn=desk.learn))))
    return 0


def _install(arguments: Arguments) -> int:
    if not arguments.client:
        raise UsageError("which client?", hint=f"ratchet mcp install {'|'.join(CLIENTS)}")
    client = CLIENTS[arguments.client]
    entry = Entry(url=f"{arguments.server.rstrip('/')}/mcp") if arguments.server else Entry(command=_started())
    if arguments.print:
        show(client.alone(entry).rstrip())
    else:
        _write(client, entry, arguments)
    return 0


def _write(client: Client, entry: Entry, arguments: Arguments) -> None:
    file = client.place(root_of(arguments.repo))
    there = file.read_text("utf-8") if file.exists() else ""
    wanted = client.joined(entry, there)
    if wanted != there:
        write_durably(file, wanted.encode())
    if arguments.json:
        show_json({"client": arguments.client, "file": file, "changed": wanted != there})
    else:
        say(f"{file} names ratchet{'' if wanted != there else ' already'}; start {arguments.client} again to see it")
    if entry.url:
        say("it finds the server's token in the variable RATCHET_TOKEN")


def _started() -> list[str]:
    """By name where the name is found, so that the file can be shared; else by the interpreter that runs us."""
    return ["ratchet", "mcp"] if shutil.which("ratchet") else [sys.executable, "-m", "ratchet", "mcp"]


def _declare(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("verb", nargs="?", choices=["install"], help="without it, serve on stdin and stdout")
    add("client", nargs="?", choices=sorted(CLIENTS), help="whose configuration to write")
    add("--print", action="store_true", help="with install: print the configuration, write nothing")
    add("--server", default="", metavar="URL", help="with install: use this server's /mcp instead of starting one")


COMMANDS = (
    Command(
        name="mcp",
        help="serve agents over the Model Context Protocol, or tell their programs of it",
        handle=mcp,
        declare=_declare,
    ),
)
