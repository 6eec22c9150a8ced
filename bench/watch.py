"""Watch: from a save to the verdict of the affected tests on a real project, and to the mirror of any tree."""

from __future__ import annotations

import asyncio
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from bench import Goal, Row
from ratchet import config
from ratchet.app.tests import Suite
from ratchet.app.watch import TestWatcher, WatchOptions
from ratchet.core.watch import WatchStage, WatchState
from ratchet.workspace.file_watcher import ChangeBatch, TreeWatcher
from ratchet.workspace.from_config import open_workspaces
from ratchet.workspace.mirror import Mirror, MirrorSource, head_of
from ratchet.workspace.protocol import WorkspaceRefused

PROJECT, PYTEST, TESTMON = "click==8.1.8", "pytest<9", "pytest-testmon==2.2.0"
SMALL, HUGE, SAVES = 1_000, 100_000, 15
ROUNDS = 2


_TABLE = "def measure_table(rows: t.Iterable[t.Tuple[str, str]]) -> t.Tuple[int, ...]:\n"


class Save(NamedTuple):
    """What is put at the beginning of a function: a statement that changes nothing but it, or a comment."""

    kind: str
    path: str
    head: str
    line: str = "len('')"


class Subject(NamedTuple):
    """A real project of more than 500 tests, and saves of every kind in it."""

    source: str
    needs: tuple[str, ...]
    saves: tuple[Save, ...]


SUBJECTS = (
    Subject(
        PROJECT,
        (),
        (
            Save("leaf", "src/click/_termui_impl.py", "def format_eta(self) -> str:\n"),
            Save("leaf", "src/click/_compat.py", "def get_best_encoding(stream: t.IO[t.Any]) -> str:\n"),
            Save("middle", "src/click/parser.py", "def split_arg_string(string: str) -> t.List[str]:\n"),
            Save("middle", "src/click/formatting.py", _TABLE),
            Save("comment", "src/click/_termui_impl.py", "def format_pct(self) -> str:\n", "# why"),
            Save("test", "tests/test_formatting.py", "def test_formatting_usage_error(runner):\n"),
            Save("hub", "src/click/core.py", "def make_parser(self, ctx: Context) -> OptionParser:\n"),
        ),
    ),
    Subject(
        "jinja2==3.1.6",
        ("markupsafe", "trio"),
        (
            Save("leaf", "src/jinja2/filters.py", "def do_wordcount(s: str) -> int:\n"),
            Save("leaf", "src/jinja2/filters.py", "def do_center(value: str, width: int = 80) -> str:\n"),
            Save("middle", "src/jinja2/loaders.py", "def split_template_path(template: str) -> t.List[str]:\n"),
            Save("comment", "src/jinja2/filters.py", "def do_wordcount(s: str) -> int:\n", "# why"),
            Save("test", "tests/test_filters.py", "def test_wordcount(self, env):\n"),
            Save(
                "hub", "src/jinja2/compiler.py", "def visit_Output(self, node: nodes.Output, frame: Frame) -> None:\n"
            ),
        ),
    ),
)


def main() -> list[Row | Goal]:
    """All of it, or what RATCHET_BENCH_ONLY names: mirror, or the beginning of a project's name."""
    wanted = os.environ.pop("RATCHET_BENCH_ONLY", "")
    with tempfile.TemporaryDirectory(prefix="ratchet-bench-", dir=os.environ.pop("RATCHET_BENCH_DIR", None)) as place:
        os.environ |= {"XDG_STATE_HOME": f"{place}/state", "XDG_CACHE_HOME": f"{place}/cache"}
        os.environ.pop("PYTEST_ADDOPTS", None)
        found: list[Row | Goal] = []
        if "mirror".startswith(wanted):
            found += asyncio.run(_mirrors(Path(place)))
        for number, subject in enumerate(SUBJECTS):
            if subject.source.startswith(wanted):
                found += _project(subject, Path(place) / str(number))
        return found


# --- the mirror ------------------------------------------------------------------------------------------------------


