"""The table of tools: name, what it is for in words a model chooses by, what it takes, and the verb that answers.

Nothing here needs the protocol's library.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated, Any

import msgspec

from ratchet.core import api
from ratchet.core import workbench as wb
from ratchet.core.learning import Learning
from ratchet.core.lease import Lease
from ratchet.core.queue import ItemRow, Page
from ratchet.core.report import RED, Report, ReportStatus, Totals
from ratchet.desk import StoreDesk, lease_of
from ratchet.errors import Conflict
from ratchet.steps.work import cross
from ratchet.workbench import Workbench

FAILING_MAX = 100

Id = Annotated[str, msgspec.Meta(pattern="^[A-Za-z0-9._-]{1,128}$", description="The `id` create_workspace returned.")]
Run = Annotated[str, msgspec.Meta(min_length=1, max_length=200, description="The id of a run that is worked on.")]


class Shop(msgspec.Struct, frozen=True, kw_only=True):
    """What the tools work with."""

    desk: StoreDesk
    workbench: Workbench


class InWorkspace(api.Ask, frozen=True, kw_only=True):
    workspace: Id


class ExecIn(InWorkspace, frozen=True, kw_only=True):
    argv: Annotated[
        list[wb.Word],
        msgspec.Meta(
            min_length=1, max_length=1_000,
            description='Program and arguments, no shell: ["ls", "-la"]; for a pipe: ["sh", "-c", "grep x *.py | wc"].',
        ),
    ]  # fmt: skip
    timeout_s: wb.Timeout = 600.0


class TestIn(wb.Test, frozen=True, kw_only=True):
    workspace: Id


class WriteIn(wb.Write, frozen=True, kw_only=True):
    workspace: Id


class PatchIn(InWorkspace, frozen=True, kw_only=True):
    patch: Annotated[
        str,
        msgspec.Meta(min_length=1, max_length=wb.PATCH_MAX_CHARS, description="A unified diff, as `git diff` prints."),
    ]


class ReportIn(wb.Conclude, frozen=True, kw_only=True):
    workspace: Id


class StatusIn(api.Ask, frozen=True, kw_only=True):
    item: Annotated[api.Name, msgspec.Meta(description="An item's id, to see where it stands.")] = ""
    run: Annotated[api.Name, msgspec.Meta(description="A run's id, to see what it has done.")] = ""


class LockIn(api.LockAsk, frozen=True, kw_only=True):
    run: Run


class UnlockIn(api.UnlockAsk, frozen=True, kw_only=True):
    run: Run


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """A test run in short: `packet` tells the failures; the resource named by `report` has every test."""

    status: ReportStatus
    totals: Totals
    failing: list[str]
    packet: str
    newly_failing: list[str] = []
    fixed: list[str] = []
    flaky: list[str] = []
    report: str = ""


class Glance(msgspec.Struct, frozen=True, kw_only=True):
    """The factory, and what was asked for."""

    factory: api.Status
    item: ItemRow | None = None
    run: api.RunAnswer | None = None


class Tool(msgspec.Struct, frozen=True, kw_only=True):
    """What its verb says of itself is what a model chooses by. `reads`: it changes nothing; `destroys`: what it removes
    is gone."""

    name: str
    title: str
    ask: Any
    verb: Callable[[Shop, Any], Awaitable[Any]]
    reads: bool = False
    destroys: bool = False

    @property
    def description(self) -> str:
        return " ".join((self.verb.__doc__ or "").split())

    @property
    def schema(self) -> dict[str, Any]:
        """Of what it takes, with the object itself on top: clients look there."""
        _, parts = msgspec.json.schema_components([self.ask], ref_template="#/$defs/{name}")
        top = dict(parts.pop(self.ask.__name__))
        return top | ({"$defs": dict(parts)} if parts else {})


# --- verbs: each docstring is for a model, which sees nothing else of it


async def create_workspace(shop: Shop, ask: wb.Create) -> wb.TestWorkspace:
    """Make a private, isolated copy of a git repository in milliseconds and return its `id`. Use it before you run
    tests or try a change, so that the developer's working tree is never touched. Give `path` (absolute) for a
    repository on this machine, with `with_changes` to include uncommitted changes; or `repo` for a git URL or
    owner/name. Then use run_tests, exec, write_file and apply_patch with that id, and destroy_workspace at the end."""
    return await shop.workbench.create(ask)


async def run_tests(shop: Shop, ask: TestIn) -> Verdict:
    """Run a workspace's tests, whatever the language: the runner is detected. Prefer it to exec with pytest, jest or
    cargo: you get a verdict as data, each failure with expected and actual, likely suspects, and what was fixed or
    newly broken since the last run, instead of a log. Give `select` for single tests by id, or `failed` for what
    failed last time; run without either before you say that everything passes."""
    wanted = wb.Test(select=ask.select, failed=ask.failed, timeout_s=ask.timeout_s)
    return _verdict(ask.workspace, await shop.workbench.test(ask.workspace, wanted))


def _verdict(workspace: str, told: wb.Tested) -> Verdict:
    delta = told.delta
    return Verdict(
        status=told.report.status,
        totals=told.report.totals,
        failing=_failing(told.report)[:FAILING_MAX],
        packet=told.packet,
        newly_failing=delta.new_failures[:FAILING_MAX] if delta else [],
        fixed=delta.fixed[:FAILING_MAX] if delta else [],
        flaky=told.flaky,
        report=f"ratchet://workspaces/{workspace}/artifacts/{told.report_artifact}",
    )


def _failing(report: Report) -> list[str]:
    return [test.id for test in report.tests if test.status in RED]


async def execute(shop: Shop, ask: ExecIn) -> wb.Executed:
    """Run one command in a workspace, sandboxed and without network, and get its real exit code, stdout and stderr.
    Use it to read files (cat, grep, git log), to build or to reproduce something. Files it writes stay for the next
    call. A command that fails is a normal answer. No shell: for pipes run ["sh", "-c", "…"]."""
    return await shop.workbench.exec(ask.workspace, wb.Exec(argv=ask.argv, timeout_s=ask.timeout_s))


async def diff(shop: Shop, ask: InWorkspace) -> wb.Difference:
    """Show everything changed in a workspace since it was created, as paths and a unified diff that can be applied to
    the real repository with `git apply`."""
    return await shop.workbench.diff(ask.workspace)


async def write_file(shop: Shop, ask: WriteIn) -> wb.Written:
    """Create or replace one file in a workspace with the content given. Use it for new files and small files; for a
    small change in a large file use apply_patch."""
    return await shop.workbench.write(ask.workspace, wb.Write(path=ask.path, content=ask.content))


async def apply_patch(shop: Shop, ask: PatchIn) -> wb.Executed:
    """Apply a unified diff (as `git diff` prints) to a workspace: all of it or nothing. If it does not apply you are
    told why, and nothing has changed."""
    applied = await shop.workbench.exec(ask.workspace, wb.Exec(patch=ask.patch))
    if applied.exit_code:
        raise Conflict(
            f"the patch does not apply: {applied.stderr.strip() or applied.stdout.strip()}",
            hint="nothing was changed; look at the file with exec, or replace it with write_file",
        )
    return applied


async def report(shop: Shop, ask: ReportIn) -> wb.Concluded:
    """When you are done in a workspace, keep what was changed, which failures went away and your `summary`. It is
    stored with the workspace (and with `run`, if you work for one) and as a candidate for a learning. Returns the
    final diff."""
    return await shop.workbench.report(ask.workspace, wb.Conclude(summary=ask.summary, run=ask.run))


async def destroy_workspace(shop: Shop, ask: InWorkspace) -> api.Done:
    """Remove a workspace, with everything in it and whatever still runs in it. Take its diff or report first. One
    that is not used for an hour goes by itself."""
    return api.Done(changed=await shop.workbench.destroy(ask.workspace))


async def add_work(shop: Shop, ask: api.Work) -> api.Added:
    """Hand a whole piece of work to the factory: other agents will do it test by test, on a branch of its own, while
    you go on. Give the `repo` and either a `spec` in Markdown or a `description`. It is queued, not done: follow it
    with status. To try something yourself, use create_workspace instead."""
    return await cross(shop.desk.add, ask)


async def queue(shop: Shop, ask: api.QueueAsk) -> Page:
    """List what the factory has to do, in the order of its turn, by the page; filter by status, priority or
    repository. Look here before add_work, so that nothing is queued twice."""
    return await cross(shop.desk.queue, ask)


async def status(shop: Shop, ask: StatusIn) -> Glance:
    """The factory at a glance: what is queued and who works. With `item` or `run` also where that one stands."""
    return Glance(
        factory=await cross(shop.desk.status),
        item=await cross(shop.desk.get, ask.item) if ask.item else None,
        run=await cross(shop.desk.run, ask.run) if ask.run else None,
    )


async def lock_files(shop: Shop, ask: LockIn) -> api.Held:
    """For an agent that works for a run: claim paths (src/a.py, src/, docs/**/*.md) before changing them, so that no
    other run changes them meanwhile. All or nothing; if somebody holds one you are told who. The locks go with the
    run."""
    return await cross(lambda: shop.desk.lock(_lease(shop.desk, ask.run), api.LockAsk(paths=ask.paths)))


async def unlock_files(shop: Shop, ask: UnlockIn) -> api.Held:
    """Let go of paths a run has locked, or of all of them when none are named. Returns what is still held."""
    return await cross(lambda: shop.desk.unlock(_lease(shop.desk, ask.run), api.UnlockAsk(paths=ask.paths)))


def _lease(desk: StoreDesk, run: str) -> Lease:
    """Of whoever works on the run: its locks are theirs, and go with their lease."""
    desk.run(run)
    live = [worker for worker in desk.store.workers(live=True) if worker.run == run]
    if not live:
        raise Conflict(f"nobody works on {run}, so it can hold no locks", hint="`status` says how it stands", run=run)
    return lease_of(live[0])


async def search_learnings(shop: Shop, ask: api.LearningsAsk) -> api.LearningList:
    """Search the lessons of earlier work by words: known pitfalls, how failures were mended. Do it before you start
    on a failure or a part of the code you do not know."""
    return await cross(shop.desk.learnings, ask)


async def add_learning(shop: Shop, ask: api.Learn) -> Learning:
    """Keep one lesson that would have saved you time, for whoever works on this repository next. One fact, in words
    somebody would search for. The same words twice are one lesson."""
    return await cross(shop.desk.learn, ask)


TOOLS = (
    Tool(name="create_workspace", title="Create a test workspace", ask=wb.Create, verb=create_workspace),
    Tool(name="run_tests", title="Run the tests", ask=TestIn, verb=run_tests),
    Tool(name="exec", title="Run a command", ask=ExecIn, verb=execute),
    Tool(name="diff", title="Show what was changed", ask=InWorkspace, verb=diff, reads=True),
    Tool(name="write_file", title="Write a file", ask=WriteIn, verb=write_file),
    Tool(name="apply_patch", title="Apply a patch", ask=PatchIn, verb=apply_patch),
    Tool(name="report", title="Report what it came to", ask=ReportIn, verb=report),
    Tool(name="destroy_workspace", title="Destroy a workspace", ask=InWorkspace, verb=destroy_workspace, destroys=True),
    Tool(name="add_work", title="Queue work for the factory", ask=api.Work, verb=add_work),
    Tool(name="queue", title="List the queue", ask=api.QueueAsk, verb=queue, reads=True),
    Tool(name="status", title="How the factory stands", ask=StatusIn, verb=status, reads=True),
    Tool(name="lock_files", title="Lock files for a run", ask=LockIn, verb=lock_files),
    Tool(name="unlock_files", title="Unlock files of a run", ask=UnlockIn, verb=unlock_files),
    Tool(name="search_learnings", title="Search learnings", ask=api.LearningsAsk, verb=search_learnings, reads=True),
    Tool(name="add_learning", title="Add a learning", ask=api.Learn, verb=add_learning),
)
BY_NAME = {tool.name: tool for tool in TOOLS}
