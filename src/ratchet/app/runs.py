"""The run service: starts, continues, aborts, shows and verifies runs of one repository."""

from __future__ import annotations

import asyncio
import hashlib
import os
import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import msgspec

from ratchet.agents.protocol import TurnEvent
from ratchet.app import verify_run
from ratchet.app.telemetry import open_telemetry
from ratchet.checks.protocol import Target
from ratchet.checks.run.executor import TestRun
from ratchet.config import Config
from ratchet.core import events as ev
from ratchet.core import trailers
from ratchet.core.gates import Gate
from ratchet.core.item import (
    REQUIRE_LABELS,
    SPEC_MAX_CHARS,
    Item,
    front_matter,
    front_matter_labels,
    make_slug,
    new_id,
    spec_title,
)
from ratchet.core.lease import Lease
from ratchet.core.ledger import Entry
from ratchet.core.receipt import Receipt
from ratchet.core.redact import Redactor, secrets_in
from ratchet.core.roles import PathRules
from ratchet.core.state import RunState, RunStatus, fold
from ratchet.core.timestamps import format_timestamp
from ratchet.core.workflows.workflow import Workflow
from ratchet.engine import proof
from ratchet.engine.blocking import run_blocking
from ratchet.engine.engine import Engine
from ratchet.engine.lease_keeper import AbortRequested, LeaseHandle, keep_lease
from ratchet.engine.proof import Claim, Verification
from ratchet.engine.redacted_checks import RedactedChecks
from ratchet.engine.run_ledger import EventCallback, RunLedger
from ratchet.engine.run_setup import (
    RunSetup,
    find_targets,
    open_agents,
    open_checks,
    planned_gates,
    recorded_targets,
    union,
)
from ratchet.engine.travel import may_travel
from ratchet.engine.workflow_registry import open_workflow
from ratchet.errors import GitFailed, LedgerBroken, NotFound, RatchetError, UsageError
from ratchet.paths import clones, store_address
from ratchet.process.spawn import Confinement, is_gone, this_process
from ratchet.store.protocols import RunRow, Store, open_store
from ratchet.store.run_directory import RunDirectory
from ratchet.workspace.base_cache import tree_store
from ratchet.workspace.from_config import kept_until, open_workspaces, sandbox_settings
from ratchet.workspace.git import repository
from ratchet.workspace.git.branches import delete_branch
from ratchet.workspace.git.commit_content import JudgedTree, differing_paths
from ratchet.workspace.git.repository import Repository
from ratchet.workspace.git.submodules import submodule_commits
from ratchet.workspace.sandbox import Sandboxes
from ratchet.workspace.scratch import workspace_at

MATCHES_MAX = 100


class RunHistory(msgspec.Struct, frozen=True, kw_only=True):
    """A run with its ledger, state and receipts."""

    row: RunRow
    state: RunState
    entries: list[Entry]
    events: list[ev.AnyEvent | ev.UnknownEvent]
    receipts: list[Receipt]