async def _mirrors(place: Path) -> list[Goal]:
    small = await _saves_ms(place / "small", SMALL)
    huge = await _saves_ms(place / "huge", HUGE)
    return [
        Goal(
            measure=f"save to mirror, {HUGE:,} files over {SMALL:,} files",
            value=huge / small,
            unit="times",
            wanted="at most 2",
            ok=huge <= 2 * small,
            detail=f"median {huge:.1f} ms over {small:.1f} ms, of which 10 ms are the wait for quiet",
        )
    ]


async def _saves_ms(repo: Path, count: int) -> float:
    for number in range(count):
        path = repo / f"d{number // 200}" / f"f{number}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{number}\n")
    _commit(repo)
    workspaces = open_workspaces(config.Config())
    made = workspaces.create("bench", repo=repo, commit=head_of(repo))
    assert not isinstance(made, WorkspaceRefused)
    mirror, changes, taken = Mirror(made, repo, MirrorSource.SAVE), TreeWatcher(repo), []
    mirror.copy(mirror.compare(_everything()))
    for number in range(SAVES):
        began = time.perf_counter()
        (repo / f"d{number % 5}" / "new.txt").write_text(f"{number}\n")
        mirror.copy(mirror.compare(await changes.next()))
        assert (mirror.path / f"d{number % 5}" / "new.txt").read_text() == f"{number}\n"
        taken.append((time.perf_counter() - began) * 1000)
    changes.close()
    workspaces.destroy("bench")
    return statistics.median(taken)


def _everything() -> ChangeBatch:
    batch = ChangeBatch()
    batch.whole = True
    return batch


# --- a real project --------------------------------------------------------------------------------------------------


def _project(subject: Subject, place: Path) -> list[Row | Goal]:
    place.mkdir()
    source = unpacked(place, subject.source)
    plain = make_venv(place / "plain", PYTEST, *subject.needs)
    with_testmon = make_venv(place / "testmon-env", PYTEST, TESTMON, *subject.needs)
    repos = {name: _copy(source, place / name) for name in ("ours", "cold", "testmon")}
    _pytest(plain, repos["cold"])
    _pytest(with_testmon, repos["testmon"], "--testmon")
    os.environ |= {"VIRTUAL_ENV": str(plain.parent.parent), "PYTHONPATH": str(repos["ours"] / "src")}
    return _reported(subject, asyncio.run(_race(subject, repos, plain, with_testmon)))


Times = dict[str, list[tuple[str, float]]]  # for each competitor the kind of save, and the seconds


def _reported(subject: Subject, times: Times) -> list[Row | Goal]:
    rows: list[Row | Goal] = []
    for kind in dict.fromkeys(save.kind for save in subject.saves):
        median = _medians(times, kind)
        rows += [
            (f"{subject.source}, {kind}: over {other}", "times", median[other] / median["ours"])
            for other in ("cold", "testmon")
        ]
    median = _medians(times)
    detail = ", ".join(f"{name} {seconds:.2f} s" for name, seconds in median.items())
    verdict = f"{subject.source}: save to the affected tests' verdict"
    return [
        *rows,
        _goal(f"{verdict}, over a cold full pytest", median["cold"] / median["ours"], 5, detail),
        _goal(f"{verdict}, over pytest-testmon", median["testmon"] / median["ours"], 2, detail),
    ]


def _medians(times: Times, kind: str = "") -> dict[str, float]:
    return {name: statistics.median(s for k, s in rows if kind in ("", k)) for name, rows in times.items()}


def _goal(measure: str, value: float, least: float, detail: str) -> Goal:
    return Goal(
        measure=measure, value=value, unit="times", wanted=f"at least {least:g}", ok=value >= least, detail=detail
    )


