"""The use case of test workspaces: made by asking, worked in call by call, gone when nobody used them for a while.

They need no run and no queue, and outlive the server: all that is known of one is on disk. What is run in one is
confined as tests are. At most one call at a time is at work in each, and only so many in all.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, closing, contextmanager, suppress
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from ratchet import config, repository
from ratchet.checks.environment import FIXED
from ratchet.config import Config
from ratchet.core import api
from ratchet.core import workbench as wb
from ratchet.core.learning import Learning
from ratchet.core.packet import packet
from ratchet.core.report import GREEN, RED
from ratchet.errors import Conflict, EnvironmentCannot, GitFailed, UsageError
from ratchet.files import write_durably
from ratchet.places import clones, open_workspaces, recipe_of, sandbox_settings, user_state
from ratchet.process import Finished, ProgramMissing, confined
from ratchet.steps.work import cross
from ratchet.suite import Choice, Outcome, borrow_dependencies
from ratchet.supervision import supervise
from ratchet.workbench.placing import place
from ratchet.workbench.records import Records, in_s, in_use
from ratchet.workbench.testing import BenchSuite
from ratchet.workspace import Refused
from ratchet.workspace.git import git
from ratchet.workspace.registry import Workspaces
from ratchet.workspace.sandbox import Sandboxes
from ratchet.workspace.views import GitWorkspace

T = TypeVar("T")
Learn = Callable[[api.Learn], Learning]
CANDIDATE = "candidate"
SWEEP_S = 30.0
_SLACK_S = 60.0
_LOOK_S = 0.1
_MISSING = 127


class Allowance(msgspec.Struct, frozen=True, kw_only=True):
    """How many workspaces, calls at work and calls that wait; how much a command may say, and what of it is told."""

    workspaces: int = 32
    running: int = 4
    waiting: int = 64
    output_bytes: int = 64 << 20
    told_chars: int = 20_000
    diff_bytes: int = 500_000


class Bench(msgspec.Struct, frozen=True, kw_only=True):
    """A test workspace in use."""

    record: wb.TestWorkspace
    workspace: GitWorkspace
    suite: BenchSuite
    folder: Path


class Workbench:
    """`settings` are the host's: where workspaces live and how they are confined is not for a repository to say."""

    def __init__(self, settings: Config, *, learn: Learn, allowance: Allowance | None = None) -> None:
        self.settings, self._learn = settings, learn
        self.allowance = allowance or Allowance()
        self._seats = asyncio.Semaphore(self.allowance.running)
        self._asked = 0
        self._ending: set[str] = set()
        self._turns: dict[str, asyncio.Lock] = {}
        self._at_work: dict[str, set[asyncio.Task[Any]]] = {}

    @cached_property
    def records(self) -> Records:
        return Records(user_state() / "test-workspaces", most=self.allowance.workspaces)

    @cached_property
    def workspaces(self) -> Workspaces:
        return open_workspaces(self.settings)

    # --- making and removing -------------------------------------------------------------------------------------

    async def create(self, ask: wb.Create) -> wb.TestWorkspace:
        await self.sweep()
        return await cross(self._create, ask)

    def _create(self, ask: wb.Create) -> wb.TestWorkspace:
        asked, source = _source(ask)
        commit = repository.commit_of(source, ask.ref or "HEAD")
        if commit is None:
            raise UsageError(f"there is no revision {ask.ref or 'HEAD'!r} in {source}", hint="git log names them")
        with self.records.making() as folder:
            workspace = self._lay(folder.name, source, commit)
            try:
                return self.records.write(self._finish(workspace, ask, asked, source))
            except BaseException:
                self._take_up(folder.name, str(source))
                raise

    def _lay(self, slug: str, source: Path, commit: str) -> GitWorkspace:
        wanted = self.settings.workspace
        made = self.workspaces.create(
            slug,
            repo=source,
            commit=commit,
            kind=wanted.kind,
            on=wanted.on,
            recipe=recipe_of(config.load(source).config, source),
            kept_until=in_s(wb.TTL_MAX_S),
        )
        if isinstance(made, Refused):
            raise Conflict(f"no workspace: {made.reason}", hint=made.hint)
        assert isinstance(made, GitWorkspace)
        return made

    def _finish(self, workspace: GitWorkspace, ask: wb.Create, asked: str, source: Path) -> wb.TestWorkspace:
        if ask.with_changes:
            self.workspaces.lay_changes(workspace)
        inside = Path(ask.path).resolve().relative_to(source.resolve()).as_posix() if ask.path else "."
        expires_at = in_s(ask.ttl_s)
        self.workspaces.keep(workspace.record.slug, until=expires_at)
        record = wb.TestWorkspace(
            id=workspace.record.slug,
            repo=asked,
            source=str(source),
            commit=workspace.record.base_commit,
            path=workspace.record.path,
            inside="" if inside == "." else inside,
            with_changes=ask.with_changes,
            ttl_s=ask.ttl_s,
            created_at=in_s(0),
            expires_at=expires_at,
            start_tree=workspace.checkpoint(),
        )
        bench = self._bench(record, workspace)
        borrow_dependencies(source / inside, bench.folder, bench.suite.targets())
        return record

    async def destroy(self, name: str) -> bool:
        """Whatever runs in it dies. False when there was none: that is success."""
        if not self.records.holds(name):
            return False
        self._ending.add(name)
        try:
            for task in self._at_work.get(name, set()):
                task.cancel()
            async with self._turns.setdefault(name, asyncio.Lock()):
                removed = await cross(self._remove, name)
        finally:
            self._ending.discard(name)
        if not removed and self.records.holds(name):
            raise in_use(name)
        self._turns.pop(name, None)
        return removed

    async def sweep(self) -> list[str]:
        """Remove those whose time is over, unless somebody is at work in them."""
        return [name for name in await cross(self.records.over) if await cross(self._remove, name)]

    async def keep_swept(self) -> None:
        while True:
            with suppress(OSError, EnvironmentCannot):  # what cannot be removed now is tried again
                await self.sweep()
            await asyncio.sleep(SWEEP_S)

    def _remove(self, name: str) -> bool:
        with self.records.removing(name) as record:
            if record:
                self._take_up(name, record.source)
        return record is not None

    def _take_up(self, name: str, source: str) -> None:
        self.workspaces.destroy(name)
        with suppress(GitFailed, EnvironmentCannot):
            git("update-ref", "-d", f"refs/heads/ratchet/{name}", cwd=Path(source))

    # --- looking -------------------------------------------------------------------------------------------------

    def get(self, name: str) -> wb.TestWorkspace:
        return self.records.read(name)

    def all(self) -> wb.TestWorkspaceList:
        return wb.TestWorkspaceList(workspaces=self.records.all())

    def artifact(self, name: str, ask: wb.ArtifactAsk) -> wb.Piece:
        return self.records.piece(name, ask.name, ask.offset)

    async def diff(self, name: str) -> wb.Difference:
        async with self._using(name) as bench:
            return await cross(self._difference, bench)

    def _difference(self, bench: Bench) -> wb.Difference:
        most, start, now = self.allowance.diff_bytes, bench.record.start_tree, bench.workspace.checkpoint()
        text = bench.workspace.diff(start, now, max_bytes=most)
        return wb.Difference(paths=bench.workspace.changes(start, now), diff=text, cut=len(text.encode()) > most)

    # --- working -------------------------------------------------------------------------------------------------

    async def exec(self, name: str, ask: wb.Exec) -> wb.Executed:
        async with self._using(name, for_s=ask.timeout_s) as bench:
            argv = ask.argv or ["git", "apply", "--whitespace=nowarn", "-"]
            return await self._work(name, self._exec(bench, argv, ask.patch.encode(), ask.timeout_s))

    async def _exec(self, bench: Bench, argv: list[str], stdin: bytes, timeout_s: float) -> wb.Executed:
        out, err = self._new(bench, "exec", ("stdout", "stderr"))
        cwd = bench.workspace.path if stdin else bench.folder
        env = bench.suite.environment() | FIXED
        try:
            with self._confined(bench):
                ended = await self._until_flooded(
                    supervise(argv, cwd=cwd, env=env, output=out, errors=err, stdin=stdin, timeout_s=timeout_s),
                    out,
                    err,
                )
        except ProgramMissing as error:
            return wb.Executed(exit_code=_MISSING, stdout="", stderr=f"{error.message}\n", duration_s=0.0)
        most = self.allowance.told_chars
        said = [await cross(_ends, path, most) for path in (out, err)]
        return wb.Executed(
            exit_code=ended.exit_code,
            stdout=said[0],
            stderr=said[1],
            duration_s=ended.duration_s,
            stopped="timeout" if ended.timed_out else "output" if ended.told else "",
            cut=any(path.stat().st_size > most for path in (out, err)),
            stdout_artifact=out.name,
            stderr_artifact=err.name,
        )

    async def _until_flooded(self, work: Awaitable[Finished], *outputs: Path) -> Finished:
        """A command that never stops talking is stopped before it has filled the disk."""
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
            return Finished(exit_code=-9, duration_s=duration_s, told=True)
        return task.result()

    async def test(self, name: str, ask: wb.Test) -> wb.Tested:
        async with self._using(name, for_s=ask.timeout_s) as bench:
            return await self._work(name, self._test(bench, ask))

    async def _test(self, bench: Bench, ask: wb.Test) -> wb.Tested:
        (kept,) = self._new(bench, "test", ("json",), tests=1)
        with self._confined(bench):
            outcome = await bench.suite.run(Choice(ids=ask.select, failed=ask.failed), timeout_s=ask.timeout_s)
        return await cross(self._tell, bench, outcome, kept)

    def _tell(self, bench: Bench, outcome: Outcome, kept: Path) -> wb.Tested:
        write_durably(kept, msgspec.json.encode(outcome.report))
        told = packet(
            outcome.report,
            delta=outcome.delta,
            flaky=outcome.flaky,
            known=outcome.known,
            changed=outcome.changed,
        )
        write_durably(kept.with_suffix(".md"), told.encode())
        self._remember(bench, kept.with_suffix(".md").name, outcome)
        return wb.Tested(
            report=outcome.report, packet=told, delta=outcome.delta, flaky=outcome.flaky, report_artifact=kept.name
        )

    def _remember(self, bench: Bench, artifact: str, outcome: Outcome) -> None:
        record = self.records.read(bench.record.id)
        red = [test.id for test in outcome.report.tests if test.status in RED]
        self.records.write(
            msgspec.structs.replace(
                record,
                failed_once=sorted({*record.failed_once, *red}),
                artifacts=[*record.artifacts, artifact],
            )
        )

    async def write(self, name: str, ask: wb.Write) -> wb.Written:
        async with self._using(name) as bench:
            content = ask.content.encode()
            await cross(place, bench.workspace.path, ask.path, content)
            return wb.Written(path=ask.path, size=len(content))

    async def report(self, name: str, ask: wb.Conclude) -> wb.Concluded:
        async with self._using(name) as bench:
            return await cross(self._conclude, bench, ask)

    def _conclude(self, bench: Bench, ask: wb.Conclude) -> wb.Concluded:
        beside = _in_run(bench.record, ask.run)
        (kept,) = self._new(bench, "report", ("json",))
        last = bench.suite.last()
        ended = {test.id: test.status for test in (last.tests if last else [])}
        changed = self._difference(bench)
        told = wb.Concluded(
            workspace=bench.record.id,
            repo=bench.record.repo,
            commit=bench.record.commit,
            run=ask.run,
            summary=ask.summary,
            changed=changed.paths,
            fixed=[test for test in bench.record.failed_once if ended.get(test) in GREEN],
            still_failing=sorted(test for test, status in ended.items() if status in RED),
            diff=changed.diff,
            at=in_s(0),
            artifact=kept.name,
        )
        told = msgspec.structs.replace(told, learning=self._suggest(told))
        for file in (kept, *beside):
            write_durably(file, msgspec.json.encode(told))
        return told

    def _suggest(self, told: wb.Concluded) -> str:
        """Kept for a person or the factory to judge: it is tagged as no more than a candidate."""
        lesson = api.Learn(repo=told.repo, content=wb.lesson_of(told), tags=[CANDIDATE, "test-workspace"], run=told.run)
        return self._learn(lesson).id

    # --- one at a time -------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def _using(self, name: str, *, for_s: float = 0.0) -> AsyncIterator[Bench]:
        """Alone in it. Using it puts its end off, at least until this use is over."""
        self.records.read(name)
        if self._asked >= self.allowance.running + self.allowance.waiting:
            raise Conflict(f"{self._asked} calls are at work or wait for their turn", hint="ask again when one is done")
        self._asked += 1
        try:
            async with self._turns.setdefault(name, asyncio.Lock()), self._seats:
                if name in self._ending:
                    raise _destroyed(name)
                with self.records.using(name) as record:
                    yield await cross(self._open, record, for_s)
        finally:
            self._asked -= 1

    def _open(self, record: wb.TestWorkspace, for_s: float) -> Bench:
        expires_at = in_s(max(record.ttl_s, for_s + _SLACK_S))
        self.workspaces.keep(record.id, until=expires_at)
        record = self.records.write(msgspec.structs.replace(record, expires_at=expires_at))
        return self._bench(record, self.workspaces.open(record.id))

    def _bench(self, record: wb.TestWorkspace, workspace: GitWorkspace) -> Bench:
        state, source = self.records.folder(record.id), Path(record.source)
        settings = config.load(source).config
        suite = BenchSuite(workspace, record.inside, settings, state=state, start=record.start_tree)
        return Bench(record=record, workspace=workspace, suite=suite, folder=workspace.path / record.inside)

    @contextmanager
    def _confined(self, bench: Bench) -> Iterator[None]:
        with (
            closing(Sandboxes(bench.workspace, sandbox_settings(self.settings))) as sandboxes,
            confined(sandboxes.for_tests()),
        ):
            yield

    def _new(self, bench: Bench, kind: str, endings: tuple[str, ...], *, tests: int = 0) -> list[Path]:
        """Names for what a call leaves, written down before it is made."""
        record = self.records.read(bench.record.id)
        names = [f"{kind}-{record.calls + 1:04}.{ending}" for ending in endings]
        self.records.write(
            msgspec.structs.replace(
                record, calls=record.calls + 1, tests=record.tests + tests, artifacts=[*record.artifacts, *names]
            )
        )
        return [self.records.folder(record.id) / name for name in names]

    async def _work(self, name: str, work: Coroutine[Any, Any, T]) -> T:
        """So that `destroy` can end it."""
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
    return Conflict(f"{name} was destroyed meanwhile", hint="make another", workspace=name)