class RunService:
    def __init__(self, repo: Repository, config: Config, *, store: Store | None = None, token: str = "") -> None:
        """`store` is closed by the caller; without it the configured store is opened, with a server's `token`."""
        self.repo, self.config, self._lent = repo, config, store
        self.store_address = store_address(config, repo.root)
        self.store: Store = store or open_store(
            self.store_address, token=token, is_dead=is_gone, aging_s=config.aging_s, redis=config.redis
        )
        self.workspaces = open_workspaces(config)
        self.redactor = Redactor(secrets_in(os.environ))

    def close(self) -> None:
        if self._lent is None:
            self.store.close()

    def __enter__(self) -> RunService:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def remove_finished_workspaces(self) -> None:
        """Remove workspaces of completed runs whose worker died before removing them."""
        slugs = [record.slug for record in self.workspaces.records() if record.repo == str(self.repo.root)]
        for slug in self.store.completed_slugs(slugs):
            self.workspaces.destroy(slug)

    # --- running ---------------------------------------------------------------------------------------------

    def add(self, spec_path: Path, *, workflow: str = "tdd", settings: Iterable[str] = ()) -> Item:
        """Queue a spec; while it is open, the same spec is the same item.

        `settings` are the `--set` overrides; they apply whenever the item is continued.
        """
        item = self.new_item(
            read_spec(spec_path), name=spec_path.name, workflow=workflow, settings=settings,
            metadata=self.spec_metadata(spec_path),
        )  # fmt: skip
        return self.store.add(item)

    def start(self, item: Item) -> Lease:
        """Queue an item and claim it at once, before a waiting worker can. Raises LeaseHeld."""
        return self.store.add_claimed(item, run=_new_run(), holder=this_process(), ttl_s=self.config.lease_s)

    def spec_metadata(self, spec_path: Path) -> dict[str, str]:
        return {"spec_path": _inside(self.repo.root, spec_path)}

    def new_item(
        self,
        spec: str,
        *,
        name: str,
        workflow: str,
        settings: Iterable[str] = (),
        metadata: dict[str, str],
        base: str = "",
    ) -> Item:
        """Return an item to queue. `name` says where the spec comes from. `base` is the start commit, else HEAD."""
        self.check(workflow, part=metadata.get("part", ""))
        labels, spec = front_matter_labels(spec)
        title, now = spec_title(spec), datetime.now(UTC)
        unique = secrets.token_hex(4)
        identity = f"{workflow}\n{self.config.agent}\n{spec}".encode()
        return Item(
            id=new_id("item", now, unique),
            repo=str(self.repo.root),
            spec=spec,
            title=title,
            workflow=workflow,
            base_commit=base or self.repo.head,
            slug=make_slug(title, unique),
            source_ref=f"{name}:{hashlib.sha256(identity).hexdigest()[:16]}",
            settings=list(settings),
            metadata=metadata,
            created_at=format_timestamp(now),
            require_labels=labels,
        )

    def check(self, workflow: str, *, part: str = "", needs_agent: bool = True) -> None:
        """Raise what would stop a run before its first step, so that nothing is queued that cannot be done: an unknown
        workflow, a missing agent or prompt, no tests."""
        found = open_workflow(workflow)
        if needs_agent or self.config.agent_for("implementer"):
            open_agents(found, self.config, self.repo.root)
        self.targets(part)

    def withdraw(self, item: str) -> None:
        """Cancel an item whose run was refused before its first step: no worker is to execute it later."""
        row = self.store.item_row(item)
        if not (row.run and self.store.receipts(row.run)):
            self.store.cancel(item, by="refused")

    def claim(self, item: str) -> Lease:
        return self.store.claim(item, run=_new_run(), holder=this_process(), ttl_s=self.config.lease_s)

    async def work(
        self,
        lease: Lease,
        *,
        watch: EventCallback,
        on_agent_event: Callable[[TurnEvent], None],
        retry_s: Sequence[float] | None = None,
    ) -> RunState:
        """Keep the lease alive and drive its run until it ends or parks."""
        try:
            async with keep_lease(self.store, lease, lease_s=self.config.lease_s) as hold:
                return await self.drive(lease, watch=watch, on_agent_event=on_agent_event, retry_s=retry_s, hold=hold)
        except AbortRequested:
            return self._after_abort(lease, watch)

    def _after_abort(self, lease: Lease, watch: EventCallback) -> RunState:
        history = self.history(lease.run)
        last = history.events[-1]
        if isinstance(last, ev.RunAborted):
            watch(history.entries[-1], last, history.state)
        self.export(lease.run)
        return history.state

    async def drive(
        self,
        lease: Lease,
        *,
        watch: EventCallback,
        on_agent_event: Callable[[TurnEvent], None],
        retry_s: Sequence[float] | None = None,
        stop: asyncio.Event | None = None,
        hold: LeaseHandle | None = None,
    ) -> RunState:
        """Drive a run whose lease the caller keeps alive until it ends or parks."""
        item = self.store.item(lease.item)
        setup = RunSetup(
            repo=self.repo,
            config=self.config,
            store=self.store,
            workspaces=self.workspaces,
            redactor=self.redactor,
            item=item,
        )
        telemetry = await run_blocking(open_telemetry, self.config.telemetry, partial(self.store.entries, lease.run))
        ledger = RunLedger(
            self.store,
            lease,
            item,
            setup.workflow,
            self.directory(lease.run, epoch=lease.epoch, travels=may_travel(item, self.store)),
            on_event=telemetry.watching(watch),
            lease_handle=hold,
        )
        engine = Engine(setup, ledger, on_agent_event=on_agent_event, retry_s=retry_s, stop=stop)
        # Before the run: leftovers of dead owners may block it.
        await run_blocking(self.workspaces.gc, spare=item.slug)
        try:
            state = await engine.run()
            if state.final:
                with suppress(RatchetError):  # the run has ended: the next call reads its ledger too
                    await run_blocking(setup.library.learn_from_runs)
            return state
        finally:
            setup.close()
            await run_blocking(telemetry.close)
            if engine.state.status is RunStatus.COMPLETED:
                self.workspaces.destroy(item.slug)
                self._delete_empty_branch(engine.state)
            else:
                self.workspaces.keep(item.slug, until=kept_until(self.config))

    def _delete_empty_branch(self, state: RunState) -> None:
        """Delete the branch of a run that kept no commit, such as one that only proves the gates."""
        if state.started and not state.commits:
            delete_branch(self.workspaces.source(self.repo.root).git_dir, f"refs/heads/{state.started.branch}")

    def gates(self, targets: list[Target]) -> list[Gate]:
        return planned_gates(self.repo.root, self.config, targets)

    def targets(self, part: str = "") -> list[Target]:
        """Return the test targets of the whole repository, or of its folder `part`."""
        return find_targets(self.repo.root, self.config, part)

    def checks(self, targets: list[Target] | None = None) -> TestRun:
        return open_checks(self.repo.root, self.config, targets or self.targets())

    def directory(self, run: str, *, epoch: int = 1, travels: bool = False) -> RunDirectory:
        return RunDirectory(self.repo.state, run, redact=self.redactor, epoch=epoch, store=self.store, travels=travels)

    # --- reading ---------------------------------------------------------------------------------------------

    def find_run(self, name: str) -> RunRow:
        """Find a run by its id, an unambiguous part of it, or `last`."""
        if name == "last":
            matching, _ = self.store.runs_page(repo=str(self.repo.root), limit=1)
        else:
            found = self.store.find_runs(name, limit=MATCHES_MAX)
            matching = [row for row in found if row.repo == str(self.repo.root)] or found
        if len(matching) == 1:
            return matching[0]
        if matching:
            more = " or more" if len(matching) == MATCHES_MAX else ""
            raise UsageError(
                f"ambiguous run id {name!r}: {len(matching)}{more} matches",
                hint="give more of the id; `ratchet runs` lists them",
            )
        if name == "last":
            raise NotFound("no runs yet in this repository", hint='start one: ratchet run -d "what to do"', run=name)
        raise NotFound(f"no such run: {name!r}", hint="`ratchet runs --all` lists all runs", run=name)

    def history(self, name: str) -> RunHistory:
        row = self.find_run(name)
        entries = self.store.entries(row.run)
        events = [ev.decode(entry.kind, entry.data) for entry in entries]
        return RunHistory(
            row=row,
            state=fold(row.run, self._workflow(row).table, events),
            entries=entries,
            events=events,
            receipts=self.store.receipts(row.run),
        )

    def _workflow(self, row: RunRow) -> Workflow:
        return open_workflow(self.store.item(row.item).workflow)

    def export(self, name: str) -> Path:
        history = self.history(name)
        directory = self.directory(history.row.run)
        directory.export(history.entries, history.receipts, history.state)
        return directory.path

    def abort(self, name: str, *, by: str) -> bool:
        """Abort a run. True: it is aborted; False: its worker was asked to stop."""
        row = self.find_run(name)
        if row.status is not RunStatus.RUNNING:
            raise UsageError(f"{row.run} is already {row.status}", hint=f"ratchet show {row.run}")
        if row.holder and not is_gone(row.holder):
            self.store.request_abort(row.run, by=by)
            return False
        lease = self.claim(row.item)
        try:
            self.store.append(lease, [ev.RunAborted(by=by)])
        finally:
            self.store.release(lease)
        self.export(row.run)
        return True

    def diff(self, name: str) -> str:
        history = self.history(name)
        state = history.state
        if not state.started:
            return ""
        self._fetch_commit(history)
        return repository.diff(self.repo.root, state.started.base_commit, state.head)

    def _fetch_commit(self, history: RunHistory) -> None:
        """Fetch the commits of a run that another host made."""
        repository.available_repository(history.row.repo, clones=clones(), commit=history.state.head)

    # --- verifying -------------------------------------------------------------------------------------------

    async def verify(self, name: str) -> list[Verification]:
        """Re-run the proof of a commit; for a run, also check the ledger's hash chain, receipts and artifacts."""
        commit = None if name == "last" or name.startswith("run-") else repository.commit_of(self.repo.root, name)
        if commit:
            return [await self._verify_named(commit)]
        row = self.find_run(name)
        with suppress(LedgerBroken):
            self._fetch_commit(self.history(row.run))
        checked = self._verify_ledger(row)
        if not checked.holds:
            return [checked]
        history = self.history(row.run)
        state = history.state
        more = [self._verify_content(history)]
        more += [verify_run.check_branches(state, history.events, self.repo.root)] if state.commits else []
        checked = msgspec.structs.replace(checked, claims=[*checked.claims, *more])
        return [checked, *[await self._verify_kept(kept.commit, state) for kept in state.commits]]

    async def _verify_kept(self, commit: str, state: RunState) -> Verification:
        if repository.commit_of(self.repo.root, commit):
            return await self._verify_commit(commit, state.started)
        lost = Claim(what="the commit is in this repository", holds=False, detail="it is lost, and cannot be repeated")
        return Verification(subject=commit, claims=[lost])

    async def _verify_named(self, commit: str) -> Verification:
        """Verify a commit that is given by name: its trailers are only words until the ledger of its run agrees."""
        made = trailers.parse_proof(repository.message_of(self.repo.root, commit))
        if made is None:
            return await self._verify_commit(commit)
        try:
            history = self.history(self.store.run(made.run).run)
        except (NotFound, LedgerBroken) as error:
            unknown = Claim(
                what=f"the ledger of {made.run} names this commit",
                holds=False,
                detail=str(error)
                if isinstance(error, LedgerBroken)
                else f"{self.store_address} has no such run; if "
                "it was made elsewhere, name that server with --server, or that store with --set store=…",
            )
            return await self._verify_commit(commit, first=[unknown], red_first=True)
        named = verify_run.check_named(commit, made, history.state, history.events, self.repo.root)
        anchored = verify_run.check_anchors(history.entries, {commit: made})
        first = [named, *([] if anchored.holds else [anchored])]
        return await self._verify_commit(commit, history.state.started, first=first, red_first=not named.holds)

    def _verify_content(self, history: RunHistory) -> Claim:
        """Compare each kept commit with the tree that the ledger names for it."""
        state = history.state
        kept = {each.commit for each in state.commits if repository.commit_of(self.repo.root, each.commit)}
        wrong = [
            f"{commit[:12]} ({', '.join(paths[:3])})"
            for commit, tree in verify_run.recorded_trees(history.events).items()
            if commit in kept and (paths := self._untested_paths(state, commit, tree))
        ]
        return Claim(
            what=f"{len(kept)} commits hold the trees that were tested",
            holds=not wrong,
            detail=f"not what was tested: {'; '.join(wrong)}" if wrong else "",
        )

    def _untested_paths(self, state: RunState, commit: str, tree: str) -> list[str]:
        assert state.started
        source = self.workspaces.source(self.repo.root)
        judged = JudgedTree(
            tree=tree,
            base_tree=state.base_tree,
            base_commit=state.started.base_commit,
            submodules=list(submodule_commits(Path(source.git_dir), state.started.base_commit)),
        )
        try:
            return differing_paths(Path(source.git_dir), commit, judged, tree_store(source))
        except GitFailed as error:
            return [error.message]

    async def _verify_commit(
        self,
        commit: str,
        started: ev.RunStarted | None = None,
        *,
        first: Sequence[Claim] = (),
        red_first: bool = False,
    ) -> Verification:
        """Verify with the run's test command if the run is in this store, else with the detected one."""
        targets = recorded_targets(started) if started else self.targets()
        scope = PathRules(tests=tuple(union(target.tests for target in targets)))
        stage = proof.ProofContext(
            repo=self.repo.root,
            checks=RedactedChecks(self.checks(targets), self.redactor),
            scope=scope,
            open_workspace=self._checkout,
            red_first=red_first,
        )
        return await proof.verify_commit(commit, stage, first=first)

    @contextmanager
    def _checkout(self, commit: str) -> Iterator[tuple[Path, Confinement | None]]:
        """Check out a commit with dependencies and sandbox, as for the tests of a run."""
        with workspace_at(commit, self.repo.root, self.config) as made:
            sandboxes = Sandboxes(made, sandbox_settings(self.config))
            try:
                yield made.path, sandboxes.for_tests()
            finally:
                sandboxes.close()

    def _verify_ledger(self, row: RunRow) -> Verification:
        try:
            entries = self.store.entries(row.run)
            receipts = self.store.receipts(row.run)
        except LedgerBroken as error:
            return Verification(subject=row.run, claims=[Claim(what="the ledger", holds=False, detail=str(error))])
        claims = [
            Claim(what=f"the hash chain of {len(entries)} ledger entries is intact", holds=True),
            verify_run.check_receipts(entries, receipts),
            verify_run.check_end(row, entries),
            verify_run.check_anchors(entries, self._proofs(row)),
            verify_run.check_artifacts(self.directory(row.run), receipts),
        ]
        return Verification(subject=row.run, claims=claims)

    def _proofs(self, row: RunRow) -> dict[str, trailers.Proof]:
        """Return the proofs of the run's commits, by commit: those on any branch, whatever the ledger names."""
        base = self.store.item(row.item).base_commit
        messages = repository.messages_with(self.repo.root, f"Ratchet-Run: {row.run}", since=base)
        found = {commit: trailers.parse_proof(message) for commit, message in messages.items()}
        return {commit: proof for commit, proof in found.items() if proof and proof.run == row.run}


