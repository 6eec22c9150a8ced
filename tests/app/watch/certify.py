"""Random edits of a real project: does the watch say what a cold run says? Long; `make certify-watch`.

After each edit the watch's verdict on every test is compared with that of a cold run of the whole suite in another
copy, which runs meanwhile. Where they differ the cold run is repeated: a test on which cold runs differ among
themselves is not the watch's doing, and is named as such. The project has its tests in `tests`, its code in `src`.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import os
import random
import re
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from bench.watch import PROJECT, PYTEST, make_venv, unpacked
from ratchet import config
from ratchet.app.tests import Suite
from ratchet.app.watch import TestWatcher
from ratchet.checks.run.environment import allowed_environment
from ratchet.checks.run.executor import TestRun
from ratchet.core.report import Report, ReportStatus
from ratchet.core.watch import WatchState
from tests.app.watch.support import Told, watched
from tests.support import git

TIMEOUT_S, SILENCE_S = 180, 40
COLD_AGAIN = 4
SETTINGS = (f"test.timeout_s={TIMEOUT_S}", f"test.silence_s={SILENCE_S}")
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
    tests = TestRun(targets=suite.targets(), timeout_s=TIMEOUT_S, silence_s=SILENCE_S, env=env)
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


def differences(ours: Report, cold: Report) -> dict[str, str]:
    """By test, empty when they agree. Where both ran out of time, how far each got is not a verdict."""
    mine, other = verdicts(ours), verdicts(cold)
    stopped = ours.status is cold.status is ReportStatus.TIMEOUT
    names = mine.keys() & other.keys() if stopped else mine.keys() | other.keys()
    wrong = {name: f"{name}: watch {mine.get(name)}, cold {other.get(name)}" for name in sorted(names)
             if mine.get(name) != other.get(name)}  # fmt: skip
    same = wrong or ours.status is cold.status
    return wrong if same else {"": f"watch {ours.status}, cold {cold.status}"}


def unsteady(colds: list[Report], name: str) -> bool:
    """Whether cold runs of one tree differ on this test among themselves; without a name, on how the run ended."""
    if not name:
        return len({cold.status for cold in colds}) > 1
    return len({verdicts(cold).get(name) for cold in colds}) > 1


@contextmanager
def edited(folder: Path, path: str, content: str) -> Iterator[None]:
    before = (folder / path).read_text()
    (folder / path).write_text(content)
    try:
        yield
    finally:
        (folder / path).write_text(before)


class Tally(msgspec.Struct):
    """`missed`: a failing test was not among those that ran first. The verdict does not suffer, the haste does."""

    of: dict[str, int] = {}
    wrong: list[str] = []
    chance: list[str] = []

    def take(self, edit: str, seen: list[WatchState], ours: Report, colds: list[Report]) -> str:
        found = differences(ours, colds[0])
        chance = {name for name in found if unsteady(colds, name)}
        garbage = found.keys() & blamed_for_garbage(ours, *colds) - chance
        wrong = [text for name, text in found.items() if name not in chance | garbage]
        self._count("edits", str(ours.status), *(["garbage"] if garbage else []))
        self.wrong += [f"{edit}: {'; '.join(wrong[:3])}"] if wrong else []
        self.chance += [f"{edit}: {'; '.join(found[name] for name in sorted(chance)[:3])}"] if chance else []
        self._take_haste(seen)
        reported = [
            f"DIFFERS {wrong[:3]}" if wrong else "",
            f"cold runs differ too: {[found[name] for name in chance][:3]}" if chance else "",
            f"garbage raised in {sorted(garbage)[:3]}" if garbage else "",
        ]
        return "; ".join(filter(None, reported))

    def _take_haste(self, seen: list[WatchState]) -> None:
        first = next((state for state in seen if state.affected_s is not None), None)
        if first is not None:
            known = {test.id for test in first.failing}
            missed = bool({test.id for test in seen[-1].failing} - known)
            self._count("chosen", *(["missed"] if missed else []))

    def _count(self, *names: str) -> None:
        for name in names:
            self.of[name] = self.of.get(name, 0) + 1

    def summary(self) -> list[str]:
        of = Counter(self.of)
        broken = of["edits"] - of["passed"] - of["failed"] - of["timeout"]
        return [
            f"{of['edits']} edits ({of['passed']} green, {of['failed']} red, {of['timeout']} hanging, {broken} broken)"
            f": {len(self.wrong)} verdicts differ from a cold run's",
            *(f"  {text}" for text in self.wrong),
            f"on {len(self.chance)} edits cold runs differ among themselves, and the watch agrees with one of them",
            *(f"  {text}" for text in self.chance),
            f"{of['garbage']} edits left garbage that raised in whatever test ran just then",
            f"affected tests ran first {of['chosen']} times; {of['missed']} times a failing test was not among them",
        ]


class Wanted(msgspec.Struct, frozen=True):
    """How far to go. With a file, one that was cut goes on after its last edit."""

    edits: int
    seed: int
    most: int
    file: Path | None

    def begun(self) -> Tally:
        there = self.file and self.file.exists()
        return msgspec.json.decode(self.file.read_bytes(), type=Tally) if self.file and there else Tally()

    def keep(self, tally: Tally) -> None:
        if self.file:
            self.file.write_bytes(msgspec.json.encode(tally))


class Pair:
    """Two copies of a project: one is watched and edited, the other gets the same edit and a cold run."""

    def __init__(self, repo: Path, other: Path, watch: TestWatcher, reported: Told) -> None:
        self.repo, self.other, self.watch, self.reported = repo, other, watch, reported
        self.before = ""

    async def judge(self, path: str, content: str) -> tuple[Report, list[Report]]:
        """What the watch says of an edit, and cold runs: one, or several when they do not agree."""
        self._edit(path, content)
        with edited(self.other, path, content):
            _, cold = await asyncio.gather(self._followed(path, content), cold_run(self.other))
            ours, colds = self.watch.suite.last(), [cold]
            assert ours
            while (found := differences(ours, cold)) and len(colds) <= COLD_AGAIN:
                colds.append(await cold_run(self.other))
                if all(unsteady(colds, name) for name in found):
                    break
        return ours, colds

    def _edit(self, path: str, content: str) -> None:
        if self.before and self.before != path:
            (self.repo / self.before).write_bytes((self.other / self.before).read_bytes())
        self.reported.seen.clear()
        (self.repo / path).write_text(content)
        self.before = path

    async def _followed(self, path: str, content: str) -> None:
        """Idle on the tree as it is now: the verdict on one that is half edited is passed over."""
        mirror, state = self.watch.mirror, await self.reported.idle()
        while state.tree != mirror.tree() or (mirror.path / path).read_text() != content:
            state = await self.reported.idle()


async def certify(project: Path, wanted: Wanted) -> int:
    tally, last = wanted.begun(), wanted.edits
    first = tally.of.get("edits", 0) + 1
    with tempfile.TemporaryDirectory(prefix="certify-") as place:
        repo, other = copied(project, Path(place) / "repo"), copied(project, Path(place) / "cold")
        os.environ["PYTHONPATH"] = str(repo / "src")
        made = itertools.islice(edits(other, random.Random(wanted.seed)), first - 1, min(last, first - 1 + wanted.most))
        async with watched(repo, None, *SETTINGS) as (watch, reported):
            reported.patience_s = 5 * TIMEOUT_S
            await reported.idle()
            pair = Pair(repo, other, watch, reported)
            for number, (path, content) in enumerate(made, first):
                began_s = time.monotonic()
                ours, colds = await pair.judge(path, content)
                found = tally.take(f"{number} {path}", reported.seen, ours, colds)
                took = f"{time.monotonic() - began_s:.1f} s"
                say(f"{number}/{last} {path} {ours.status}, {len(reported.seen[-1].failing)} failing, {took} {found}")
                wanted.keep(tally)
    for line in tally.summary():
        say(line)
    return 1 if tally.wrong else 0


def say(text: str) -> None:
    print(text, flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--edits", type=int, default=200, metavar="N")
    parser.add_argument("--seed", type=int, default=1, metavar="N")
    parser.add_argument("--most", type=int, default=10_000, metavar="N", help="do no more than these now")
    parser.add_argument("--file", type=Path, help="keep the tally here, and go on with what it holds")
    parser.add_argument("--project", type=Path, help=f"an unpacked source distribution (default: {PROJECT})")
    parser.add_argument("--python", type=Path, help="an interpreter with pytest (default: a new environment)")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="certify-", dir=os.environ.pop("RATCHET_BENCH_DIR", None)) as place:
        os.environ |= {"XDG_STATE_HOME": f"{place}/state", "XDG_CACHE_HOME": f"{place}/cache"}
        project = arguments.project or unpacked(Path(place))
        python = (arguments.python or make_venv(Path(place) / "venv", PYTEST)).absolute()
        os.environ["VIRTUAL_ENV"] = str(python.parent.parent)
        wanted = Wanted(arguments.edits, arguments.seed, arguments.most, arguments.file)
        return asyncio.run(certify(project.absolute(), wanted))


if __name__ == "__main__":
    sys.exit(main())
