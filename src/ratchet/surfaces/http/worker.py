"""A worker's own routes: register, then only what its lease allows, until it is over."""

from __future__ import annotations

from ratchet.core import api
from ratchet.core.lease import Beat
from ratchet.errors import LeaseLost
from ratchet.surfaces.http.routes import Call, Route, Who


async def heartbeat(call: Call) -> api.Beaten:
    """Those of all workers are written together: one transaction for many."""
    lease, iteration = call.held, call.body.iteration
    stop = await call.house.beats.beat(Beat(run=lease.run, epoch=lease.epoch, iteration=iteration))
    if stop is None:
        raise LeaseLost(f"{lease.run} is no longer yours (epoch {lease.epoch})", hint="stop, and register again")
    return api.Beaten(stop=stop or _over(iteration, call.proven.max_iterations if call.proven else None))


def _over(iteration: int | None, most: int | None) -> str:
    """Who asks a run to stop that has had its iterations: the factory."""
    over = most is not None and iteration is not None and iteration > most
    return f"ratchet: {iteration} iterations, at most {most} are allowed" if over else ""


def register(call: Call) -> api.Registered:
    return call.house.desk.register(call.body.holder)


def lock(call: Call) -> api.Held:
    return call.house.desk.lock(call.held, call.body)


def unlock(call: Call) -> api.Held:
    return call.house.desk.unlock(call.held, call.body)


def complete(call: Call) -> api.Done:
    return call.house.desk.complete(call.held, call.body)


def fail(call: Call) -> api.Back:
    return call.house.desk.fail(call.held, call.body)


def stuck(call: Call) -> api.Back:
    return call.house.desk.stuck(call.held, call.body)


def release(call: Call) -> api.Done:
    return call.house.desk.release(call.held)


def append(call: Call) -> api.Appended:
    return call.house.desk.append(call.held, call.body)


_LOST = (409,)
ROUTES = (
    Route(method="POST", path="/api/worker/{id}/heartbeat", summary="Keep the lease; hear whether to stop",
          verb=heartbeat, body=api.Heartbeat, answer=api.Beaten, who=Who.WORKER, refuses=_LOST),
    Route(method="POST", path="/api/worker/register", summary="Ask for work: a lease and its token, or why not",
          verb=register, body=api.Register, answer=api.Registered),
    Route(method="POST", path="/api/worker/{id}/lock", summary="Lock paths: all of them or none",
          verb=lock, body=api.LockAsk, answer=api.Held, who=Who.WORKER, refuses=_LOST),
    Route(method="POST", path="/api/worker/{id}/unlock", summary="Let go of paths, or of all",
          verb=unlock, body=api.UnlockAsk, answer=api.Held, who=Who.WORKER, refuses=_LOST),
    Route(method="POST", path="/api/worker/{id}/complete", summary="The run is done; said twice is said once",
          verb=complete, body=api.Complete, answer=api.Done, who=Who.WORKER, refuses=_LOST),
    Route(method="POST", path="/api/worker/{id}/fail", summary="Give the run up, and hear what becomes of it",
          verb=fail, body=api.Fail, answer=api.Back, who=Who.WORKER, refuses=_LOST),
    Route(method="POST", path="/api/worker/{id}/stuck", summary="No progress: nudge, then a fresh context",
          verb=stuck, body=api.Stuck, answer=api.Back, who=Who.WORKER, refuses=_LOST),
    Route(method="POST", path="/api/worker/{id}/release", summary="Give the lease back, and the run to the queue",
          verb=release, answer=api.Done, who=Who.WORKER),
    Route(method="POST", path="/api/worker/{id}/events", summary="Add events to the run's ledger",
          verb=append, body=api.Append, answer=api.Appended, who=Who.WORKER, refuses=_LOST),
)  # fmt: skip
