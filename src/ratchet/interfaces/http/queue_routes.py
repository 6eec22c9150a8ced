"""Queue routes: add, get, list, cancel, requeue, nudge."""

from __future__ import annotations

from ratchet.core import api
from ratchet.core.queue import ItemPage, ItemRow
from ratchet.interfaces.http.routes import Reply, Route, RouteCall


def add(call: RouteCall) -> Reply:
    added = call.state.queue_service.add(call.body, key=call.idempotency_key)
    return Reply(answer=added.row, status=201 if added.created else 200)


def get(call: RouteCall) -> ItemRow:
    return call.state.queue_service.get(call.id)


def queue(call: RouteCall) -> ItemPage:
    return call.state.queue_service.queue(call.query)


def cancel(call: RouteCall) -> api.CancelResponse:
    return call.state.queue_service.cancel(call.id, call.body)


def requeue(call: RouteCall) -> ItemRow:
    return call.state.queue_service.requeue(call.id)


def inbox(call: RouteCall) -> api.Inbox:
    return call.state.queue_service.inbox()


def nudge(call: RouteCall) -> ItemRow:
    return call.state.queue_service.nudge(call.id, call.body)


ROUTES = (
    Route(method="POST", path="/api/work", summary="Add an item; idempotent with an Idempotency-Key", handler=add,
          body=api.NewItem, answer=ItemRow, status=201, keyed=True, refuses=(409,)),
    Route(method="GET", path="/api/work/{id}", summary="Get an item and its status", handler=get, answer=ItemRow),
    Route(method="POST", path="/api/work/{id}/cancel", summary="Cancel an item, even one in progress",
          handler=cancel, body=api.Requester, answer=api.CancelResponse),
    Route(method="POST", path="/api/work/{id}/requeue", summary="Requeue a finished or parked item",
          handler=requeue, answer=ItemRow, refuses=(409,)),
    Route(method="POST", path="/api/work/{id}/nudge", summary="Send a message to the agents of an open run",
          handler=nudge, body=api.Nudge, answer=ItemRow, refuses=(409,)),
    Route(method="GET", path="/api/inbox", summary="List what needs a person", handler=inbox, answer=api.Inbox),
    Route(method="GET", path="/api/queue", summary="List items, next first (paged)", handler=queue,
          query=api.QueueQuery, answer=ItemPage),
)  # fmt: skip
