"""The run page: the picture, the steps with their detail, tests over test runs, proofs, cost, story and log."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import msgspec

from ratchet.app.run_view import RunReader, RunView
from ratchet.core import api
from ratchet.core import events as ev
from ratchet.core.item import OPEN, ItemStatus, ParkReason
from ratchet.core.picture import AttemptEnd, Part, PartKind, Picture, PictureStep, StepOutcome
from ratchet.core.receipt import Artifact, Receipt
from ratchet.core.report import GREEN, RED, Report, TestStatus
from ratchet.interfaces.web import diffs, ratchet_svg, words
from ratchet.interfaces.web.plot import BIG, SIZES

WINDOW_ATTEMPTS = 27
EVENTS_SHOWN = 200
COLUMNS_MAX = 14
ROWS_MAX = 60
PROOFS_MAX, PROOFS_OPEN = 200, 10
FOLDED_MAX = 6
STORY_MAX = 8
TREES = ev.TestWritten | ev.ChangeProposed


class RunQuery(msgspec.Struct, frozen=True, kw_only=True):
    step: int = 0
    show: str = "steps"
    first: int = -1
    last: int = -1
    after: int = -1


def parse_query(given: dict[str, str]) -> RunQuery:
    def number(name: str, default: int) -> int:
        text = given.get(name, "")
        return int(text) if text.isdecimal() and len(text) < 9 else default

    show = given.get("show", "steps")
    return RunQuery(
        step=number("step", 0),
        show=show if show in ("steps", "failures", "events") else "steps",
        first=number("from", -1),
        last=number("to", -1),
        after=number("after", -1),
    )


def values(reader: RunReader, run: str, query: RunQuery) -> dict[str, Any]:
    """Return what the template `run.html` shows."""
    view = reader.view(run)
    picture = view.picture
    first, last = _window(picture, query)
    step = _chosen(picture, query, first, last)
    receipts = reader.receipts(run)
    parts = [_part(picture, index, query, step) for index in range(first, last + 1)]
    return {
        "view": view,
        "picture": picture,
        "query": query,
        "facts": _facts(picture),
        "drawings": _drawings(picture, first, last, step),
        "windowed": _is_windowed(picture),
        "window": (first, last),
        "parts": [part for part in parts if part["steps"]],
        "events": _events(reader, view, query) if query.show == "events" else [],
        "chip": chip(view),
        "selected": step,
        "detail": _detail(reader, view, step, receipts) if step else None,
        "matrix": _matrix(reader, view, receipts, first, last),
        "proofs": list(_proofs(picture))[-PROOFS_MAX:],
        "proofs_open": PROOFS_OPEN,
        "branch": picture.started.branch if picture.started and picture.kept else "",
        "costs": _costs(picture),
        "story": list(_story(picture)),
        "logs": reader.logs(view, picture.steps[-1].number) if picture.steps else [],
        "cap_usd": (picture.started.policy.get("cents", 0) / 100) if picture.started else 0,
        "spent_usd": sum(one.cost_usd for one in picture.steps),
        "running": picture.ended is None and view.item.status in (ItemStatus.ASSIGNED, ItemStatus.IN_PROGRESS),
        "open": view.item.status in OPEN,
        "nudged_chars": api.NUDGE_MAX_CHARS,
        "question": view.item.park_reason is ParkReason.QUESTION,
    }


# --- which part is shown ----------------------------------------------------------------------------------------------


def _is_windowed(picture: Picture) -> bool:
    return ratchet_svg.needs_overview(picture, BIG)


def _window(picture: Picture, query: RunQuery) -> tuple[int, int]:
    """Return the first and last part to show: all of a short run, else those asked for or the newest."""
    top = len(picture.parts) - 1
    if query.first >= 0 and query.last >= query.first:
        return min(query.first, max(0, top)), min(query.last, top)
    if not _is_windowed(picture):
        return 0, top
    around = picture.step(query.step)
    last = min(top, around.part + 2) if around else top
    first, attempts = last, 0
    by_part = [0] * (top + 1)
    for one in picture.attempts:
        by_part[picture.steps[one.change].part] += 1
    while first > 0 and attempts + by_part[first] <= WINDOW_ATTEMPTS:
        attempts += by_part[first]
        first -= 1
    return first, last


def _chosen(picture: Picture, query: RunQuery, first: int, last: int) -> PictureStep | None:
    """Return the step asked for, else the newest slip, else the newest tooth, else the last step."""
    if found := picture.step(query.step):
        return found
    inside = [one for one in picture.steps if first <= one.part <= last]
    slips = [one for one in inside if one.outcome is StepOutcome.REVERTED]
    kept = [one for one in inside if one.outcome is StepOutcome.KEPT]
    return (slips or kept or inside or [None])[-1]  # type: ignore[list-item]  # None ends an empty run


def _drawings(picture: Picture, first: int, last: int, step: PictureStep | None) -> dict[str, list[Any]]:
    selected = step.number if step else None
    if not _is_windowed(picture) and (first, last) == (0, len(picture.parts) - 1):
        scene = ratchet_svg.whole(picture, selected=selected)
        overview = []
    else:
        scene = ratchet_svg.window(picture, first, last, selected=selected)
        overview = [ratchet_svg.overview(picture, size, (first, last)) for size in SIZES]
    return {"overview": overview, "scene": [ratchet_svg.Drawing(scene, size).svg() for size in SIZES]}


# --- facts, chips, rows -----------------------------------------------------------------------------------------------


def _facts(picture: Picture) -> list[tuple[str, str, str, str]]:
    """Return (icon, tone, name, value): the numbers that are also the legend."""
    refused = sum(one.outcome is StepOutcome.REFUSED for one in picture.steps)
    undone = sum(bool(one.undone) for one in picture.steps)
    found = [
        ("tooth", "", "commit kept" if picture.kept == 1 else "commits kept", str(picture.kept)),
        ("slip", "", "slip" if picture.slips == 1 else "slips", str(picture.slips)),
        ("seal", "violet", "caught by a sealed test", str(picture.sealed)),
        ("refused", "red", "test refused" if refused == 1 else "tests refused", str(refused)),
        ("undone", "red", "write undone" if undone == 1 else "writes undone", str(undone)),
        ("question", "brass", "waited for a person", words.duration(picture.waited_s) if picture.waited_s else ""),
    ]
    return [fact for fact in found if fact[0] in ("tooth", "slip") or fact[3] not in ("0", "")]


def chip(view: RunView) -> tuple[str, str, str]:
    """Return (tone, icon, text) of what the run is doing or how it ended."""
    picture, item = view.picture, view.item
    match picture.ended:
        case ev.RunCompleted():
            return "green", "ok", f"completed, {words.count(picture.kept, 'commit')}"
        case ev.RunFailed(reason=reason):
            return "red", "failed", f"failed: {str(reason).replace('_', ' ')}"
        case ev.RunAborted(by=by):
            return "", "skip", f"cancelled by {by}"
    if item.status is ItemStatus.PARKED and item.park_reason:
        person = item.park_reason is not ParkReason.QUOTA and item.park_reason is not ParkReason.BLOCKED
        return (
            ("brass", "question", f"parked: {item.park_reason}")
            if person
            else ("", "wait", f"parked: {item.park_reason}")
        )
    if step := picture.running:
        iteration = f", iteration {picture.iteration}" if picture.iteration else ""
        return "blue", "now", f"{words.phase(step.action)}{iteration}"
    return "", "wait", str(item.status).replace("_", " ")


def _part(picture: Picture, index: int, query: RunQuery, selected: PictureStep | None) -> dict[str, Any]:
    part = picture.parts[index]
    steps = [picture.steps[one] for one in part.steps]
    shown = [step for step in steps if query.show != "failures" or step.is_bad or step.undone]
    is_last = index == len(picture.parts) - 1
    return {
        "id": f"part-{index}",
        "label": _label(part),
        "title": part.title or ("baseline" if part.kind is PartKind.BEFORE else ""),
        "end": _part_end(steps),
        "open": is_last or query.show == "failures" or selected in steps,
        "steps": [_row(picture, step) for step in shown],
    }


def _label(part: Part) -> str:
    if part.kind is PartKind.ITERATION:
        return str(part.number)
    return {PartKind.BEFORE: "Before", PartKind.REFACTOR: "Refactor", PartKind.END: "End"}[part.kind]


def _part_end(steps: list[PictureStep]) -> str:
    kept = sum(step.outcome is StepOutcome.KEPT for step in steps)
    slips = sum(step.outcome is StepOutcome.REVERTED for step in steps)
    cost = sum(step.cost_usd for step in steps)
    counts = ["kept"] if kept else []
    counts += [words.count(slips, "slip")] if slips else []
    time = words.clock(sum(step.active_s for step in steps))
    return " · ".join(filter(None, [", ".join(counts), time, words.money(cost) if cost else ""]))


_ICONS = {
    StepOutcome.KEPT: ("kept", "green"),
    StepOutcome.REVERTED: ("slip", "red"),
    StepOutcome.REFUSED: ("refused", "red"),
    StepOutcome.FAILED: ("failed", "red"),
    StepOutcome.RUNNING: ("now", "blue"),
    StepOutcome.DONE: ("dot", "muted"),
}


def _row(picture: Picture, step: PictureStep) -> dict[str, Any]:
    name, tone = ("seal", "violet") if step.sealed else _ICONS[step.outcome]
    if isinstance(step.result, ev.RedConfirmed):
        name, tone = "red", "muted"
    if step.undone and tone == "muted":
        name, tone = "undone", "red"
    cost = f" · {words.money(step.cost_usd)}" if step.cost_usd else ""
    return {
        "step": step,
        "icon": name,
        "tone": tone,
        "phase": words.phase(step.action),
        "text": _result_text(picture, step),
        "time": f"{words.clock(step.active_s)}{cost}",
        "bad": step.is_bad,
    }


def _result_text(picture: Picture, step: PictureStep) -> str:
    if step.outcome is StepOutcome.RUNNING:
        text = "working" if step is picture.running else "interrupted"
    else:
        text = ratchet_svg.step_result(step)
    if isinstance(step.result, ev.StepCommitted):
        text = f"kept {step.result.commit[:7]} {step.result.subject}"
    if isinstance(step.result, ev.StepVerified | ev.RevisionVerified) and not step.result.warnings:
        text = f"{words.count(len(step.result.gates), 'gate')} passed" if step.result.gates else "no gates"
    undone = f" · {words.count(len(step.undone), 'write')} undone" if step.undone else ""
    agent = words.agent_name(step.agent)
    return f"{agent}: {text}{undone}" if agent else f"{text}{undone}"


def _events(reader: RunReader, view: RunView, query: RunQuery) -> list[dict[str, Any]]:
    after = query.after if query.after >= 0 else max(0, view.row.length - EVENTS_SHOWN)
    entries = reader.entries(view.row.run, after=after, limit=EVENTS_SHOWN)
    return [
        {"seq": entry.seq, "at": entry.at, "kind": entry.kind, "data": words.cut(entry.data.decode(), 2_000)}
        for entry in entries
    ]


# --- the detail of a step ---------------------------------------------------------------------------------------------


def _detail(reader: RunReader, view: RunView, step: PictureStep, receipts: dict[int, Receipt]) -> dict[str, Any]:
    picture = view.picture
    receipt = receipts.get(step.number)
    change = _change_of(picture, step)
    asked = receipts.get(change.number) if change and change is not step else receipt
    prompt, answer = (_artifact(asked, kind) for kind in ("prompts/", "answers/"))
    packet = _artifact(receipt, "packet") or (
        step.result.packet if isinstance(step.result, ev.FailuresAnalysed) else None
    )
    name, tone = ("seal", "violet") if step.sealed else _ICONS[step.outcome]
    return {
        "step": step,
        "icon": name,
        "tone": "" if tone == "muted" else tone,
        "outcome": _outcome_words(step),
        "text": _explained(step),
        "diff": diffs.parse(_diff_of(reader, view, step, change)),
        "undone": step.outcome is StepOutcome.REVERTED,
        "failures": _failures(reader, view, receipt),
        "packet": reader.text(view, packet) if packet else "",
        "prompt": reader.text(view, prompt) if prompt else "",
        "answer": reader.text(view, answer) if answer else "",
        "asked": change.number if change else step.number,
        "receipt": receipt,
    }


def _outcome_words(step: PictureStep) -> str:
    if step.sealed:
        return "overfitted, reverted"
    if step.outcome is StepOutcome.DONE:
        return "red confirmed" if isinstance(step.result, ev.RedConfirmed) else "done"
    return str(step.outcome)


def _explained(step: PictureStep) -> str:
    if step.sealed:
        return (
            "The open tests pass and a sealed test fails: the change answers the examples and not the rule. It was"
            " reverted; the next attempt learns that it was overfitted, and no input or value."
        )
    return ratchet_svg.step_result(step)


def _change_of(picture: Picture, step: PictureStep) -> PictureStep | None:
    """Return the change that a judgement or gate step is about; the step itself if it is one."""
    if isinstance(step.result, TREES) or step.is_change:
        return step
    index = next((i for i, one in enumerate(picture.steps) if one is step), -1)
    for one in picture.attempts:
        if index in (one.judge, one.gate):
            return picture.steps[one.change]
    return None


def _diff_of(reader: RunReader, view: RunView, step: PictureStep, change: PictureStep | None) -> str:
    if isinstance(step.result, ev.StepCommitted):
        return reader.commit_diff(view, step.result.commit)
    if change and isinstance(change.result, TREES):
        return reader.diff(view, change.tree, change.result.tree)
    return ""


def _artifact(receipt: Receipt | None, name: str) -> Artifact | None:
    return next((one for one in receipt.artifacts if name in one.path), None) if receipt else None


def _failures(reader: RunReader, view: RunView, receipt: Receipt | None) -> list[tuple[str, str]]:
    artifact = _artifact(receipt, "reports/")
    report = _report(reader, view, artifact) if artifact and "sealed" not in artifact.path else None
    if report is None:
        return []
    red = [test for test in report.tests if test.status in RED][:12]
    return [(test.id, words.cut(test.failure.message if test.failure else "", 600)) for test in red]


@lru_cache(maxsize=256)
def _cached_report(content: tuple[str, str, int], reader: RunReader, run: str) -> Report | None:
    view = reader.view(run)
    return reader.report(view, Artifact(path=content[0], sha256=content[1], size=content[2]))


def _report(reader: RunReader, view: RunView, artifact: Artifact) -> Report | None:
    return _cached_report((artifact.path, artifact.sha256, artifact.size), reader, view.row.run)


# --- tests over test runs ---------------------------------------------------------------------------------------------


def _matrix(
    reader: RunReader, view: RunView, receipts: dict[int, Receipt], first: int, last: int
) -> dict[str, Any] | None:
    picture = view.picture
    columns: list[tuple[PictureStep, Report]] = []
    for step in reversed(picture.steps):
        artifact = _artifact(receipts.get(step.number), "reports/")
        if first <= step.part <= last and artifact and len(columns) < COLUMNS_MAX:
            report = _report(reader, view, artifact)
            if report:
                columns.append((step, report))
    columns.reverse()
    if not columns:
        return None
    by_test: dict[str, list[str]] = {}
    for index, (_, report) in enumerate(columns):
        for test in report.tests:
            cells = by_test.setdefault(test.id, [""] * len(columns))
            cells[index] = _cell(test.status, test.attempts)
    refused = {i for i, (step, _) in enumerate(columns) if step.outcome is StepOutcome.REFUSED}
    by_test = {
        name: [_refused(cell, i in refused, cells) for i, cell in enumerate(cells)] for name, cells in by_test.items()
    }
    changing = {name: cells for name, cells in by_test.items() if not _NOTABLE.isdisjoint(cells)}
    rows = [{"file": file, "name": name, "cells": cells} for (file, name), cells in _named(changing)][:ROWS_MAX]
    folded = _folded({name: cells for name, cells in by_test.items() if name not in changing})
    heads = [
        {
            "number": step.number,
            "phase": _head(step),
            "tone": "kept" if step.outcome is StepOutcome.KEPT else "slipped" if step.is_bad else "",
        }
        for step, _ in columns
    ]
    sealed = _sealed_rows(picture, [step for step, _ in columns], first, last)
    return {
        "heads": heads,
        "folded": folded,
        "rows": rows,
        "sealed": sealed,
        "examples": sum(row["count"] for row in sealed),
        "tests": len(by_test),
        "more": len(changing) - len(rows),
    }


def _head(step: PictureStep) -> str:
    if step.outcome in (StepOutcome.KEPT, StepOutcome.REVERTED):
        return "kept" if step.outcome is StepOutcome.KEPT else "slip"
    return {"verify_red": "red", "baseline": "base"}.get(step.action, words.phase(step.action).split()[0])


def _sealed_rows(picture: Picture, columns: list[PictureStep], first: int, last: int) -> list[dict[str, Any]]:
    """Return the sealed examples of each requirement, and how they judged its changes. Their names stay sealed."""
    found = []
    for index in range(first, last + 1):
        steps = [picture.steps[one] for one in picture.parts[index].steps]
        count = next((step.result.sealed for step in steps if isinstance(step.result, ev.RedConfirmed)), 0)
        cells = [_sealed_cell(step) if step in steps else "" for step in columns]
        if count and any(cells):
            found.append({"name": picture.parts[index].title, "count": count, "cells": cells})
    return found


def _sealed_cell(step: PictureStep) -> str:
    if step.sealed:
        return "seal"
    return "seal-ok" if step.outcome is StepOutcome.KEPT else ""


_NOTABLE = frozenset({"fail", "flaky", "refused"})


def _cell(status: TestStatus, attempts: int) -> str:
    if status in GREEN:
        return "flaky" if attempts > 1 else "pass"
    return "fail" if status in RED else "skip"


def _refused(cell: str, refused: bool, cells: list[str]) -> str:
    """A test that was refused appears in the refusing run only, or first there."""
    return "refused" if refused and cell == "pass" and sum(bool(one) for one in cells) == 1 else cell


def _named(tests: dict[str, list[str]]) -> Iterator[tuple[tuple[str, str], list[str]]]:
    for test, cells in tests.items():
        file, mark, name = test.rpartition("::")
        yield (f"{file.rpartition('/')[2]}{mark}", name), cells


def _folded(tests: dict[str, list[str]]) -> list[dict[str, Any]]:
    """Fold tests that always passed, or never ran, into one row for each file."""
    files: dict[tuple[str, tuple[str, ...]], int] = {}
    for test, cells in tests.items():
        key = (test.partition("::")[0].rpartition("/")[2], tuple(cells))
        files[key] = files.get(key, 0) + 1
    largest = sorted(files.items(), key=lambda one: -one[1])
    shown = [{"name": file, "count": count, "cells": cells} for (file, cells), count in largest[:FOLDED_MAX]]
    others: dict[tuple[str, ...], list[int]] = {}
    for (_, alike), count in largest[FOLDED_MAX:]:
        others.setdefault(alike, []).append(count)
    return shown + [
        {"name": words.count(len(counts), "more file"), "count": sum(counts), "cells": alike}
        for alike, counts in others.items()
    ]


# --- proofs, cost, story ----------------------------------------------------------------------------------------------


def _proofs(picture: Picture) -> Iterator[dict[str, Any]]:
    kept = [one for one in picture.attempts if one.end is AttemptEnd.KEPT and one.judge is not None]
    for number, one in enumerate(kept, 1):
        judged = picture.steps[one.judge or 0]
        event = judged.result
        if not isinstance(event, ev.StepCommitted):
            continue
        part = picture.parts[judged.part]
        steps = [picture.steps[index] for index in part.steps]
        red = next((s.result for s in steps if isinstance(s.result, ev.RedConfirmed)), None)
        yield {
            "number": number,
            "commit": one.commit,
            "subject": event.subject,
            "tests": len(event.tests),
            "red": red.fingerprint.removeprefix("sha256:")[:4] if red and event.tests else "",
            "green": event.report.sha256[:4],
            "sealed": one.sealed,
            "cost": sum(step.cost_usd for step in steps),
        }


def _costs(picture: Picture) -> list[dict[str, Any]]:
    rows: dict[tuple[str, str], dict[str, Any]] = {}
    for step in picture.steps:
        if not step.role or not (step.agent or step.calls):
            continue
        row = rows.setdefault(
            (step.role, step.agent),
            {"role": step.role, "agent": step.agent, "calls": 0, "tin": 0, "tout": 0, "seconds": 0.0, "cost": 0.0},
        )
        row["calls"] += max(1, step.calls)
        row["tin"] += step.tokens_in
        row["tout"] += step.tokens_out
        row["seconds"] += step.active_s
        row["cost"] += step.cost_usd
    most = max((row["cost"] for row in rows.values()), default=0.0)
    return [row | {"share": round(100 * row["cost"] / most) if most else 0} for row in rows.values()]


def _story(picture: Picture) -> Iterator[dict[str, Any]]:
    """Return the summaries of roles and the messages of people, newest first."""
    texts: list[tuple[float, str, str]] = [(note.steps - 0.5, note.by, note.text) for note in picture.notes]
    texts += [(index, step.role, getattr(step.result, "summary", "")) for index, step in enumerate(picture.steps)]
    newest = sorted(texts, key=lambda one: -one[0])
    for place, who, text in [one for one in newest if one[1] and one[2]][:STORY_MAX]:
        part = picture.parts[picture.steps[max(0, int(place))].part] if picture.steps else Part(kind=PartKind.BEFORE)
        at = f"iteration {part.number}" if part.kind is PartKind.ITERATION else _label(part).lower()
        yield {"role": who, "text": words.cut(text, 400), "end": at}
