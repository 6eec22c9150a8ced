"""Random edits of a real project: does the watch say what a cold run says? Long; `make certify-watch`.

After each edit the watch's verdict on every test is compared with that of a cold run of the whole suite in another
copy. The project has its tests in `tests` and its code in `src`.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.watch import PROJECT, PYTEST, make_venv, unpacked
from ratchet import config
from ratchet.checks.run import TestRun, allowed_environment
from ratchet.core.report import Report, ReportStatus
from ratchet.core.watching import WatchState
from ratchet.suite import Suite
from tests.support import git
from tests.watch.support import watched

TIMEOUT_S = 120
SETTINGS = (f"test.timeout_s={TIMEOUT_S}", f"test.silence_s={TIMEOUT_S}")
_SWAPS = [(" == ", " != "), (" is None", " is not None"), ("True", "False"), (" and ", " or "), (" + ", " - "),
          ("return ", "return None and "), ("if ", "if not "), (" < ", " >= "), ("0", "1"), ('"', '"x')]  # fmt: skip


def copied(project: Path, place: Path) -> Path:
    shutil.copytree(project, place, ignore=shutil.ignore_patterns(".git", ".ratchet", "__pycache__", ".pytest_cache"))
    (place / ".gitignore").write_text("__pycache__/\n.pytest_cache/\n*.egg-info/\n")
    git("init", "-q", "-b", "main", ".", cwd=place)
    git("-c", "user.name=T", "-c", "user.email=t@example.com", "add", "-A", cwd=place)
    git("-c", "user.name=T", "-c", "user.email=t@example.com", "commit", "-q", "-m", "start", cwd=place)
    return place


def edits(project: Path, chance: random.Random) -> Iterator[tuple[str, str]]:
    """A path and its new content, one after the other: mostly in functions, some in tests, a few that do not parse."""
    sources = sorted(path for path in project.rglob("src/**/*.py") if path.stat().st_size > 500)
    tests = sorted(project.rglob("tests/test_*.py"))
    while True:
        path = chance.choice(tests if chance.random() < 0.15 else sources)
        lines = path.read_text().splitlines(keepends=True)
        at = chance.randrange(len(lines))
        old, new = chance.choice(_SWAPS)
        if chance.random() < 0.03:
            lines[at] += "(((\n"
        elif chance.random() < 0.05:
            lines[at] += "# a comment\n" if not lines[at].rstrip().endswith("\\") else ""
        elif old in lines[at] and not re.match(r"\s*(#|import |from )", lines[at]):
            lines[at] = lines[at].replace(old, new, 1)
        else:
            continue
        yield path.relative_to(project).as_posix(), "".join(lines)


async def cold_run(folder: Path) -> Report:
    suite = Suite(folder, config.load(folder, environ={}, flags=SETTINGS).config)
    env = allowed_environment() | {"PYTHONPATH": str(folder / "src")}
    tests = TestRun(targets=suite.targets(), timeout_s=TIMEOUT_S, silence_s=TIMEOUT_S, env=env)
    log = folder / ".git" / "cold.log"
    log.unlink(missing_ok=True)
    return await tests.run(folder, log=log)


# Raised when garbage is collected, in whatever test runs just then: two cold runs blame different tests too.
GARBAGE = "PytestUnraisableExceptionWarning"


def verdicts(report: Report) -> dict[str, str]:
    return {test.id: str(test.status) for test in report.tests} | {
        f"broken {error.file}": "broken" for error in report.collection_errors
    }


def blamed_for_garbage(*reports: Report) -> set[str]:
    return {test.id for report in reports for test in report.tests if test.failure and test.failure.type == GARBAGE}


def differences(ours: Report, cold: Report) -> list[str]:
    """Empty when they agree. Where both ran out of time, how far each got is not a verdict."""
    if ours.status is cold.status is ReportStatus.TIMEOUT:
        return []
    mine, other, blamed = verdicts(ours), verdicts(cold), blamed_for_garbage(ours, cold)
    wrong = [f"{name}: watch {mine.get(name)}, cold {other.get(name)}" for name in mine.keys() | other.keys()
             if mine.get(name) != other.get(name) and name not in blamed]  # fmt: skip
    return wrong if wrong or ours.status is cold.status else [f"watch {ours.status}, cold {cold.status}"]


@contextmanager
def edited(folder: Path, path: str, content: str) -> Iterator[None]:
    before = (folder / path).read_text()
    (folder / path).write_text(content)
    try:
        yield
    finally:
        (folder / path).write_text(before)


class Tally:
    """`missed`: a failing test was not among those that ran first. The verdict does not suffer, the haste does."""

    def __init__(self) -> None:
        self.edits = self.wrong = self.chosen = self.missed = self.garbage = 0

    def take(self, seen: list[WatchState], ours: Report, cold: Report) -> list[str]:
        found = differences(ours, cold)
        first = next((state for state in seen if state.affected_s is not None), None)
        self.edits += 1
        self.wrong += bool(found)
        self.garbage += bool(blamed_for_garbage(ours, cold))
        self.chosen += first is not None
        if first is not None:
            known = {test.id for test in first.failing}
            self.missed += bool({test.id for test in seen[-1].failing} - known)
        return found


async def certify(project: Path, count: int, seed: int) -> int:
    tally = Tally()
    with tempfile.TemporaryDirectory(prefix="certify-") as place:
        repo, other = copied(project, Path(place) / "repo"), copied(project, Path(place) / "cold")
        os.environ["PYTHONPATH"] = str(repo / "src")
        made = edits(other, random.Random(seed))
        async with watched(repo, None, *SETTINGS) as (watch, told):
            told.patience_s = 5 * TIMEOUT_S
            await told.idle()
            before = ""
            for number in range(1, count + 1):
                path, content = next(made)
                if before and before != path:
                    (repo / before).write_bytes((other / before).read_bytes())
                (repo / path).write_text(content)
                before, began_s = path, time.monotonic()
                told.seen.clear()
                state = await told.idle()
                while (watch.mirror.path / path).read_text() != content:
                    state = await told.idle()
                with edited(other, path, content):
                    cold = await cold_run(other)
                ours = watch.suite.last()
                assert ours
                found = tally.take(told.seen, ours, cold)
                took = f"{time.monotonic() - began_s:.1f} s"
                say(f"{number}/{count} {path} {state.colour}, {len(state.failing)} failing, {took} {found[:3] or ''}")
    say(f"{tally.edits} edits: {tally.wrong} verdicts differ from a cold run's")
    say(f"affected tests ran first {tally.chosen} times, and {tally.missed} times a failing test was not among them")
    say(f"{tally.garbage} edits left garbage that raised in whatever test ran just then")
    return 1 if tally.wrong else 0


def say(text: str) -> None:
    print(text, flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--edits", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--project", type=Path, help=f"an unpacked source distribution (default: {PROJECT})")
    parser.add_argument("--python", type=Path, help="an interpreter with pytest (default: a new environment)")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="certify-", dir=os.environ.pop("RATCHET_BENCH_DIR", None)) as place:
        os.environ |= {"XDG_STATE_HOME": f"{place}/state", "XDG_CACHE_HOME": f"{place}/cache"}
        project = arguments.project or unpacked(Path(place))
        python = (arguments.python or make_venv(Path(place) / "venv", PYTEST)).absolute()
        os.environ["VIRTUAL_ENV"] = str(python.parent.parent)
        return asyncio.run(certify(project.absolute(), arguments.edits, arguments.seed))


if __name__ == "__main__":
    sys.exit(main())
