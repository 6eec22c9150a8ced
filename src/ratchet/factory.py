"""The use cases every surface calls. Surfaces translate; what happens is decided here and below."""

from __future__ import annotations

import asyncio
import hashlib
import os
import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from ratchet import proof, repository
from ratchet.agents import Agent, Said, open_agent
from ratchet.checks import Target
from ratchet.checks.detect import detect
from ratchet.checks.editable import Origin
from ratchet.checks.environment import allowed_environment
from ratchet.checks.gates import detect_gates
from ratchet.checks.run import TestRun
from ratchet.config import Config
from ratchet.core import events as ev
from ratchet.core import trailers
from ratchet.core.gates import Gate, planned
from ratchet.core.item import SPEC_MAX_CHARS, Item, name_of, slug_of, title_of
from ratchet.core.learning import Learning
from ratchet.core.lease import Lease
from ratchet.core.ledger import Entry
from ratchet.core.policy import Policy
from ratchet.core.receipt import Receipt, digest
from ratchet.core.redact import Redactor, secrets_in
from ratchet.core.roles import Role, Scope
from ratchet.core.state import RunState, RunStatus, fold
from ratchet.core.tasks import tasks_of
from ratchet.core.workflow import Workflow
from ratchet.engine import AbortAsked, Engine, Hold, Watcher, kept
from ratchet.errors import ArtifactBroken, EnvironmentCannot, LedgerBroken, NotFound, UsageError
from ratchet.forks import Forks
from ratchet.isolated import workspace_at
from ratchet.pacing import Paces
from ratchet.places import kept_until, open_workspaces, recipe_of, sandbox_settings, store_address, user_state
from ratchet.process import Confinement, is_gone, this_process
from ratchet.proof import Claim, Verification
from ratchet.repository import Repository
from ratchet.steps import Work, cross
from ratchet.store import RunRow, Store, open_store
from ratchet.store.database import stamp
from ratchet.store.rundir import RunDirectory
from ratchet.templates import JUDGED, templates
from ratchet.workflows import open_workflow
from ratchet.workspace import Refused, Workspace, submodules
from ratchet.workspace.sandbox import Sandboxes

_AGENT_ENVIRONMENT = ("PATH", "HOME", "USER", "LANG", "LC_ALL", "TERM", "TMPDIR", "SHELL")
LEARNINGS = 5


class Story(msgspec.Struct, frozen=True, kw_only=True):
    """A run as its ledger tells it."""

    row: RunRow
    state: RunState
    entries: list[Entry]
    events: list[ev.AnyEvent | ev.UnknownEvent]
    receipts: list[Receipt]


class Cast(msgspec.Struct, frozen=True, kw_only=True):
    """Who takes part in a run, and what they are asked with. An agent is found by its role, and whether the stronger
    one is wanted, or by its own name."""

    agents: dict[tuple[str, bool], Agent]
    prompts: dict[str, str]


