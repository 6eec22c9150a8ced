"""The protocol's own client over both transports, and a project for it to mend."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import msgspec
from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client

from tests.interfaces.http.serving import TOKEN, Served
from tests.support import make_repository

BROKEN = {
    "app.py": "def add(a, b):\n    return a - b\n",
    "test_app.py": "from app import add\n\n\ndef test_add():\n    assert add(2, 3) == 5\n",
}
PATCH = "--- a/app.py\n+++ b/app.py\n@@ -1,2 +1,2 @@\n def add(a, b):\n-    return a - b\n+    return a + b\n"


def broken_project(tmp_path: Path) -> Path:
    return make_repository(tmp_path / "project", BROKEN)


@asynccontextmanager
async def over_stdio(project: Path, *, mode: str = "auto") -> AsyncIterator[Client]:
    command = StdioServerParameters(
        command=sys.executable, args=["-m", "ratchet", "mcp", "-C", str(project)], env=dict(os.environ), cwd=project
    )
    async with Client(command, mode=mode) as client:
        yield client


@asynccontextmanager
async def over_http(served: Served, *, mode: str = "auto", token: str = TOKEN) -> AsyncIterator[Client]:
    headers = {"authorization": f"Bearer {token}"}
    async with httpx2.AsyncClient(headers=headers, timeout=60) as http:
        transport = streamable_http_client(f"{served.url}/mcp", http_client=http)
        async with Client(transport, mode=mode) as client:
            yield client


async def use(client: Client, tool: str, **arguments: Any) -> Any:
    """A tool's answer, which must not be an error. Text and data are the same."""
    result = await client.call_tool(tool, arguments)
    text = output(result)
    assert not result.is_error, text
    assert msgspec.json.decode(text) == result.structured_content
    return result.structured_content


def output(result: Any) -> str:
    (block,) = result.content
    return str(block.text)


async def mend(client: Client, project: Path) -> None:
    """A failing project is mended through the tools alone."""
    workspace = (await use(client, "create_workspace", path=str(project)))["id"]
    red = await use(client, "run_tests", workspace=workspace)
    assert (red["status"], red["failing"]) == ("failed", ["test_app.py::test_add"])
    assert "expected: 5" in red["packet"]
    seen = await use(client, "exec", workspace=workspace, argv=["cat", "app.py"])
    assert "a - b" in seen["stdout"]
    await use(client, "apply_patch", workspace=workspace, patch=PATCH)
    green = await use(client, "run_tests", workspace=workspace)
    assert (green["status"], green["fixed"]) == ("passed", ["test_app.py::test_add"])
    changed = await use(client, "diff", workspace=workspace)
    assert changed["paths"] == ["app.py"] and "+    return a + b" in changed["diff"]
    reported = await use(client, "report", workspace=workspace, summary="add subtracted")
    assert reported["fixed"] == ["test_app.py::test_add"]
    found = await use(client, "search_learnings", query="subtracted")
    assert [lesson["id"] for lesson in found["learnings"]] == [reported["learning"]]
    assert (await use(client, "destroy_workspace", workspace=workspace)) == {"changed": True}
    assert (project / "app.py").read_text() == BROKEN["app.py"]


def run(work: Awaitable[None]) -> None:
    async def within() -> None:
        async with asyncio.timeout(120):
            await work

    asyncio.run(within())


async def until(happens: Callable[[], bool], within_s: float = 20.0) -> None:
    async with asyncio.timeout(within_s):
        while not happens():  # noqa: ASYNC110 — what other processes do sets no event of ours
            await asyncio.sleep(0.02)


def alive(word: str) -> list[int]:
    """Processes that were started with this word."""
    found = []
    for place in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if word.encode() in place.read_bytes().split(b"\0"):
                found.append(int(place.parent.name))
        except OSError:
            continue
    return found
