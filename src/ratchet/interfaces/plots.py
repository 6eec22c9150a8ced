"""Plots of a report, drawn by matplotlib: one panel each as SVG, or all of them as one picture in a file."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ratchet.app.report import FactoryReport, ReportSlot
from ratchet.core.metrics import Figures
from ratchet.errors import EnvironmentCannot, UsageError
from ratchet.interfaces.terminal.figures import money, span
from ratchet.plugins import install_extra

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

SUFFIXES = (".svg", ".png", ".pdf")
BARS_MAX, NAME_MAX_CHARS = 7, 28
LABELS_MAX = 5
NAMES_SHARE = 0.8  # of a row's width that its name has, in units of the longest bar
# The colours of the web pages: green is kept, red is reverted or failed, blue is the work itself.
INK, MUTED, LINE, SURFACE = "#1c1b18", "#5e5a50", "#dedbd3", "#ffffff"
GREEN, RED, BLUE, BRASS = "#2f8f5b", "#cf4436", "#2f74cc", "#b67a0c"
TEXT = {GREEN: "#19683a", RED: "#ad241c", BLUE: "#1b5aa6", BRASS: "#7d5000"}  # the same, dark enough to read
_STYLE: Any = {
    "font.family": ["Inter", "Noto Sans", "Liberation Sans", "Arial", "DejaVu Sans", "sans-serif"],
    "font.size": 9.0,
    "text.color": INK,
    "axes.edgecolor": LINE,
    "axes.facecolor": SURFACE,
    "figure.facecolor": SURFACE,
    "axes.labelcolor": MUTED,
    "axes.axisbelow": True,
    "axes.grid": False,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.spines.left": False,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.major.size": 0.0,
    "ytick.major.size": 0.0,
    "grid.color": LINE,
    "grid.linewidth": 0.6,
    "svg.fonttype": "none",  # text stays text: it can be found, and is drawn in the reader's font
    "svg.hashsalt": "ratchet",
}

Panel = Callable[["Axes", FactoryReport], None]


def save_plot(report: FactoryReport, path: Path) -> None:
    """Draw all panels as one picture. The file's suffix is its format."""
    if path.suffix.lower() not in SUFFIXES:
        raise UsageError(f"cannot draw {path.name}", hint=f"end the file's name with {', '.join(SUFFIXES)}")
    content = io.BytesIO()
    with _matplotlib() as new_figure:
        rows = (len(PANELS) + 1) // 2
        figure = new_figure(figsize=(11, 1.0 + 3.1 * rows))
        figure.set_layout_engine("constrained", h_pad=0.2, w_pad=0.25, hspace=0.06, wspace=0.03, rect=(0, 0, 1, 0.945))
        height = figure.get_figheight()
        figure.text(0.022, 1 - 0.30 / height, "Ratchet", fontsize=15, fontweight="bold", va="top")
        figure.text(0.978, 1 - 0.34 / height, _period(report), fontsize=10, color=MUTED, va="top", ha="right")
        for place, (_, draw) in enumerate(PANELS, 1):
            draw(figure.add_subplot(rows, 2, place), report)
        figure.savefig(content, format=path.suffix[1:].lower(), dpi=160, metadata=_undated(path.suffix.lower()))
    try:
        path.write_bytes(content.getvalue())
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}", hint="check the path") from error


def draw_panels(report: FactoryReport) -> list[str]:
    """Return each panel as an SVG element."""
    drawn: list[str] = []
    with _matplotlib() as new_figure:
        for name, draw in PANELS:
            figure = new_figure(figsize=(5.6, 2.9), layout="constrained")
            draw(figure.add_subplot(), report)
            content = io.StringIO()
            figure.savefig(content, format="svg", metadata=_undated(".svg"))
            drawn.append(_unique_ids(content.getvalue(), name))
    return drawn


def _unique_ids(svg: str, name: str) -> str:
    """Return the element without its preamble, with ids that no other panel in the page has."""
    body = svg[svg.index("<svg") :]
    for before in ('id="', 'xlink:href="#', "url(#"):
        body = body.replace(before, f"{before}{name}-")
    return body.replace("<svg ", f'<svg role="img" aria-label="{name}" ', 1)


def _undated(suffix: str) -> dict[str, None]:
    return {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}.get(suffix, {})


