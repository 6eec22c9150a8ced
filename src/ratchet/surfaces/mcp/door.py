"""The protocol over HTTP: opened by the first who comes with the token, closed with the server."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ratchet.surfaces.http.refusals import Refusal

if TYPE_CHECKING:
    from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

    from ratchet.surfaces.http.house import House

SESSIONS_MAX = 200
IDLE_S = 1_800.0
BODY_MAX_BYTES = 1_000_000


class Door:
    def __init__(self, house: House) -> None:
        self._house = house
        self._opening: asyncio.Future[StreamableHTTPSessionManager] | None = None
        self._open: asyncio.Task[None] | None = None

    async def open(self) -> Callable[..., Any]:
        """Who answers. The library is loaded now: a server that nobody asks for this starts without it."""
        if self._opening is None:
            self._opening = asyncio.get_running_loop().create_future()
            self._open = asyncio.create_task(self._stay(self._opening))
        return (await asyncio.shield(self._opening)).handle_request

    async def _stay(self, opening: asyncio.Future[StreamableHTTPSessionManager]) -> None:
        try:
            manager = self._manager()
        except ImportError as error:
            opening.set_exception(
                Refusal(501, "not_installed", f"this needs more: {error}", hint="pip install 'ratchet-factory[mcp]'")
            )
            return
        async with manager.run():
            opening.set_result(manager)
            await self._house.stopping.wait()

    def _manager(self) -> StreamableHTTPSessionManager:
        from mcp.server.streamable_http_manager import StreamableHTTPSessionManager  # noqa: PLC0415 — optional

        from ratchet.surfaces.mcp.serving import make_server  # noqa: PLC0415
        from ratchet.surfaces.mcp.tools import Shop  # noqa: PLC0415

        return StreamableHTTPSessionManager(
            make_server(Shop(desk=self._house.desk, workbench=self._house.workbench)),
            max_sessions=SESSIONS_MAX,
            session_idle_timeout=IDLE_S,
            max_request_body_size=BODY_MAX_BYTES,
        )
