"""A report as Markdown, or as one HTML file that holds its plots and loads nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from html import escape
from pathlib import Path

import msgspec

from ratchet.app.report import FactoryReport
from ratchet.core import api
from ratchet.core.learning_lift import Judged
from ratchet.core.metrics import Figures
from ratchet.errors import UsageError
from ratchet.interfaces.plots import draw_panels, model_name
from ratchet.interfaces.terminal.figures import FIGURES, cost, cost_per_accepted, number, share, span

Rows = list[list[str]]
FORMS = (".md", ".html")


class Section(msgspec.Struct, frozen=True, kw_only=True):
    """A part of the report: a sentence, a table, and whether the plots are shown there. The first column is text."""

    title: str
    lead: str = ""
    heads: list[str] = []
    rows: Rows = []
    plots: bool = False


def sections(report: FactoryReport) -> Iterator[Section]:
    total, before = report.total, report.before
    summary = [[name, text(total), text(before)] for name, text in FIGURES]
    yield Section(title="In short", lead=_lead(total), heads=["", "now", "before"], rows=summary, plots=True)
    yield Section(
        title="Over time",
        heads=["hour" if report.hourly else "day", "completed", "failed", "accepted", "reverted", "cost"],
        rows=[
            [
                f"{slot.at:%Y-%m-%d %H:%M}" if report.hourly else f"{slot.at:%Y-%m-%d}",
                *(f"{getattr(slot.figures, name):,}" for name in ("completed", "failed", "accepted", "reverts")),
                cost(slot.figures),
            ]
            for slot in report.slots
            if slot.figures.steps or slot.figures.runs or slot.figures.calls
        ],
    )
    yield Section(
        title="Where time went",
        lead="Step time of each phase; what is not agent time is tests, gates and commits.",
        heads=["phase", "steps", "step time", "agent time"],
        rows=[
            [one.group["action"] or "between steps", f"{one.figures.steps:,}", *_times(one.figures)]
            for one in report.actions
        ],
    )
    yield Section(
        title="Where money went",
        heads=["agent and model", *_SPENT],
        rows=_spent(report.models, lambda group: model_name(group["agent"], group["model"])),
    )
    yield Section(title="By role", heads=["role", *_SPENT], rows=_spent(report.roles, lambda group: group["role"]))
    yield from _groups("By repository", report.repos, "repo")
    yield from _groups("By workflow", report.workflows, "workflow")
    yield from _learnings(report.learnings)


def _lead(total: Figures) -> str:
    if not total.runs and not total.steps:
        return "Nothing happened in this window."
    ended = total.completed + total.failed
    spent = f"{cost(total)} in all" if total.cost_usd is not None else "cost unknown"
    accepted = f"{total.accepted:,} changes accepted, {total.reverts:,} reverted"
    return f"{total.completed:,} of {ended:,} runs completed ({share(total.success_rate)}); {accepted}; {spent}."


_SPENT = ["calls", "tokens", "agent time", "cost"]


def _spent(groups: Sequence[api.FiguresGroup], name: Callable[[dict[str, str]], str]) -> Rows:
    return [
        [
            name(one.group) or "none",
            f"{one.figures.calls:,}",
            f"{one.figures.tokens_in + one.figures.tokens_out:,}",
            span(one.figures.agent_s),
            cost(one.figures),
        ]
        for one in groups
        if one.figures.calls
    ]


def _times(found: Figures) -> list[str]:
    return [span(found.step_s), span(found.agent_s)]


def _groups(title: str, groups: Sequence[api.FiguresGroup], by: str) -> Iterator[Section]:
    if len(groups) < 2:
        return
    yield Section(
        title=title,
        heads=[by, "completed", "failed", "accepted", "rev/commit", "to green", "cost", "cost/accepted"],
        rows=[
            [
                one.group[by] or "none",
                f"{one.figures.completed:,}",
                f"{one.figures.failed:,}",
                f"{one.figures.accepted:,}",
                number(one.figures.reverts_per_commit),
                number(one.figures.attempts_to_green),
                cost(one.figures),
                cost_per_accepted(one.figures),
            ]
            for one in groups
        ],
    )


_LEARNINGS_SHOWN = 10


def _learnings(judged: Sequence[Judged]) -> Iterator[Section]:
    tried = [one for one in judged if one.lift.delivered]
    if tried:
        proven = sum(one.proven for one in tried)
        yield Section(
            title="Which learnings helped",
            lead=f"{proven:,} of {len(tried):,} delivered learnings are proven to save attempts, in all time so far.",
            heads=["learning", "verdict", "delivered", "held out", "attempts saved"],
            rows=[
                [
                    one.content.partition("\n")[0][:80],
                    one.verdict,
                    f"{one.lift.delivered:,}",
                    f"{one.lift.held_out:,}",
                    share(one.lift.saved),
                ]
                for one in tried[:_LEARNINGS_SHOWN]
            ],
        )


def title(report: FactoryReport) -> str:
    form = "%Y-%m-%d %H:%M"
    return f"Ratchet, {report.since:{form}} to {report.until:{form}}" + (f", {report.repo}" if report.repo else "")


# --- Markdown ---------------------------------------------------------------------------------------------------------


def as_markdown(report: FactoryReport) -> str:
    parts = [f"# {title(report)}"]
    for section in sections(report):
        parts.append(f"## {section.title}")
        parts += [section.lead] if section.lead else []
        parts += [_markdown_table(section)] if section.rows else []
    return "\n\n".join(parts) + "\n"


def _markdown_table(section: Section) -> str:
    rule = ["---", *["---:"] * (len(section.heads) - 1)]
    rows = [section.heads, rule, *section.rows]
    return "\n".join(f"| {' | '.join(map(_cell, row))} |" for row in rows)


def _cell(text: str) -> str:
    return text.replace("\\", "\\\\").replace("|", "\\|").replace("\n", " ").replace("<", "&lt;")


# --- HTML -------------------------------------------------------------------------------------------------------------

_CSS = """
:root { color-scheme: light; }
body { margin: 0; background: #f6f5f1; color: #1c1b18; font: 15px/1.5 -apple-system, "Segoe UI", Inter, Roboto,
  "Noto Sans", "Liberation Sans", Arial, sans-serif; font-variant-numeric: tabular-nums; }
