"""MCP over HTTP: started by the first authenticated request, stopped with the server."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ratchet.interfaces.http.errors import HttpError
from ratchet.plugins import install_extra

if TYPE_CHECKING:
    from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

    from ratchet.interfaces.http.app_state import AppState

log = logging.getLogger("ratchet.mcp")
SESSIONS_MAX = 200
IDLE_S = 1_800.0
BODY_MAX_BYTES = 1_000_000


class HttpTransport:
    def __init__(self, app_state: AppState) -> None:
        self._app_state = app_state
        self._opening: asyncio.Future[StreamableHTTPSessionManager] | None = None
        self._open: asyncio.Task[None] | None = None

    async def open(self) -> Callable[..., Any]:
        """Return the request handler. Imports the MCP library on first use, so that the server starts without it."""
        if self._opening is None:
            self._opening = asyncio.get_running_loop().create_future()
            self._open = asyncio.create_task(self._stay(self._opening))
        return (await asyncio.shield(self._opening)).handle_request

    async def _stay(self, opening: asyncio.Future[StreamableHTTPSessionManager]) -> None:
        try:
            manager = self._manager()
        except ImportError as error:
            opening.set_exception(
                HttpError(
                    501,
                    "not_installed",
                    f"MCP needs the `mcp` extra: {error}",
                    hint=install_extra("mcp"),
                )
            )
            return
        try:
            async with manager.run():
                opening.set_result(manager)
                await self._app_state.stopping.wait()
        except Exception as error:
            log.exception("MCP over HTTP ended")
            if not opening.done():
                opening.set_exception(error)
        finally:
            self._opening = None  # the next request starts it again

    def _manager(self) -> StreamableHTTPSessionManager:
        from mcp.server.streamable_http_manager import StreamableHTTPSessionManager  # noqa: PLC0415 — optional

        from ratchet.interfaces.mcp.server import make_server  # noqa: PLC0415
        from ratchet.interfaces.mcp.tools import McpServices  # noqa: PLC0415

        return StreamableHTTPSessionManager(
            make_server(
                McpServices(queue_service=self._app_state.queue_service, workspaces=self._app_state.workspaces)
            ),
            max_sessions=SESSIONS_MAX,
            session_idle_timeout=IDLE_S,
            max_request_body_size=BODY_MAX_BYTES,
        )
