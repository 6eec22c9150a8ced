"""The use case of test workspaces: created on request, used call by call, removed when unused for a while.

They are independent of runs and the queue, and survive a restart of the server: all state is on disk. Commands run in
the same sandbox as tests. Each workspace runs one call at a time; the total is limited too.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager, closing, nullcontext, suppress
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar
from weakref import WeakValueDictionary

import msgspec

from ratchet import config
from ratchet.app.test_workspaces.records import Records, in_use, timestamp_in
from ratchet.app.test_workspaces.safe_write import write_inside
from ratchet.app.test_workspaces.test_call import WorkspaceSuite
from ratchet.app.tests import TestOutcome, TestSelection, borrow_dependencies
from ratchet.checks.run.environment import FIXED
from ratchet.config import Config
from ratchet.core import api
from ratchet.core.api import test_workspaces as wb
from ratchet.core.learning import Learning, LearningKind
from ratchet.core.packet import packet
from ratchet.core.repo import server_of
from ratchet.core.report import GREEN, RED
from ratchet.engine.blocking import log_errors, run_blocking
from ratchet.errors import Conflict, EnvironmentCannot, GitFailed, NotFound, UsageError
from ratchet.files import state_dir, write_durably
from ratchet.paths import clones, user_state
from ratchet.process.spawn import ProcessResult, ProgramMissing, confined
from ratchet.process.supervise import supervise
from ratchet.store.run_directory import run_folder
from ratchet.tree_files import is_source_folder
from ratchet.workspace.from_config import open_workspaces, recipe_of, sandbox_settings
from ratchet.workspace.git import repository
from ratchet.workspace.git.command import git
from ratchet.workspace.git_workspace import GitWorkspace
from ratchet.workspace.protocol import WorkspaceRefused
from ratchet.workspace.registry import Workspaces
from ratchet.workspace.sandbox import Sandboxes

T = TypeVar("T")
log = logging.getLogger("ratchet.test_workspaces")
StoreLearning = Callable[[api.LearningRequest], Learning]
CANDIDATE = "candidate"
SWEEP_S = 30.0
# Each fetch occupies a thread for as long as a server elsewhere pleases, and all other calls need threads too.
# One server may not keep those of others waiting.
FETCHES_MAX, FETCHES_PER_SERVER, FETCH_S = 4, 2, 300.0
CALLS_PER_WORKSPACE = 8  # they run one at a time: more would take the places of others
_SLACK_S = 60.0
_LOOK_S = 0.1
_MISSING = 127


class ServiceLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits: number of workspaces, running and waiting calls; size of a command's output and of the returned part."""

    workspaces: int = 32
    running: int = 4
    waiting: int = 64
    output_bytes: int = 64 << 20
    shown_chars: int = 20_000
    diff_bytes: int = 500_000


class OpenedWorkspace(msgspec.Struct, frozen=True, kw_only=True):
    """A test workspace in use."""

    record: wb.TestWorkspace
    workspace: GitWorkspace
    suite: WorkspaceSuite
    folder: Path