def _source(ask: wb.Create) -> tuple[str, Path]:
    """The repository as learnings and people call it, and where it is."""
    if ask.path:
        path = Path(ask.path)
        if not path.is_absolute() or not path.is_dir():
            raise UsageError(f"{ask.path!r} is no folder here", hint="give the absolute path of a git repository")
        found = repository.find(path)
        return str(found.root), found.root
    try:
        return ask.repo, repository.resolve(ask.repo, clones=clones())
    except EnvironmentCannot as error:
        raise UsageError(error.message, hint=error.hint or "check its address") from error


def _in_run(record: wb.TestWorkspace, run: str) -> list[Path]:
    """Where a run keeps its files, if it is one of this repository."""
    if not run:
        return []
    folder = Path(record.source) / ".ratchet" / "runs" / run
    if run in (".", "..") or "/" in run or not folder.is_dir():
        raise UsageError(f"{record.source} has no run {run}", hint="`ratchet runs` lists them", run=run)
    return [folder / "test-workspaces" / f"{record.id}.json"]


def _ends(path: Path, most: int) -> str:
    """A long output's beginning and, more of it, its end: errors are told last."""
    size = path.stat().st_size
    with path.open("rb") as file:
        if size <= most:
            return file.read().decode(errors="replace")
        head = file.read(most // 4)
        file.seek(size - (most - most // 4))
        tail = file.read(most)
    left = f"\n… {size - most} bytes left out; all of it is the artifact {path.name} …\n"
    return head.decode(errors="replace") + left + tail.decode(errors="replace")