@contextmanager
def _matplotlib() -> Iterator[Callable[..., Figure]]:
    if find_spec("matplotlib") is None:
        raise EnvironmentCannot("plots need the `plots` extra", hint=install_extra("plots"))
    import logging  # noqa: PLC0415 — only for plots

    logging.getLogger("matplotlib.font_manager").setLevel(logging.ERROR)  # fonts of other systems are not missed
    import matplotlib as mpl  # noqa: PLC0415 — it takes a second to import
    from matplotlib.figure import Figure  # noqa: PLC0415

    with mpl.rc_context(_STYLE):
        yield Figure


def _period(report: FactoryReport) -> str:
    form = "%-d %B %Y, %H:%M" if report.hourly else "%-d %B %Y"
    first, last = report.since.strftime(form), report.until.strftime(form)
    return first if first == last else f"{first} to {last}"


# --- panels over time -------------------------------------------------------------------------------------------------


def _throughput(axes: Axes, report: FactoryReport) -> None:
    done, failed = ([getattr(slot.figures, name) for slot in report.slots] for name in ("completed", "failed"))
    _head(axes, "Throughput", (f"{_count(sum(done), 'run')} completed", GREEN), (f"{sum(failed):,} failed", RED))
    _columns(axes, done, GREEN)
    _columns(axes, failed, RED, bottom=done)
    _time_axis(axes, report)
    _count_axis(axes, [a + b for a, b in zip(done, failed, strict=True)])


def _changes(axes: Axes, report: FactoryReport) -> None:
    kept, undone = ([getattr(slot.figures, name) for slot in report.slots] for name in ("accepted", "reverts"))
    _head(axes, "Changes", (f"{sum(kept):,} accepted", GREEN), (f"{sum(undone):,} reverted", RED))
    _columns(axes, kept, GREEN)
    _columns(axes, [-value for value in undone], RED)
    axes.axhline(0, color=MUTED, linewidth=0.8)
    _time_axis(axes, report)
    axes.spines["bottom"].set_visible(False)
    _count_axis(axes, kept, undone)


def _cost(axes: Axes, report: FactoryReport) -> None:
    spent = [slot.figures.cost_usd or 0.0 for slot in report.slots]
    each = report.total.cost_per_accepted_usd
    also = [(f"{money(each)} per accepted change", MUTED)] if each else []
    _head(axes, "Cost", (_money(report.total), BLUE), *also)
    _columns(axes, spent, BLUE)
    _time_axis(axes, report)
    axes.set_ylim(0, max([0.01, *spent]) * 1.08)
    axes.yaxis.set_major_locator(_ticks())
    axes.yaxis.set_major_formatter(lambda value, _: f"${value:,.2f}" if max(spent, default=0) < 5 else f"${value:,.0f}")
    axes.grid(axis="y")


def _columns(axes: Axes, values: Sequence[float], colour: str, bottom: Sequence[float] | None = None) -> None:
    width = 0.72 if len(values) <= 45 else 0.9
    axes.bar(range(len(values)), values, width=width, color=colour, bottom=bottom, linewidth=0)


