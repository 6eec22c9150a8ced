"""The queue service: all queue, worker and run operations, on top of the store. Used by CLI, HTTP and MCP."""

from __future__ import annotations

import hashlib
import os
import secrets
import time
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from ratchet import __version__, config, paths
from ratchet.app.inbox import read_inbox
from ratchet.app.learnings import LearningService
from ratchet.core import api
from ratchet.core import events as ev
from ratchet.core.budget import Amount, Cap
from ratchet.core.figures import EVER, FOREVER, Tally
from ratchet.core.item import Item, front_matter_labels, make_slug, new_id, spec_title
from ratchet.core.learning import Learning, LearningSource
from ratchet.core.learning_lift import LiftReport
from ratchet.core.lease import Holder, Lease, WorkerRow
from ratchet.core.ledger import MESSAGE_MAX_BYTES, Entry
from ratchet.core.locks import Blocked, normalise, overlaps
from ratchet.core.metrics import FactoryMetrics, Figures, FiguresQuery, TallyGroup, parse_groupings, window
from ratchet.core.queue import ClaimLimits, ItemPage, ItemRow, NoWork
from ratchet.core.redact import Redactor, secrets_in
from ratchet.core.repo import RepoKind, canonical_name, repo_kind
from ratchet.core.retry import DELAYS_S
from ratchet.core.state import DONE, RunState, advance, fold
from ratchet.core.timestamps import format_timestamp
from ratchet.engine.workflow_registry import open_workflow
from ratchet.errors import Conflict, EnvironmentCannot, GitFailed, LeaseLost, UsageError
from ratchet.files import state_dir
from ratchet.store.database import claim_key
from ratchet.store.protocols import RunRow, Store
from ratchet.store.run_directory import run_folder
from ratchet.tree_files import read_tail

DIFF_MAX_CHARS = 1_000_000
TAIL_BYTES = 20_000
WORKERS_MAX = 1_000_000
_REQUEST = "request_sha256"


