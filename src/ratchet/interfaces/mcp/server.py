"""The MCP server over the tables of tools and resources. The only module that imports the MCP library.

A long call reports progress. A cancelled call ends with all its processes before the next response is sent. An error
is returned as a tool result with a hint, so that a model can act on it.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable
from typing import Any

import anyio
import mcp_types as types
import msgspec
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp.shared.exceptions import MCPError

from ratchet import __version__
from ratchet.engine.blocking import run_blocking
from ratchet.errors import Conflict, RatchetError, UsageError
from ratchet.interfaces.mcp import resources
from ratchet.interfaces.mcp.tools import BY_NAME, TOOLS, McpServices, Tool

log = logging.getLogger("ratchet.mcp")
PROGRESS_S = 1.0
INSTRUCTIONS = """\
Ratchet gives you isolated workspaces and reliable test results. To fix or try something: create_workspace, run_tests,
edit with write_file or apply_patch, run_tests again, diff, report, destroy_workspace. The developer's own tree is
never changed: hand over the diff. To delegate a whole task to other agents: add_work, then follow it with status."""
Context = ServerRequestContext[Any, Any]


def make_server(services: McpServices) -> Server[Any]:
    async def list_tools(_: Context, __: types.PaginatedRequestParams | None) -> types.ListToolsResult:
        return types.ListToolsResult(tools=[_described(tool) for tool in TOOLS])

    async def call_tool(context: Context, asked: types.CallToolRequestParams) -> types.CallToolResult:
        return await _call(services, context, asked)

    async def list_resources(_: Context, __: types.PaginatedRequestParams | None) -> types.ListResourcesResult:
        return types.ListResourcesResult(resources=_resources())

    async def list_templates(_: Context, __: types.PaginatedRequestParams | None) -> types.ListResourceTemplatesResult:
        return types.ListResourceTemplatesResult(resource_templates=_templates())

    async def read(_: Context, asked: types.ReadResourceRequestParams) -> types.ReadResourceResult:
        return await _read(services, str(asked.uri))

    return Server(
        "ratchet",
        title="Ratchet",
        version=__version__,
        instructions=INSTRUCTIONS,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
        on_list_resources=list_resources,
        on_list_resource_templates=list_templates,
        on_read_resource=read,
    )


async def serve_stdio(services: McpServices) -> None:
    """Serve on stdin and stdout until the client closes stdin."""
    server = make_server(services)
    sweeping = asyncio.create_task(services.workspaces.sweep_forever())
    try:
        async with stdio_server() as (reading, writing):
            await server.run(reading, writing, server.create_initialization_options())
    finally:
        sweeping.cancel()


# --- tools ----------------------------------------------------------------------------------------------------------


def _described(tool: Tool) -> types.Tool:
    hints = types.ToolAnnotations(
        title=tool.title, read_only_hint=tool.reads, destructive_hint=tool.destroys, open_world_hint=False
    )
    return types.Tool(
        name=tool.name, title=tool.title, description=tool.description, input_schema=tool.schema, annotations=hints
    )


async def _call(services: McpServices, context: Context, asked: types.CallToolRequestParams) -> types.CallToolResult:
    try:
        tool = BY_NAME.get(asked.name)
        if tool is None:
            raise UsageError(f"no such tool: {asked.name}", hint=f"tools: {', '.join(BY_NAME)}")
        request = msgspec.convert(asked.arguments or {}, tool.request_type)
        answer = msgspec.json.encode(await _awaited(tool.handler(services, request), tool, context))
    except msgspec.ValidationError as error:
        return _wrong(str(error), "see the tool's input schema")
    except RatchetError as error:
        return _wrong(error.message, error.hint)
    except Exception:
        log.exception("%s failed", asked.name)
        return _wrong(f"internal error in {asked.name}", "see the server's log")
    return types.CallToolResult(
        content=[types.TextContent(type="text", text=answer.decode())], structured_content=msgspec.json.decode(answer)
    )


def _wrong(what: str, hint: str) -> types.CallToolResult:
    text = f"{what}\nhint: {hint}" if hint else what
    return types.CallToolResult(content=[types.TextContent(type="text", text=text)], is_error=True)


async def _awaited(work: Awaitable[Any], tool: Tool, context: Context) -> Any:
    # A separate task: the library cancels repeatedly whatever its scope awaits, which would interrupt waiting for
    # processes to exit. Here the work is cancelled once and awaited to its end.
    task = asyncio.ensure_future(work)
    began_s = time.monotonic()
    try:
        while not (await asyncio.wait({task}, timeout=PROGRESS_S))[0]:
            if context.request and await context.request.is_disconnected():  # over HTTP; nobody gets the answer
                raise Conflict("the client disconnected before the call had ended", hint="call again")
            gone_s = time.monotonic() - began_s
            await context.session.report_progress(gone_s, message=f"{tool.name}: running for {gone_s:.0f} s")
    finally:
        if not task.done():
            task.cancel()
            with anyio.CancelScope(shield=True):
                await asyncio.wait({task})
    return task.result()


# --- resources --------------------------------------------------------------------------------------------------------


def _resources() -> list[types.Resource]:
    return [
        types.Resource(uri=kind.address, name=kind.name, description=kind.description, mime_type=kind.media)
        for kind in resources.KINDS
        if kind.is_one
    ]


def _templates() -> list[types.ResourceTemplate]:
    return [
        types.ResourceTemplate(
            uri_template=kind.address, name=kind.name, description=kind.description, mime_type=kind.media
        )
        for kind in resources.KINDS
        if not kind.is_one
    ]


async def _read(services: McpServices, address: str) -> types.ReadResourceResult:
    try:
        found = await run_blocking(resources.read, services, address)
    except RatchetError as error:
        raise MCPError(types.INVALID_PARAMS, f"{error.message}; {error.hint}") from error
    except msgspec.ValidationError as error:
        raise MCPError(types.INVALID_PARAMS, str(error)) from error
    contents = types.TextResourceContents(uri=address, mime_type=found.media, text=found.text)
    return types.ReadResourceResult(contents=[contents])