class WorkspaceService:
    """Manages test workspaces. `settings` are the host's, not the repository's: they define paths and sandbox."""

    def __init__(self, settings: Config, *, learn: StoreLearning, allowance: ServiceLimits | None = None) -> None:
        self.settings, self._learn = settings, learn
        self.allowance = allowance or ServiceLimits()
        self._seats = asyncio.Semaphore(self.allowance.running)
        self._fetches = asyncio.Semaphore(FETCHES_MAX)
        self._servers: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()
        self._asked = 0
        self._asked_of: Counter[str] = Counter()
        self._ending: set[str] = set()
        self._turns: dict[str, asyncio.Lock] = {}
        self._at_work: dict[str, set[asyncio.Task[Any]]] = {}

    @cached_property
    def records(self) -> Records:
        return Records(user_state() / "test-workspaces", most=self.allowance.workspaces)

    @cached_property
    def workspaces(self) -> Workspaces:
        return open_workspaces(self.settings)

    # --- creation and removal -------------------------------------------------------------------------------------

    async def create(self, request: wb.CreateRequest) -> wb.TestWorkspace:
        with log_errors(log, "cannot look for expired test workspaces"):
            await self.sweep()
        async with self._seat(request.repo) if request.repo else nullcontext():
            asked, source = await run_blocking(_source, request)
        creating = asyncio.ensure_future(run_blocking(self._create, request, asked, source))
        try:
            return await asyncio.shield(creating)
        except asyncio.CancelledError:
            await self._undo(creating)
            raise

    async def _undo(self, creating: asyncio.Future[wb.TestWorkspace]) -> None:
        """Remove what is made for a client that is gone: nobody else knows its name."""
        await asyncio.wait({creating})
        if not creating.cancelled() and creating.exception() is None:
            await run_blocking(self._remove, creating.result().id)

    @asynccontextmanager
    async def _seat(self, repo: str) -> AsyncIterator[None]:
        """Wait for one of the seats of a server of git, then for one of all."""
        repository.clone_path(repo, clones=clones())  # raises UsageError for what is no address
        own = self._servers.setdefault(server_of(repo), asyncio.Semaphore(FETCHES_PER_SERVER))
        async with own, self._fetches:
            yield

    def _create(self, request: wb.CreateRequest, asked: str, source: Path) -> wb.TestWorkspace:
        commit = repository.commit_of(source, request.ref or "HEAD")
        if commit is None:
            raise UsageError(
                f"no such revision in {source}: {request.ref or 'HEAD'!r}", hint="git log --oneline lists commits"
            )
        with self.records.create() as folder:
            workspace = self._create_workspace(folder.name, source, commit)
            try:
                return self.records.write(self._finish(workspace, request, asked, source))
            except BaseException:
                self._remove_workspace(folder.name, str(source))
                raise

    def _create_workspace(self, slug: str, source: Path, commit: str) -> GitWorkspace:
        wanted = self.settings.workspace
        made = self.workspaces.create(
            slug,
            repo=source,
            commit=commit,
            kind=wanted.kind,
            on=wanted.on,
            recipe=recipe_of(config.load(source).config, source),
            kept_until=timestamp_in(wb.TTL_MAX_S),
        )
        if isinstance(made, WorkspaceRefused):
            raise Conflict(f"cannot create a workspace: {made.reason}", hint=made.hint)
        assert isinstance(made, GitWorkspace)
        return made

    def _finish(self, workspace: GitWorkspace, request: wb.CreateRequest, asked: str, source: Path) -> wb.TestWorkspace:
        if request.with_changes:
            self.workspaces.copy_uncommitted(workspace)
        inside = Path(request.path).resolve().relative_to(source.resolve()).as_posix() if request.path else "."
        expires_at = timestamp_in(request.ttl_s)
        self.workspaces.keep(workspace.record.slug, until=expires_at)
        record = wb.TestWorkspace(
            id=workspace.record.slug,
            repo=asked,
            source=str(source),
            commit=workspace.record.base_commit,
            path=workspace.record.path,
            inside="" if inside == "." else inside,
            with_changes=request.with_changes,
            ttl_s=request.ttl_s,
            created_at=timestamp_in(0),
            expires_at=expires_at,
            start_tree=workspace.checkpoint(),
        )
        opened = self._bench(record, workspace)
        borrow_dependencies(source / inside, opened.folder, opened.suite.targets())
        return record

    async def destroy(self, name: str) -> bool:
        """Remove a workspace and kill its processes. False: there was none."""
        if not self.records.holds(name):
            return False
        self._ending.add(name)
        try:
            for task in self._at_work.get(name, set()):
                task.cancel()
            async with self._turns.setdefault(name, asyncio.Lock()):
                removed = await run_blocking(self._remove, name)
        finally:
            self._ending.discard(name)
        if not removed and self.records.holds(name):
            raise in_use(name)
        self._turns.pop(name, None)
        return removed

    async def sweep(self) -> list[str]:
        """Remove expired workspaces that are not in use. One that cannot be removed is tried again the next time."""
        removed = []
        for name in await run_blocking(self.records.expired):
            try:
                if await run_blocking(self._remove, name):
                    removed.append(name)
            except Exception:
                log.exception("cannot remove the test workspace %s", name)
        return removed

    async def sweep_forever(self) -> None:
        while True:
            with log_errors(log, "cannot look for expired test workspaces"):
                await self.sweep()
            await asyncio.sleep(SWEEP_S)

    def _remove(self, name: str) -> bool:
        with self.records.remove(name) as record:
            if record:
                self._remove_workspace(name, record.source)
        return record is not None

    def _remove_workspace(self, name: str, source: str) -> None:
        self.workspaces.destroy(name)
        with suppress(GitFailed, EnvironmentCannot, OSError):  # the source may be gone, or closed to us
            git("update-ref", "-d", f"refs/heads/ratchet/{name}", cwd=Path(source))

    # --- reading -------------------------------------------------------------------------------------------------

    def get(self, name: str) -> wb.TestWorkspace:
        """Return the record. The path of a workspace in a user namespace leads through the process that holds it
        mounted, which changes with every reset; so it is looked up, not stored."""
        record = self.records.read(name)
        try:
            return msgspec.structs.replace(record, path=str(self.workspaces.open(name).path))
        except NotFound:
            return record

    def all(self) -> wb.TestWorkspaceList:
        return wb.TestWorkspaceList(workspaces=self.records.all())

    def artifact(self, name: str, request: wb.ArtifactQuery) -> wb.ArtifactChunk:
        return self.records.read_artifact(name, request.name, request.offset)

    async def diff(self, name: str) -> wb.WorkspaceDiff:
        async with self._locked(name) as opened:
            return await run_blocking(self._difference, opened)

    def _difference(self, opened: OpenedWorkspace) -> wb.WorkspaceDiff:
        most, start, now = self.allowance.diff_bytes, opened.record.start_tree, opened.workspace.checkpoint()
        text = opened.workspace.diff(start, now, max_bytes=most)
        changed = opened.workspace.changes(start, now)
        paths = [path.encode(errors="surrogateescape").decode(errors="replace") for path in changed]  # JSON is UTF-8
        return wb.WorkspaceDiff(paths=paths, diff=text, cut=len(text.encode()) > most)

    # --- calls -------------------------------------------------------------------------------------------------

    async def exec(self, name: str, request: wb.ExecRequest) -> wb.ExecResponse:
        async with self._locked(name, for_s=request.timeout_s) as opened:
            argv = request.argv or ["git", "apply", "--whitespace=nowarn", "-"]
            return await self._cancellable(name, self._exec(opened, argv, request.patch.encode(), request.timeout_s))

    async def _exec(self, opened: OpenedWorkspace, argv: list[str], stdin: bytes, timeout_s: float) -> wb.ExecResponse:
        out, err = self._new_artifacts(opened, "exec", ("stdout", "stderr"))
        cwd = opened.workspace.path if stdin else opened.folder
        env = opened.suite.environment() | FIXED
        try:
            async with self._confined(opened):
                ended = await self._limit_output(
                    supervise(argv, cwd=cwd, env=env, output=out, errors=err, stdin=stdin, timeout_s=timeout_s),
                    out,
                    err,
                )
        except ProgramMissing as error:
            return wb.ExecResponse(exit_code=_MISSING, stdout="", stderr=f"{error.message}\n", duration_s=0.0)
        most = self.allowance.shown_chars
        shown = [await run_blocking(_head_and_tail, path, most) for path in (out, err)]
        return wb.ExecResponse(
            exit_code=ended.exit_code,
            stdout=shown[0],
            stderr=shown[1],
            duration_s=ended.duration_s,
            stopped=self._why_stopped(ended, out, err),
            cut=any(path.stat().st_size > most for path in (out, err)),
            stdout_artifact=out.name,
            stderr_artifact=err.name,
        )

    def _why_stopped(self, ended: ProcessResult, *outputs: Path) -> str:
        if ended.timed_out or not ended.stopped:
            return "timeout" if ended.timed_out else ""
        return "output" if sum(path.stat().st_size for path in outputs) > self.allowance.output_bytes else "limit"

    async def _limit_output(self, work: Awaitable[ProcessResult], *outputs: Path) -> ProcessResult:
        """Stop a command whose output exceeds the limit, before it fills the disk."""
        began_s = asyncio.get_running_loop().time()
        task = asyncio.ensure_future(work)
        try:
            while not task.done():
                await asyncio.wait({task}, timeout=_LOOK_S)
                if sum(path.stat().st_size for path in outputs if path.exists()) > self.allowance.output_bytes:
                    break
        finally:
            if not task.done():
                task.cancel()
                await asyncio.wait({task})
        if task.cancelled():
            duration_s = round(asyncio.get_running_loop().time() - began_s, 3)
            return ProcessResult(exit_code=-9, duration_s=duration_s, stopped=True)
        return task.result()

    async def test(self, name: str, request: wb.TestRequest) -> wb.TestResponse:
        async with self._locked(name, for_s=request.timeout_s) as opened:
            return await self._cancellable(name, self._test(opened, request))

    async def _test(self, opened: OpenedWorkspace, request: wb.TestRequest) -> wb.TestResponse:
        (kept,) = self._new_artifacts(opened, "test", ("json",), tests=1)
        async with self._confined(opened):
            outcome = await opened.suite.run(
                TestSelection(ids=request.select, failed=request.failed), timeout_s=request.timeout_s
            )
        return await run_blocking(self._finish_test, opened, outcome, kept)

    def _finish_test(self, opened: OpenedWorkspace, outcome: TestOutcome, kept: Path) -> wb.TestResponse:
        write_durably(kept, msgspec.json.encode(outcome.report))
        text = packet(
            outcome.report,
            delta=outcome.delta,
            flaky=outcome.flaky,
            known=outcome.known,
            changed=outcome.changed,
        )
        write_durably(kept.with_suffix(".md"), text.encode())
        self._remember(opened, kept.with_suffix(".md").name, outcome)
        return wb.TestResponse(
            report=outcome.report, packet=text, delta=outcome.delta, flaky=outcome.flaky, report_artifact=kept.name
        )

    def _remember(self, opened: OpenedWorkspace, artifact: str, outcome: TestOutcome) -> None:
        record = self.records.read(opened.record.id)
        red = [test.id for test in outcome.report.tests if test.status in RED]
        self.records.write(
            msgspec.structs.replace(
                record,
                failed_once=sorted({*record.failed_once, *red}),
                artifacts=[*record.artifacts, artifact],
            )
        )

    async def write(self, name: str, request: wb.WriteRequest) -> wb.WriteResponse:
        async with self._locked(name) as opened:
            content = request.content.encode()
            await run_blocking(write_inside, opened.workspace.path, request.path, content)
            return wb.WriteResponse(path=request.path, size=len(content))

    async def report(self, name: str, request: wb.ConcludeRequest) -> wb.ConcludeResponse:
        async with self._locked(name) as opened:
            return await run_blocking(self._conclude, opened, request)

    def _conclude(self, opened: OpenedWorkspace, request: wb.ConcludeRequest) -> wb.ConcludeResponse:
        beside = _run_report_files(opened.record, request.run)
        (kept,) = self._new_artifacts(opened, "report", ("json",))
        last = opened.suite.last()
        ended = {test.id: test.status for test in (last.tests if last else [])}
        changed = self._difference(opened)
        response = wb.ConcludeResponse(
            workspace=opened.record.id,
            repo=opened.record.repo,
            commit=opened.record.commit,
            run=request.run,
            summary=request.summary,
            changed=changed.paths,
            fixed=[test for test in opened.record.failed_once if ended.get(test) in GREEN],
            still_failing=sorted(test for test, status in ended.items() if status in RED),
            diff=changed.diff,
            at=timestamp_in(0),
            artifact=kept.name,
        )
        response = msgspec.structs.replace(response, learning=self._suggest(response))
        for file in (kept, *beside):
            write_durably(file, msgspec.json.encode(response))
        return response

    def _suggest(self, response: wb.ConcludeResponse) -> str:
        """Store the result as a learning tagged as candidate, to be judged later."""
        lesson = api.LearningRequest(
            repo=response.repo, content=wb.to_learning(response), tags=[CANDIDATE, "test-workspace"], run=response.run,
            kind=LearningKind.CANDIDATE,
        )  # fmt: skip
        return self._learn(lesson).id

    # --- locking -------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def _locked(self, name: str, *, for_s: float = 0.0) -> AsyncIterator[OpenedWorkspace]:
        """Lock the workspace for one call and extend its expiry beyond the call."""
        self.records.read(name)
        if self._asked >= self.allowance.running + self.allowance.waiting:
            raise Conflict(f"{self._asked} calls are running or waiting", hint="retry when one has finished")
        if self._asked_of[name] >= CALLS_PER_WORKSPACE:
            raise Conflict(f"{self._asked_of[name]} calls wait for {name}", hint="retry when one has finished")
        self._asked += 1
        self._asked_of[name] += 1
        try:
            async with self._turns.setdefault(name, asyncio.Lock()), self._seats:
                if name in self._ending:
                    raise _destroyed(name)
                with self.records.locked(name) as record:
                    yield await run_blocking(self._open, record, for_s)
        finally:
            self._asked -= 1
            self._asked_of[name] -= 1
            self._asked_of += Counter()  # forgets those without calls

    def _open(self, record: wb.TestWorkspace, for_s: float) -> OpenedWorkspace:
        expires_at = timestamp_in(max(record.ttl_s, for_s + _SLACK_S))
        self.workspaces.keep(record.id, until=expires_at)
        record = self.records.write(msgspec.structs.replace(record, expires_at=expires_at))
        return self._bench(record, self.workspaces.open(record.id))

    def _bench(self, record: wb.TestWorkspace, workspace: GitWorkspace) -> OpenedWorkspace:
        if not is_source_folder(workspace.path, record.inside):
            # A command may have put a link in its place, and detection would look where that leads.
            record = msgspec.structs.replace(record, inside="")
        state, source = self.records.folder(record.id), Path(record.source)
        settings = config.load(source).config
        suite = WorkspaceSuite(workspace, record.inside, settings, state=state, start=record.start_tree)
        return OpenedWorkspace(record=record, workspace=workspace, suite=suite, folder=workspace.path / record.inside)

    @asynccontextmanager
    async def _confined(self, opened: OpenedWorkspace) -> AsyncIterator[None]:
        wanted, own = sandbox_settings(self.settings), opened.suite.config.sandbox.show
        wanted = msgspec.structs.replace(wanted, show=(*wanted.show, *own))
        with closing(Sandboxes(opened.workspace, wanted)) as sandboxes:
            sandbox = sandboxes.for_tests()
            try:
                with confined(sandbox, tidies=False):
                    yield
            finally:
                if sandbox is not None:
                    await run_blocking(sandbox.tidy)  # it may take long: not on the server's event loop

    def _new_artifacts(
        self, opened: OpenedWorkspace, kind: str, endings: tuple[str, ...], *, tests: int = 0
    ) -> list[Path]:
        """Return paths for the artifacts of a call; recorded before the call starts."""
        record = self.records.read(opened.record.id)
        names = [f"{kind}-{record.calls + 1:04}.{ending}" for ending in endings]
        self.records.write(
            msgspec.structs.replace(
                record, calls=record.calls + 1, tests=record.tests + tests, artifacts=[*record.artifacts, *names]
            )
        )
        return [self.records.folder(record.id) / name for name in names]

    async def _cancellable(self, name: str, work: Coroutine[Any, Any, T]) -> T:
        """Run a call as a task that `destroy` can cancel."""
        task = asyncio.ensure_future(work)
        self._at_work.setdefault(name, set()).add(task)
        try:
            await asyncio.wait({task})
        finally:
            if not task.done():
                task.cancel()
                await asyncio.wait({task})
            self._at_work[name].discard(task)
        if task.cancelled():
            raise _destroyed(name)
        return task.result()