class StoreQueueService:
    """Implements `core.api.QueueService` on a store.

    `lease_s`: lease time of a worker. `limits`: concurrency limits when claiming. `retry_s`: delays after a failure.
    They apply to local and remote workers alike.
    """

    def __init__(
        self,
        store: Store,
        *,
        lease_s: float = 60.0,
        limits: ClaimLimits | None = None,
        retry_s: Sequence[float] = DELAYS_S,
        day: Cap | None = None,
        serves: bool = True,
        learnings: config.LearningsConfig | None = None,
        settings: config.Config | None = None,
        folder: Path | None = None,
    ) -> None:
        """`day`: the daily budget. `serves`: report an uptime; a command that only reads has none. `settings` and
        `folder` say what the inbox warns of: budgets and the disk."""
        self.settings, self.folder = settings or config.Config(), folder or Path.cwd()
        self.store, self.lease_s, self.limits, self.retry_s = store, lease_s, limits, retry_s
        self._day = day or Cap()
        self._began = time.monotonic() if serves else None
        self.lessons = LearningService(store, learnings or config.LearningsConfig(), background=serves)

    def close(self) -> None:
        self.lessons.library.close()
        self.store.close()

    # --- work ------------------------------------------------------------------------------------------------

    def add(self, work: api.NewItem, *, key: str = "") -> api.AddResponse:
        """Add an item. Idempotent with a `key`; raises Conflict if the key was used for a different request."""
        item = _item(work, key)
        added = self.store.add(item)
        if key and added.request_key == key and added.metadata.get(_REQUEST) != item.metadata[_REQUEST]:
            raise Conflict(
                f"the request key {key} was used for another item, {added.id}",
                hint="use a new key for a new request",
                item=added.id,
            )
        return api.AddResponse(row=self.store.item_row(added.id), created=added.id == item.id)

    def get(self, item: str) -> ItemRow:
        return self.store.item_row(item)

    def queue(self, request: api.QueueQuery) -> ItemPage:
        return self.store.items(
            status=request.status,
            priority=request.priority,
            repo=_name(request.repo),
            after=request.after,
            limit=request.limit,
        )

    def cancel(self, item: str, by: api.Requester) -> api.CancelResponse:
        return api.CancelResponse(item=item, cancelled=self.store.cancel(item, by=by.by))

    def requeue(self, item: str) -> ItemRow:
        return self.store.requeue(item)

    def nudge(self, item: str, request: api.Nudge) -> ItemRow:
        return self.store.nudge(item, request.message, by=request.by)

    def inbox(self) -> api.Inbox:
        return api.Inbox(entries=read_inbox(self.store, self.settings, self.folder).entries)

    # --- worker operations --------------------------------------------------------------------------------------

    def register(
        self, holder: Holder, *, key: str = "", item: str = "", labels: Sequence[str] = ()
    ) -> api.RegisterResponse:
        """Claim an item, or the next one. Repeatable with a `key`; raises LeaseLost if that lease has ended."""
        run = new_id("run", datetime.now(UTC), secrets.token_hex(4))
        lease = (
            self.store.claim(item, run=run, holder=holder, ttl_s=self.lease_s)
            if item
            else self.store.claim_next(
                holder,
                run=run,
                ttl_s=self.lease_s,
                limits=self.limits,
                key=claim_key(key) if key else "",
                labels=labels,
            )
        )
        if isinstance(lease, NoWork):
            return api.RegisterResponse(why=lease.why, until=lease.until)
        given = api.Assignment(
            worker=lease.worker,
            run=lease.run,
            epoch=lease.epoch,
            token=lease.token,
            lease_s=self.lease_s,
            item=self.store.item(lease.item),
        )
        return api.RegisterResponse(assignment=given)

    def lock(self, lease: Lease, request: api.LockRequest) -> api.LocksResponse:
        """Lock paths. Raises Conflict, which names the holder."""
        answer = self.store.lock(lease, request.paths)
        if isinstance(answer, Blocked):
            raise Conflict(
                f"{answer.asked} is locked: {answer.worker} holds {answer.held}",
                hint="nothing was locked; retry when that worker is done",
                **msgspec.structs.asdict(answer),
            )
        return api.LocksResponse(paths=answer.paths)

    def unlock(self, lease: Lease, request: api.UnlockRequest) -> api.LocksResponse:
        return api.LocksResponse(paths=self.store.unlock(lease, request.paths))

    def locks(self, request: api.LocksQuery) -> api.LockList:
        repo, path = _name(request.repo), normalise(request.path) if request.path else ""
        return api.LockList(
            locks=[
                held
                for held in self.store.held_locks()
                if repo in ("", held.repo)
                and request.worker in ("", held.worker)
                and (not path or overlaps(path, held.path))
            ]
        )

    def complete(self, lease: Lease, request: api.CompleteRequest) -> api.Acknowledgement:
        """Complete a run whose ledger shows its verified end. Raises Conflict."""
        if self._holds(lease):  # else the store answers a repeated request, or says that the lease is lost
            _require_end(self._folded(lease, self.store.entries(lease.run)))
        self.store.complete(lease, commits=request.commits, head=request.head)
        return api.Acknowledgement()

    def _holds(self, lease: Lease) -> bool:
        try:
            self.store.renew(lease, ttl_s=self.lease_s)
        except LeaseLost:
            return False
        return True

    def _folded(self, lease: Lease, entries: Sequence[Entry]) -> RunState:
        table = open_workflow(self.store.item(lease.item).workflow).table
        return fold(lease.run, table, [ev.decode(entry.kind, entry.data) for entry in entries])

    def fail(self, lease: Lease, request: api.FailRequest) -> api.RetryResponse:
        return api.RetryResponse(retry=self.store.fail(lease, request.reason, request.detail, delays_s=self.retry_s))

    def stuck(self, lease: Lease, request: api.StuckRequest) -> api.RetryResponse:
        retry = self.store.report_stuck(lease, request.detail, key=request.key, delays_s=self.retry_s)
        return api.RetryResponse(retry=retry)

    def release(self, lease: Lease) -> api.Acknowledgement:
        self.store.release(lease)
        return api.Acknowledgement()

    def append(self, lease: Lease, request: api.AppendRequest) -> api.AppendResponse:
        """Append events behind entry `after`. Idempotent: events already there are returned, not written again."""
        events = [_event(event) for event in request.events]
        self._check_order(lease, request.after, events)
        entries = self.store.append(lease, events, after=request.after)
        return api.AppendResponse(entries=[entry_answer(entry) for entry in entries])

    def _check_order(self, lease: Lease, after: int, events: Sequence[ev.Event]) -> None:
        """Reject events that the run's workflow does not allow: with them the ledger could not be folded again.

        The length `after` is checked by the write itself, so the ledger cannot change in between.
        """
        table = open_workflow(self.store.item(lease.item).workflow).table
        state = self._folded(lease, self.store.entries(lease.run)[:after])
        try:
            for event in () if state.final else events:  # the store rejects writes to a finished run
                if isinstance(event, ev.RunCompleted) and self._holds(lease):
                    _require_end(state)
                state = advance(state, table, event)
        except Conflict:
            raise
        except Exception as error:  # whatever it is, every later fold would raise it too
            raise UsageError(f"cannot follow entry {after}: {error}", hint="see docs/reference/events.md") from error

    # --- workers ---------------------------------------------------------------------------------------------

    def workers(self, request: api.WorkersQuery) -> api.WorkerList:
        return api.WorkerList(workers=self.store.workers(live=request.live, limit=request.limit))

    def kill(self, worker: str, by: api.Requester) -> api.Acknowledgement:
        return api.Acknowledgement(changed=self.store.kill(worker, by=by.by))

    def logs(self, worker: str) -> api.Logs:
        row = self.store.worker(worker)
        entries = [entry for entry in self.store.entries(row.run) if entry.epoch == row.epoch]
        folder = run_folder(state_dir(_clone(self.store.item(row.item).repo)), row.run)
        files = sorted((folder / "logs").glob("*")) if (folder / "logs").is_dir() else []
        return api.Logs(
            worker=row,
            entries=[entry_answer(entry) for entry in entries],
            files=[_tail(folder, f"logs/{file.name}") for file in files if file.is_file()],
        )

    # --- reading ---------------------------------------------------------------------------------------------

    def runs(self, request: api.RunsQuery) -> api.RunPage:
        rows, after = self.store.runs_page(
            status=request.status, item=request.item, repo=_name(request.repo), after=request.after, limit=request.limit
        )
        return api.RunPage(runs=[_summary(row) for row in rows], after=after)

    def run(self, run: str) -> api.RunResponse:
        return api.RunResponse(row=_summary(self.store.run(run)), state=self._state(run))

    def ledger(self, run: str, request: api.LedgerQuery) -> api.LedgerPage:
        length = self.store.run(run).length
        entries = self.store.entries_after(run, after=request.after, limit=request.limit)
        return api.LedgerPage(entries=[entry_answer(entry) for entry in entries], length=length)

    def diff(self, run: str) -> api.Diff:
        from ratchet.workspace.git import repository  # noqa: PLC0415 — listing needs no git

        state = self._state(run)
        if state.started is None:
            return api.Diff(run=run, base_commit="", head="", diff="")
        base, head = state.started.base_commit, state.head
        try:
            place = repository.available_repository(state.started.repo, clones=paths.clones(), commit=head)
            text = repository.diff(place, base, head)
        except (EnvironmentCannot, OSError) as error:
            raise Conflict(f"the commits of {run} are not on this machine: {error}", run=run) from error
        return api.Diff(
            run=run, base_commit=base, head=head, diff=text[:DIFF_MAX_CHARS], cut=len(text) > DIFF_MAX_CHARS
        )

    def status(self) -> api.Status:
        live, figures = self._live(), self.store.metrics()
        return api.Status(
            version=__version__,
            at=format_timestamp(datetime.now(UTC)),
            uptime_s=round(time.monotonic() - self._began, 3) if self._began else 0.0,
            queue=figures.queue,
            oldest_queued_at=figures.oldest_queued_at,
            workers=len(live),
            stuck=sum(worker.status == "stuck" for worker in live),
            serving=sum(pool.workers for pool in self.store.pools()),
            limits=self._limits(),
            today=self._today(figures),
        )

    def metrics(self, request: api.MetricsQuery = api.MetricsQuery()) -> api.Metrics:  # noqa: B008 — it is frozen
        """Return the load, today's counts, and the figures of a window. Raises UsageError."""
        now = datetime.now(UTC)
        query = _figures_query(request, now)
        groups = self.store.figures(query)
        total = sum((found.tally for found in groups), Tally())
        load = self.store.metrics()
        day = Figures.of(load.today)
        claimable = Counter(",".join(one.require_labels) for one in self.store.claimable(limits=self.limits))
        return api.Metrics(
            at=format_timestamp(now),
            queue=load.queue,
            claimable=claimable.pop("", 0),
            claimable_by_labels=dict(claimable),
            workers=dict(Counter(str(row.status) for row in self._live())),
            completed_today=day.completed,
            failed_today=day.failed,
            iterations_today=day.iterations,
            commits_today=day.commits,
            reverts_today=day.reverts,
            recoveries_today=day.recoveries,
            spent_today=_recorded(load.today),
            reserved_today=load.reserved_today,
            limits=self._limits(),
            today=self._today(load),
            average_completion_s=day.average_completion_s,
            success_rate=day.success_rate,
            cost_per_commit_usd=day.cost_per_accepted_usd,
            reverts_per_commit=day.reverts_per_commit,
            since=query.since,
            until=query.until,
            figures=Figures.of(total),
            groups=[api.FiguresGroup(group=one.group, figures=Figures.of(one.tally)) for one in groups if one.group],
        )

    def totals(self, by: list[str]) -> list[TallyGroup]:
        """Return the tallies of everything, for counters that only grow."""
        return self.store.figures(FiguresQuery(since=EVER, until=FOREVER, by=by))

    def _limits(self) -> api.Limits:
        limits = self.limits or ClaimLimits()
        return api.Limits(**msgspec.structs.asdict(limits), cooldown_until=self.store.cooldown_until(limits.cooldown_s))

    def _today(self, figures: FactoryMetrics) -> api.DailyBudget:
        used = figures.reserved_today
        left = {
            kind: max(0, cap - getattr(used, kind))
            for kind, cap in msgspec.structs.asdict(self._day).items()
            if cap is not None
        }
        return api.DailyBudget(
            cap=self._day, spent=figures.spent_today, reserved=used, left=msgspec.convert(left, Cap, strict=False),
            unpriced_calls=figures.today.unpriced_calls,
        )  # fmt: skip

    def _live(self) -> list[WorkerRow]:
        """Return all live workers, not only a page, for counting."""
        return self.store.workers(live=True, limit=WORKERS_MAX)

    # --- learnings -------------------------------------------------------------------------------------------

    def learn(self, request: api.LearningRequest, *, source: LearningSource = LearningSource.PERSON) -> Learning:
        return self.lessons.add(request, source=source)

    def learnings(self, request: api.LearningsQuery) -> api.LearningList:
        return self.lessons.search(request, request.repo)

    def learning(self, learning: str) -> Learning:
        return self.lessons.show(learning)

    def learning_lift(self, request: api.LiftQuery) -> LiftReport:
        return self.lessons.lift(request.repo)

    def retire_learning(self, learning: str, request: api.RetireRequest) -> Learning:
        return self.lessons.retire(learning, request)

    def _state(self, run: str) -> RunState:
        table = open_workflow(self.store.item(self.store.run(run).item).workflow).table
        return fold(run, table, [ev.decode(entry.kind, entry.data) for entry in self.store.entries(run)])


