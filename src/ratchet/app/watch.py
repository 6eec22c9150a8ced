"""The use case of `ratchet watch`: tests a mirror of the developer's tree on every change.

A change cancels the current run. Affected and recently failed tests run first, then all tests in their normal order, as
in a cold run: only the full run decides the result and updates the trace map.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Any

import msgspec

from ratchet.app.tests import Suite, borrow_dependencies
from ratchet.checks.protocol import Target
from ratchet.checks.run.environment import full_environment
from ratchet.checks.run.executor import TestRun
from ratchet.checks.run.path_redirect import SourceTree
from ratchet.checks.run.prefork import QUICK, PreforkServer
from ratchet.checks.run.test_history import write_atomically
from ratchet.checks.select.affected_by_trace import TraceMap, read_trace
from ratchet.checks.select.prioritise import SelectionInput, failed_tests, prioritise
from ratchet.core import watch
from ratchet.core.foreign_json import MALFORMED
from ratchet.core.report import Report, ReportStatus, TestResult, load_errors, merge_targets
from ratchet.core.timestamps import format_timestamp
from ratchet.core.watch import Colour, WatchStage, WatchState
from ratchet.engine.blocking import run_blocking
from ratchet.errors import EnvironmentCannot, GitFailed, UsageError
from ratchet.files import make_state_dir
from ratchet.process.spawn import ProgramMissing, confined, this_process
from ratchet.process.supervise import supervise
from ratchet.tree_files import make_folder_inside, open_inside, remove_inside, temporary_folder
from ratchet.workspace.file_watcher import ChangeBatch, TreeWatcher
from ratchet.workspace.from_config import open_workspaces, recipe_of, sandbox_settings
from ratchet.workspace.git.command import git
from ratchet.workspace.git.repository import find_repository, init_hint
from ratchet.workspace.git_workspace import GitWorkspace
from ratchet.workspace.mirror import Mirror, MirrorSource, git_operation, head_of
from ratchet.workspace.protocol import WorkspaceRefused
from ratchet.workspace.sandbox import Sandboxes

FILE = "watch.json"
STATE_MAX_BYTES = 64 << 20
_NOTIFY_S = 30.0
_HUNG_S, _HUNG_TIMES = 60.0, 20.0
OnState = Callable[[WatchState], None]


class WatchOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of a watch. `notify`: command to run when the result changes; `desktop`: show a desktop notification."""

    follows: MirrorSource = MirrorSource.SAVE
    once: bool = False
    warm: bool = True
    polling: bool = False
    notify: str = ""
    desktop: bool = False


class RunScope(StrEnum):
    """What a run without a change tests: affected and failed tests first, then all; all at once; what failed last."""

    AFFECTED = "affected"
    ALL = "all"
    FAILED = "failed"


