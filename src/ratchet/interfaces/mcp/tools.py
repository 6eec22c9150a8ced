"""The table of MCP tools: name, description for the model, arguments and handler.

Does not import the MCP library.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated, Any

import msgspec

from ratchet.app.queue import StoreQueueService, lease_of
from ratchet.app.test_workspaces import WorkspaceService
from ratchet.core import api
from ratchet.core.api import test_workspaces as wb
from ratchet.core.learning import Learning, LearningSource
from ratchet.core.lease import Lease
from ratchet.core.queue import ItemPage, ItemRow
from ratchet.core.report import RED, Report, ReportStatus, Totals
from ratchet.core.schemas import clean_descriptions
from ratchet.engine.blocking import run_blocking
from ratchet.errors import Conflict

FAILING_MAX = 100

Id = Annotated[str, msgspec.Meta(pattern="^[A-Za-z0-9._-]{1,128}$", description="The `id` create_workspace returned.")]
Run = Annotated[str, msgspec.Meta(min_length=1, max_length=200, description="The id of a run in progress.")]


class McpServices(msgspec.Struct, frozen=True, kw_only=True):
    """The services that the tools call."""

    queue_service: StoreQueueService
    workspaces: WorkspaceService


class InWorkspace(api.Request, frozen=True, kw_only=True):
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


class TestIn(wb.TestRequest, frozen=True, kw_only=True):
    workspace: Id


class WriteIn(wb.WriteRequest, frozen=True, kw_only=True):
    workspace: Id


class PatchIn(InWorkspace, frozen=True, kw_only=True):
    patch: Annotated[
        str,
        msgspec.Meta(min_length=1, max_length=wb.PATCH_MAX_CHARS, description="A unified diff, as `git diff` prints."),
    ]


class ReportIn(wb.ConcludeRequest, frozen=True, kw_only=True):
    workspace: Id


class StatusIn(api.Request, frozen=True, kw_only=True):
    item: Annotated[api.Name, msgspec.Meta(description="An item id, to see its status.")] = ""
    run: Annotated[api.Name, msgspec.Meta(description="A run id, to see its progress.")] = ""


class LockIn(api.LockRequest, frozen=True, kw_only=True):
    run: Run


class UnlockIn(api.UnlockRequest, frozen=True, kw_only=True):
    run: Run


class RetireIn(api.Request, frozen=True, kw_only=True):
    learning: Annotated[str, msgspec.Meta(min_length=1, max_length=200, description="The id of the learning.")]
    why: Annotated[str, msgspec.Meta(min_length=1, max_length=1_000, description="What is wrong with it.")]


class RunTestsResult(msgspec.Struct, frozen=True, kw_only=True):
    """A test run in short: `packet` describes the failures; the resource `report` lists every test."""

    status: ReportStatus
    totals: Totals
    failing: list[str]
    packet: str
    newly_failing: list[str] = []
    fixed: list[str] = []
    flaky: list[str] = []
    report: str = ""


class StatusResult(msgspec.Struct, frozen=True, kw_only=True):
    """Overview, and the requested item or run."""

    factory: api.Status
    item: ItemRow | None = None
    run: api.RunResponse | None = None


class Tool(msgspec.Struct, frozen=True, kw_only=True):
    """A tool; its description is the docstring of its handler. `reads`: read-only; `destroys`: destructive."""

    name: str
    title: str
    request_type: Any
    handler: Callable[[McpServices, Any], Awaitable[Any]]
    reads: bool = False
    destroys: bool = False

    @property
    def description(self) -> str:
        return " ".join((self.handler.__doc__ or "").split())

    @property
    def schema(self) -> dict[str, Any]:
        """JSON Schema of the arguments, with the object at the top level, where clients expect it."""
        _, parts = msgspec.json.schema_components([self.request_type], ref_template="#/$defs/{name}")
        parts = clean_descriptions(parts)
        top: dict[str, Any] = parts.pop(self.request_type.__name__)
        return top | ({"$defs": parts} if parts else {})


# --- handlers: each docstring is the tool description that the model sees


async def create_workspace(services: McpServices, request: wb.CreateRequest) -> wb.TestWorkspace:
    """Create a private, isolated copy of a git repository in milliseconds and return its `id`. Use it before you run
    tests or try a change, so that the developer's working tree is never touched. Give `path` (absolute) for a
    repository on this machine, with `with_changes` to include uncommitted changes; or `repo` for a git URL or
    owner/name. Then use run_tests, exec, write_file and apply_patch with that id, and destroy_workspace at the end."""
    return await services.workspaces.create(request)


async def run_tests(services: McpServices, request: TestIn) -> RunTestsResult:
    """Run a workspace's tests, whatever the language: the runner is detected. Prefer it to exec with pytest, jest or
    cargo: you get structured results with expected and actual values, likely suspects, and what was fixed or newly
    broken since the last run, instead of a log. Give `select` for single tests by id, or `failed` for the tests that
    failed last time; run without either before you claim that everything passes."""
    wanted = wb.TestRequest(select=request.select, failed=request.failed, timeout_s=request.timeout_s)
    return _verdict(request.workspace, await services.workspaces.test(request.workspace, wanted))


def _verdict(workspace: str, response: wb.TestResponse) -> RunTestsResult:
    delta = response.delta
    return RunTestsResult(
        status=response.report.status,
        totals=response.report.totals,
        failing=_failing(response.report)[:FAILING_MAX],
        packet=response.packet,
        newly_failing=delta.new_failures[:FAILING_MAX] if delta else [],
        fixed=delta.fixed[:FAILING_MAX] if delta else [],
        flaky=response.flaky,
        report=f"ratchet://workspaces/{workspace}/artifacts/{response.report_artifact}",
    )


def _failing(report: Report) -> list[str]:
    return [test.id for test in report.tests if test.status in RED]


async def execute(services: McpServices, request: ExecIn) -> wb.ExecResponse:
    """Run one command in a workspace, sandboxed and without network, and get its real exit code, stdout and stderr.
    Use it to read files (cat, grep, git log), to build or to reproduce something. Files it writes stay for the next
    call. A failing command is a normal result. There is no shell: for pipes run ["sh", "-c", "…"]."""
    return await services.workspaces.exec(
        request.workspace, wb.ExecRequest(argv=request.argv, timeout_s=request.timeout_s)
    )


async def diff(services: McpServices, request: InWorkspace) -> wb.WorkspaceDiff:
    """Show everything changed in a workspace since it was created, as paths and a unified diff that can be applied to
    the real repository with `git apply`."""
    return await services.workspaces.diff(request.workspace)


async def write_file(services: McpServices, request: WriteIn) -> wb.WriteResponse:
    """Create or replace one file in a workspace with the content given. Use it for new files and small files; for a
    small change in a large file use apply_patch."""
    return await services.workspaces.write(
        request.workspace, wb.WriteRequest(path=request.path, content=request.content)
    )


async def apply_patch(services: McpServices, request: PatchIn) -> wb.ExecResponse:
    """Apply a unified diff (as `git diff` prints) to a workspace: all of it or nothing. If it does not apply,
    the error says why and nothing has changed."""
    applied = await services.workspaces.exec(request.workspace, wb.ExecRequest(patch=request.patch))
    if applied.exit_code:
        raise Conflict(
            f"the patch does not apply: {applied.stderr.strip() or applied.stdout.strip()}",
            hint="nothing was changed; look at the file with exec, or replace it with write_file",
        )
    return applied


async def report(services: McpServices, request: ReportIn) -> wb.ConcludeResponse:
    """Store the result when you are done in a workspace: the diff, the fixed tests and your `summary`. It is kept with
    the workspace (and with `run`, if you work for one) and as a candidate for a learning. Returns the final diff."""
    return await services.workspaces.report(
        request.workspace, wb.ConcludeRequest(summary=request.summary, run=request.run)
    )


async def destroy_workspace(services: McpServices, request: InWorkspace) -> api.Acknowledgement:
    """Remove a workspace and stop its processes. Get its diff or report first. A workspace that is unused for an hour
    is removed automatically."""
    return api.Acknowledgement(changed=await services.workspaces.destroy(request.workspace))


async def add_work(services: McpServices, request: api.NewItem) -> api.AddResponse:
    """Delegate a whole task to Ratchet: other agents implement it test by test on a separate branch while you continue.
    Give the `repo` and either a `spec` in Markdown or a `description`. The task is queued, not done: follow it with
    status. To try something yourself, use create_workspace instead."""
    return await run_blocking(services.queue_service.add, request)


async def queue(services: McpServices, request: api.QueueQuery) -> ItemPage:
    """List the queue, next item first, in pages; filter by status, priority or repository. Check it before add_work to
    avoid duplicates."""
    return await run_blocking(services.queue_service.queue, request)


async def status(services: McpServices, request: StatusIn) -> StatusResult:
    """Show queue and workers in short. With `item` or `run`, also show the status of that item or run."""
    return StatusResult(
        factory=await run_blocking(services.queue_service.status),
        item=await run_blocking(services.queue_service.get, request.item) if request.item else None,
        run=await run_blocking(services.queue_service.run, request.run) if request.run else None,
    )


async def metrics(services: McpServices, request: api.MetricsQuery) -> api.Metrics:
    """Show figures of the factory: completed and failed runs, cost, reverts per commit, attempts to green. Give
    `since` (7d, 24h, a date) for a window, and `by` (agent,model or day or repo …) to compare groups."""
    return await run_blocking(services.queue_service.metrics, request)


async def lock_files(services: McpServices, request: LockIn) -> api.LocksResponse:
    """For an agent that works for a run: claim paths (src/a.py, src/, docs/**/*.md) before changing them, so that no
    other run changes them meanwhile. All or nothing; if a path is taken, the error names the holder. The
    locks are released when the run ends."""
    return await run_blocking(
        lambda: services.queue_service.lock(
            _lease(services.queue_service, request.run), api.LockRequest(paths=request.paths)
        )
    )


async def unlock_files(services: McpServices, request: UnlockIn) -> api.LocksResponse:
    """Release paths that a run has locked, or all of them if none are given. Returns the paths still locked."""
    return await run_blocking(
        lambda: services.queue_service.unlock(
            _lease(services.queue_service, request.run), api.UnlockRequest(paths=request.paths)
        )
    )


def _lease(queue_service: StoreQueueService, run: str) -> Lease:
    """Return the lease of the worker in charge of the run: locks belong to that lease."""
    queue_service.run(run)
    live = [worker for worker in queue_service.store.workers(live=True) if worker.run == run]
    if not live:
        raise Conflict(f"{run} has no worker, so it cannot hold locks", hint="`status` shows its state", run=run)
    return lease_of(live[0])


async def search_learnings(services: McpServices, request: api.LearningsQuery) -> api.LearningList:
    """Search the learnings from earlier work by words: known pitfalls, how failures were fixed. Do it before you start
    on a failure or on unfamiliar code."""
    return await run_blocking(services.queue_service.learnings, request)


async def add_learning(services: McpServices, request: api.LearningRequest) -> Learning:
    """Store one learning that would have saved you time, for the next agent on this repository. One fact, in words
    someone would search for. Duplicates are merged."""
    return await run_blocking(services.queue_service.learn, request, source=LearningSource.AGENT)


async def retire_learning(services: McpServices, request: RetireIn) -> Learning:
    """Retire a learning that is wrong or outdated, so that no agent gets it any more. It is kept with your reason."""
    return await run_blocking(
        services.queue_service.retire_learning, request.learning, api.RetireRequest(why=request.why, by="agent")
    )


TOOLS = (
    Tool(
        name="create_workspace",
        title="Create a test workspace",
        request_type=wb.CreateRequest,
        handler=create_workspace,
    ),
    Tool(name="run_tests", title="Run the tests", request_type=TestIn, handler=run_tests),
    Tool(name="exec", title="Run a command", request_type=ExecIn, handler=execute),
    Tool(name="diff", title="Show the diff", request_type=InWorkspace, handler=diff, reads=True),
    Tool(name="write_file", title="Write a file", request_type=WriteIn, handler=write_file),
    Tool(name="apply_patch", title="Apply a patch", request_type=PatchIn, handler=apply_patch),
    Tool(name="report", title="Report the result", request_type=ReportIn, handler=report),
    Tool(
        name="destroy_workspace",
        title="Destroy a workspace",
        request_type=InWorkspace,
        handler=destroy_workspace,
        destroys=True,
    ),
    Tool(name="add_work", title="Delegate work", request_type=api.NewItem, handler=add_work),
    Tool(name="queue", title="List the queue", request_type=api.QueueQuery, handler=queue, reads=True),
    Tool(name="status", title="Status", request_type=StatusIn, handler=status, reads=True),
    Tool(name="metrics", title="Metrics", request_type=api.MetricsQuery, handler=metrics, reads=True),
    Tool(name="lock_files", title="Lock files for a run", request_type=LockIn, handler=lock_files),
    Tool(name="unlock_files", title="Unlock files of a run", request_type=UnlockIn, handler=unlock_files),
    Tool(
        name="search_learnings",
        title="Search learnings",
        request_type=api.LearningsQuery,
        handler=search_learnings,
        reads=True,
    ),
    Tool(name="add_learning", title="Add a learning", request_type=api.LearningRequest, handler=add_learning),
    Tool(
        name="retire_learning",
        title="Retire a learning",
        request_type=RetireIn,
        handler=retire_learning,
        destroys=True,
    ),
)
BY_NAME = {tool.name: tool for tool in TOOLS}
