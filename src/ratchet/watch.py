"""The use case of `ratchet watch`: a mirror of the developer's tree, tested all the time, beside them.

A change interrupts what it makes stale. What it can reach and what failed last run first; then everything runs, in the
suite's own order, exactly as a cold run would: only that gives a verdict on the tree, and refreshes the map.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import shutil
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from ratchet.checks import Target
from ratchet.checks.editable import Origin
from ratchet.checks.environment import whole_environment
from ratchet.checks.first import Ground, first_of
from ratchet.checks.impact import Impact, read_recorded
from ratchet.checks.run import TestRun
from ratchet.checks.warm import QUICK, Warm
from ratchet.core import watching
from ratchet.core.report import Report, ReportStatus, TestResult, broken, merge
from ratchet.core.watching import Colour, Stage, WatchState
from ratchet.errors import EnvironmentCannot, GitFailed, UsageError
from ratchet.files import make_private_dir, make_state_dir
from ratchet.memory import keep
from ratchet.places import open_workspaces, recipe_of, sandbox_settings
from ratchet.process import ProgramMissing, confined, this_process
from ratchet.steps.work import cross
from ratchet.suite import Suite, borrow_dependencies
from ratchet.supervision import supervise
from ratchet.workspace import Refused
from ratchet.workspace.changes import Batch, Changes
from ratchet.workspace.git import git
from ratchet.workspace.mirror import Follows, Mirror, head_of, under_way
from ratchet.workspace.sandbox import Sandboxes
from ratchet.workspace.views import GitWorkspace

FILE = "watch.json"
_NOTIFY_S = 30.0
_HUNG_S, _HUNG_TIMES = 60.0, 20.0
Tell = Callable[[WatchState], None]


class Wishes(msgspec.Struct, frozen=True, kw_only=True):
    """How to watch. `notify` is a command run when the colour changes, `desktop` a notification on the screen."""

    follows: Follows = Follows.SAVE
    once: bool = False
    warm: bool = True
    polling: bool = False
    notify: str = ""
    desktop: bool = False


class Watch:
    """One watch on one suite's tree. `run` is its whole life; `poke` asks for a run whatever has changed."""

    def __init__(self, suite: Suite, wishes: Wishes, tell: Tell) -> None:
        if not suite.repo:
            raise UsageError(
                f"{suite.folder} is not in a git repository with a commit",
                hint="git init && git add -A && git commit -m start",
            )
        if not suite.targets():
            raise UsageError(f"no tests were found in {suite.folder}", hint='[test] command = "…" in ratchet.toml')
        self.suite, self.wishes, self._tell, self.repo = suite, wishes, tell, suite.repo
        self.state = WatchState(follows=wishes.follows, pid=os.getpid())
        self._moved: set[str] = set()  # since everything ran last, relative to the repository
        self._impacts: dict[str, Impact] = {}
        self._known = suite.known()
        self._last_colour = Colour.PENDING
        self._poked = asyncio.Event()
        self._telling: asyncio.Task[None] | None = None

    def poke(self) -> None:
        self._poked.set()

    async def run(self) -> WatchState:
        """Until it is cancelled, the tree is gone, or with `once` until everything has run."""
        self._recall()
        with self._mirror() as mirror, tempfile.TemporaryDirectory(prefix="ratchet-watch-") as place:
            self._place = Path(place)
            self._warm = Warm(self._place, mirror.workspace.record.path)
            self._sandboxes = Sandboxes(mirror.workspace, sandbox_settings(self.suite.config))
            self._changed_s = time.monotonic()
            changes = Changes(self.repo, polling=self.wishes.polling)
            try:
                await cross(self._lay_everything)
                return await self._follow(changes)
            finally:
                changes.close()
                if self._telling:
                    await asyncio.wait({self._telling})
                await self._warm.discard()
                self._sandboxes.close()

    async def _follow(self, changes: Changes) -> WatchState:
        work: asyncio.Task[None] | None = asyncio.create_task(self._judge())
        news = asyncio.create_task(self._news(changes))
        try:
            while self.state.stage is not Stage.GONE:
                await asyncio.wait({task for task in (work, news) if task}, return_when=asyncio.FIRST_COMPLETED)
                if news.done():
                    batch = news.result()
                    news = asyncio.create_task(self._news(changes))
                    work = await self._take(batch, work)
                elif work and work.done():
                    work.result()
                    work = None
                    if self.wishes.once:
                        break
            return self.state
        finally:
            await _end(work)
            await _end(news)

    async def _news(self, changes: Changes) -> Batch:
        """The next batch. A manual watch waits for its poke, and then looks at everything."""
        if self.wishes.follows is not Follows.MANUAL:
            return await changes.next()
        await self._poked.wait()
        self._poked.clear()
        batch = Batch()
        batch.whole = True
        return batch

    async def _take(self, batch: Batch, work: asyncio.Task[None] | None) -> asyncio.Task[None] | None:
        """Stop what the change makes stale, let the mirror follow, and begin again."""
        began_s = time.monotonic()
        if batch.gone or not self.repo.is_dir():
            await _end(work)
            self._become(msgspec.structs.replace(self.state, stage=Stage.GONE, note=f"{self.repo} is gone"))
            return None
        paths = await cross(self._lacking, batch)
        poked = self.wishes.follows is Follows.MANUAL
        if not paths and not poked:
            return work
        await _end(work)
        await cross(self.mirror.lay, paths)
        self._changed_s = began_s
        self._moved |= set(paths)
        self._warm.forget(paths)
        if self._warm.is_stale(paths):
            await self._warm.discard()
        if any(Path(path).name in ("package.json", "Cargo.toml", "go.mod") for path in paths):
            self.suite.look_again()
        self._become(self._changed(paths))
        return asyncio.create_task(self._judge())

    def _lacking(self, batch: Batch) -> list[str]:
        try:
            return self.mirror.compare(batch)
        except GitFailed:  # git holds the tree for a moment: a switch or a rebase; its end will be told
            return []

    def _changed(self, paths: list[str]) -> WatchState:
        what = under_way(self.mirror.git_dir)
        note = f"git is in the middle of {what}" if what else ""
        return watching.changed_to(self.state, tree=self.mirror.tree(), changed=paths, note=note)

    # --- the mirror ------------------------------------------------------------------------------------

    @contextmanager
    def _mirror(self) -> Iterator[Mirror]:
        settings, slug = self.suite.config, f"watch-{secrets.token_hex(4)}"
        workspaces = open_workspaces(settings)
        made = workspaces.create(
            slug,
            repo=self.repo,
            commit=head_of(self.repo),
            kind=settings.workspace.kind,
            on=settings.workspace.on,
            recipe=recipe_of(settings, self.repo),
            owner=this_process(),
        )
        if isinstance(made, Refused):
            raise EnvironmentCannot(f"no workspace to watch in: {made.reason}", hint=made.hint)
        assert isinstance(made, GitWorkspace)
        self.mirror = Mirror(made, self.repo, self.wishes.follows)
        try:
            yield self.mirror
        finally:
            workspaces.destroy(slug)
            with suppress(GitFailed, EnvironmentCannot):
                git("update-ref", "-d", f"refs/heads/ratchet/{slug}", cwd=self.repo)

    def _lay_everything(self) -> None:
        batch = Batch()
        batch.whole = True
        self.mirror.lay(paths := self.mirror.compare(batch))
        borrow_dependencies(self.suite.folder, self._folder, self.suite.targets())
        self._become(self._changed(paths))

    @property
    def _inside(self) -> str:
        """The watched folder, from the top of the repository."""
        return self.suite.folder.relative_to(self.repo).as_posix()

    @property
    def _folder(self) -> Path:
        return self.mirror.path / self._inside

    # --- running ---------------------------------------------------------------------------------------

    async def _judge(self) -> None:
        """Both stages, on the tree as it is."""
        with confined(self._sandboxes.for_tests()):
            first = await cross(self._first)
            if first:
                chosen = sum(len(tests) for tests in first.values())
                self._become(msgspec.structs.replace(self.state, stage=Stage.AFFECTED, chosen=chosen))
                report = await self._run(first)
                self._become(watching.after_affected(self.state, report, seconds=self._since_s()))
                self._observe(report, whole=False)
            self._become(msgspec.structs.replace(self.state, stage=Stage.EVERYTHING))
            report = await self._run({})
            self._conclude(report, seconds=self._since_s())
            if _is_whole(report):
                await cross(self._learn)
                self._moved.clear()
            await self._warm.renew()

    def _conclude(self, report: Report, *, seconds: float) -> None:
        outcome = self.suite.conclude(report, whole=True, log=self._log, tree=self.state.tree)
        self._observe(report, whole=True)
        self._become(watching.after_everything(self.state, report, flaky=outcome.flaky, seconds=seconds))
        self._telling = asyncio.create_task(self._notify(self._telling))

    def _first(self) -> dict[str, list[TestResult]]:
        ground = Ground(
            top=self.mirror.path,
            inside=self._inside,
            moved=sorted(self._moved),
            failing=self.state.failing,
            known=self._known,
        )
        return first_of(self.suite.targets(), self._impacts, ground)

    def _since_s(self) -> float:
        return time.monotonic() - self._changed_s

    @property
    def _log(self) -> Path:
        return self.suite.state / "watch.log"

    async def _run(self, only: dict[str, list[TestResult]]) -> Report:
        """One report for the targets that are named, or for all, traced."""
        self._log.unlink(missing_ok=True)
        reports: list[Report] = []
        for target in self.suite.targets():
            if not only or target.name in only:
                tests = self._test_run(target, only.get(target.name, []), traced=not only)
                reports += await tests.run_each(self._folder, log=self._log)
        await cross(self.mirror.tidy)
        return merge(reports)

    def _test_run(self, target: Target, tests: list[TestResult], *, traced: bool) -> TestRun:
        env = whole_environment()
        if target.runner == "pytest":
            env |= self._python_env(target, env, traced=traced)
        return TestRun(
            targets=[target],
            timeout_s=self.suite.config.test.timeout_s,
            silence_s=self._silence_s(),
            env=env,
            only={target.name: tests} if tests else {},
            channels=str(self._place),
            origin=Origin(root=self.repo, inside=self.suite.inside),
            perform=self._warm.perform if self.wishes.warm else supervise,
        )

    def _python_env(self, target: Target, env: dict[str, str], *, traced: bool) -> dict[str, str]:
        found = {QUICK: "" if traced else "1"}
        if traced:
            place = self._record_of(target)
            shutil.rmtree(place, ignore_errors=True)
            make_private_dir(place)
            options = f"{env.get('PYTEST_ADDOPTS', '')} -p _ratchet_impact".strip()
            top = self.mirror.workspace.record.path
            found |= {"PYTEST_ADDOPTS": options, "_RATCHET_IMPACT": str(place), "_RATCHET_ROOT": top}
        return {name: value for name, value in found.items() if value}

    def _record_of(self, target: Target) -> Path:
        return self._place / f"impact-{target.name.replace('/', '-')}"

    def _silence_s(self) -> float:
        """A test that takes many times as long as the longest ever did hangs."""
        longest_s = max((known.duration_s for known in self._known.values()), default=0.0)
        allowed_s = self.suite.config.test.silence_s
        return min(allowed_s, max(_HUNG_S, _HUNG_TIMES * longest_s)) if self._known else allowed_s

    # --- remembering -----------------------------------------------------------------------------------

    def _recall(self) -> None:
        """What an earlier watch or test run left: what failed, and what an interpreter can have loaded before."""
        last = self.suite.last()
        if last:
            self.state = msgspec.structs.replace(self.state, failing=watching.red_tests(last))

    def _observe(self, report: Report, *, whole: bool) -> None:
        self._known = watching.observed(self._known, report, tree=self.state.tree, whole=whole)
        self.suite.keep_known(self._known)

    def _learn(self) -> None:
        """The map of the run that is over."""
        for target in self.suite.targets():
            made = read_recorded(self._record_of(target), self.mirror.path)
            if made:
                self._impacts[target.name] = made
                self._warm.modules = made.modules

    # --- telling ---------------------------------------------------------------------------------------

    def _become(self, state: WatchState) -> None:
        self.state = msgspec.structs.replace(state, at=datetime.now(UTC).isoformat(timespec="milliseconds"))
        if self.repo.is_dir():
            keep(make_state_dir(self.repo) / FILE, msgspec.json.encode(self.state))
        self._tell(self.state)

    async def _notify(self, earlier: asyncio.Task[None] | None) -> None:
        """Only when the colour is another than last time: who is told everything hears nothing."""
        before, self._last_colour = self._last_colour, self.state.colour
        if before in (Colour.PENDING, self.state.colour):
            return
        if earlier:
            await asyncio.wait({earlier})
        text = f"{self.state.colour}: {len(self.state.failing)} failing" if self.state.failing else self.state.colour
        if self.wishes.notify:
            await self._command(["sh", "-c", self.wishes.notify])
        if self.wishes.desktop:
            await self._command(["notify-send", "--app-name=ratchet", f"{self.repo.name} is {self.state.colour}", text])

    async def _command(self, argv: list[str]) -> None:
        env = dict(os.environ) | {
            "RATCHET_COLOUR": self.state.colour,
            "RATCHET_FAILING": str(len(self.state.failing)),
            "RATCHET_STATE": str(self.repo / ".ratchet" / FILE),
        }
        with suppress(ProgramMissing), confined(None):  # it is the developer's own command, not the tests'
            await supervise(argv, cwd=self.repo, env=env, output=self._place / "notify.log", timeout_s=_NOTIFY_S)


def _is_whole(report: Report) -> bool:
    """Whether every test ran. Of half a run nothing is learnt: the map stays as it was, with all that moved since."""
    return report.status in (ReportStatus.PASSED, ReportStatus.FAILED) and not broken(report)


async def _end(task: asyncio.Task[object] | asyncio.Task[None] | asyncio.Task[Batch] | None) -> None:
    if task is None:
        return
    task.cancel()
    await asyncio.wait({task})
    if not task.cancelled():
        task.exception()


# --- for other surfaces ----------------------------------------------------------------------------


def read_state(repo: Path) -> WatchState | None:
    """The newest state of whoever watches, or watched, this repository."""
    try:
        return msgspec.json.decode((repo / ".ratchet" / FILE).read_bytes(), type=WatchState)
    except (OSError, msgspec.DecodeError):
        return None


async def states(repo: Path, *, every_s: float = 0.1) -> AsyncIterator[WatchState]:
    """Every state from now on, the present one first; for `GET /api/watch`, from a process that does not watch."""
    told = ""
    while True:
        state = read_state(repo)
        if state and state.at != told:
            told = state.at
            yield state
        await asyncio.sleep(every_s)
