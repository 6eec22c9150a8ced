"""Worker routes: register for work, then act on the run with the lease token."""

from __future__ import annotations

from ratchet.core import api
from ratchet.core.lease import LeaseRenewal
from ratchet.errors import LeaseLost
from ratchet.interfaces.http.routes import Auth, Route, RouteCall


async def heartbeat(call: RouteCall) -> api.HeartbeatResponse:
    """Renew the lease; heartbeats of many workers share a transaction."""
    lease = call.lease
    beat = LeaseRenewal(run=lease.run, epoch=lease.epoch, iteration=call.body.iteration)
    stop = await call.state.heartbeats.beat(beat)
    if stop is None:
        raise LeaseLost(f"the lease of {lease.run} is lost (epoch {lease.epoch})", hint="stop, then register again")
    return api.HeartbeatResponse(stop=stop)


def register(call: RouteCall) -> api.RegisterResponse:
    asked = call.body
    return call.state.queue_service.register(asked.holder, key=asked.key, item=asked.item, labels=asked.labels)


def lock(call: RouteCall) -> api.LocksResponse:
    return call.state.queue_service.lock(call.lease, call.body)


def unlock(call: RouteCall) -> api.LocksResponse:
    return call.state.queue_service.unlock(call.lease, call.body)


def complete(call: RouteCall) -> api.Acknowledgement:
    return call.state.queue_service.complete(call.lease, call.body)


def fail(call: RouteCall) -> api.RetryResponse:
    return call.state.queue_service.fail(call.lease, call.body)


def stuck(call: RouteCall) -> api.RetryResponse:
    return call.state.queue_service.stuck(call.lease, call.body)


def release(call: RouteCall) -> api.Acknowledgement:
    return call.state.queue_service.release(call.lease)


def append(call: RouteCall) -> api.AppendResponse:
    return call.state.queue_service.append(call.lease, call.body)


_LOST = (409,)
ROUTES = (
    Route(method="POST", path="/api/worker/{id}/heartbeat",
          summary="Renew the lease; the response says whether to stop",
          handler=heartbeat, body=api.HeartbeatRequest, answer=api.HeartbeatResponse, auth=Auth.WORKER, refuses=_LOST),
    Route(method="POST", path="/api/worker/register",
          summary="Ask for work: returns a lease and its token, or why there is none",
          handler=register, body=api.RegisterRequest, answer=api.RegisterResponse, refuses=(404, 409)),
    Route(method="POST", path="/api/worker/{id}/lock", summary="Lock paths, all or none",
          handler=lock, body=api.LockRequest, answer=api.LocksResponse, auth=Auth.WORKER, refuses=_LOST),
    Route(method="POST", path="/api/worker/{id}/unlock", summary="Unlock paths, or all of them",
          handler=unlock, body=api.UnlockRequest, answer=api.LocksResponse, auth=Auth.WORKER, refuses=_LOST),
    Route(method="POST", path="/api/worker/{id}/complete", summary="Complete the run (idempotent)",
          handler=complete, body=api.CompleteRequest, answer=api.Acknowledgement, auth=Auth.WORKER, refuses=_LOST),
    Route(method="POST", path="/api/worker/{id}/fail", summary="Report a failure; returns whether the run is retried",
          handler=fail, body=api.FailRequest, answer=api.RetryResponse, auth=Auth.WORKER, refuses=_LOST),
    Route(method="POST", path="/api/worker/{id}/stuck", summary="Report that the run makes no progress",
          handler=stuck, body=api.StuckRequest, answer=api.RetryResponse, auth=Auth.WORKER, refuses=_LOST),
    Route(method="POST", path="/api/worker/{id}/release", summary="Release the lease and requeue the run",
          handler=release, answer=api.Acknowledgement, auth=Auth.WORKER),
    Route(method="POST", path="/api/worker/{id}/events", summary="Append events to the run's ledger",
          handler=append, body=api.AppendRequest, answer=api.AppendResponse, auth=Auth.WORKER, refuses=_LOST),
)  # fmt: skip