async def _race(subject: Subject, repos: dict[str, Path], plain: Path, with_testmon: Path) -> Times:
    """The same edit in three copies, one after the other, each timed from the save to the answer."""
    reported: asyncio.Queue[WatchState] = asyncio.Queue()
    suite = Suite(repos["ours"], config.load(repos["ours"], environ={}).config)
    life = asyncio.create_task(TestWatcher(suite, WatchOptions(), reported.put_nowait).run())
    await _until(reported, lambda state: state.stage is WatchStage.IDLE)
    times: Times = {"cold": [], "testmon": [], "ours": []}
    for _ in range(ROUNDS):
        for save in subject.saves:
            times["ours"].append((save.kind, await _answered(reported, repos["ours"], save)))
            with Edited(repos["cold"], save) as began:
                await asyncio.to_thread(_pytest, plain, repos["cold"])
                times["cold"].append((save.kind, time.perf_counter() - began.at))
            with Edited(repos["testmon"], save) as began:
                await asyncio.to_thread(_pytest, with_testmon, repos["testmon"], "--testmon")
                times["testmon"].append((save.kind, time.perf_counter() - began.at))
            await asyncio.to_thread(_pytest, with_testmon, repos["testmon"], "--testmon")
    life.cancel()
    await asyncio.wait({life})
    return times


async def _answered(reported: asyncio.Queue[WatchState], repo: Path, save: Save) -> float:
    """A hub is answered by everything at once: then that is the affected tests' verdict."""
    await asyncio.sleep(1.5)  # the prepared interpreter is renewed after the very first run
    with Edited(repo, save) as began:
        state = await _until(reported, lambda state: state.affected_s is not None or state.stage is WatchStage.IDLE)
        seconds = time.perf_counter() - began.at
        if state.stage is not WatchStage.IDLE:
            await _until(reported, lambda state: state.stage is WatchStage.IDLE)
    await _until(reported, lambda state: state.stage is WatchStage.IDLE)
    return seconds


async def _until(reported: asyncio.Queue[WatchState], wanted: Callable[[WatchState], bool]) -> WatchState:
    while not wanted(state := await reported.get()):
        pass
    return state


class Edited:
    """A save, for a while."""

    def __init__(self, repo: Path, save: Save) -> None:
        self.path = repo / save.path
        self.before = self.path.read_text()
        assert save.head in self.before, save.head
        start = self.before.index(save.head) + len(save.head)
        body = self.before[start:]
        indent = body[: len(body) - len(body.lstrip(" "))]
        self.after = f"{self.before[:start]}{indent}{save.line}\n{body}"
        self.at = 0.0

    def __enter__(self) -> Edited:
        self.at = time.perf_counter()
        self.path.write_text(self.after)
        return self

    def __exit__(self, *_: object) -> None:
        self.path.write_text(self.before)


def _pytest(python: Path, repo: Path, *options: str) -> None:
    env = {name: value for name, value in os.environ.items() if name != "VIRTUAL_ENV"}
    subprocess.run(
        [str(python), "-m", "pytest", "-q", *options],
        cwd=repo,
        env=env | {"PYTHONPATH": str(repo / "src")},
        capture_output=True,
        check=False,
    )


def unpacked(place: Path, project: str = PROJECT) -> Path:
    _pip(Path(sys.executable), "download", "--no-deps", "--no-binary", ":all:", "--dest", str(place), project)
    archive = next(place.glob("*.tar.gz"))
    shutil.unpack_archive(archive, place / "source")
    return next((place / "source").iterdir())


def make_venv(place: Path, *packages: str) -> Path:
    subprocess.run([sys.executable, "-m", "venv", str(place)], check=True)
    _pip(place / "bin" / "python", "install", *packages)
    return place / "bin" / "python"


def _pip(python: Path, *words: str) -> None:
    subprocess.run([str(python), "-m", "pip", "--quiet", *words], check=True, capture_output=True)


def _copy(source: Path, place: Path) -> Path:
    shutil.copytree(source, place)
    (place / ".gitignore").write_text("__pycache__/\n.pytest_cache/\n.testmondata*\n")
    _commit(place)
    return place


def _commit(repo: Path) -> None:
    who = ["-c", "user.name=B", "-c", "user.email=b@example.com", "-c", "gc.auto=0"]
    for words in (["init", "-q"], [*who, "add", "-A"], [*who, "commit", "-q", "-m", "start"]):
        subprocess.run(["git", *words], cwd=repo, check=True)