class Factory:
    def __init__(self, repo: Repository, config: Config, *, store: Store | None = None) -> None:
        """`store` is somebody else's to close; without it the configured one is opened."""
        self.repo, self.config, self._lent = repo, config, store
        self.store: Store = store or open_store(store_address(config, repo.root), gone=is_gone, aging_s=config.aging_s)
        self.workspaces = open_workspaces(config)
        self.redactor = Redactor(secrets_in(os.environ))
        self._opened: list[Sandboxes] = []

    def close(self) -> None:
        for sandboxes in self._opened:
            sandboxes.close()
        if self._lent is None:
            self.store.close()

    def __enter__(self) -> Factory:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def tidy(self) -> None:
        """Take away workspaces of completed runs whose worker died before it could."""
        done = {self.store.item(row.item).slug for row in self.store.runs() if row.status is RunStatus.COMPLETED}
        for record in self.workspaces.records():
            if record.slug in done and record.repo == str(self.repo.root):
                self.workspaces.destroy(record.slug)

    # --- running ---------------------------------------------------------------------------------------------

    def add(self, spec_path: Path, *, workflow: str = "tdd", settings: Iterable[str] = ()) -> Item:
        """Queue a spec; the same spec asked for again while it is open is the same item.

        `settings` are the overrides it was asked with: whoever continues it works under the same ones.
        """
        metadata = {"spec_path": _inside(self.repo.root, spec_path)}
        return self.ask_for(
            read_spec(spec_path), name=spec_path.name, workflow=workflow, settings=settings, metadata=metadata
        )

    def ask_for(
        self, spec: str, *, name: str, workflow: str, settings: Iterable[str] = (), metadata: dict[str, str]
    ) -> Item:
        """The same for a spec that is no file of its own; `name` is where it came from."""
        open_workflow(workflow)
        self.targets(metadata.get("part", ""))  # before anything is queued: without tests there is nothing to run
        title, now = title_of(spec), datetime.now(UTC)
        unique = secrets.token_hex(4)
        identity = f"{workflow}\n{self.config.agent}\n{spec}".encode()
        item = Item(
            id=name_of("item", now, unique),
            repo=str(self.repo.root),
            spec=spec,
            title=title,
            workflow=workflow,
            base_commit=self.repo.head,
            slug=slug_of(title, unique),
            source_ref=f"{name}:{hashlib.sha256(identity).hexdigest()[:16]}",
            settings=list(settings),
            metadata=metadata,
            created_at=stamp(now),
        )
        return self.store.add(item)

    def claim(self, item: str) -> Lease:
        run = name_of("run", datetime.now(UTC), secrets.token_hex(4))
        return self.store.claim(item, run=run, holder=this_process(), ttl_s=self.config.lease_s)

    async def work(
        self, lease: Lease, *, watch: Watcher, tell: Callable[[Said], None], retry_s: Sequence[float] | None = None
    ) -> RunState:
        """Keep the lease, and carry its run as far as it goes."""
        try:
            async with kept(self.store, lease, lease_s=self.config.lease_s) as hold:
                return await self.carry(lease, watch=watch, tell=tell, retry_s=retry_s, hold=hold)
        except AbortAsked:
            return self._aborted(lease, watch)

    def _aborted(self, lease: Lease, watch: Watcher) -> RunState:
        story = self.story(lease.run)
        last = story.events[-1]
        if isinstance(last, ev.RunAborted):
            watch(story.entries[-1], last, story.state)
        self.export(lease.run)
        return story.state

    async def carry(
        self,
        lease: Lease,
        *,
        watch: Watcher,
        tell: Callable[[Said], None],
        retry_s: Sequence[float] | None = None,
        stop: asyncio.Event | None = None,
        hold: Hold | None = None,
    ) -> RunState:
        """Carry a run whose lease somebody keeps as far as it goes."""
        item = self.store.item(lease.item)
        workflow = open_workflow(item.workflow)
        cast = self._cast(workflow)
        engine = Engine(
            store=self.store,
            lease=lease,
            item=item,
            directory=self.directory(lease.run),
            workflow=workflow,
            start=lambda: self._start(item, workflow),
            workspace=lambda state: self._workspace(item, state),
            work=lambda engine, workspace: self._work(engine, workspace, item, cast, tell),
            watch=watch,
            budget=self.config.budget,
            retry_s=retry_s,
            stop=stop,
            hold=hold,
        )
        # Before, not after: what dead owners left may be what stands in our way.
        await cross(self.workspaces.gc, spare=item.slug)
        try:
            return await engine.run()
        finally:
            if engine.state.status is RunStatus.COMPLETED:
                self.workspaces.destroy(item.slug)
            else:
                self.workspaces.keep(item.slug, until=kept_until(self.config))

    def _start(self, item: Item, workflow: Workflow) -> ev.RunStarted:
        targets = self.targets(item.metadata.get("part", ""))
        bounds = msgspec.to_builtins(self.config.bounds(workflow.name))
        roles = {role: self.config.role(role) for role in workflow.roles}
        commit = item.base_commit or self.repo.head
        return ev.RunStarted(
            item=item.id,
            title=item.title,
            workflow=item.workflow,
            repo=item.repo,
            base_commit=commit,
            branch=f"ratchet/{item.slug}",
            slug=item.slug,
            policy={name: bounds[name] for name in Policy.__struct_fields__} | _bounded(item),
            tests=_union(target.tests for target in targets),
            protected=_union(
                [Scope(tests=()).protected, *(target.protected for target in targets), self._others(commit)]
            ),
            test_command=targets[0].command,
            targets=[msgspec.json.encode(target).decode() for target in targets],
            gates=[msgspec.json.encode(gate).decode() for gate in self.gates(targets)],
            tasks=[msgspec.json.encode(task).decode() for task in tasks_of(item.spec)],
            spec_path=item.metadata.get("spec_path") or f"specs/{item.slug}.md",
            escalate={role: found.escalate_after for role, found in roles.items() if found.escalate},
        )

    def gates(self, targets: list[Target]) -> list[Gate]:
        detected, _ = detect_gates(self.repo.root, targets)
        return planned(detected, self.config.gates)

    def _others(self, commit: str) -> list[str]:
        """What belongs to other repositories: a commit here could not hold a change there."""
        git_dir = Path(self.workspaces.source(self.repo.root).git_dir)
        return [f"{path}/**" for path in submodules.entries(git_dir, commit)]

    def _workspace(self, item: Item, state: RunState) -> Workspace:
        """The run's own, if it is still whole; else laid down anew, for the trees and commits outlive it."""
        try:
            return self.workspaces.adopt(item.slug, owner=this_process())
        except NotFound:
            self.workspaces.destroy(item.slug)
        return self._create(item.slug, state)

    def _create(self, slug: str, state: RunState) -> Workspace:
        assert state.started
        made = self.workspaces.create(
            slug,
            repo=self.repo.root,
            commit=state.started.base_commit,
            kind=self.config.workspace.kind,
            on=self.config.workspace.on,
            recipe=recipe_of(self.config, self.repo.root),
            owner=this_process(),
        )
        if isinstance(made, Refused):
            raise EnvironmentCannot(f"no workspace: {made.reason}", hint=made.hint)
        return made

    def _work(
        self,
        engine: Engine,
        workspace: Workspace,
        item: Item,
        cast: Cast,
        tell: Callable[[Said], None],
    ) -> Work:
        assert engine.state.started
        return Work(
            item=item,
            config=self.config,
            directory=engine.directory,
            workspace=workspace,
            checks=self.checks(_targets_of(engine.state.started)),
            agents=lambda role, stronger: cast.agents[role, stronger],
            tell=tell,
            turn=engine.turn,
            history=engine.history,
            meter=engine.purse.meter,
            pace=Paces(user_state() / "pace", self.config.quota).asking,
            record=engine.record,
            redact=self.redactor,
            learnings=lambda words: [found.content for found in self._learnings(words)],
            lock=engine.lock,
            env=self._environment(),
            environ=lambda role: self._environment(*self.config.role(role).env),
            sandboxes=self._sandboxes(workspace),
            prompts=cast.prompts.__getitem__,
            moved=lambda: self._moved(item),
            fork=(forks := self._forks(item)).open,
            fresh=lambda: forks.fresh(lambda slug: self._create(slug, engine.state)),
        )

    def _environment(self, *more: str) -> dict[str, str]:
        names = [*_AGENT_ENVIRONMENT, *self.config.env, *more]
        return {name: os.environ[name] for name in names if name in os.environ}

    def _learnings(self, words: str) -> list[Learning]:
        return self.store.learnings(str(self.repo.root), query=words, limit=LEARNINGS)

    def _sandboxes(self, workspace: Workspace) -> Sandboxes:
        self._opened.append(made := Sandboxes(workspace, sandbox_settings(self.config)))
        return made

    def _forks(self, item: Item) -> Forks:
        return Forks(self.workspaces, repo=str(self.repo.root), slug=item.slug, settings=sandbox_settings(self.config))

    def _moved(self, item: Item) -> str:
        head = repository.commit_of(self.repo.root, "HEAD")
        return head if head and item.base_commit and head != item.base_commit else ""

    def _cast(self, workflow: Workflow) -> Cast:
        """Everyone and everything asked with before the first step: what is missing must not be found out half-way."""
        config = self.config
        wanted = {(role, stronger): config.agent_for(role, stronger=stronger)
                  for role in workflow.roles for stronger in (False, True)}  # fmt: skip
        fallbacks = [name for role in workflow.roles for name in config.role(role).fallback]
        wanted |= {(name, False): name for name in [*config.swarm.agents, *fallbacks]}
        wanted |= {(gate.agent, False): gate.agent for gate in config.gates if gate.on and gate.agent}
        if any(gate.on and gate.kind in JUDGED and not gate.agent for gate in config.gates):
            wanted.setdefault((Role.REVIEWER, False), config.agent_for(Role.REVIEWER))
        opened = {spec: open_agent(spec) for spec in dict.fromkeys(wanted.values())}
        return Cast(
            agents={player: opened[spec] for player, spec in wanted.items()},
            prompts=templates(workflow, self.repo.root / config.prompts),
        )

    def targets(self, part: str = "") -> list[Target]:
        """Those of the whole repository, or of the folder `part` of it."""
        tests = self.config.test
        found = detect(
            self.repo.root,
            command=tests.command,
            tests=tests.paths or None,
            runner_name=tests.runner,
            report=tests.report,
        )
        if not found:
            raise UsageError(
                f"no test command found for {self.repo.root}",
                hint='set one in ratchet.toml: [test] command = "python3 -m pytest"',
            )
        chosen = [target for target in found if not part or f"{target.root}/".startswith(f"{part}/")]
        if not chosen:
            roots = ", ".join(sorted({target.root for target in found}))
            raise UsageError(f"there are no tests of its own in {part}", hint=f"folders with tests: {roots}")
        return chosen

    def checks(self, targets: list[Target] | None = None) -> TestRun:
        tests = self.config.test
        return TestRun(
            targets=targets or self.targets(),
            timeout_s=tests.timeout_s,
            silence_s=tests.silence_s,
            env=allowed_environment(tests.env),
            origin=Origin(root=self.repo.root),
        )

    def directory(self, run: str) -> RunDirectory:
        return RunDirectory(self.repo.state, run, redact=self.redactor)

    # --- looking ---------------------------------------------------------------------------------------------

    def find_run(self, name: str) -> RunRow:
        """A run by its id, by an unambiguous part of it, or `last`."""
        rows = self.store.runs()
        matching = rows[:1] if name == "last" else [row for row in rows if name in row.run]
        exact = [row for row in matching if row.run == name]
        if exact or len(matching) == 1:
            return (exact or matching)[0]
        if matching:
            raise UsageError(
                f"{name!r} fits {len(matching)} runs", hint="write more of the id; `ratchet runs` lists them"
            )
        raise NotFound(f"there is no run {name!r}", hint="`ratchet runs` lists what there is", run=name)

    def story(self, name: str) -> Story:
        row = self.find_run(name)
        entries = self.store.entries(row.run)
        events = [ev.decode(entry.kind, entry.data) for entry in entries]
        return Story(
            row=row,
            state=fold(row.run, self._workflow(row).table, events),
            entries=entries,
            events=events,
            receipts=self.store.receipts(row.run),
        )

    def _workflow(self, row: RunRow) -> Workflow:
        return open_workflow(self.store.item(row.item).workflow)

    def export(self, name: str) -> Path:
        story = self.story(name)
        directory = self.directory(story.row.run)
        directory.export(story.entries, story.receipts, story.state)
        return directory.path

    def abort(self, name: str, *, by: str) -> bool:
        """Stop a run; says whether it is over already or its worker was told to stop."""
        row = self.find_run(name)
        if row.status is not RunStatus.RUNNING:
            raise UsageError(f"{row.run} is {row.status} already", hint=f"ratchet show {row.run}")
        if row.holder and not is_gone(row.holder):
            self.store.ask_abort(row.run, by=by)
            return False
        lease = self.claim(row.item)
        try:
            self.store.append(lease, [ev.RunAborted(by=by)])
        finally:
            self.store.release(lease)
        self.export(row.run)
        return True

    def diff(self, name: str) -> str:
        state = self.story(name).state
        if not state.started:
            return ""
        return repository.diff(self.repo.root, state.started.base_commit, state.head)

    # --- verifying -------------------------------------------------------------------------------------------

    async def verify(self, name: str) -> list[Verification]:
        """Re-enact a commit's proof; of a run, also check the chain, every receipt and every artifact."""
        commit = None if name == "last" or name.startswith("run-") else repository.commit_of(self.repo.root, name)
        if commit:
            return [await self._verify_commit(commit)]
        row = self.find_run(name)
        checked = self._verify_ledger(row)
        if not checked.holds:
            return [checked]
        state = self.story(row.run).state
        return [checked, *[await self._verify_commit(kept.commit, state.started) for kept in state.commits]]

    async def _verify_commit(self, commit: str, started: ev.RunStarted | None = None) -> Verification:
        """With the run's own test command where the run is known here, else with the one found in the project."""
        started = started or self._run_of(commit)
        targets = _targets_of(started) if started else self.targets()
        scope = Scope(tests=tuple(_union(target.tests for target in targets)))
        stage = proof.Stage(repo=self.repo.root, checks=self.checks(targets), scope=scope, place=self._place)
        return await proof.verify_commit(commit, stage)

    @contextmanager
    def _place(self, commit: str) -> Iterator[tuple[Path, Confinement | None]]:
        """As a run's tests have it: with its dependencies, in the sandbox."""
        with workspace_at(commit, self.repo.root, self.config) as made:
            sandboxes = Sandboxes(made, sandbox_settings(self.config))
            try:
                yield made.path, sandboxes.for_tests()
            finally:
                sandboxes.close()

    def _run_of(self, commit: str) -> ev.RunStarted | None:
        made = trailers.parse(repository.message_of(self.repo.root, commit))
        try:
            return self.story(made.run).state.started if made else None
        except NotFound:
            return None

    def _verify_ledger(self, row: RunRow) -> Verification:
        try:
            entries = self.store.entries(row.run)
            receipts = self.store.receipts(row.run)
        except LedgerBroken as error:
            return Verification(subject=row.run, claims=[Claim(what="the ledger", holds=False, detail=str(error))])
        claims = [
            Claim(what=f"the ledger's {len(entries)} rows hold together", holds=True),
            self._verify_receipts(entries, list(receipts)),
            self._verify_artifacts(row.run, receipts),
        ]
        return Verification(subject=row.run, claims=claims)

    def _verify_receipts(self, entries: list[Entry], receipts: Iterable[Receipt]) -> Claim:
        events = [ev.decode(entry.kind, entry.data) for entry in entries]
        keys = {event.step: event.key for event in events if isinstance(event, ev.StepStarted)}
        filed = {event.step: event.sha256 for event in events if isinstance(event, ev.ReceiptFiled)}
        kept = {receipt.step: digest(receipt) for receipt in receipts if keys.get(receipt.step) == receipt.key}
        wrong = sorted(step for step in filed.keys() | kept.keys() if filed.get(step) != kept.get(step))
        detail = f"the receipts of steps {wrong} are missing or were changed" if wrong else ""
        return Claim(what=f"{len(keys)} announced steps, each receipt with its key", holds=not wrong, detail=detail)

    def _verify_artifacts(self, run: str, receipts: Iterable[Receipt]) -> Claim:
        directory, broken, count = self.directory(run), [], 0
        for artifact in [artifact for receipt in receipts for artifact in receipt.artifacts]:
            count += 1
            try:
                directory.get(artifact)
            except ArtifactBroken as error:
                broken.append(error.message)
        return Claim(what=f"{count} artifacts are what their receipts say", holds=not broken, detail="; ".join(broken))


