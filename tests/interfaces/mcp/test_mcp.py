"""The Model Context Protocol, used by the library's own client over stdio and over HTTP."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from mcp import Client
from mcp.shared.exceptions import MCPError

from ratchet.core.lease import Holder
from ratchet.interfaces.http.server import GRACE_S
from ratchet.interfaces.mcp import server as mcp_serving
from ratchet.interfaces.mcp.tools import TOOLS
from ratchet.store.protocols import open_store
from tests.interfaces.http.serving import Served, serving
from tests.interfaces.mcp.clients import (
    alive,
    broken_project,
    mend,
    output,
    over_http,
    over_stdio,
    run,
    until,
    use,
)

Connect = Callable[[], AbstractAsyncContextManager[Client]]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return broken_project(tmp_path)


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    store = open_store(tmp_path / "ratchet.db")
    with serving(store) as made:
        yield made
    store.close()


@pytest.fixture(params=["stdio", "http"])
def connect(request: pytest.FixtureRequest, project: Path) -> Connect:
    if request.param == "stdio":
        return lambda: over_stdio(project)
    server: Served = request.getfixturevalue("served")
    return lambda: over_http(server)


def test_a_client_mends_a_failing_project_through_the_tools_alone(connect: Connect, project: Path) -> None:
    async def work() -> None:
        async with connect() as client:
            await mend(client, project)

    run(work())


@pytest.mark.parametrize("mode", ["legacy", "auto"])
def test_old_and_new_clients_are_served(served: Served, mode: str) -> None:
    async def work() -> None:
        async with over_http(served, mode=mode) as client:
            assert (await use(client, "status"))["factory"]["workers"] == 0
            assert client.server_info and client.server_info.name == "ratchet"
            assert "create_workspace" in (client.instructions or "")

    run(work())


def test_every_tool_says_what_it_is_for_and_what_it_takes(served: Served) -> None:
    wanted = (
        "create_workspace run_tests exec diff write_file apply_patch report destroy_workspace add_work queue status"
        " metrics lock_files unlock_files search_learnings add_learning retire_learning"
    )
    assert [tool.name for tool in TOOLS] == wanted.split()

    async def work() -> None:
        async with over_http(served) as client:
            for tool in (await client.list_tools()).tools:
                assert tool.description and len(tool.description) > 80, tool.name
                assert tool.input_schema["type"] == "object" and tool.input_schema["properties"], tool.name
                assert tool.annotations and tool.annotations.read_only_hint is not None

    run(work())


@pytest.mark.parametrize(
    ("tool", "arguments", "what", "hint"),
    [
        ("nonsense", {}, "no such tool: nonsense", "create_workspace"),
        ("run_tests", {}, "workspace", "input schema"),
        ("run_tests", {"workspace": "tw-none"}, "no such test workspace: tw-none", "create_workspace"),
        ("exec", {"workspace": "../x", "argv": ["ls"]}, "workspace", "input schema"),
        ("create_workspace", {"path": "here"}, "no such folder", "absolute path"),
        ("create_workspace", {"path": "/", "repo": "a/b"}, "exactly one", "input schema"),
        ("lock_files", {"run": "run-none", "paths": ["a"]}, "run-none", ""),
    ],
)
def test_what_goes_wrong_is_an_answer_with_a_hint(
    served: Served, tool: str, arguments: dict[str, Any], what: str, hint: str
) -> None:
    async def work() -> None:
        async with over_http(served) as client:
            result = await client.call_tool(tool, arguments)
            first, _, rest = output(result).partition("\nhint: ")
            assert result.is_error and what in first and hint in rest, output(result)

    run(work())


def test_files_are_written_inside_and_a_wrong_patch_changes_nothing(served: Served, project: Path) -> None:
    async def work() -> None:
        async with over_http(served) as client:
            workspace = (await use(client, "create_workspace", path=str(project)))["id"]
            written = await use(client, "write_file", workspace=workspace, path="new/a.txt", content="hé\n")
            assert written == {"path": "new/a.txt", "size": 4}
            for path in ("../out", "/etc/out", ".git/config"):
                outside = {"workspace": workspace, "path": path, "content": "x"}
                assert (await client.call_tool("write_file", outside)).is_error
            wrong = {"workspace": workspace, "patch": "--- a/none\n+++ b/none\n@@ -1 +1 @@\n-a\n+b\n"}
            refused = await client.call_tool("apply_patch", wrong)
            assert refused.is_error and "does not apply" in output(refused) and "write_file" in output(refused)
            failed = await use(client, "exec", workspace=workspace, argv=["sh", "-c", "cat new/a.txt; exit 4"])
            assert (failed["exit_code"], failed["stdout"]) == (4, "hé\n")
            assert (await use(client, "diff", workspace=workspace))["paths"] == ["new/a.txt"]

    run(work())


def test_runs_reports_and_the_packet_can_be_read(served: Served, project: Path) -> None:
    async def work() -> None:
        async with over_http(served) as client:
            workspace = (await use(client, "create_workspace", path=str(project)))["id"]
            with pytest.raises(MCPError, match="no tests have been run"):
                await read(client, f"ratchet://workspaces/{workspace}/packet")
            verdict = await use(client, "run_tests", workspace=workspace)
            assert await read(client, f"ratchet://workspaces/{workspace}/packet") == verdict["packet"]
            report = msgspec.json.decode(await read(client, f"ratchet://workspaces/{workspace}/report"))
            assert [test["id"] for test in report["tests"]] == ["test_app.py::test_add"]
            assert msgspec.json.decode(await read(client, verdict["report"])) == report
            assert msgspec.json.decode(await read(client, "ratchet://runs"))["runs"] == []
            listed = [resource.uri for resource in (await client.list_resources()).resources]
            assert listed == ["ratchet://runs", "ratchet://workspaces"]
            assert len((await client.list_resource_templates()).resource_templates) == 6
            for wrong in (
                "ratchet://runs/none",
                f"ratchet://workspaces/{workspace}/artifacts/record.json",
                "file:///x",
            ):
                with pytest.raises(MCPError):
                    await read(client, wrong)

    run(work())


async def read(client: Client, address: str) -> str:
    (content,) = (await client.read_resource(address)).contents
    text: str = content.text  # type: ignore[union-attr]  # all of ours are texts
    return text


def test_work_is_queued_and_seen(served: Served) -> None:
    async def work() -> None:
        async with over_http(served) as client:
            added = await use(client, "add_work", repo="owner/name", description="Do it.", title="It")
            item = added["row"]["item"]["id"]
            assert [row["item"]["id"] for row in (await use(client, "queue"))["rows"]] == [item]
            assert (await use(client, "status", item=item))["item"]["status"] == "queued"
            lesson = await use(client, "add_learning", repo="owner/name", content="Mind the gap.")
            assert (await use(client, "search_learnings", query="gap"))["learnings"] == [lesson]

    run(work())


def test_files_are_locked_for_a_run(served: Served) -> None:
    async def work() -> None:
        async with over_http(served) as client:
            await use(client, "add_work", repo="owner/name", description="One.")
            await use(client, "add_work", repo="owner/name", description="Two.")
            one, two = claim(served, "one"), claim(served, "two")
            assert await use(client, "lock_files", run=one, paths=["src/"]) == {"paths": ["src/**"]}
            refused = await client.call_tool("lock_files", {"run": two, "paths": ["src/a.py"]})
            assert refused.is_error and "is locked" in output(refused)
            assert await use(client, "unlock_files", run=one) == {"paths": []}
            assert (await use(client, "lock_files", run=two, paths=["src/a.py"]))["paths"] == ["src/a.py"]

    run(work())


def claim(served: Served, name: str) -> str:
    holder = Holder(worker=name, machine="m", pid=1, born="1")
    lease = served.store.claim_next(holder, run=f"run-{name}", ttl_s=60)
    return str(lease.run)  # type: ignore[union-attr]  # there is work


@pytest.mark.parametrize("mode", ["legacy", "auto"])
def test_a_cancelled_call_leaves_no_process_behind_over_http(served: Served, project: Path, mode: str) -> None:
    run(cancelled(lambda: over_http(served, mode=mode), project, f"86311.{mode == 'auto':d}"))


def test_a_cancelled_call_leaves_no_process_behind_over_stdio(project: Path) -> None:
    run(cancelled(lambda: over_stdio(project, mode="legacy"), project, "86322.5"))


async def cancelled(connect: Connect, project: Path, seconds: str) -> None:
    """The tree dies while the client stays, and the workspace can be used again at once."""
    async with connect() as client:
        workspace = (await use(client, "create_workspace", path=str(project)))["id"]
        command = ["sh", "-c", f"trap '' TERM; setsid sleep {seconds} & sleep {seconds}"]
        calling = asyncio.create_task(client.call_tool("exec", {"workspace": workspace, "argv": command}))
        await until(lambda: len(alive(seconds)) >= 2)
        calling.cancel()
        await asyncio.wait({calling})
        await until(lambda: not alive(seconds))
        assert (await use(client, "exec", workspace=workspace, argv=["true"]))["exit_code"] == 0


def test_a_long_call_reports_progress(served: Served, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mcp_serving, "PROGRESS_S", 0.05)
    reported: list[tuple[float, str]] = []

    async def hear(progress: float, total: float | None, message: str | None) -> None:
        reported.append((progress, message or ""))

    async def work() -> None:
        async with over_http(served) as client:
            workspace = (await use(client, "create_workspace", path=str(project)))["id"]
            asked = {"workspace": workspace, "argv": ["sleep", "0.5"]}
            await client.call_tool("exec", asked, progress_callback=hear)

    run(work())
    assert len(reported) >= 3 and reported == sorted(reported) and reported[0][1].startswith("exec: running")


def test_a_request_without_a_token_is_refused(served: Served) -> None:
    for token in (None, "a-token-of-somebody-else"):
        answer = served.ask("POST", "/mcp", {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}, token=token)
        assert answer.status == 401 and answer.code == "unauthorized"


def test_a_server_ends_although_a_client_listens(tmp_path: Path) -> None:
    store = open_store(tmp_path / "ratchet.db")
    server = serving(store)

    async def work() -> None:
        async with over_http(server.__enter__(), mode="legacy") as client:
            await use(client, "status")
            began = time.monotonic()
            await asyncio.to_thread(server.__exit__, None, None, None)
            assert time.monotonic() - began < GRACE_S / 2

    run(work())
    store.close()