def lease_of(worker: WorkerRow) -> Lease:
    """Return the lease of an authenticated worker; its epoch fences writes from expired leases."""
    holder = Holder(worker=worker.name, machine="", pid=0, born="")
    return Lease(run=worker.run, item=worker.item, epoch=worker.epoch, holder=holder, worker=worker.id)


def entry_answer(entry: Entry) -> api.LedgerEntry:
    fields = msgspec.structs.asdict(entry)
    return api.LedgerEntry(**fields | {"data": msgspec.json.decode(entry.data)})


def _figures_query(request: api.MetricsQuery, now: datetime) -> FiguresQuery:
    """Raises UsageError."""
    try:
        since, until = window(request.since, request.until, now)
        return FiguresQuery(since=since, until=until, by=parse_groupings(request.by), repo=_name(request.repo))
    except ValueError as error:
        raise UsageError(str(error)) from error


def _recorded(tally: Tally) -> Amount:
    """What the ledgers record as spent."""
    return Amount(
        cost_usd=tally.cost_microusd / 1e6,
        tokens=tally.tokens_in + tally.tokens_out,
        seconds=tally.agent_ms / 1e3,
        iterations=tally.iterations,
    )


def _item(work: api.NewItem, key: str) -> Item:
    open_workflow(work.workflow)
    config.load(Path("/nonexistent"), environ={}, flags=work.settings)  # reject a wrong setting now, not in a worker
    labels, spec = front_matter_labels(work.spec or work.description)
    now, unique = datetime.now(UTC), secrets.token_hex(4)
    title = work.title or spec_title(spec)
    repo, base = _start(work)
    sent = hashlib.sha256(msgspec.json.encode(work)).hexdigest()
    return Item(
        id=new_id("item", now, unique),
        repo=repo,
        spec=spec,
        title=title,
        workflow=work.workflow,
        priority=work.priority,
        base_commit=base,
        slug=make_slug(title, unique),
        source_ref=work.source_ref,
        settings=work.settings,
        created_at=format_timestamp(now),
        source=work.source,
        branch=work.branch,
        max_iterations=work.max_iterations,
        needs=work.needs,
        footprint=work.footprint,
        metadata=work.metadata | ({_REQUEST: sent} if key else {}),
        request_key=key,
        require_labels=[*work.require_labels, *labels],
    )


