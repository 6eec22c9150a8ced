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

from bench import Goal
from ratchet import config
from ratchet.core.watching import Stage, WatchState
from ratchet.places import open_workspaces
from ratchet.suite import Suite
from ratchet.watch import Watch, Wishes
from ratchet.workspace import Refused
from ratchet.workspace.changes import Batch, Changes
from ratchet.workspace.mirror import Follows, Mirror, head_of

PROJECT, PYTEST, TESTMON = "click==8.1.8", "pytest<9", "pytest-testmon==2.2.0"
SMALL, HUGE, SAVES = 1_000, 100_000, 15
ROUNDS = 2
# Leaf functions and busier ones, each with a statement that changes nothing but the function.
EDITS = [
    ("src/click/_termui_impl.py", "def format_eta(self) -> str:\n"),
    ("src/click/_termui_impl.py", "def format_pct(self) -> str:\n"),
    ("src/click/_compat.py", "def get_best_encoding(stream: t.IO[t.Any]) -> str:\n"),
    ("src/click/parser.py", "def split_arg_string(string: str) -> t.List[str]:\n"),
    ("src/click/formatting.py", "def measure_table(rows: t.Iterable[t.Tuple[str, str]]) -> t.Tuple[int, ...]:\n"),
]


def main() -> list[Goal]:
    with tempfile.TemporaryDirectory(prefix="ratchet-bench-", dir=os.environ.pop("RATCHET_BENCH_DIR", None)) as place:
        os.environ |= {"XDG_STATE_HOME": f"{place}/state", "XDG_CACHE_HOME": f"{place}/cache"}
        os.environ.pop("PYTEST_ADDOPTS", None)
        return [*asyncio.run(_mirrors(Path(place))), *_projects(Path(place))]


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
            detail=f"median {huge:.1f} ms over {small:.1f} ms, of which 40 ms are the wait for quiet",
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
    assert not isinstance(made, Refused)
    mirror, changes, taken = Mirror(made, repo, Follows.SAVE), Changes(repo), []
    mirror.lay(mirror.compare(_everything()))
    for number in range(SAVES):
        began = time.perf_counter()
        (repo / f"d{number % 5}" / "new.txt").write_text(f"{number}\n")
        mirror.lay(mirror.compare(await changes.next()))
        assert (mirror.path / f"d{number % 5}" / "new.txt").read_text() == f"{number}\n"
        taken.append((time.perf_counter() - began) * 1000)
    changes.close()
    workspaces.destroy("bench")
    return statistics.median(taken)


def _everything() -> Batch:
    batch = Batch()
    batch.whole = True
    return batch


# --- a real project --------------------------------------------------------------------------------------------------


def _projects(place: Path) -> list[Goal]:
    source = unpacked(place)
    plain, with_testmon = make_venv(place / "plain", PYTEST), make_venv(place / "testmon-env", PYTEST, TESTMON)
    repos = {name: _copy(source, place / name) for name in ("ours", "cold", "testmon")}
    _pytest(plain, repos["cold"])
    _pytest(with_testmon, repos["testmon"], "--testmon")
    os.environ |= {"VIRTUAL_ENV": str(plain.parent.parent), "PYTHONPATH": str(repos["ours"] / "src")}
    times = asyncio.run(_race(repos, plain, with_testmon))
    median = {name: statistics.median(rows) for name, rows in times.items()}
    detail = ", ".join(f"{name} {seconds:.2f} s" for name, seconds in median.items())
    return [
        _goal(
            "save to the affected tests' verdict, over a cold full pytest", median["cold"] / median["ours"], 5, detail
        ),
        _goal(
            "save to the affected tests' verdict, over pytest-testmon", median["testmon"] / median["ours"], 2, detail
        ),
    ]


def _goal(measure: str, value: float, least: float, detail: str) -> Goal:
    return Goal(
        measure=measure, value=value, unit="times", wanted=f"at least {least:g}", ok=value >= least, detail=detail
    )


async def _race(repos: dict[str, Path], plain: Path, with_testmon: Path) -> dict[str, list[float]]:
    """The same edit in three copies, one after the other, each timed from the save to the answer."""
    told: asyncio.Queue[WatchState] = asyncio.Queue()
    suite = Suite(repos["ours"], config.load(repos["ours"], environ={}).config)
    life = asyncio.create_task(Watch(suite, Wishes(), told.put_nowait).run())
    await _until(told, lambda state: state.stage is Stage.IDLE)
    times: dict[str, list[float]] = {"cold": [], "testmon": [], "ours": []}
    for _ in range(ROUNDS):
        for path, head in EDITS:
            times["ours"].append(await _answered(told, repos["ours"] / path, head))
            with Edited(repos["cold"] / path, head) as began:
                await asyncio.to_thread(_pytest, plain, repos["cold"])
                times["cold"].append(time.perf_counter() - began.at)
            with Edited(repos["testmon"] / path, head) as began:
                await asyncio.to_thread(_pytest, with_testmon, repos["testmon"], "--testmon")
                times["testmon"].append(time.perf_counter() - began.at)
            await asyncio.to_thread(_pytest, with_testmon, repos["testmon"], "--testmon")
    life.cancel()
    await asyncio.wait({life})
    return times


async def _answered(told: asyncio.Queue[WatchState], path: Path, head: str) -> float:
    await asyncio.sleep(1.5)  # the prepared interpreter is renewed after the very first run
    with Edited(path, head) as began:
        state = await _until(told, lambda state: state.affected_s is not None or state.stage is Stage.IDLE)
        seconds = time.perf_counter() - began.at
        if state.stage is not Stage.IDLE:
            await _until(told, lambda state: state.stage is Stage.IDLE)
    await _until(told, lambda state: state.stage is Stage.IDLE)
    return seconds


async def _until(told: asyncio.Queue[WatchState], wanted: Callable[[WatchState], bool]) -> WatchState:
    while not wanted(state := await told.get()):
        pass
    return state


class Edited:
    """A harmless statement at the beginning of one function, for a while."""

    def __init__(self, path: Path, head: str) -> None:
        self.path, self.before = path, path.read_text()
        assert head in self.before, head
        start = self.before.index(head) + len(head)
        body = self.before[start:]
        indent = body[: len(body) - len(body.lstrip(" "))]
        self.after = f"{self.before[:start]}{indent}len('')\n{body}"
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


def unpacked(place: Path) -> Path:
    _pip(Path(sys.executable), "download", "--no-deps", "--no-binary", ":all:", "--dest", str(place), PROJECT)
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