def _time_axis(axes: Axes, report: FactoryReport) -> None:
    slots = report.slots
    every = max(1, -(-len(slots) // LABELS_MAX))
    shown = list(range(len(slots) - 1, -1, -every))[::-1]
    axes.set_xticks(shown, [_slot_label(slots, index, hourly=report.hourly) for index in shown])
    axes.set_xlim(-0.5, max(len(slots), 7) - 0.3)
    axes.yaxis.tick_right()  # so that the titles of all panels begin at the same edge


def _slot_label(slots: Sequence[ReportSlot], index: int, *, hourly: bool) -> str:
    at = slots[index].at
    return f"{at:%H:%M}" if hourly else f"{at.day} {at:%b}"


def _count_axis(axes: Axes, up: Sequence[int], down: Sequence[int] = ()) -> None:
    top, low = max([1, *up]), max([0, *down])
    axes.set_ylim(-low * 1.08, top * 1.08)
    axes.yaxis.set_major_locator(_ticks(whole=True))
    axes.yaxis.set_major_formatter(lambda value, _: f"{abs(value):,.0f}")
    axes.grid(axis="y")


def _ticks(*, whole: bool = False) -> MaxNLocator:
    from matplotlib.ticker import MaxNLocator  # noqa: PLC0415 — optional

    return MaxNLocator(nbins=4, integer=whole, steps=[1, 2, 5, 10])


# --- panels of parts --------------------------------------------------------------------------------------------------


def _phases(axes: Axes, report: FactoryReport) -> None:
    """Draw the time of each phase: that of agents, and the rest, which tests, gates and commits take."""
    rows = [one for one in report.actions if one.figures.step_s or one.figures.agent_s]
    agents = [min(one.figures.agent_s, one.figures.step_s) for one in rows]
    whole = [max(one.figures.step_s, one.figures.agent_s) for one in rows]
    rest = [both - part for both, part in zip(whole, agents, strict=True)]
    tests = (f"{span(sum(rest))} of tests, gates, commits", BRASS)
    _head(axes, "Time by phase", (f"{span(sum(agents))} of agents", BLUE), tests)
    names = [one.group["action"] or "between steps" for one in rows]
    _rows(axes, names, [(agents, BLUE), (rest, BRASS)], span)


def _models(axes: Axes, report: FactoryReport) -> None:
    rows = [one for one in report.models if one.figures.calls]
    _head(axes, "Where the money went", ("by agent and model", MUTED))
    names = [model_name(one.group["agent"], one.group["model"]) for one in rows]
    _rows(axes, names, [([one.figures.cost_usd or 0.0 for one in rows], BLUE)], _money, [one.figures for one in rows])


def _roles(axes: Axes, report: FactoryReport) -> None:
    rows = [one for one in report.roles if one.figures.calls]
    _head(axes, "Where the money went", ("by role", MUTED))
    names = [one.group["role"] or "none" for one in rows]
    _rows(axes, names, [([one.figures.cost_usd or 0.0 for one in rows], BLUE)], _money, [one.figures for one in rows])


def _rows(
    axes: Axes,
    names: Sequence[str],
    parts: Sequence[tuple[Sequence[float], str]],
    text: Callable[..., str],
    labelled: Sequence[object] | None = None,
) -> None:
    """Draw horizontal bars, the longest first, each with its value at the end; the smallest are added up."""
    totals = [sum(values) for values in zip(*(part for part, _ in parts), strict=True)]
    if not totals:
        axes.text(0.0, 0.5, "Nothing in this window.", transform=axes.transAxes, color=MUTED)
        axes.set_axis_off()
        return
    order = sorted(range(len(totals)), key=lambda index: -totals[index])[:BARS_MAX]
    most = max(1e-9, *totals)
    left = [0.0] * len(order)
    for values, colour in parts:
        widths = [values[index] for index in order]
        axes.barh(range(len(order)), widths, left=left, height=0.62, color=colour, linewidth=0)
        left = [a + b for a, b in zip(left, widths, strict=True)]
    for place, index in enumerate(order):
        axes.text(-NAMES_SHARE * most, place, _short(names[index]), va="center")
        label = text(labelled[index] if labelled else totals[index])
        axes.text(totals[index] + most * 0.012, place, label, va="center", color=MUTED, fontsize=8.5)
    if rest := len(totals) - len(order):
        axes.text(-NAMES_SHARE * most, len(order), f"and {rest} smaller", va="center", color=MUTED)
    axes.set_ylim(BARS_MAX + 0.4, -0.6)
    axes.set_xlim(-NAMES_SHARE * most, most * 1.3)
    axes.set_axis_off()


def _head(axes: Axes, title: str, *leads: tuple[str, str]) -> None:
    """Write a title and its totals. The colours of its words are the legend."""
    axes.set_title(title, loc="left", fontsize=11, fontweight="bold", pad=22)
    place: dict[str, Any] = {"xy": (0, 1), "xytext": (0, 7), "xycoords": "axes fraction"}
    for number, (text, colour) in enumerate(leads):
        shown = f"\u00a0\u00a0·\u00a0\u00a0{text}" if number else text
        after = axes.annotate(shown, **place, textcoords="offset points", color=TEXT.get(colour, colour), va="bottom")
        place = {"xy": (1, 0), "xytext": (0, 0), "xycoords": after}


def model_name(agent: str, model: str) -> str:
    """Return `codex · gpt-5`; a model that is named after its agent stands for both."""
    return model if agent and model.startswith(agent) else " · ".join(filter(None, (agent, model))) or "unknown"


def _short(name: str) -> str:
    """Return a name that fits before a bar: of a command line, the end says more than its middle."""
    return name if len(name) <= NAME_MAX_CHARS else f"{name[:9]}…{name[-(NAME_MAX_CHARS - 10) :]}"


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def _money(found: Figures) -> str:
    return money(found.cost_usd, is_lower_bound=bool(found.unpriced_calls))


PANELS: tuple[tuple[str, Panel], ...] = (
    ("throughput", _throughput),
    ("phases", _phases),
    ("changes", _changes),
    ("models", _models),
    ("cost", _cost),
    ("roles", _roles),
)
