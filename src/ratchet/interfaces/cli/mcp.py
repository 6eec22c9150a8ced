"""The command `mcp`: serves the Model Context Protocol on stdio, or writes client configuration."""

from __future__ import annotations

import shutil
from contextlib import closing
from importlib import import_module

import click

from ratchet import config
from ratchet.errors import EnvironmentCannot, UsageError
from ratchet.files import write_durably
from ratchet.interfaces.cli.backend import open_local_queue
from ratchet.interfaces.cli.common import (
    Arguments,
    CliCommand,
    argument,
    flag,
    option,
    print_data,
    print_json,
    print_note,
    repository_root,
    run_async,
)
from ratchet.interfaces.mcp.client_config import CLIENTS, ClientConfig, ServerEntry
from ratchet.plugins import install_extra
from ratchet.process.spawn import python_program


def mcp(arguments: Arguments) -> int:
    if arguments.verb == "install":
        return _install(arguments)
    _require_extra()
    from ratchet.app.test_workspaces import WorkspaceService  # noqa: PLC0415
    from ratchet.interfaces.mcp.server import serve_stdio  # noqa: PLC0415
    from ratchet.interfaces.mcp.tools import McpServices  # noqa: PLC0415

    settings = config.load(repository_root(arguments.repo), flags=arguments.set).config
    with closing(open_local_queue(arguments)) as queue_service:
        run_async(
            serve_stdio(
                McpServices(
                    queue_service=queue_service, workspaces=WorkspaceService(settings, learn=queue_service.learn)
                )
            )
        )
    return 0


def _require_extra() -> None:
    try:
        import_module("ratchet.interfaces.mcp.server")
    except ImportError as error:
        raise EnvironmentCannot(f"`ratchet mcp` needs the `mcp` extra: {error}", hint=install_extra("mcp")) from error


def _install(arguments: Arguments) -> int:
    if not arguments.client:
        raise UsageError("no client given", hint=f"ratchet mcp install {'|'.join(CLIENTS)}")
    client = CLIENTS[arguments.client]
    entry = (
        ServerEntry(url=f"{arguments.server.rstrip('/')}/mcp") if arguments.server else ServerEntry(command=_started())
    )
    if arguments.print:
        print_data(client.alone(entry).rstrip())
    else:
        if entry.command:
            _require_extra()  # the client would start a server that ends at once
        _write(client, entry, arguments)
    return 0


def _write(client: ClientConfig, entry: ServerEntry, arguments: Arguments) -> None:
    file = client.place(repository_root(arguments.repo))
    there = file.read_text("utf-8") if file.exists() else ""
    wanted = client.joined(entry, there)
    if wanted != there:
        write_durably(file, wanted.encode())
    if arguments.json:
        print_json({"client": arguments.client, "file": file, "changed": wanted != there})
    else:
        print_note(f"{file} {'now lists' if wanted != there else 'already lists'} ratchet; restart {arguments.client}")
    if entry.url:
        print_note("set RATCHET_TOKEN to the server's token before starting it")


def _started() -> list[str]:
    """Return the start command: `ratchet` if it is on PATH, so that the file can be shared, else this interpreter."""
    return ["ratchet", "mcp"] if shutil.which("ratchet") else [*python_program("ratchet"), "mcp"]


COMMANDS = (
    CliCommand(
        "mcp",
        "serve MCP, or install it in an agent's configuration",
        mcp,
        argument(
            "verb",
            required=False,
            type=click.Choice(["install"]),
            help="write a client's configuration (without it: serve on stdio)",
        ),
        argument("client", required=False, type=click.Choice(sorted(CLIENTS)), help="client to configure"),
        flag("--print", help="with install: print the configuration instead of writing it"),
        option(
            "--server",
            default="",
            metavar="URL",
            help="with install: connect to /mcp of this server instead of starting a process",
        ),
    ),
)