def repository_of_run(store: Store, name: str, *, inside: Path | None = None) -> tuple[Path, str] | None:
    """Find the repository and id of a run in the whole store, by its id, an unambiguous part of it, or `last`.

    `last` is the last run of the repository `inside`, or of its origin; without it, of all.
    """
    found = _last_run(store, inside) if name == "last" else store.find_runs(name, limit=2)
    if len(found) != 1:
        return None
    return repository.available_repository(found[0].repo, clones=clones()), found[0].run


def _last_run(store: Store, inside: Path | None) -> list[RunRow]:
    rows = [row for repo in names_of(inside) for row in store.runs_page(repo=repo, limit=1)[0]]
    return sorted(rows, key=lambda row: row.created_at)[-1:]


def names_of(root: Path | None) -> list[str]:
    """Return the names by which items name a repository: its folder and its origin. `None` is any: an empty name."""
    if root is None:
        return [""]
    return list(filter(None, [str(root.resolve()), repository.origin_of(root)]))


def _new_run() -> str:
    return new_id("run", datetime.now(UTC), secrets.token_hex(4))


def _inside(root: Path, path: Path) -> str:
    """Return the path relative to the repository; empty if it is outside."""
    real = path.resolve()
    return real.relative_to(root.resolve()).as_posix() if real.is_relative_to(root.resolve()) else ""


