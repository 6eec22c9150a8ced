"""Collects what a report is made of: the figures of a window by several groupings, and those of the window before."""

from __future__ import annotations

from datetime import datetime, timedelta

import msgspec

from ratchet.core import api
from ratchet.core.figures import Tally
from ratchet.core.learning_lift import Judged
from ratchet.core.metrics import Figures
from ratchet.core.timestamps import format_timestamp

HOURLY_UP_TO = timedelta(hours=49)
SLOTS_MAX = 400
NOTHING = Figures.of(Tally())


class ReportSlot(msgspec.Struct, frozen=True, kw_only=True):
    """A day or an hour, in local time, and its figures."""

    at: datetime
    figures: Figures


class FactoryReport(msgspec.Struct, frozen=True, kw_only=True):
    """The figures of a window. `before` are those of the window before, of the same length; `learnings` are judged by
    all that ever happened."""

    since: datetime
    until: datetime
    repo: str
    hourly: bool
    total: Figures
    before: Figures
    slots: list[ReportSlot]
    actions: list[api.FiguresGroup]
    models: list[api.FiguresGroup]
    roles: list[api.FiguresGroup]
    repos: list[api.FiguresGroup]
    workflows: list[api.FiguresGroup]
    learnings: list[Judged] = []


def collect(service: api.QueueService, *, since: str, until: str = "", repo: str = "") -> FactoryReport:
    """Read the figures. Raises UsageError for a window that is none."""

    def ask(by: str) -> api.Metrics:
        return service.metrics(api.MetricsQuery(since=since, until=until, by=by, repo=repo))

    whole = ask("")
    began, now = (datetime.fromisoformat(at).astimezone() for at in (whole.since, whole.at))
    ended = min(datetime.fromisoformat(whole.until).astimezone(), now)
    hourly = ended - began <= HOURLY_UP_TO
    try:
        earlier = format_timestamp(began - (ended - began))
        before = service.metrics(api.MetricsQuery(since=earlier, until=whole.since, repo=repo)).figures
    except OverflowError:  # the window is longer than the calendar before it
        before = NOTHING
    found = {one.group["hour" if hourly else "day"]: one.figures for one in ask("hour" if hourly else "day").groups}
    return FactoryReport(
        since=began,
        until=ended,
        repo=repo,
        hourly=hourly,
        total=whole.figures,
        before=before,
        slots=_slots(began, ended, found, hourly=hourly),
        actions=_most(ask("action").groups, "step_s"),
        models=_most(ask("agent,model").groups, "cost_usd"),
        roles=_most(ask("role").groups, "cost_usd"),
        repos=_most(ask("repo").groups, "cost_usd"),
        workflows=_most(ask("workflow").groups, "cost_usd"),
        learnings=service.learning_lift(api.LiftQuery(repo=repo)).learnings,
    )


def _most(groups: list[api.FiguresGroup], figure: str) -> list[api.FiguresGroup]:
    return sorted(groups, key=lambda one: (-(getattr(one.figures, figure) or 0), -one.figures.calls))


def _slots(began: datetime, ended: datetime, found: dict[str, Figures], *, hourly: bool) -> list[ReportSlot]:
    """Return all days or hours of a window, also those in which nothing happened, the last ones if there are many."""
    slots: list[ReportSlot] = []
    at = began.replace(minute=0, second=0, microsecond=0)
    at = at if hourly else at.replace(hour=0)
    while at < ended:
        name = f"{at:%Y-%m-%d %H:00}" if hourly else f"{at:%Y-%m-%d}"
        slots.append(ReportSlot(at=at, figures=found.get(name, NOTHING)))
        at = at + timedelta(hours=1) if hourly else _midnight_after(at)
    return slots[-SLOTS_MAX:]


def _midnight_after(at: datetime) -> datetime:
    return datetime.combine(at.date() + timedelta(days=1), datetime.min.time()).astimezone()