def _start(work: api.NewItem) -> tuple[str, str]:
    """Return the canonical repository name and the start commit.

    The commit is empty for a remote repository: the worker uses the newest one.
    """
    from ratchet.workspace.git import repository  # noqa: PLC0415 — listing needs no git

    if repo_kind(work.repo) is not RepoKind.PATH:
        return canonical_name(work.repo), ""
    found = repository.find_repository(Path(work.repo)) if Path(work.repo).is_dir() else None
    if found is None:
        raise UsageError(f"no such folder on this machine: {work.repo}", hint="give a remote repository by its URL")
    if not work.branch:
        return str(found.root), found.head
    tip = repository.commit_of(found.root, f"refs/heads/{work.branch}")
    if tip is None:
        raise UsageError(f"no such branch in {work.repo}: {work.branch}", hint=f"git -C {work.repo} branch")
    return str(found.root), tip


def _name(repo: str) -> str:
    """Return the canonical name of a repository; text that is not a repository is returned unchanged."""
    if not repo:
        return ""
    from ratchet.workspace.git import repository  # noqa: PLC0415 — listing needs no git

    try:
        if repo_kind(repo) is not RepoKind.PATH:
            return canonical_name(repo)
        return str(repository.find_repository(Path(repo)).root)
    except ValueError:
        return repo
    except (UsageError, GitFailed):
        return str(Path(repo))