main { max-width: 70rem; margin: 0 auto; padding: 2rem 1.25rem 4rem; }
h1 { font-size: 1.5rem; letter-spacing: -.01em; margin: 0 0 .25rem; overflow-wrap: anywhere; }
h2 { font-size: 1.1rem; margin: 2.5rem 0 .5rem; }
p { margin: 0 0 .75rem; color: #5e5a50; max-width: 48rem; }
.plots { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 26rem), 1fr)); gap: 1rem;
  margin: 0 0 1rem; }
.plots figure { margin: 0; padding: 1rem; background: #fff; border: 1px solid #dedbd3; border-radius: 6px; }
.plots svg { display: block; width: 100%; height: auto; }
.table { overflow-x: auto; background: #fff; border: 1px solid #dedbd3; border-radius: 6px; }
table { border-collapse: collapse; width: 100%; }
th, td { padding: .4rem .9rem; text-align: right; white-space: nowrap; border-top: 1px solid #eceae4; }
thead th { border-top: 0; color: #5e5a50; font-weight: 500; }
th:first-child { text-align: left; font-weight: 400; white-space: normal; overflow-wrap: anywhere; min-width: 9rem; }
details summary { cursor: pointer; color: #5e5a50; margin: 0 0 .5rem; }
@media print { body { background: #fff; } .plots figure, .table { break-inside: avoid; } }
"""


def as_html(report: FactoryReport) -> str:
    panels = draw_panels(report)
    body = "".join(_html_section(section, panels) for section in sections(report))
    head = f"<h1>{escape(title(report))}</h1>"
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">"
        f"<title>{escape(title(report))}</title><style>{_CSS}</style></head><body><main>{head}{body}</main></body></html>\n"
    )


def _html_section(section: Section, panels: Sequence[str]) -> str:
    if not (section.lead or section.rows):
        return ""
    lead = f"<p>{escape(section.lead)}</p>" if section.lead else ""
    drawn = "".join(f"<figure>{panel}</figure>" for panel in panels) if section.plots else ""
    plots = f'<div class="plots">{drawn}</div>' if drawn else ""
    table = _html_table(section) if section.rows else ""
    return f"<section><h2>{escape(section.title)}</h2>{lead}{plots}{table}</section>"


def _html_table(section: Section) -> str:
    heads = "".join(f'<th scope="col">{escape(head)}</th>' for head in section.heads)
    rows = "".join(
        f'<tr><th scope="row">{escape(first)}</th>{"".join(f"<td>{escape(text)}</td>" for text in rest)}</tr>'
        for first, *rest in section.rows
    )
    return f'<div class="table"><table><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table></div>'


def write_report(report: FactoryReport, path: Path) -> None:
    """Write a report in the form that the file's suffix names, one of `FORMS`. Raises UsageError."""
    text = as_markdown(report) if path.suffix.lower() == ".md" else as_html(report)
    try:
        path.write_text(text, "utf-8")
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}", hint="check the path") from error
