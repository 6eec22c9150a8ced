"""The figures: throughput, cost, teeth and slips over days."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec
from starlette.requests import Request

from ratchet.core import api
from ratchet.core.figures import Tally
from ratchet.core.metrics import Figures
from ratchet.interfaces.terminal.figures import cost, cost_per_accepted, number, span
from ratchet.interfaces.web import charts, words
from ratchet.interfaces.web.site import Site

DAYS = (7, 14, 90)
REPOS_MAX = 20
_NONE = Figures.of(Tally())


class DayFigures(msgspec.Struct, frozen=True):
    """The figures of one day (`YYYY-MM-DD`)."""

    day: str
    figures: Figures


def figures_values(site: Site, request: Request) -> dict[str, Any]:
    given = request.query_params.get("days", "")
    chosen = int(given) if given in {str(one) for one in DAYS} else 14
    both = site.service.metrics(api.MetricsQuery(since=f"{chosen * 2}d", by="day"))
    today = words.utc_now().astimezone().date()
    days = [f"{today - timedelta(days=ago):%Y-%m-%d}" for ago in range(chosen - 1, -1, -1)]
    found = {one.group["day"]: one.figures for one in both.groups}
    now = [DayFigures(day, found.get(day) or _NONE) for day in days]
    before = site.service.metrics(api.MetricsQuery(since=f"{chosen * 2}d", until=days[0])).figures
    totals = site.service.metrics(api.MetricsQuery(since=days[0])).figures
    return {
        "chosen": chosen,
        "anything": bool(totals.runs or totals.steps or totals.calls),
        "span": f"{_named(days[0])} to {_named(days[-1])}",
        "kpis": _kpis(totals, before, chosen),
        "repos": _repositories(site.service.metrics(api.MetricsQuery(since=days[0], by="repo")).groups),
        "charts": [_throughput(now), _cost(now), _teeth(now), _spent(now)],
    }


def _named(day: str) -> str:
    at = datetime.fromisoformat(day)
    return f"{at.day} {at:%B}"


def _kpis(now: Figures, before: Figures, days: int) -> list[tuple[str, str, str]]:
    ended = now.completed + now.failed
    was = before.cost_per_accepted_usd
    return [
        (
            "Items completed",
            f"{now.completed:,}",
            f"of {ended:,} ended, {now.success_rate:.0%}" if ended else "none ended",
        ),
        (
            "Cost per accepted change",
            cost_per_accepted(now) if now.accepted else "none yet",
            f"was {words.money(was)}, {days} days before" if was is not None else "nothing before",
        ),
        (
            "Reverts per commit",
            f"{now.reverts_per_commit:.2f}" if now.reverts_per_commit is not None else "none yet",
            f"{now.reverts:,} reverted, {now.accepted:,} accepted",
        ),
        ("Spent", cost(now), f"in {days} days"),
        (
            "Attempts to green",
            number(now.attempts_to_green) if now.attempts_to_green is not None else "none yet",
            f"{now.overfitted_caught:,} overfitted changes caught",
        ),
        ("Time lost to quota", span(now.quota_s), f"{now.recoveries:,} crash recoveries"),
    ]


def _repositories(groups: Sequence[api.FiguresGroup]) -> list[dict[str, Any]]:
    """Return what says how far the factory can be trusted with each repository, the busiest first."""
    busiest = sorted(groups, key=lambda one: -(one.figures.completed + one.figures.failed))[:REPOS_MAX]
    return [
        {
            "name": words.repo_name(one.group["repo"]),
            "figures": one.figures,
            "rate": f"{one.figures.success_rate:.0%}" if one.figures.success_rate is not None else "none ended",
            "reverts": number(one.figures.reverts_per_commit),
            "cost": cost_per_accepted(one.figures) if one.figures.accepted else "none yet",
        }
        for one in busiest
    ]


def _labels(days: Sequence[DayFigures]) -> list[str]:
    named = [datetime.fromisoformat(one.day) for one in days]
    return [f"{at:%a}"[:2] if len(named) <= 14 else f"{at.day} {at:%b}" for at in named]


def _chart(title: str, lead: str, drawn: Any, names: Sequence[str], rows: Sequence[Sequence[object]]) -> dict[str, Any]:
    return {
        "title": title,
        "lead": lead,
        "wide": drawn(charts.WIDE),
        "narrow": drawn(charts.NARROW),
        "names": names,
        "rows": rows,
    }


def _throughput(days: Sequence[DayFigures]) -> dict[str, Any]:
    return _chart(
        "Throughput",
        "Items a day: completed, and failed on top (hatched)",
        lambda size: charts.stacked(
            size,
            "Completed and failed items on each day",
            _labels(days),
            [one.figures.completed for one in days],
            [one.figures.failed for one in days],
        ),
        ("completed", "failed"),
        [(_named(one.day), one.figures.completed, one.figures.failed) for one in days],
    )


def _cost(days: Sequence[DayFigures]) -> dict[str, Any]:
    values = [one.figures.cost_per_accepted_usd for one in days]
    return _chart(
        "Cost per accepted change",
        "Money spent, reverts included, per commit kept",
        lambda size: charts.line(size, "Cost per accepted change on each day", _labels(days), values, _dollars),
        ("cost",),
        [
            (_named(one.day), words.money(value) if value is not None else "none")
            for one, value in zip(days, values, strict=True)
        ],
    )


def _teeth(days: Sequence[DayFigures]) -> dict[str, Any]:
    return _chart(
        "Teeth and slips",
        "Commits kept above the line, reverts below",
        lambda size: charts.mirrored(
            size,
            "Commits kept above the line and changes reverted below it, on each day",
            _labels(days),
            [one.figures.accepted for one in days],
            [one.figures.reverts for one in days],
        ),
        ("kept", "reverted"),
        [(_named(one.day), one.figures.accepted, one.figures.reverts) for one in days],
    )


def _spent(days: Sequence[DayFigures]) -> dict[str, Any]:
    values: list[float | None] = [one.figures.cost_usd for one in days]
    return _chart(
        "Spent",
        "Money a day, all repositories",
        lambda size: charts.line(size, "Money spent on each day", _labels(days), values, _dollars),
        ("spent",),
        [(_named(one.day), cost(one.figures)) for one in days],
    )


def _dollars(value: float) -> str:
    return f"${value:.2f}" if 0 < value < 10 else f"${value:.0f}" if value else "0"
