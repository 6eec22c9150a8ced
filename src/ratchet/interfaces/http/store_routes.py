"""Routes of the store's verbs, for `RemoteStore`: workers on hosts without database credentials.

They are internal: server and worker are of the same version, and the OpenAPI description leaves them out.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import msgspec

from ratchet.core.lease import Lease, LeaseRenewal
from ratchet.core.signal import Topic
from ratchet.errors import NotFound
from ratchet.interfaces.http.routes import EVENTS, Route, RouteCall
from ratchet.store.ledger import lease_lost
from ratchet.store.remote.verbs import Outcome, failed, verb

BODY_MAX_BYTES = 16_000_000  # an append holds several events of up to 256 KiB


def call_verb(call: RouteCall) -> Outcome:
    return verb(call.id).call(call.state.queue_service.store, call.body)


class RenewCall(msgspec.Struct, frozen=True, kw_only=True):
    """The arguments of `renew`."""

    lease: Lease
    ttl_s: float
    iteration: int | None = None


async def renew(call: RouteCall) -> Outcome:
    """Renew a lease; heartbeats of many workers share a transaction."""
    asked: RenewCall = call.body
    beat = LeaseRenewal(run=asked.lease.run, epoch=asked.lease.epoch, iteration=asked.iteration)
    stop = await call.state.heartbeats.beat(beat, ttl_s=asked.ttl_s)
    return failed(lease_lost(asked.lease)) if stop is None else Outcome(value=msgspec.Raw(msgspec.json.encode(stop)))


async def signals(call: RouteCall) -> AsyncIterator[bytes]:
    if call.id not in list(Topic):
        raise NotFound(f"no topic {call.id!r}", hint=f"one of {', '.join(Topic)}")
    return call.state.signal_streams.listen(Topic(call.id))


ROUTES = (
    Route(method="POST", path="/api/store/renew", summary="Renew a lease", handler=renew,
          body=RenewCall, answer=Outcome, internal=True),
    Route(method="POST", path="/api/store/{id}", summary="Execute a verb of the store", handler=call_verb,
          body=msgspec.Raw, answer=Outcome, internal=True, body_max_bytes=BODY_MAX_BYTES),
    Route(method="GET", path="/api/store-signals/{id}", summary="Stream the signals of a topic", handler=signals,
          answer=str, media=EVENTS, internal=True),
)  # fmt: skip