def _destroyed(name: str) -> Conflict:
    return Conflict(f"{name} was destroyed during the call", hint="create another workspace", workspace=name)


def _source(request: wb.CreateRequest) -> tuple[str, Path]:
    """Return the repository's name, as used in learnings, and its path."""
    if request.path:
        path = Path(request.path)
        if not path.is_absolute() or not path.is_dir():
            raise UsageError(
                f"no such folder on this machine: {request.path!r}", hint="give the absolute path of a git repository"
            )
        found = repository.find_repository(path)
        return str(found.root), found.root
    try:
        return request.repo, repository.fetch_repository(request.repo, clones=clones(), timeout_s=FETCH_S)
    except EnvironmentCannot as error:
        raise UsageError(error.message, hint=error.hint or "check the address") from error


def _run_report_files(record: wb.TestWorkspace, run: str) -> list[Path]:
    """Return the file in the run's directory to write too; none without a run."""
    if not run:
        return []
    folder = run_folder(state_dir(Path(record.source)), run)
    if not folder.is_dir():
        raise UsageError(f"no such run in {record.source}: {run}", hint="`ratchet runs` lists them", run=run)
    return [folder / "test-workspaces" / f"{record.id}.json"]


def _head_and_tail(path: Path, most: int) -> str:
    """Return the first quarter and the last three quarters of the allowed size: errors are usually at the end."""
    size = path.stat().st_size
    with path.open("rb") as file:
        if size <= most:
            return file.read().decode(errors="replace")
        head = file.read(most // 4)
        file.seek(size - (most - most // 4))
        tail = file.read(most)
    left = f"\n… {size - most} bytes omitted; the artifact {path.name} has the full output …\n"
    return head.decode(errors="replace") + left + tail.decode(errors="replace")
