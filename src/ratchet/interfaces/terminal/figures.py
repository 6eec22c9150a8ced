"""Figures as text: every figure of a window, and a table of groups."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime

from ratchet.core import api
from ratchet.core.metrics import Figures
from ratchet.interfaces.terminal.colour import Paint, Tone
from ratchet.interfaces.terminal.layout import Cell, table

NONE = "-"


def number(value: float | None) -> str:
    return NONE if value is None else f"{value:,.2f}".rstrip("0").rstrip(".")


def share(value: float | None) -> str:
    return NONE if value is None else f"{value:.0%}"


def money(value: float | None, *, is_lower_bound: bool = False) -> str:
    if value is None:
        return "unknown"
    text = "under $0.01" if 0 < value < 0.005 else f"${value:,.2f}"
    return f"at least {text}" if is_lower_bound else text


def span(seconds: float | None) -> str:
    """Return `0.35 s`, `12 s`, `4 min 10 s`, `2 h 41 min`, `3 d 4 h`."""
    if seconds is None:
        return NONE
    if seconds < 10:
        return f"{seconds:.2g} s" if seconds else "0 s"
    for unit, name, part, part_name in ((86_400, "d", 3_600, "h"), (3_600, "h", 60, "min"), (60, "min", 1, "s")):
        if seconds >= unit:
            rest = int(seconds % unit // part)
            return f"{int(seconds // unit)} {name}" + (f" {rest} {part_name}" if rest else "")
    return f"{seconds:.0f} s"


def cost(found: Figures) -> str:
    return money(found.cost_usd, is_lower_bound=bool(found.unpriced_calls))


def cost_per_accepted(found: Figures) -> str:
    if found.cost_per_accepted_usd is None:
        return "unknown" if found.unpriced_calls and found.accepted else NONE
    return money(found.cost_per_accepted_usd)


def _tokens(found: Figures) -> str:
    cached = f", {found.tokens_cached:,} of it cached" if found.tokens_cached else ""
    return f"{found.tokens_in:,} in{cached}; {found.tokens_out:,} out"


# The name of each figure and its text, in the order of a report.
FIGURES: tuple[tuple[str, Callable[[Figures], str]], ...] = (
    ("runs completed", lambda one: f"{one.completed:,}"),
    ("runs failed", lambda one: f"{one.failed:,}"),
    ("runs aborted", lambda one: f"{one.aborted:,}"),
    ("success rate", lambda one: share(one.success_rate)),
    ("average completion time", lambda one: span(one.average_completion_s)),
    ("iterations", lambda one: f"{one.iterations:,}"),
    ("changes accepted", lambda one: f"{one.accepted:,}"),
    ("changes reverted", lambda one: f"{one.reverts:,}"),
    ("reverts per commit", lambda one: number(one.reverts_per_commit)),
    ("attempts to green", lambda one: number(one.attempts_to_green)),
    ("overfitted changes caught", lambda one: f"{one.overfitted_caught:,}"),
    ("false done", lambda one: f"{one.false_done:,}"),
    ("tests refused", lambda one: f"{one.refused_tests:,}"),
    ("cost", cost),
    ("cost per accepted change", cost_per_accepted),
    ("tokens", _tokens),
    ("agent calls", lambda one: f"{one.calls:,}"),
    ("agent time", lambda one: span(one.agent_s)),
    ("crash recoveries", lambda one: f"{one.recoveries:,}"),
    ("runs requeued", lambda one: f"{one.requeued:,}"),
    ("workspace create time", lambda one: span(one.workspace_create_s)),
    ("time lost to quota", lambda one: span(one.quota_s)),
)
# The columns of a table of groups; numbers are right-aligned.
COLUMNS: tuple[tuple[str, Callable[[Figures], str]], ...] = (
    ("done", lambda one: f"{one.completed:,}"),
    ("failed", lambda one: f"{one.failed:,}"),
    ("accepted", lambda one: f"{one.accepted:,}"),
    ("reverts", lambda one: f"{one.reverts:,}"),
    ("rev/commit", lambda one: number(one.reverts_per_commit)),
    ("to green", lambda one: number(one.attempts_to_green)),
    ("calls", lambda one: f"{one.calls:,}"),
    ("tokens", lambda one: f"{one.tokens_in + one.tokens_out:,}"),
    ("agent time", lambda one: span(one.agent_s)),
    ("step time", lambda one: span(one.step_s)),
    ("cost", cost),
    ("cost/accepted", cost_per_accepted),
)


def period(found: api.Metrics) -> str:
    began, ended = (datetime.fromisoformat(at).astimezone() for at in (found.since, found.until))
    ended = min(ended, datetime.fromisoformat(found.at).astimezone())
    return f"{began:%Y-%m-%d %H:%M} to {ended:%Y-%m-%d %H:%M}"


def summary(found: Figures) -> str:
    return "\n".join(f"{name:<28} {text(found)}" for name, text in FIGURES)


def groups(found: Sequence[api.FiguresGroup], paint: Paint, *, width: int | None = None) -> str:
    if not found:
        return "Nothing happened in this window."
    names = [*found[0].group]
    heads = [*(name.upper() for name in names), *(f">{name.upper()}" for name, _ in COLUMNS)]
    return table(heads, [_row(one) for one in found], paint, width=width)


def _row(one: api.FiguresGroup) -> list[Cell]:
    named = [(Tone.PLAIN, value or NONE) for value in one.group.values()]
    return [*named, *((Tone.PLAIN, text(one.figures)) for _, text in COLUMNS)]
