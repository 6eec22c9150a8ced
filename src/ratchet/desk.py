"""The front desk: what people and workers ask of the factory, answered from the store. Every surface asks here."""

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

from ratchet import __version__, config, places, repository
from ratchet.core import api
from ratchet.core import events as ev
from ratchet.core.item import Item, name_of, slug_of, title_of
from ratchet.core.learning import Learning
from ratchet.core.lease import Holder, Lease, WorkerRow
from ratchet.core.ledger import MESSAGE_MAX_BYTES, Entry
from ratchet.core.locks import Blocked
from ratchet.core.queue import ItemRow, Limits, NoWork, Page
from ratchet.core.redact import Redactor, secrets_in
from ratchet.core.repo import RepoKind, repo_kind, spelt
from ratchet.core.retry import DELAYS_S
from ratchet.core.state import RunState, fold
from ratchet.errors import Conflict, GitFailed, UsageError
from ratchet.store import RunRow, Store
from ratchet.store.database import stamp
from ratchet.workflows import open_workflow

DIFF_MAX_CHARS = 1_000_000
TAIL_BYTES = 20_000
WORKERS_MAX = 1_000_000
_REQUEST = "request_sha256"


class StoreDesk:
    """Satisfies `core.api.Desk`. `lease_s` is how long a worker may be silent, `limits` hold for who asks for work,
    `retry_s` for who gives it up: whatever holds for workers here holds for those that ask from elsewhere."""

    def __init__(
        self,
        store: Store,
        *,
        lease_s: float = 60.0,
        limits: Limits | None = None,
        retry_s: Sequence[float] = DELAYS_S,
        serves: bool = True,
    ) -> None:
        """One that does not serve has not been up for any time: it was made to look."""
        self.store, self.lease_s, self.limits, self.retry_s = store, lease_s, limits, retry_s
        self._began = time.monotonic() if serves else None

    def close(self) -> None:
        self.store.close()

    # --- work ------------------------------------------------------------------------------------------------

    def add(self, work: api.Work, *, key: str = "") -> api.Added:
        """Queue it. With a `key`, asking again is not asking for more; for something else it is a Conflict."""
        item = _item(work, key)
        added = self.store.add(item)
        if key and added.request_key == key and added.metadata.get(_REQUEST) != item.metadata[_REQUEST]:
            raise Conflict(
                f"the request key {key} was used for another item, {added.id}",
                hint="a new request needs a new key",
                item=added.id,
            )
        return api.Added(row=self.store.get(added.id), created=added.id == item.id)

    def get(self, item: str) -> ItemRow:
        return self.store.get(item)

    def queue(self, ask: api.QueueAsk) -> Page:
        return self.store.items(
            status=ask.status, priority=ask.priority, repo=_name(ask.repo), after=ask.after, limit=ask.limit
        )

    def cancel(self, item: str, by: api.By) -> api.CancelAnswer:
        return api.CancelAnswer(item=item, cancelled=self.store.cancel(item, by=by.by))

    def requeue(self, item: str) -> ItemRow:
        return self.store.requeue(item)

    # --- a worker's own --------------------------------------------------------------------------------------

    def register(self, holder: Holder) -> api.Registered:
        run = name_of("run", datetime.now(UTC), secrets.token_hex(4))
        lease = self.store.claim_next(holder, run=run, ttl_s=self.lease_s, limits=self.limits)
        if isinstance(lease, NoWork):
            return api.Registered(why=lease.why, until=lease.until)
        given = api.Assignment(
            worker=lease.worker,
            run=lease.run,
            epoch=lease.epoch,
            token=lease.token,
            lease_s=self.lease_s,
            item=self.store.item(lease.item),
        )
        return api.Registered(assignment=given)

    def lock(self, lease: Lease, ask: api.LockAsk) -> api.Held:
        """Raises Conflict, which names who holds what."""
        answer = self.store.lock(lease, ask.paths)
        if isinstance(answer, Blocked):
            raise Conflict(
                f"{answer.asked} is held: {answer.worker} has {answer.held}",
                hint="nothing was taken; ask again when it is done",
                **msgspec.structs.asdict(answer),
            )
        return api.Held(paths=answer.paths)

    def unlock(self, lease: Lease, ask: api.UnlockAsk) -> api.Held:
        return api.Held(paths=self.store.unlock(lease, ask.paths))

    def complete(self, lease: Lease, ask: api.Complete) -> api.Done:
        self.store.complete(lease, commits=ask.commits, head=ask.head)
        return api.Done()

    def fail(self, lease: Lease, ask: api.Fail) -> api.Back:
        return api.Back(retry=self.store.fail(lease, ask.reason, ask.detail, delays_s=self.retry_s))

    def stuck(self, lease: Lease, ask: api.Stuck) -> api.Back:
        return api.Back(retry=self.store.stuck(lease, ask.detail, delays_s=self.retry_s))

    def release(self, lease: Lease) -> api.Done:
        self.store.release(lease)
        return api.Done()

    def append(self, lease: Lease, ask: api.Append) -> api.Appended:
        """What was sent twice is written once: `after` says where in the ledger it belongs."""
        events = [_event(event) for event in ask.events]
        there = self.store.entries_after(lease.run, after=ask.after, limit=len(events))
        if there and [(entry.epoch, entry.data) for entry in there] == [
            (lease.epoch, ev.encode(one)) for one in events
        ]:
            return api.Appended(entries=[entry_answer(entry) for entry in there])
        length = self.store.run(lease.run).length
        # Who lost the lease is not told of rows: the store refuses it, and notes what it had committed.
        if length != ask.after and not self.store.worker(lease.worker).ended_at:
            raise Conflict(f"the ledger of {lease.run} has {length} rows, not {ask.after}", run=lease.run)
        return api.Appended(entries=[entry_answer(entry) for entry in self.store.append(lease, events)])

    # --- workers ---------------------------------------------------------------------------------------------

    def workers(self, ask: api.WorkersAsk) -> api.WorkerList:
        return api.WorkerList(workers=self.store.workers(live=ask.live, limit=ask.limit))

    def kill(self, worker: str, by: api.By) -> api.Done:
        return api.Done(changed=self.store.kill(worker, by=by.by))

    def logs(self, worker: str) -> api.Logs:
        row = self.store.worker(worker)
        entries = [entry for entry in self.store.entries(row.run) if entry.epoch == row.epoch]
        folder = _run_folder(self.store.item(row.item).repo, row.run) / "logs"
        files = sorted(folder.glob("*")) if folder.is_dir() else []
        return api.Logs(
            worker=row,
            entries=[entry_answer(entry) for entry in entries],
            files=[_tail(file) for file in files if file.is_file()],
        )

    # --- looking ---------------------------------------------------------------------------------------------

    def runs(self, ask: api.RunsAsk) -> api.RunPage:
        rows, after = self.store.runs_page(status=ask.status, item=ask.item, after=ask.after, limit=ask.limit)
        return api.RunPage(runs=[_summary(row) for row in rows], after=after)

    def run(self, run: str) -> api.RunAnswer:
        return api.RunAnswer(row=_summary(self.store.run(run)), state=self._state(run))

    def ledger(self, run: str, ask: api.LedgerAsk) -> api.LedgerPage:
        length = self.store.run(run).length
        entries = self.store.entries_after(run, after=ask.after, limit=ask.limit)
        return api.LedgerPage(entries=[entry_answer(entry) for entry in entries], length=length)

    def diff(self, run: str) -> api.Diff:
        state = self._state(run)
        if state.started is None:
            return api.Diff(run=run, base_commit="", head="", diff="")
        base, head = state.started.base_commit, state.head
        try:
            text = repository.diff(repository.place_of(state.started.repo, clones=places.clones()), base, head)
        except GitFailed as error:
            raise Conflict(f"the commits of {run} are not here: {error.message}", run=run) from error
        return api.Diff(
            run=run, base_commit=base, head=head, diff=text[:DIFF_MAX_CHARS], cut=len(text) > DIFF_MAX_CHARS
        )

    def status(self) -> api.Status:
        live, figures = self._live(), self.store.figures()
        return api.Status(
            version=__version__,
            at=stamp(datetime.now(UTC)),
            uptime_s=round(time.monotonic() - self._began, 3) if self._began else 0.0,
            queue=figures.queue,
            oldest_queued_at=figures.oldest_queued_at,
            workers=len(live),
            stuck=sum(worker.status == "stuck" for worker in live),
        )

    def metrics(self) -> api.Metrics:
        figures, live = self.store.figures(), Counter(str(row.status) for row in self._live())
        told = {name: getattr(figures, name) for name in api.Metrics.__struct_fields__ if hasattr(figures, name)}
        return api.Metrics(at=stamp(datetime.now(UTC)), workers=dict(live), **told)

    def _live(self) -> list[WorkerRow]:
        """All of them: what is counted is not a page."""
        return self.store.workers(live=True, limit=WORKERS_MAX)

    # --- learnings -------------------------------------------------------------------------------------------

    def learn(self, ask: api.Learn) -> Learning:
        """Said twice is said once: the same words for the same repository are the same lesson."""
        same = hashlib.sha256(f"{ask.repo}\0{ask.content}".encode()).hexdigest()[:16]
        fields = msgspec.structs.asdict(ask)
        return self.store.learn(Learning(id=f"learning-{same}", created_at=stamp(datetime.now(UTC)), **fields))

    def learnings(self, ask: api.LearningsAsk) -> api.LearningList:
        return api.LearningList(learnings=self.store.learnings(ask.repo, query=ask.query, limit=ask.limit))

    def _state(self, run: str) -> RunState:
        table = open_workflow(self.store.item(self.store.run(run).item).workflow).table
        return fold(run, table, [ev.decode(entry.kind, entry.data) for entry in self.store.entries(run)])


