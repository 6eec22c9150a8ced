"""Routes of the queue: add, look, cancel, requeue."""

from __future__ import annotations

from ratchet.core import api
from ratchet.core.queue import ItemRow, Page
from ratchet.surfaces.http.routes import Call, Reply, Route


def add(call: Call) -> Reply:
    added = call.house.desk.add(call.body, key=call.key)
    return Reply(answer=added.row, status=201 if added.created else 200)


def get(call: Call) -> ItemRow:
    return call.house.desk.get(call.id)


def queue(call: Call) -> Page:
    return call.house.desk.queue(call.query)


def cancel(call: Call) -> api.CancelAnswer:
    return call.house.desk.cancel(call.id, call.body)


def requeue(call: Call) -> ItemRow:
    return call.house.desk.requeue(call.id)


ROUTES = (
    Route(method="POST", path="/api/work", summary="Queue an item; with an Idempotency-Key, once", verb=add,
          body=api.Work, answer=ItemRow, status=201, keyed=True, refuses=(409,)),
    Route(method="GET", path="/api/work/{id}", summary="An item and where it stands", verb=get, answer=ItemRow),
    Route(method="POST", path="/api/work/{id}/cancel", summary="Cancel an item, also one that is worked on",
          verb=cancel, body=api.By, answer=api.CancelAnswer),
    Route(method="POST", path="/api/work/{id}/requeue", summary="Queue again what failed, was cancelled or is parked",
          verb=requeue, answer=ItemRow, refuses=(409,)),
    Route(method="GET", path="/api/queue", summary="Items in the order of their turn, by the page", verb=queue,
          query=api.QueueAsk, answer=Page),
)  # fmt: skip