class TestWatcher:
    """Watches the tree of a suite and tests it. `trigger` starts a run without a change, `stop` ends the watch."""

    def __init__(self, suite: Suite, options: WatchOptions, on_state: OnState) -> None:
        if not suite.repo:
            with suppress(UsageError):
                find_repository(suite.folder)  # raises UntrustedRepository where git refuses another user's
            raise UsageError(
                f"{suite.folder} is not in a git repository with a commit",
                hint=init_hint(suite.folder),
            )
        if not suite.targets():
            raise UsageError(f"no tests found in {suite.folder}", hint='set [test] command = "…" in ratchet.toml')
        self.suite, self.options, self._on_state, self.repo = suite, options, on_state, suite.repo
        self.state = WatchState(follows=options.follows, pid=os.getpid())
        self._moved: set[str] = set()  # paths changed since the last full run, relative to the repository
        self._impacts: dict[str, TraceMap] = {}
        self._known = suite.known()
        self._last_colour = Colour.PENDING
        self._triggers: asyncio.Queue[RunScope | None] = asyncio.Queue()
        self._notifying: asyncio.Task[None] | None = None

    def trigger(self, scope: RunScope = RunScope.AFFECTED) -> None:
        self._triggers.put_nowait(scope)

    def stop(self) -> None:
        self._triggers.put_nowait(None)

    async def run(self) -> WatchState:
        """Watch until cancelled, until the tree is removed, or with `once` until all tests have run."""
        self._load_last_failures()
        with self._mirror() as mirror, temporary_folder("ratchet-watch-") as place:
            self._place = Path(place)
            self._warm = PreforkServer(self._place, mirror.workspace.record.path)
            self._sandboxes = Sandboxes(mirror.workspace, sandbox_settings(self.suite.config))
            self._changed_s = time.monotonic()
            changes = TreeWatcher(self.repo, polling=self.options.polling)
            try:
                await run_blocking(self._fill_mirror)
                return await self._follow(changes)
            finally:
                changes.close()
                if self._notifying:
                    await asyncio.wait({self._notifying})
                await self._warm.discard()
                self._sandboxes.close()

    async def _follow(self, changes: TreeWatcher) -> WatchState:
        work: asyncio.Task[None] | None = asyncio.create_task(self._run_tests())
        manual = self.options.follows is MirrorSource.MANUAL  # changes are looked for when a run is triggered
        news = None if manual else asyncio.create_task(changes.next())
        triggered = asyncio.create_task(self._triggers.get())
        try:
            while self.state.stage is not WatchStage.GONE:
                waits = {task for task in (work, news, triggered) if task}
                await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
                if triggered.done():
                    if (scope := triggered.result()) is None:
                        break
                    triggered = asyncio.create_task(self._triggers.get())
                    work = await self._apply_changes(_whole_batch(), work, scope)
                elif news and news.done():
                    batch = news.result()
                    news = asyncio.create_task(changes.next())
                    work = await self._apply_changes(batch, work)
                elif work and work.done():
                    work.result()
                    work = None
                    if self.options.once:
                        break
            return self.state
        finally:
            for task in (work, news, triggered):
                await _end(task)

    async def _apply_changes(
        self, batch: ChangeBatch, work: asyncio.Task[None] | None, scope: RunScope | None = None
    ) -> asyncio.Task[None] | None:
        """Cancel the current run, update the mirror and start again; without a change only if a scope is asked for."""
        began_s = time.monotonic()
        if batch.gone or not self.repo.is_dir():
            await _end(work)
            self._publish(msgspec.structs.replace(self.state, stage=WatchStage.GONE, note=f"{self.repo} was removed"))
            return None
        paths = await run_blocking(self._changed_paths, batch)
        if not paths and scope is None:
            return work
        await _end(work)
        await run_blocking(self.mirror.copy, paths)
        self._changed_s = began_s
        self._moved |= set(paths)
        self._warm.discard_bytecode(paths)
        if self._warm.is_stale(paths):
            await self._warm.discard()
        if any(Path(path).name in ("package.json", "Cargo.toml", "go.mod") for path in paths):
            self.suite.redetect()
        self._publish(self._changed(paths))
        return asyncio.create_task(self._run_tests(scope or RunScope.AFFECTED))

    def _changed_paths(self, batch: ChangeBatch) -> list[str]:
        try:
            return self.mirror.compare(batch)
        except GitFailed:  # git is switching or rebasing; its end triggers another event
            return []

    def _changed(self, paths: list[str]) -> WatchState:
        what = git_operation(self.mirror.git_dir)
        note = f"git operation in progress: {what}" if what else ""
        return watch.changed_to(self.state, tree=self.mirror.tree(), changed=paths, note=note)

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
        if isinstance(made, WorkspaceRefused):
            raise EnvironmentCannot(f"cannot create a workspace for the watch: {made.reason}", hint=made.hint)
        assert isinstance(made, GitWorkspace)
        self.mirror = Mirror(made, self.repo, self.options.follows)
        try:
            yield self.mirror
        finally:
            workspaces.destroy(slug)
            with suppress(GitFailed, EnvironmentCannot):
                git("update-ref", "-d", f"refs/heads/ratchet/{slug}", cwd=self.repo)

    def _fill_mirror(self) -> None:
        self.mirror.copy(paths := self.mirror.compare(_whole_batch()))
        borrow_dependencies(self.suite.folder, self._folder, self.suite.targets())
        self._publish(self._changed(paths))

    @property
    def _inside(self) -> str:
        """The watched folder relative to the repository root."""
        return self.suite.folder.relative_to(self.repo).as_posix()

    @property
    def _folder(self) -> Path:
        return self.mirror.path / self._inside

    # --- running ---------------------------------------------------------------------------------------

    async def _run_tests(self, scope: RunScope = RunScope.AFFECTED) -> None:
        """Run the affected tests, then all tests; of the failed ones alone as long as one of them fails."""
        with confined(self._sandboxes.for_tests()):
            first = await run_blocking(self._first, scope)
            if first:
                chosen = sum(len(tests) for tests in first.values())
                self._publish(msgspec.structs.replace(self.state, stage=WatchStage.AFFECTED, chosen=chosen))
                report = await self._run(first)
                self._publish(watch.after_affected(self.state, report, seconds=self._since_s()))
                self._update_known(report, whole=False)
                if scope is RunScope.FAILED and self.state.colour is Colour.RED:
                    self._publish(msgspec.structs.replace(self.state, stage=WatchStage.IDLE))
                    return
            self._publish(msgspec.structs.replace(self.state, stage=WatchStage.EVERYTHING))
            report = await self._run({})
            self._conclude(report, seconds=self._since_s())
            if _is_whole(report):
                await run_blocking(self._load_trace_map)
                self._moved.clear()
            await self._warm.prepare_ahead()

    def _conclude(self, report: Report, *, seconds: float) -> None:
        outcome = self.suite.compare_and_store(report, whole=True, log=self._log, tree=self.state.tree)
        self._update_known(report, whole=True)
        self._publish(watch.after_everything(self.state, report, flaky=outcome.flaky, seconds=seconds))
        self._notifying = asyncio.create_task(self._notify(self._notifying))

    def _first(self, scope: RunScope) -> dict[str, list[TestResult]]:
        """Return the tests to run first."""
        if scope is RunScope.ALL:
            return {}
        ground = SelectionInput(
            top=self.mirror.path,
            subfolder=self._inside,
            changed=sorted(self._moved),
            failing=self.state.failing,
            known=self._known,
        )
        if scope is RunScope.FAILED:
            return failed_tests(self.suite.targets(), ground)
        return prioritise(self.suite.targets(), self._impacts, ground)

    def _since_s(self) -> float:
        return time.monotonic() - self._changed_s

    @property
    def _log(self) -> Path:
        return self.suite.state / "watch.log"

    async def _run(self, only: dict[str, list[TestResult]]) -> Report:
        """Run the given tests, or all with tracing, and return one report."""
        self._log.unlink(missing_ok=True)
        reports: list[Report] = []
        for target in self.suite.targets():
            if not only or target.name in only:
                tests = self._test_run(target, only.get(target.name, []), traced=not only)
                reports += await tests.run_each(self._folder, log=self._log)
        await run_blocking(self.mirror.clean)
        return merge_targets(reports)

    def _test_run(self, target: Target, tests: list[TestResult], *, traced: bool) -> TestRun:
        env = full_environment()
        if target.runner == "pytest":
            env |= self._python_env(target, env, traced=traced)
        return TestRun(
            targets=[target],
            timeout_s=self.suite.config.test.timeout_s,
            silence_s=self._silence_s(),
            env=env,
            only={target.name: tests} if tests else {},
            channel_dir=str(self._warm.channel),
            origin=SourceTree(root=self.repo, inside=self.suite.inside),
            run_command=self._warm.run if self.options.warm else supervise,
        )

    def _python_env(self, target: Target, env: dict[str, str], *, traced: bool) -> dict[str, str]:
        found = {QUICK: "" if traced else "1"}
        if traced:
            place = self._record_of(target)
            with suppress(OSError):  # a process of the project holds it: nothing is recorded
                remove_inside(place.parent, place.name)
                make_folder_inside(place.parent, place.name)
            options = f"{env.get('PYTEST_ADDOPTS', '')} -p _ratchet_impact".strip()
            top = self.mirror.workspace.record.path
            found |= {"PYTEST_ADDOPTS": options, "_RATCHET_IMPACT": str(place), "_RATCHET_ROOT": top}
        return {name: value for name, value in found.items() if value}

    def _record_of(self, target: Target) -> Path:
        return self._warm.shared / f"impact-{target.name.replace('/', '-')}"

    def _silence_s(self) -> float:
        """Return the silence limit: a test that takes many times longer than the slowest so far is hung."""
        longest_s = max((known.duration_s for known in self._known.values()), default=0.0)
        allowed_s = self.suite.config.test.silence_s
        return min(allowed_s, max(_HUNG_S, _HUNG_TIMES * longest_s)) if self._known else allowed_s

    # --- history -----------------------------------------------------------------------------------

    def _load_last_failures(self) -> None:
        """Load the failures of the last run."""
        last = self.suite.last()
        if last:
            self.state = msgspec.structs.replace(self.state, failing=watch.red_tests(last))

    def _update_known(self, report: Report, *, whole: bool) -> None:
        self._known = watch.record_results(self._known, report, tree=self.state.tree, whole=whole)
        self.suite.keep_known(self._known)

    def _load_trace_map(self) -> None:
        """Load the trace map recorded by the last run."""
        for target in self.suite.targets():
            made = read_trace(self._record_of(target), self.mirror.path)
            if made:
                self._impacts[target.name] = made
                self._warm.modules = made.modules

    # --- publishing ---------------------------------------------------------------------------------------

    def _publish(self, state: WatchState) -> None:
        self.state = msgspec.structs.replace(state, at=format_timestamp(datetime.now(UTC), timespec="milliseconds"))
        if self.repo.is_dir():
            write_atomically(make_state_dir(self.repo) / FILE, msgspec.json.encode(self.state))
        self._on_state(self.state)

    async def _notify(self, earlier: asyncio.Task[None] | None) -> None:
        """Notify only when the result changed since the last full run."""
        before, self._last_colour = self._last_colour, self.state.colour
        if before in (Colour.PENDING, self.state.colour):
            return
        if earlier:
            await asyncio.wait({earlier})
        text = f"{self.state.colour}: {len(self.state.failing)} failing" if self.state.failing else self.state.colour
        if self.options.notify:
            await self._command(["sh", "-c", self.options.notify])
        if self.options.desktop:
            await self._command(["notify-send", "--app-name=ratchet", f"{self.repo.name} is {self.state.colour}", text])

    async def _command(self, argv: list[str]) -> None:
        env = dict(os.environ) | {
            "RATCHET_COLOUR": self.state.colour,
            "RATCHET_FAILING": str(len(self.state.failing)),
            "RATCHET_STATE": str(self.repo / ".ratchet" / FILE),
        }
        with suppress(ProgramMissing), confined(None):  # the developer's command runs unsandboxed
            await supervise(argv, cwd=self.repo, env=env, output=self._place / "notify.log", timeout_s=_NOTIFY_S)