def lease_of(worker: WorkerRow) -> Lease:
    """What a proven worker writes with: the epoch in it fences whoever is late."""
    holder = Holder(worker=worker.name, machine="", pid=0, born="")
    return Lease(run=worker.run, item=worker.item, epoch=worker.epoch, holder=holder, worker=worker.id)


def entry_answer(entry: Entry) -> api.LedgerEntry:
    fields = msgspec.structs.asdict(entry)
    return api.LedgerEntry(**fields | {"data": msgspec.json.decode(entry.data)})


def _item(work: api.Work, key: str) -> Item:
    open_workflow(work.workflow)
    config.load(Path("/nonexistent"), environ={}, flags=work.settings)  # a wrong key is told now, not to a worker
    spec, now, unique = work.spec or work.description, datetime.now(UTC), secrets.token_hex(4)
    title = work.title or title_of(spec)
    repo, base = _start(work)
    sent = hashlib.sha256(msgspec.json.encode(work)).hexdigest()
    return Item(
        id=name_of("item", now, unique),
        repo=repo,
        spec=spec,
        title=title,
        workflow=work.workflow,
        priority=work.priority,
        base_commit=base,
        slug=slug_of(title, unique),
        source_ref=work.source_ref,
        settings=work.settings,
        created_at=stamp(now),
        source=work.source,
        branch=work.branch,
        max_iterations=work.max_iterations,
        needs=work.needs,
        footprint=work.footprint,
        metadata=work.metadata | ({_REQUEST: sent} if key else {}),
        request_key=key,
    )


