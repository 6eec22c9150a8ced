"""`ratchet report` and `ratchet metrics --plot`."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from datetime import datetime, timedelta
from pathlib import Path

import msgspec
import pytest

from ratchet.app.report import NOTHING, FactoryReport, ReportSlot
from ratchet.core import api
from ratchet.core.figures import Tally
from ratchet.core.learning import LearningSource, TrialArm
from ratchet.core.learning_lift import Effect, Judged, Lift
from ratchet.core.metrics import Figures
from ratchet.interfaces.plots import PANELS, save_plot
from ratchet.interfaces.report import as_html, as_markdown
from tests.support import GOOD_SCRIPT, IMPLEMENT, carry, open_factory, ratchet, small_project

HOSTILE = "<script>alert(1)</script>|x$\\alpha$"
SOME = Figures.of(
    Tally(
        runs=3, completed=2, failed=1, commits=5, reverts=2, steps=9, step_ms=90_000, agent_ms=60_000, calls=4,
        tokens_in=1_000, tokens_out=100, cost_microusd=2_500_000,
    )
)  # fmt: skip


def made(days: int, *, name: str = "claude", figures: Figures = SOME) -> FactoryReport:
    began = datetime(2026, 11, 1).astimezone()
    one = {by: api.FiguresGroup(group={by: name}, figures=figures) for by in ("action", "role", "repo", "workflow")}
    both = api.FiguresGroup(group={"agent": name, "model": ""}, figures=figures)
    return FactoryReport(
        since=began,
        until=began + timedelta(days=days),
        repo="",
        hourly=False,
        total=figures,
        before=NOTHING,
        slots=[ReportSlot(at=began + timedelta(days=day), figures=figures) for day in range(days)],
        actions=[one["action"]],
        models=[both],
        roles=[one["role"]],
        repos=[one["repo"], one["repo"]],
        workflows=[one["workflow"]],
    )


def test_a_report_of_a_real_run_is_printed_and_written(tmp_path: Path) -> None:
    used = {"tokens_in": 1_000, "tokens_out": 100, "cost_usd": 0.25}
    place = small_project(tmp_path, GOOD_SCRIPT | {"implement": [IMPLEMENT | {"usage": used}]})
    env = {"XDG_STATE_HOME": str(tmp_path / "state"), "RATCHET_STORE": str(tmp_path / "store.db")}
    with open_factory(place, f"store={tmp_path}/store.db") as factory:
        carry(factory, place / "SPEC.md")
    shown = ratchet("report", "--since", "7d", cwd=place, **env)
    assert "1 of 1 runs completed (100%); 1 changes accepted, 0 reverted; $0.25 in all." in shown.stdout, shown.stderr
    assert re.search(r"^\| implement \| 1 \| ", shown.stdout, re.MULTILINE)
    assert re.search(r"^\| scripted.* \| 1,100 \| .* \| \$0.25 \|$", shown.stdout, re.MULTILINE)
    wrote = ratchet("report", "-o", tmp_path / "r.html", cwd=place, **env)
    assert wrote.returncode == 0, wrote.stderr
    page = (tmp_path / "r.html").read_text()
    assert page.count("<svg") == len(PANELS)
    assert not re.search(r"(?:src|href)=\"(?!#)", page), "it loads nothing"
    drawn = ratchet("metrics", "--plot", tmp_path / "p.svg", cwd=place, **env)
    assert drawn.returncode == 0, drawn.stderr
    texts = [one.text for one in ET.parse(tmp_path / "p.svg").iter("{http://www.w3.org/2000/svg}text")]
    assert "1 run completed" in texts


def test_bad_windows_and_files_are_refused(tmp_path: Path) -> None:
    place = small_project(tmp_path)
    env = {"RATCHET_STORE": str(tmp_path / "store.db")}
    for command, why in (
        (["report", "-o", "r.docx"], "cannot write a report as r.docx"),
        (["report", "--since", "yesterday-ish"], "is no window"),
        (["report", "-o", f"{tmp_path}/none/r.md"], "cannot write"),
        (["metrics", "--plot", "p.gif"], "cannot draw p.gif"),
        (["metrics", "--plot", "p.svg", "--by", "day"], "exclude each other"),
    ):
        failed = ratchet(*command, cwd=place, **env)
        assert (failed.returncode, why in failed.stderr) == (2, True), failed.stderr
    empty = ratchet("report", "--since", "0001-01-02", cwd=place, **env)
    assert "Nothing happened in this window." in empty.stdout, empty.stderr


@pytest.mark.parametrize("days", [1, 14, 400])
def test_a_window_of_any_length_can_be_drawn(tmp_path: Path, days: int) -> None:
    save_plot(made(days), tmp_path / "p.svg")
    texts = [one.text or "" for one in ET.parse(tmp_path / "p.svg").iter("{http://www.w3.org/2000/svg}text")]
    assert len([text for text in texts if re.fullmatch(r"\d+ Nov", text)]) <= 15


def test_a_window_without_anything_can_be_drawn(tmp_path: Path) -> None:
    nothing = made(1, figures=NOTHING)
    save_plot(nothing, tmp_path / "p.png")
    assert (tmp_path / "p.png").read_bytes().startswith(b"\x89PNG")
    assert "Nothing happened" in as_markdown(nothing)


def test_the_learnings_that_were_delivered_are_listed_with_what_they_saved() -> None:
    mean = {"low": -1.4, "high": -0.6, "p": 0.001}
    effect = Effect(delivered=1.0, held_out=2.0, difference=-1.0, **mean)
    lift = Lift(name="learn-1", arm=TrialArm.PACKET, delivered=40, held_out=20, attempts=effect)
    one = Judged(lift=lift, content=HOSTILE, source=LearningSource.FACTORY, retired=False, due=True, proven=True)
    report = msgspec.structs.replace(made(3), learnings=[one])
    assert "1 of 1 delivered learnings are proven" in as_markdown(report)
    assert "| helps | 40 | 20 | 50% |" in as_markdown(report)
    assert "<script>" not in as_html(report)


def test_hostile_names_stay_text() -> None:
    report = made(2, name=HOSTILE)
    page = as_html(report)
    assert "<script" not in page
    for svg in re.findall(r"<svg .*?</svg>", page, re.DOTALL):
        ET.fromstring(svg)
    ids = re.findall(r'\bid="([^"]*)"', page)
    assert len(ids) == len(set(ids))
    rows = [line for line in as_markdown(report).splitlines() if "script" in line]
    assert rows and not any("<script" in row for row in rows)
