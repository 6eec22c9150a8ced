"""The lists of runs and workers, and the budgets."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request

from ratchet.core.board import BoardColumn
from ratchet.core.budget import BudgetScope
from ratchet.core.item import ParkReason
from ratchet.core.state import RunStatus
from ratchet.errors import RatchetError
from ratchet.interfaces.web import words
from ratchet.interfaces.web.site import Site

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
                "tone": TONES[row.status][0],
                "icon": TONES[row.status][1],
            }
            for row in rows
        ],
        "after": after,
        "wanted": status,
        "statuses": list(RunStatus),
    }


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
    repos = sorted({row.repo for row in rows})[:20]
    gauges = [_gauge("Today", store, BudgetScope.DAY, "", budget.day.cost_usd)]
    gauges += [_gauge(words.repo_name(repo), store, BudgetScope.REPO, repo, budget.repo.cost_usd) for repo in repos]
    now = words.utc_now()
    waits = [
        {"row": row, "wakes": words.wakes(row.not_before, now) if row.not_before else "", "detail": row.detail}
        for row in rows
        if row.column is BoardColumn.PARKED and row.park_reason is ParkReason.QUOTA
    ]
    working = [row for row in rows if row.column is BoardColumn.IN_PROGRESS]
    items = [
        _gauge(row.title, store, BudgetScope.ITEM, row.id, budget.item.cost_usd) | {"run": row.run} for row in working
    ]
    return {"gauges": gauges, "items": items, "waits": waits}


def _gauge(name: str, store: Any, scope: BudgetScope, of: str, cap: float) -> dict[str, Any]:
    spent, used = store.spent(scope, of).cost_usd, store.used(scope, of).cost_usd
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
