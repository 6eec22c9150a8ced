"""Routes that try things out: test workspaces, and what a watch on a tree says."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import msgspec

from ratchet.core import api
from ratchet.core import workbench as wb
from ratchet.core.watching import WatchState
from ratchet.errors import UsageError
from ratchet.surfaces.http.house import House
from ratchet.surfaces.http.routes import EVENTS, Call, Route
from ratchet.watch import read_state

LOOK_S = 0.1
ALIVE_S = 15.0


async def create(call: Call) -> wb.TestWorkspace:
    return await call.house.workbench.create(call.body)


def workspaces(call: Call) -> wb.TestWorkspaceList:
    return call.house.workbench.all()


def get(call: Call) -> wb.TestWorkspace:
    return call.house.workbench.get(call.id)


async def destroy(call: Call) -> api.Done:
    return api.Done(changed=await call.house.workbench.destroy(call.id))


async def execute(call: Call) -> wb.Executed:
    return await call.house.workbench.exec(call.id, call.body)


async def test(call: Call) -> wb.Tested:
    return await call.house.workbench.test(call.id, call.body)


async def write(call: Call) -> wb.Written:
    return await call.house.workbench.write(call.id, call.body)


async def diff(call: Call) -> wb.Difference:
    return await call.house.workbench.diff(call.id)


async def report(call: Call) -> wb.Concluded:
    return await call.house.workbench.report(call.id, call.body)


def artifact(call: Call) -> wb.Piece:
    return call.house.workbench.artifact(call.id, call.query)


async def watch(call: Call) -> AsyncIterator[bytes]:
    folder = Path(call.query.path) if call.query.path else call.house.folder
    if not folder.is_absolute() or not folder.is_dir():
        raise UsageError(f"{folder} is no folder here", hint="name the top of a repository that is watched")
    return _states(call.house, folder)


async def _states(house: House, folder: Path) -> AsyncIterator[bytes]:
    """The present state first, then each new one; whoever watches is another process, so its file is looked at."""
    yield b"retry: 1000\n\n"
    told, quiet_s = "", 0.0
    while not house.stopping.is_set():
        state = read_state(folder)
        if state and state.at != told:
            told, quiet_s = state.at, 0.0
            yield _line(state)
        elif quiet_s >= ALIVE_S:
            quiet_s = 0.0
            yield b": still here\n\n"
        with suppress(TimeoutError):
            await asyncio.wait_for(house.stopping.wait(), LOOK_S)
        quiet_s += LOOK_S


def _line(state: WatchState) -> bytes:
    return b"id: %s\nevent: %s\ndata: %s\n\n" % (
        state.at.encode(),
        state.colour.encode(),
        msgspec.json.encode(state),
    )


_ONE = "/test-workspace/{id}"
ROUTES = (
    Route(method="POST", path="/test-workspace", summary="A private copy of a repository, to try things out in",
          verb=create, body=wb.Create, answer=wb.TestWorkspace, status=201, refuses=(409,)),
    Route(method="GET", path="/test-workspace", summary="The test workspaces there are", verb=workspaces,
          answer=wb.TestWorkspaceList),
    Route(method="GET", path=_ONE, summary="A test workspace", verb=get, answer=wb.TestWorkspace),
    Route(method="DELETE", path=_ONE, summary="Remove it, with whatever runs in it", verb=destroy, answer=api.Done),
    Route(method="POST", path=f"{_ONE}/exec", summary="Run a command in it, or apply a patch; a failure is an answer",
          verb=execute, body=wb.Exec, answer=wb.Executed, refuses=(409,)),
    Route(method="POST", path=f"{_ONE}/test", summary="Run its tests: a report, and what changed since the last",
          verb=test, body=wb.Test, answer=wb.Tested, refuses=(409,)),
    Route(method="POST", path=f"{_ONE}/write", summary="Write a file in it", verb=write, body=wb.Write,
          answer=wb.Written, refuses=(409,)),
    Route(method="GET", path=f"{_ONE}/diff", summary="What was changed in it", verb=diff, answer=wb.Difference,
          refuses=(409,)),
    Route(method="POST", path=f"{_ONE}/report", summary="Keep what was changed and which failures went away",
          verb=report, body=wb.Conclude, answer=wb.Concluded, refuses=(409, 422)),
    Route(method="GET", path=f"{_ONE}/artifact", summary="An output or report, by the piece", verb=artifact,
          query=wb.ArtifactAsk, answer=wb.Piece),
    Route(method="GET", path="/api/watch", summary="What `ratchet watch` says, as it changes", verb=watch,
          query=wb.WatchAsk, answer=str, media=EVENTS),
)  # fmt: skip