def _require_end(state: RunState) -> None:
    """Refuse to complete a run whose workflow has not come to its end: its commits are not verified."""
    if state.phase != DONE:
        raise Conflict(
            f"the ledger of {state.run} shows no verified end: it is in {state.phase}",
            hint="append the events of its steps first, or report a failure",
            run=state.run,
        )


def _event(given: dict[str, object]) -> ev.Event:
    kind = given.get("kind")
    decoded = ev.decode(str(kind), msgspec.json.encode(given)) if isinstance(kind, str) else None
    if not isinstance(decoded, ev.Event):
        raise UsageError(f"no such event kind: {kind!r}", hint="see docs/reference/events.md")
    if isinstance(decoded, ev.RunParked | ev.RunReturned) and decoded.until:
        decoded = msgspec.structs.replace(decoded, until=_moment(decoded.until))
    data = ev.encode(decoded)
    if len(data) > MESSAGE_MAX_BYTES or b"\\u0000" in data:
        raise UsageError(
            f"the event {kind} is too large ({len(data)} bytes) or contains a NUL character",
            hint="store the content as an artifact",
        )
    return decoded


def _moment(text: str) -> str:
    """Convert a time to the store's format: the store compares times as strings."""
    try:
        at = datetime.fromisoformat(text)
        if at.tzinfo is None:
            raise ValueError("missing time zone")
        return format_timestamp(at)
    except (ValueError, OverflowError) as error:
        raise UsageError(f"invalid time in `until`: {error}", hint="for example 2026-01-31T12:00:00Z") from error


def _clone(repo: str) -> Path:
    from ratchet.workspace.git import repository  # noqa: PLC0415 — listing needs no git

    return repository.clone_path(repo, clones=paths.clones())


def _tail(folder: Path, file: str) -> api.LogFile:
    # The log file itself is redacted only at the end of the turn.
    tail = Redactor(secrets_in(os.environ)).log(read_tail(folder, file, max_bytes=TAIL_BYTES))
    path = folder / file
    return api.LogFile(name=path.name, size=path.stat().st_size, tail=tail.decode(errors="replace"))


def _summary(row: RunRow) -> api.RunSummary:
    return api.RunSummary(
        run=row.run,
        item=row.item,
        repo=row.repo,
        title=row.title,
        status=row.status,
        item_status=row.item_status,
        created_at=row.created_at,
        length=row.length,
        epoch=row.epoch,
        worker=row.holder.worker if row.holder else "",
        expires_at=row.expires_at,
        abort_by=row.abort_by,
    )
