"""Tables of items, workers and metrics, and the screen of `ratchet top`."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import msgspec

from ratchet.core import api
from ratchet.core.item import ItemStatus
from ratchet.core.lease import WorkerRow, WorkerStatus
from ratchet.core.queue import ItemRow, QueueCount
from ratchet.interfaces.terminal.colour import Paint, Tone
from ratchet.interfaces.terminal.layout import Cell, table

_TONES: dict[str, Tone] = {
    ItemStatus.IN_PROGRESS: Tone.GOOD,
    ItemStatus.ASSIGNED: Tone.GOOD,
    ItemStatus.COMPLETED: Tone.GOOD,
    ItemStatus.FAILED: Tone.BAD,
    ItemStatus.PARKED: Tone.WARN,
    ItemStatus.CANCELLED: Tone.DIM,
    WorkerStatus.RUNNING: Tone.GOOD,
    WorkerStatus.STUCK: Tone.WARN,
    WorkerStatus.KILLED: Tone.BAD,
    WorkerStatus.RELEASED: Tone.DIM,
}
_BAR = 24


class Overview(msgspec.Struct, frozen=True, kw_only=True):
    """Data of the `ratchet top` screen."""

    status: api.Status
    metrics: api.Metrics
    workers: list[WorkerRow]
    waiting: list[ItemRow]


def items(rows: Sequence[ItemRow], paint: Paint, *, now: datetime, width: int | None = None) -> str:
    if not rows:
        return "The queue is empty. Add an item: ratchet add SPEC.md"
    heads = ("ITEM", "STATUS", "PRIORITY", ">AGE", "TITLE")
    return table(heads, [_item(row, now) for row in rows], paint, width=width)


def workers(rows: Sequence[WorkerRow], paint: Paint, *, now: datetime, width: int | None = None) -> str:
    if not rows:
        return "No workers."
    heads = ("WORKER", "STATUS", "RUN", ">ITER", ">AGE", ">BEAT", "DETAIL")
    return table(heads, [_worker(row, now) for row in rows], paint, width=width)


def load(found: api.Metrics) -> str:
    """Render the queue by status and priority, the workers by status, and the limits."""
    queue = [(f"items {count.status}, {count.priority}", str(count.items)) for count in found.queue]
    live = [(f"workers {status}", str(n)) for status, n in sorted(found.workers.items())]
    left = [(f"today, {kind}", _left(found.today, kind)) for kind in _KINDS if _left(found.today, kind)]
    return "\n".join(f"{name:<28} {value}" for name, value in [*queue, *live, *_limit_rows(found.limits), *left])


def status(found: api.Status) -> str:
    """Render the queue, its workers, and the rest of the limits."""
    sums = {status: n for status, n in _sums(found.queue).items() if n}
    limits, today = found.limits, found.today
    rows = [
        ("queue", ", ".join(f"{n} {status}" for status, n in sums.items()) or "empty"),
        ("workers", f"{found.workers} at work, {found.serving} waiting for items"),
        *((name, f"{value}") for name, value in _limit_rows(limits)),
        *((f"today, {kind}", _left(today, kind)) for kind in _KINDS if _left(today, kind)),
    ]
    return "\n".join(f"{name:<26} {value}" for name, value in rows)


def _limit_rows(limits: api.Limits) -> list[tuple[str, str]]:
    named = [(f"limit, {name.replace('_', ' ')}", getattr(limits, name)) for name in _LIMITS]
    rows = [(name, str(value)) for name, value in named if value is not None]
    if limits.cooldown_s:
        until = f", until {limits.cooldown_until}" if limits.cooldown_until else ""
        rows.append(("limit, cooldown", f"{limits.cooldown_s:g} s{until}"))
    return rows


_LIMITS = ("workers", "per_repo", "awaiting_review", "daily_iterations")


def _left(today: api.DailyBudget, kind: str) -> str:
    cap = getattr(today.cap, kind)
    if cap is None:
        return ""
    spent, left = getattr(today.spent, kind), getattr(today.left, kind)
    held = getattr(today.reserved, kind) - spent
    reserved = f", {held:g} reserved" if held > 0 else ""
    unknown = f"; the cost of {_calls(today.unpriced_calls)} is not known" if kind == "cost_usd" else ""
    return f"{spent:g} of {cap:g} spent{reserved}, {left:g} left{unknown if today.unpriced_calls else ''}"


def _calls(number: int) -> str:
    return f"{number} agent call{'' if number == 1 else 's'}"


_KINDS = ("cost_usd", "tokens", "seconds", "iterations")


def screen(overview: Overview, paint: Paint, *, now: datetime, width: int | None, height: int) -> str:
    """Render metrics, workers and waiting items, cut to the height of the terminal."""
    lines = [*_numbers(overview, paint), "", *workers(overview.workers, paint, now=now, width=width).splitlines(), ""]
    lines += items(overview.waiting, paint, now=now, width=width).splitlines()
    return "\n".join(lines[: max(height, 5)])


def line(overview: Overview) -> str:
    """Render the overview in one line, for a pipe."""
    sums = _sums(overview.status.queue)
    counts = " ".join(f"{status}={n}" for status, n in sums.items() if n)
    day = overview.metrics
    return (
        f"{overview.status.at} workers={overview.status.workers} {counts} completed_today={day.completed_today} "
        f"failed_today={day.failed_today} cost_usd_today={day.spent_today.cost_usd:g}"
    )


def _numbers(overview: Overview, paint: Paint) -> list[str]:
    day, sums = overview.metrics, _sums(overview.status.queue)
    done, failed = day.completed_today, day.failed_today
    total = done + failed
    bar = (
        paint(Tone.GOOD, "█" * round(_BAR * done / total)) + paint(Tone.BAD, "█" * round(_BAR * failed / total))
        if (total)
        else paint(Tone.DIM, "·" * _BAR)
    )
    stuck = paint(Tone.WARN, f" ({overview.status.stuck} stuck)") if overview.status.stuck else ""
    unpriced = overview.status.today.unpriced_calls
    unknown = f" and the unknown cost of {_calls(unpriced)}" if unpriced else ""
    up = f"up {_age(overview.status.uptime_s)}" if overview.status.uptime_s else "local store"
    return [
        f"Ratchet {overview.status.version}   {up}   {overview.status.workers} at work{stuck}",
        f"today    {bar}  {paint(Tone.GOOD, f'{done} completed')}, {paint(Tone.BAD, f'{failed} failed')}",
        f"steps    {paint(Tone.GOOD, f'{day.commits_today} kept')}, {day.reverts_today} reverted, "
        f"{day.iterations_today} iterations, {day.recoveries_today} recovered",
        f"spent    ${day.spent_today.cost_usd:.2f}{unknown}, {day.spent_today.tokens:,.0f} tokens",
        f"queue    {sums[ItemStatus.QUEUED]} waiting, {sums[ItemStatus.PARKED]} parked",
    ]


def _sums(queue: Sequence[QueueCount]) -> dict[ItemStatus, int]:
    return {status: sum(count.items for count in queue if count.status == status) for status in ItemStatus}


def _item(row: ItemRow, now: datetime) -> list[Cell]:
    age = _age((now - datetime.fromisoformat(row.item.created_at)).total_seconds())
    why = f"  {_plain(_why(row, now))}" if row.detail else ""
    return [
        (Tone.PLAIN, row.item.id),
        (_TONES.get(row.status, Tone.PLAIN), row.status),
        (Tone.PLAIN, row.item.priority),
        (Tone.PLAIN, age),
        (Tone.PLAIN, f"{_plain(row.item.title)}{_labels(row.item.require_labels)}{why}"),
    ]


def _labels(labels: Sequence[str]) -> str:
    return f"  [{', '.join(labels)}]" if labels else ""


def _why(row: ItemRow, now: datetime) -> str:
    left_s = (datetime.fromisoformat(row.not_before) - now).total_seconds() if row.not_before else 0.0
    return f"retry in {_age(left_s)}: {row.detail}" if left_s > 0 else row.detail


def _worker(row: WorkerRow, now: datetime) -> list[Cell]:
    age, beat = (_age((now - datetime.fromisoformat(at)).total_seconds()) for at in (row.started_at, row.beat_at))
    plain = (row.run, str(row.iteration), age, beat, f"{_plain(row.detail)}{_labels(row.labels)}".strip())
    status = (_TONES.get(row.status, Tone.PLAIN), str(row.status))
    return [(Tone.PLAIN, row.id), status, *((Tone.PLAIN, text) for text in plain)]


def _age(seconds: float) -> str:
    for unit, size in (("d", 86_400), ("h", 3_600), ("m", 60)):
        if seconds >= size:
            return f"{seconds / size:.0f}{unit}"
    return f"{max(0, seconds):.0f}s"


def _plain(text: str) -> str:
    """Replace control characters: titles are untrusted text."""
    return "".join(char if char.isprintable() else " " for char in text)
