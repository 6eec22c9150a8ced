"""Routes for test workspaces and for the state of `ratchet watch`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

from ratchet.app.watch import read_state
from ratchet.core import api
from ratchet.core.api import test_workspaces as wb
from ratchet.engine.blocking import run_blocking
from ratchet.errors import UsageError
from ratchet.interfaces.http import sse
from ratchet.interfaces.http.app_state import AppState
from ratchet.interfaces.http.routes import EVENTS, Route, RouteCall

POLL_S = 0.1


async def create(call: RouteCall) -> wb.TestWorkspace:
    return await call.state.workspaces.create(call.body)


def workspaces(call: RouteCall) -> wb.TestWorkspaceList:
    return call.state.workspaces.all()


def get(call: RouteCall) -> wb.TestWorkspace:
    return call.state.workspaces.get(call.id)


async def destroy(call: RouteCall) -> api.Acknowledgement:
    return api.Acknowledgement(changed=await call.state.workspaces.destroy(call.id))


async def execute(call: RouteCall) -> wb.ExecResponse:
    return await call.state.workspaces.exec(call.id, call.body)


async def test(call: RouteCall) -> wb.TestResponse:
    return await call.state.workspaces.test(call.id, call.body)


async def write(call: RouteCall) -> wb.WriteResponse:
    return await call.state.workspaces.write(call.id, call.body)


async def diff(call: RouteCall) -> wb.WorkspaceDiff:
    return await call.state.workspaces.diff(call.id)


async def report(call: RouteCall) -> wb.ConcludeResponse:
    return await call.state.workspaces.report(call.id, call.body)


def artifact(call: RouteCall) -> wb.ArtifactChunk:
    return call.state.workspaces.artifact(call.id, call.query)


async def watch(call: RouteCall) -> AsyncIterator[bytes]:
    folder = Path(call.query.path) if call.query.path else call.state.folder
    if not folder.is_absolute() or not await run_blocking(folder.is_dir):
        raise UsageError(f"no such folder on this machine: {folder}", hint="give the root of a watched repository")
    return _states(call.state, folder)


async def _states(app_state: AppState, folder: Path) -> AsyncIterator[bytes]:
    """Stream the current state, then each new one. `ratchet watch` is another process, so its state file is polled."""
    yield sse.encode_start()
    sent, quiet_s = "", 0.0
    while not app_state.stopping.is_set():
        state = await run_blocking(read_state, folder)
        if state and state.at != sent:
            sent, quiet_s = state.at, 0.0
            yield sse.encode_event(id=state.at, event=state.colour, data=state)
        elif quiet_s >= sse.KEEP_ALIVE_S:
            quiet_s = 0.0
            yield sse.KEEP_ALIVE
        with suppress(TimeoutError):
            await asyncio.wait_for(app_state.stopping.wait(), POLL_S)
        quiet_s += POLL_S


_ONE = "/test-workspace/{id}"
ROUTES = (
    Route(method="POST", path="/test-workspace", summary="Create a private copy of a repository for experiments",
          handler=create, body=wb.CreateRequest, answer=wb.TestWorkspace, status=201, refuses=(409,),
          ends_with_client=True),
    Route(method="GET", path="/test-workspace", summary="List test workspaces", handler=workspaces,
          answer=wb.TestWorkspaceList),
    Route(method="GET", path=_ONE, summary="Get a test workspace", handler=get, answer=wb.TestWorkspace),
    Route(method="DELETE", path=_ONE, summary="Remove it and stop the processes in it", handler=destroy,
          answer=api.Acknowledgement),
    Route(method="POST", path=f"{_ONE}/exec",
          summary="Run a command or apply a patch; a failing command is a normal response",
          handler=execute, body=wb.ExecRequest, answer=wb.ExecResponse, refuses=(409,), ends_with_client=True),
    Route(method="POST", path=f"{_ONE}/test",
          summary="Run its tests; returns a report and the difference to the last run",
          handler=test, body=wb.TestRequest, answer=wb.TestResponse, refuses=(409,), ends_with_client=True),
    Route(method="POST", path=f"{_ONE}/write", summary="Write a file", handler=write, body=wb.WriteRequest,
          answer=wb.WriteResponse, refuses=(409,)),
    Route(method="GET", path=f"{_ONE}/diff", summary="Get the diff since its creation", handler=diff,
          answer=wb.WorkspaceDiff,
          refuses=(409,)),
    Route(method="POST", path=f"{_ONE}/report", summary="Store the diff, the fixed tests and a summary",
          handler=report, body=wb.ConcludeRequest, answer=wb.ConcludeResponse, refuses=(409, 422)),
    Route(method="GET", path=f"{_ONE}/artifact", summary="Get an output or report (paged)", handler=artifact,
          query=wb.ArtifactQuery, answer=wb.ArtifactChunk),
    Route(method="GET", path="/api/watch", summary="Stream the state of `ratchet watch`", handler=watch,
          query=wb.WatchQuery, answer=str, media=EVENTS),
)  # fmt: skip
