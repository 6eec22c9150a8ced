"""Routes that look: workers, runs, events as they happen, numbers, health. And `kill`, which is next to looking."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from ratchet.core import api
from ratchet.core.learning import Learning
from ratchet.surfaces.http import openapi, prometheus
from ratchet.surfaces.http.routes import EVENTS, TEXT, Call, Route, Who, table


def status(call: Call) -> api.Status:
    return call.house.desk.status()


def workers(call: Call) -> api.WorkerList:
    return call.house.desk.workers(call.query)


def kill(call: Call) -> api.Done:
    return call.house.desk.kill(call.id, call.body)


def logs(call: Call) -> api.Logs:
    return call.house.desk.logs(call.id)


def runs(call: Call) -> api.RunPage:
    return call.house.desk.runs(call.query)


def run(call: Call) -> api.RunAnswer:
    return call.house.desk.run(call.id)


def ledger(call: Call) -> api.LedgerPage:
    return call.house.desk.ledger(call.id, call.query)


def diff(call: Call) -> api.Diff:
    return call.house.desk.diff(call.id)


def learn(call: Call) -> Learning:
    return call.house.desk.learn(call.body)


def learnings(call: Call) -> api.LearningList:
    return call.house.desk.learnings(call.query)


async def events(call: Call) -> AsyncIterator[bytes]:
    return call.house.listeners.listen(call.last or call.query.after, run=call.query.run)


def metrics(call: Call) -> api.Metrics:
    return call.house.desk.metrics()


def scrape(call: Call) -> bytes:
    return prometheus.text(call.house.desk.metrics(), call.house.answered)


async def health(call: Call) -> api.Health:
    return await call.house.health()


async def described(_call: Call) -> dict[str, Any]:
    return openapi.document(table())


ROUTES = (
    Route(method="GET", path="/health", summary="Whether the server and its store answer", verb=health,
          answer=api.Health, who=Who.ANYBODY),
    Route(method="GET", path="/api/status", summary="The factory at a glance", verb=status, answer=api.Status),
    Route(method="GET", path="/api/workers", summary="Workers, newest first", verb=workers, query=api.WorkersAsk,
          answer=api.WorkerList),
    Route(method="POST", path="/api/workers/{id}/kill", summary="Take its run away from a worker", verb=kill,
          body=api.By, answer=api.Done),
    Route(method="GET", path="/api/workers/{id}/logs", summary="What a worker wrote, and its steps' logs", verb=logs,
          answer=api.Logs),
    Route(method="GET", path="/api/runs", summary="Runs, newest first, by the page", verb=runs, query=api.RunsAsk,
          answer=api.RunPage),
    Route(method="GET", path="/api/runs/{id}", summary="A run, and what its ledger folds to", verb=run,
          answer=api.RunAnswer),
    Route(method="GET", path="/api/runs/{id}/ledger", summary="A run's ledger, by the page", verb=ledger,
          query=api.LedgerAsk, answer=api.LedgerPage),
    Route(method="GET", path="/api/runs/{id}/diff", summary="What a run changed", verb=diff, answer=api.Diff,
          refuses=(409,)),
    Route(method="GET", path="/api/learnings", summary="Lessons, by their words or the newest first", verb=learnings,
          query=api.LearningsAsk, answer=api.LearningList),
    Route(method="POST", path="/api/learnings", summary="Keep a lesson; the same one twice is one", verb=learn,
          body=api.Learn, answer=Learning, status=201),
    Route(method="GET", path="/api/events", summary="All runs' events as they happen; Last-Event-ID goes on",
          verb=events, query=api.EventsAsk, answer=str, media=EVENTS, refuses=(429,)),
    Route(method="GET", path="/api/metrics", summary="Numbers of the day", verb=metrics, answer=api.Metrics),
    Route(method="GET", path="/metrics", summary="The same for Prometheus", verb=scrape, answer=str, media=TEXT),
    Route(method="GET", path="/openapi.json", summary="This interface, described", verb=described,
          answer=dict[str, Any], who=Who.ANYBODY),
)  # fmt: skip