def _start(work: api.Work) -> tuple[str, str]:
    """The repository, by the one name it has, and the commit to start from, fixed when it is asked for. Of one that is
    elsewhere whoever works on it takes the newest there is: then it is empty."""
    if repo_kind(work.repo) is not RepoKind.PATH:
        return spelt(work.repo), ""
    found = repository.find(Path(work.repo)) if Path(work.repo).is_dir() else None
    if found is None:
        raise UsageError(f"{work.repo} is no folder here", hint="a repository elsewhere is named by its URL")
    if not work.branch:
        return str(found.root), found.head
    tip = repository.commit_of(found.root, f"refs/heads/{work.branch}")
    if tip is None:
        raise UsageError(f"there is no branch {work.branch} in {work.repo}", hint=f"git -C {work.repo} branch")
    return str(found.root), tip


def _name(repo: str) -> str:
    """What items of a repository have as its name, however it was spelt; of what is none, the words themselves."""
    try:
        if repo_kind(repo) is not RepoKind.PATH:
            return spelt(repo)
        return str(repository.find(Path(repo)).root)
    except ValueError:
        return repo
    except (UsageError, GitFailed):
        return str(Path(repo))


def _event(given: dict[str, object]) -> ev.Event:
    kind = given.get("kind")
    decoded = ev.decode(str(kind), msgspec.json.encode(given)) if isinstance(kind, str) else None
    if not isinstance(decoded, ev.Event):
        raise UsageError(f"there is no event {kind!r}", hint="docs/reference/events.md lists them")
    if isinstance(decoded, ev.RunParked | ev.RunReturned) and decoded.until:
        decoded = msgspec.structs.replace(decoded, until=_moment(decoded.until))
    data = ev.encode(decoded)
    if len(data) > MESSAGE_MAX_BYTES or b"\\u0000" in data:
        raise UsageError(f"a {kind} of {len(data)} bytes, or with a NUL in it, is no event", hint="make it an artifact")
    return decoded


def _moment(text: str) -> str:
    """A time as the store writes it: it compares them as texts."""
    try:
        at = datetime.fromisoformat(text)
        if at.tzinfo is None:
            raise ValueError("it has no time zone")
        return stamp(at)
    except (ValueError, OverflowError) as error:
        raise UsageError(f"`until` is no moment: {error}", hint="as in 2026-01-31T12:00:00Z") from error


def _run_folder(repo: str, run: str) -> Path:
    return repository.place_of(repo, clones=places.clones()) / ".ratchet" / "runs" / run


def _tail(file: Path) -> api.LogFile:
    size = file.stat().st_size
    with file.open("rb") as opened:
        opened.seek(max(0, size - TAIL_BYTES))
        # A log is redacted when its turn is over; who looks before that is not to see more.
        tail = Redactor(secrets_in(os.environ)).bytes(opened.read(TAIL_BYTES))
    return api.LogFile(name=file.name, size=size, tail=tail.decode(errors="replace"))


def _summary(row: RunRow) -> api.RunSummary:
    return api.RunSummary(
        run=row.run,
        item=row.item,
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
