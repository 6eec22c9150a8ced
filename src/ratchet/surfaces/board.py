"""The queue, the workers and the numbers as text: tables for commands, and the one screen of `ratchet top`."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import msgspec

from ratchet.core import api
from ratchet.core.item import ItemStatus
from ratchet.core.lease import WorkerRow, WorkerStatus
from ratchet.core.queue import Count, ItemRow
from ratchet.surfaces.paint import Paint, Tone

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


class Glance(msgspec.Struct, frozen=True, kw_only=True):
    """What one screen shows."""

    status: api.Status
    metrics: api.Metrics
    workers: list[WorkerRow]
    waiting: list[ItemRow]


def items(rows: Sequence[ItemRow], paint: Paint, *, now: datetime) -> str:
    if not rows:
        return "Nothing is waiting. Add something: ratchet add SPEC.md"
    head = f"{'ITEM':<32} {'STATUS':<12} {'PRIORITY':<9} {'AGE':>6}  TITLE"
    return "\n".join([paint(Tone.DIM, head), *(_item(row, paint, now) for row in rows)])


def workers(rows: Sequence[WorkerRow], paint: Paint, *, now: datetime) -> str:
    if not rows:
        return "No worker is at work."
    head = f"{'WORKER':<27} {'STATUS':<10} {'RUN':<31} {'ITER':>4} {'AGE':>6} {'BEAT':>6}  DETAIL"
    return "\n".join([paint(Tone.DIM, head), *(_worker(row, paint, now) for row in rows)])


def metrics(found: api.Metrics) -> str:
    rows = [(name.replace("_", " "), getattr(found, name)) for name in found.__struct_fields__]
    plain = [(name, f"{value:g}") for name, value in rows if isinstance(value, int | float)]
    spent = [(f"spent today, {kind}", f"{getattr(found.spent_today, kind):g}") for kind in _KINDS]
    queue = [(f"items {count.status}, {count.priority}", str(count.items)) for count in found.queue]
    live = [(f"workers {status}", str(n)) for status, n in sorted(found.workers.items())]
    return "\n".join(f"{name:<28} {value:>12}" for name, value in [*queue, *live, *plain, *spent])


_KINDS = ("cost_usd", "tokens", "seconds", "iterations")


def screen(glance: Glance, paint: Paint, *, now: datetime, width: int, height: int) -> str:
    """As many lines as fit: the numbers, who works, who waits."""
    lines = [*_numbers(glance, paint), "", *workers(glance.workers, paint, now=now).splitlines(), ""]
    lines += items(glance.waiting, paint, now=now).splitlines()
    return "\n".join(_cut(line, width) for line in lines[: max(height, 5)])


def line(glance: Glance) -> str:
    """The same in one line, for a pipe."""
    sums = _sums(glance.status.queue)
    told = " ".join(f"{status}={n}" for status, n in sums.items() if n)
    day = glance.metrics
    return (
        f"{glance.status.at} workers={glance.status.workers} {told} completed_today={day.completed_today} "
        f"failed_today={day.failed_today} cost_usd_today={day.spent_today.cost_usd:g}"
    )


def _numbers(glance: Glance, paint: Paint) -> list[str]:
    day, sums = glance.metrics, _sums(glance.status.queue)
    done, failed = day.completed_today, day.failed_today
    total = done + failed
    bar = (
        paint(Tone.GOOD, "█" * round(_BAR * done / total)) + paint(Tone.BAD, "█" * round(_BAR * failed / total))
        if (total)
        else paint(Tone.DIM, "·" * _BAR)
    )
    stuck = paint(Tone.WARN, f" ({glance.status.stuck} stuck)") if glance.status.stuck else ""
    up = f"up {_age(glance.status.uptime_s)}" if glance.status.uptime_s else "no server asked"
    return [
        f"Ratchet {glance.status.version}   {up}   {glance.status.workers} at work{stuck}",
        f"today    {bar}  {paint(Tone.GOOD, f'{done} completed')}, {paint(Tone.BAD, f'{failed} failed')}",
        f"steps    {paint(Tone.GOOD, f'{day.commits_today} kept')}, {day.reverts_today} undone, "
        f"{day.iterations_today} iterations, {day.recoveries_today} recovered",
        f"spent    ${day.spent_today.cost_usd:.2f}, {day.spent_today.tokens:,.0f} tokens",
        f"queue    {sums[ItemStatus.QUEUED]} waiting, {sums[ItemStatus.PARKED]} parked",
    ]


def _sums(queue: Sequence[Count]) -> dict[ItemStatus, int]:
    return {status: sum(count.items for count in queue if count.status == status) for status in ItemStatus}


def _item(row: ItemRow, paint: Paint, now: datetime) -> str:
    status = paint(_TONES.get(row.status, Tone.PLAIN), f"{row.status:<12}")
    age = _age((now - datetime.fromisoformat(row.item.created_at)).total_seconds())
    why = paint(Tone.DIM, f"  {_plain(_why(row, now))}") if row.detail else ""
    return f"{row.item.id:<32} {status} {row.item.priority:<9} {age:>6}  {_plain(row.item.title)}{why}"


def _why(row: ItemRow, now: datetime) -> str:
    left_s = (datetime.fromisoformat(row.not_before) - now).total_seconds() if row.not_before else 0.0
    return f"again in {_age(left_s)}: {row.detail}" if left_s > 0 else row.detail


def _worker(row: WorkerRow, paint: Paint, now: datetime) -> str:
    status = paint(_TONES.get(row.status, Tone.PLAIN), f"{row.status:<10}")
    age, beat = (_age((now - datetime.fromisoformat(at)).total_seconds()) for at in (row.started_at, row.beat_at))
    return f"{row.id:<27} {status} {row.run:<31} {row.iteration:>4} {age:>6} {beat:>6}  {_plain(row.detail)}"


def _age(seconds: float) -> str:
    for unit, size in (("d", 86_400), ("h", 3_600), ("m", 60)):
        if seconds >= size:
            return f"{seconds / size:.0f}{unit}"
    return f"{max(0, seconds):.0f}s"


def _plain(text: str) -> str:
    """A title is somebody's text: it draws nothing on a terminal but its letters."""
    return "".join(char if char.isprintable() else " " for char in text)


def _cut(text: str, width: int) -> str:
    """To so many visible characters; colours take no room."""
    seen, out, rest = 0, [], text
    while rest and seen < width:
        if rest.startswith("\x1b["):
            end = rest.index("m") + 1
            out.append(rest[:end])
            rest = rest[end:]
        else:
            out.append(rest[0])
            seen, rest = seen + 1, rest[1:]
    return "".join(out) + ("\x1b[0m" if "\x1b" in text else "")
