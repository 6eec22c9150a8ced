"""Routes for status, workers, runs, learnings, events, metrics and health."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from ratchet.core import api
from ratchet.core.learning import Learning
from ratchet.core.learning_lift import LiftReport
from ratchet.interfaces.http import openapi, prometheus, reference
from ratchet.interfaces.http.routes import EVENTS, HTML, TEXT, Auth, Route, RouteCall, table
from ratchet.interfaces.http.sessions import LINK_S


def status(call: RouteCall) -> api.Status:
    return call.state.queue_service.status()


def workers(call: RouteCall) -> api.WorkerList:
    return call.state.queue_service.workers(call.query)


def kill(call: RouteCall) -> api.Acknowledgement:
    return call.state.queue_service.kill(call.id, call.body)


def logs(call: RouteCall) -> api.Logs:
    return call.state.queue_service.logs(call.id)


def locks(call: RouteCall) -> api.LockList:
    return call.state.queue_service.locks(call.query)


def runs(call: RouteCall) -> api.RunPage:
    return call.state.queue_service.runs(call.query)


def run(call: RouteCall) -> api.RunResponse:
    return call.state.queue_service.run(call.id)


def ledger(call: RouteCall) -> api.LedgerPage:
    return call.state.queue_service.ledger(call.id, call.query)


def diff(call: RouteCall) -> api.Diff:
    return call.state.queue_service.diff(call.id)


def learn(call: RouteCall) -> Learning:
    return call.state.queue_service.learn(call.body)


def learnings(call: RouteCall) -> api.LearningList:
    return call.state.queue_service.learnings(call.query)


def learning(call: RouteCall) -> Learning:
    return call.state.queue_service.learning(call.id)


def learning_lift(call: RouteCall) -> LiftReport:
    return call.state.queue_service.learning_lift(call.query)


def retire_learning(call: RouteCall) -> Learning:
    return call.state.queue_service.retire_learning(call.id, call.body)


async def events(call: RouteCall) -> AsyncIterator[bytes]:
    return call.state.event_streams.listen(call.last_event_id or call.query.after, run=call.query.run)


def sign_in_link(call: RouteCall) -> api.SignInLink:
    return api.SignInLink(path=call.state.sessions.make_link(call.user()), valid_s=LINK_S)


def metrics(call: RouteCall) -> api.Metrics:
    return call.state.queue_service.metrics(call.query)


def scrape(call: RouteCall) -> bytes:
    service = call.state.queue_service
    return prometheus.text(service.metrics(), service.totals(prometheus.TOTALS_BY), call.state.answered)


async def health(call: RouteCall) -> api.Health:
    return await call.state.health()


async def described(_call: RouteCall) -> dict[str, Any]:
    return openapi.document(table())


def documented(_call: RouteCall) -> bytes:
    return reference.page(table()).encode()


ROUTES = (
    Route(method="POST", path="/api/sign-in-link", summary="Make a link that opens the web pages signed in, once",
          handler=sign_in_link, answer=api.SignInLink),
    Route(method="GET", path="/health", summary="Check the server and its store", handler=health,
          answer=api.Health, auth=Auth.ANYBODY),
    Route(method="GET", path="/api/status", summary="Overview of queue and workers", handler=status, answer=api.Status),
    Route(method="GET", path="/api/workers", summary="List workers, newest first", handler=workers,
          query=api.WorkersQuery,
          answer=api.WorkerList),
    Route(method="POST", path="/api/workers/{id}/kill", summary="Stop a worker and requeue its run", handler=kill,
          body=api.Requester, answer=api.Acknowledgement),
    Route(method="GET", path="/api/workers/{id}/logs", summary="Get a worker's ledger entries and step logs",
          handler=logs,
          answer=api.Logs),
    Route(method="GET", path="/api/locks", summary="List locked paths: of a repository, a worker, or that meet a path",
          handler=locks, query=api.LocksQuery, answer=api.LockList),
    Route(method="GET", path="/api/runs", summary="List runs, newest first (paged)", handler=runs, query=api.RunsQuery,
          answer=api.RunPage),
    Route(method="GET", path="/api/runs/{id}", summary="Get a run and its state", handler=run,
          answer=api.RunResponse),
    Route(method="GET", path="/api/runs/{id}/ledger", summary="Get a run's ledger (paged)", handler=ledger,
          query=api.LedgerQuery, answer=api.LedgerPage),
    Route(method="GET", path="/api/runs/{id}/diff", summary="Get the diff of a run", handler=diff, answer=api.Diff,
          refuses=(409,)),
    Route(method="GET", path="/api/learnings", summary="Search learnings, or list the newest", handler=learnings,
          query=api.LearningsQuery, answer=api.LearningList),
    Route(method="POST", path="/api/learnings", summary="Store a learning; duplicates are merged", handler=learn,
          body=api.LearningRequest, answer=Learning, status=201),
    Route(method="GET", path="/api/learnings/{id}", summary="Get a learning and where it comes from", handler=learning,
          answer=Learning),
    Route(method="GET", path="/api/learning-lift", summary="Get what learnings save, compared with held out ones",
          handler=learning_lift, query=api.LiftQuery, answer=LiftReport),
    Route(method="POST", path="/api/learnings/{id}/retire", summary="Stop delivering a learning; it is kept",
          handler=retire_learning, body=api.RetireRequest, answer=Learning),
    Route(method="GET", path="/api/events", summary="Stream the events of all runs; resume with Last-Event-ID",
          handler=events, query=api.EventsQuery, answer=str, media=EVENTS, refuses=(429,)),
    Route(method="GET", path="/api/metrics", summary="Load, today's counts, and figures by window and group",
          handler=metrics, query=api.MetricsQuery, answer=api.Metrics),
    Route(method="GET", path="/metrics", summary="Metrics for Prometheus", handler=scrape, answer=str, media=TEXT),
    Route(method="GET", path="/openapi.json", summary="OpenAPI description", handler=described,
          answer=dict[str, Any], auth=Auth.ANYBODY),
    Route(method="GET", path="/docs", summary="This reference as a page", handler=documented, answer=str,
          auth=Auth.ANYBODY, media=HTML),
)  # fmt: skip
