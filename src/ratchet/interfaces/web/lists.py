"""The lists of runs and workers, the budgets, and what `ratchet watch` sees."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from starlette.requests import Request

from ratchet.app.watch import read_state
from ratchet.core.board import BoardColumn
from ratchet.core.budget import BudgetScope
from ratchet.core.item import ItemStatus, ParkReason
from ratchet.core.state import RunStatus
from ratchet.core.watch import Colour, WatchStage
from ratchet.errors import RatchetError
from ratchet.interfaces.web import words
from ratchet.interfaces.web.site import Site
from ratchet.store.protocols import RunRow

REPOS_MAX = 20
TONES = {
    RunStatus.COMPLETED: ("green", "kept"),
    RunStatus.FAILED: ("red", "failed"),
    RunStatus.ABORTED: ("muted", "skip"),
    RunStatus.RUNNING: ("blue", "now"),
}


def runs_values(site: Site, request: Request) -> dict[str, Any]:
    given = request.query_params
    status = RunStatus(given["status"]) if given.get("status") in list(RunStatus) else None
    try:
        rows, after = site.store.runs_page(status=status, after=given.get("after", ""), limit=50)
    except RatchetError:
        rows, after = site.store.runs_page(status=status, limit=50)
    now = words.utc_now()
    return {
        "rows": [
            {
                "row": row,
                "age": words.age(row.created_at, now),
                "tone": _tone(row)[0],
                "icon": _tone(row)[1],
            }
            for row in rows
        ],
        "after": after,
        "wanted": status,
        "statuses": list(RunStatus),
    }


def _tone(row: RunRow) -> tuple[str, str]:
    moves = row.item_status in (ItemStatus.IN_PROGRESS, ItemStatus.ASSIGNED)
    return TONES[row.status] if row.status is not RunStatus.RUNNING or moves else ("muted", "wait")


def workers_values(site: Site) -> dict[str, Any]:
    live = site.store.workers(live=True)
    alive = {one.id for one in live}
    now = words.utc_now()
    recent = [one for one in site.store.workers(limit=50) if one.id not in alive]
    titles = {row.id: row for row in site.store.board((BoardColumn.IN_PROGRESS,), limit=200)}

    def shown(worker: Any) -> dict[str, Any]:
        return {
            "worker": worker,
            "age": words.age(worker.started_at, now),
            "beat": words.age(worker.ended_at or worker.beat_at, now),
            "row": titles.get(worker.item),
        }

    return {
        "live": [shown(one) for one in live],
        "recent": [shown(one) for one in recent[:30]],
        "slots": site.settings.worker.count,
    }


def budgets_values(site: Site) -> dict[str, Any]:
    store, budget = site.store, site.settings.budget
    rows = store.board((BoardColumn.IN_PROGRESS, BoardColumn.PARKED, BoardColumn.QUEUED), limit=100)
    working = [row for row in rows if row.column is BoardColumn.IN_PROGRESS]
    spending = {(one.scope, one.name): one for one in store.spending([row.id for row in working])}
    today = [one for one in spending.values() if one.scope is BudgetScope.REPO]
    repos = sorted({row.repo for row in rows} | {one.name for one in today})[:REPOS_MAX]

    def gauge(name: str, scope: BudgetScope, of: str, cap: float) -> dict[str, Any]:
        found = spending.get((scope, of))
        return _gauge(name, found.spent_usd if found else 0.0, found.used_usd if found else 0.0, cap)

    day = _gauge("Today", sum(one.spent_usd for one in today), sum(one.used_usd for one in today), budget.day.cost_usd)
    now = words.utc_now()
    waits = [
        {"row": row, "wakes": words.wakes(row.not_before, now) if row.not_before else "", "detail": row.detail}
        for row in rows
        if row.column is BoardColumn.PARKED and row.park_reason is ParkReason.QUOTA
    ]
    cap = budget.repo.cost_usd
    return {
        "gauges": [day, *(gauge(words.repo_name(repo), BudgetScope.REPO, repo, cap) for repo in repos)],
        "items": [
            gauge(row.title, BudgetScope.ITEM, row.id, budget.item.cost_usd) | {"run": row.run} for row in working
        ],
        "waits": waits,
    }


def _gauge(name: str, spent: float, used: float, cap: float) -> dict[str, Any]:
    share = (lambda usd: min(100.0, 100 * usd / cap)) if cap else (lambda _usd: 0.0)
    return {
        "name": name,
        "spent": spent,
        "reserved": max(0.0, used - spent),
        "cap": cap,
        "spent_x": round(share(spent), 1),
        "reserved_x": round(share(used) - share(spent), 1),
        "full": bool(cap) and used >= cap * 0.999,
        "run": "",
    }


_COLOURS = {
    Colour.GREEN: ("green", "ok", "green"),
    Colour.RED: ("red", "failed", "red"),
    Colour.PENDING: ("blue", "now", "not known yet"),
}
_STAGES = {
    WatchStage.STARTING: "starting",
    WatchStage.AFFECTED: "runs the tests that the change affects",
    WatchStage.EVERYTHING: "runs all tests",
    WatchStage.IDLE: "waits for a change",
    WatchStage.GONE: "the folder was removed",
}
FAILING_MAX = 50


def watch_values(site: Site) -> dict[str, Any]:
    """Return the last state of each watched tree: of the server's folder, and of the repositories of items here."""
    here = [str(site.folder), *sorted({row.repo for row in site.store.board(limit=50)})]
    folders = dict.fromkeys(path for path in here if Path(path).is_absolute())
    now = words.utc_now()
    trees = []
    for folder in folders:
        if state := read_state(Path(folder)):
            tone, icon, colour = _COLOURS[state.colour]
            trees.append(
                {
                    "name": words.repo_name(folder),
                    "state": state,
                    "tone": tone,
                    "icon": icon,
                    "colour": colour,
                    "stage": _STAGES[state.stage],
                    "age": words.age(state.at, now),
                    "failing": state.failing[:FAILING_MAX],
                    "more": len(state.failing) - FAILING_MAX,
                }
            )
    return {"trees": trees}