def _inside(root: Path, path: Path) -> str:
    """The path in the repository; empty when it is elsewhere."""
    real = path.resolve()
    return real.relative_to(root.resolve()).as_posix() if real.is_relative_to(root.resolve()) else ""


def _bounded(item: Item) -> dict[str, int]:
    return {"iterations": item.max_iterations} if item.max_iterations else {}


def _union(lists: Iterable[Iterable[str]]) -> list[str]:
    return list(dict.fromkeys(name for names in lists for name in names))


def _targets_of(started: ev.RunStarted) -> list[Target]:
    """As announced, not as detected now: a step of the run may have changed what detection would say."""
    if started.targets:
        return [msgspec.json.decode(target, type=Target) for target in started.targets]
    only = Target(
        runner="pytest",
        command=started.test_command,
        tests=started.tests,
        protected=started.protected,
        why="recorded when the run started",
    )
    return [only]


def read_spec(path: Path) -> str:
    try:
        content = path.read_bytes()
    except OSError as error:
        raise UsageError(f"the spec {path} cannot be read: {error.strerror}", hint="check the path") from error
    try:
        spec = content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UsageError(f"the spec {path} is not UTF-8 text: {error}", hint="save it as UTF-8") from error
    if not spec.strip():
        raise UsageError(f"the spec {path} is empty", hint="say what is wanted, in Markdown")
    if len(spec) > SPEC_MAX_CHARS:
        raise UsageError(
            f"the spec {path} has {len(spec):,} characters, at most {SPEC_MAX_CHARS:,} are taken",
            hint="split it into several items",
        )
    return spec