_SPEC_MAX_BYTES = 4 * SPEC_MAX_CHARS  # in UTF-8; a file may have no end


def read_spec(path: Path) -> str:
    try:
        with path.open("rb") as file:
            content = file.read(_SPEC_MAX_BYTES + 1)
    except OSError as error:
        raise UsageError(f"cannot read the spec {path}: {error.strerror}", hint="check the path") from error
    if len(content) > _SPEC_MAX_BYTES:
        raise UsageError(
            f"the spec {path} has more than {SPEC_MAX_CHARS:,} characters", hint="split it into several items"
        )
    try:
        spec = content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UsageError(f"the spec {path} is not UTF-8 text: {error}", hint="save it as UTF-8") from error
    return check_spec(spec, f"the spec {path}")


def check_spec(spec: str, name: str) -> str:
    if not spec.strip():
        raise UsageError(f"{name} is empty", hint="describe the work in Markdown")
    if len(spec) > SPEC_MAX_CHARS:
        raise UsageError(
            f"{name} has {len(spec):,} characters; the limit is {SPEC_MAX_CHARS:,}",
            hint="split it into several items",
        )
    values, body = front_matter(spec)
    # With labels it is taken off when the item is made, which needs them.
    return body if _SEALED in values and REQUIRE_LABELS not in values else spec


_SEALED = "sealed"


def sealed_settings(spec_path: Path | None, given: Path | None, repo: Path) -> list[str]:
    """Return the setting for the folder of sealed tests: as given, or as named by the spec's front matter."""
    folder = given.absolute() if given else None
    if folder is None and spec_path and spec_path.is_file():
        values, _ = front_matter(spec_path.read_text("utf-8", errors="replace"))
        folder = spec_path.absolute().parent / values[_SEALED] if values.get(_SEALED) else None
    if folder is None:
        return []
    folder = folder.resolve()
    if not folder.is_dir():
        raise UsageError(f"no folder of sealed tests: {folder}", hint="check the path after `sealed`")
    if folder.is_relative_to(repo.resolve()):
        raise UsageError(f"{folder} is inside the repository, where agents see it", hint="keep sealed tests outside")
    return [f"sealed.dir={folder}"]