def _whole_batch() -> ChangeBatch:
    batch = ChangeBatch()
    batch.whole = True
    return batch


def _is_whole(report: Report) -> bool:
    """Return whether every test ran. A partial run does not update the trace map."""
    return report.status in (ReportStatus.PASSED, ReportStatus.FAILED) and not load_errors(report)


async def _end(task: asyncio.Task[Any] | None) -> None:
    if task is None:
        return
    task.cancel()
    await asyncio.wait({task})
    if not task.cancelled():
        task.exception()


# --- reading the state from another process ---------------------------------------------------------


def read_state(repo: Path) -> WatchState | None:
    """Return the last state of a watch of this user on this repository.

    Another user may have made the folder since it was named, with a pipe or a link in place of the file.
    """
    try:
        with open_inside(repo, f".ratchet/{FILE}", os.O_RDONLY) as file:
            is_own = os.fstat(file).st_uid == os.geteuid()
            return msgspec.json.decode(os.read(file, STATE_MAX_BYTES), type=WatchState) if is_own else None
    except (OSError, *MALFORMED):
        return None


async def states(repo: Path, *, every_s: float = 0.1) -> AsyncIterator[WatchState]:
    """Yield the current state and each new one, from another process than the watch."""
    sent = ""
    while True:
        state = await run_blocking(read_state, repo)
        if state and state.at != sent:
            sent = state.at
            yield state
        await asyncio.sleep(every_s)
