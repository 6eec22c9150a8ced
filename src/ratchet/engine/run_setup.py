"""Prepare a run: its first event, its workspace, its agents, and the `RunContext` that its steps share."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Protocol

import msgspec

from ratchet.agents.protocol import Agent, OnEvent, open_agent
from ratchet.checks.detect.project_gates import detect_gates
from ratchet.checks.detect.targets import detect
from ratchet.checks.protocol import Target
from ratchet.checks.run.environment import allowed_environment
from ratchet.checks.run.executor import TestRun
from ratchet.checks.run.path_redirect import SourceTree
from ratchet.config import Config
from ratchet.core import events as ev
from ratchet.core.gates import Gate, plan_gates
from ratchet.core.item import Item
from ratchet.core.policy import Policy
from ratchet.core.redact import Redactor
from ratchet.core.roles import PathRules, Role
from ratchet.core.state import RunState
from ratchet.core.tasks import parse_tasks
from ratchet.core.workflows.workflow import Workflow
from ratchet.engine.attempt_workspaces import AttemptWorkspaces
from ratchet.engine.budget_meter import BudgetMeter
from ratchet.engine.learning_library import LearningLibrary, LibraryStore
from ratchet.engine.prompts import GATE_PROMPTS, load_templates
from ratchet.engine.provider_limits import ProviderLimits
from ratchet.engine.redacted_checks import RedactedChecks
from ratchet.engine.run_ledger import RunLedger
from ratchet.engine.run_owner import RunOwner, fence
from ratchet.engine.steps.context import AgentSet, RunContext
from ratchet.engine.workflow_registry import open_workflow
from ratchet.errors import EnvironmentCannot, NotFound, UsageError
from ratchet.process.spawn import this_process
from ratchet.store.protocols import ProviderSlots
from ratchet.workspace.from_config import recipe_of, sandbox_settings
from ratchet.workspace.git import submodules
from ratchet.workspace.git.repository import Repository
from ratchet.workspace.protocol import Workspace, WorkspaceRefused
from ratchet.workspace.registry import Workspaces
from ratchet.workspace.sandbox import Sandboxes


class SetupStore(LibraryStore, ProviderSlots, Protocol):
    """The store verbs that the steps of a run need besides those of its ledger."""


class RunSetup:
    """What a run needs before its first step. Opens agents and prompts at once, so that a missing one fails early."""

    def __init__(
        self,
        *,
        repo: Repository,
        config: Config,
        store: SetupStore,
        workspaces: Workspaces,
        redactor: Redactor,
        item: Item,
    ) -> None:
        self.repo, self.config, self.store, self.workspaces = repo, config, store, workspaces
        self.redactor, self.item, self.workflow = redactor, item, open_workflow(item.workflow)
        self.agents = open_agents(self.workflow, config, repo.root)
        self.library = LearningLibrary(store, config.learnings, redactor)
        self._sandboxes: list[Sandboxes] = []
        self._created_s: float | None = None

    def close(self) -> None:
        for sandboxes in self._sandboxes:
            sandboxes.close()

    def started_event(self) -> ev.RunStarted:
        """Return the first event: targets, gates, tasks and policy as they are when the run starts."""
        item, config = self.item, self.config
        targets = find_targets(self.repo.root, config, item.metadata.get("part", ""))
        bounds = msgspec.to_builtins(config.bounds(self.workflow.name))
        roles = {role: config.role(role) for role in self.workflow.roles}
        commit = item.base_commit or self.repo.head
        protected = [PathRules(tests=()).protected, *(target.protected for target in targets), self._submodules(commit)]
        return ev.RunStarted(
            item=item.id,
            title=item.title,
            workflow=item.workflow,
            repo=item.repo,
            base_commit=commit,
            branch=f"ratchet/{item.slug}",
            slug=item.slug,
            policy={name: bounds[name] for name in Policy.__struct_fields__} | _item_policy(item),
            tests=union(target.tests for target in targets),
            protected=union(protected),
            test_command=targets[0].command,
            targets=[msgspec.json.encode(target).decode() for target in targets],
            gates=[msgspec.json.encode(gate).decode() for gate in self._gates(targets)],
            tasks=[msgspec.json.encode(task).decode() for task in parse_tasks(item.spec)],
            spec_path=item.metadata.get("spec_path") or f"specs/{item.slug}.md",
            sealed=Role.AUDITOR in self.workflow.roles and config.tdd.sealed,
            escalate={role: found.escalate_after for role, found in roles.items() if found.escalate},
        )

    def _gates(self, targets: list[Target]) -> list[Gate]:
        return planned_gates(self.repo.root, self.config, targets, self.workflow)

    def _submodules(self, commit: str) -> list[str]:
        """Globs of the submodules: a commit of this repository cannot hold changes in them."""
        git_dir = Path(self.workspaces.source(self.repo.root).git_dir)
        return [f"{path}/**" for path in submodules.submodule_commits(git_dir, commit)]

    def open_workspace(self, state: RunState, owner: RunOwner) -> Workspace:
        """Open the run's workspace as its owner, or create it anew: trees and commits outlive it.

        It is created anew when it is gone or broken, or when a former owner that cannot be ended may write into it.
        """
        assert state.started
        if not owner.take():
            self.workspaces.destroy(self.item.slug)
        try:
            return fence(self.workspaces.adopt(self.item.slug, owner=this_process()), owner)
        except NotFound:
            self.workspaces.destroy(self.item.slug)
        began = time.monotonic()
        workspace = self.create_workspace(self.item.slug, state.started.base_commit)
        self._created_s = round(time.monotonic() - began, 6)
        return fence(workspace, owner)

    def take_created_s(self) -> float | None:
        """Return how long it took to create the run's workspace, once; None if it was there."""
        created_s, self._created_s = self._created_s, None
        return created_s

    def create_workspace(self, slug: str, commit: str) -> Workspace:
        """Create a workspace as configured; raises EnvironmentCannot when the machine has no capacity for it."""
        workspace = self.workspaces.create(
            slug,
            repo=self.repo.root,
            commit=commit,
            kind=self.config.workspace.kind,
            on=self.config.workspace.on,
            recipe=recipe_of(self.config, self.repo.root),
            owner=this_process(),
        )
        if isinstance(workspace, WorkspaceRefused):
            raise EnvironmentCannot(f"no workspace: {workspace.reason}", hint=workspace.hint)
        return workspace

    def context(
        self,
        ledger: RunLedger,
        workspace: Workspace,
        budget: BudgetMeter,
        on_agent_event: OnEvent,
        *,
        check_owner: Callable[[], None],
    ) -> RunContext:
        """Build the context of the run's steps. The only place that builds one."""
        started, settings = ledger.state.started, sandbox_settings(self.config)
        assert started
        self._sandboxes.append(sandboxes := Sandboxes(workspace, settings))
        return RunContext(
            item=self.item,
            config=self.config,
            repo=self.repo.root,
            library=self.library,
            ledger=ledger,
            directory=ledger.directory,
            workspace=workspace,
            sandboxes=sandboxes,
            attempts=AttemptWorkspaces(
                self.workspaces, repo=self.repo.root, slug=self.item.slug, base_commit=started.base_commit,
                create=self.create_workspace, settings=settings, check_owner=check_owner,
            ),
            checks=RedactedChecks(
                open_checks(self.repo.root, self.config, recorded_targets(started)), self.redactor
            ),
            agents=self.agents,
            budget=budget,
            provider_limits=ProviderLimits(self.store, ledger.lease, self.config.quota),
            redact=self.redactor,
            on_agent_event=on_agent_event,
        )  # fmt: skip


def open_agents(workflow: Workflow, config: Config, root: Path) -> AgentSet:
    """Open every agent and read every prompt that the workflow can use."""
    wanted = {(role, stronger): config.agent_for(role, stronger=stronger)
              for role in workflow.roles for stronger in (False, True)}  # fmt: skip
    fallbacks = [name for role in workflow.roles for name in config.role(role).fallback]
    wanted |= {(name, False): name for name in [*config.swarm.agents, *fallbacks]}
    gates = [*config.gates, *default_judge(config, workflow)]
    wanted |= {(gate.agent, False): gate.agent for gate in gates if gate.on and gate.agent}
    if any(gate.on and gate.kind in GATE_PROMPTS and not gate.agent for gate in config.gates):
        wanted.setdefault((Role.REVIEWER, False), config.agent_for(Role.REVIEWER))
    opened: dict[str, Agent] = {spec: open_agent(spec) for spec in dict.fromkeys(wanted.values())}
    templates = load_templates(workflow, root, config.prompts)
    return AgentSet(by_role={key: opened[spec] for key, spec in wanted.items()}, prompts=templates)


def unpriced_agents(workflow: Workflow, config: Config) -> list[str]:
    """Return the agents of a workflow that report only tokens and whose model has no known price."""
    specs = dict.fromkeys(config.agent_for(role) for role in workflow.roles)
    return [spec for spec in specs if not getattr(open_agent(spec), "is_priced", _is_priced)(config.prices)]


def _is_priced(_prices: object) -> bool:
    return True


# --- tests and gates of a repository ------------------------------------------------------------------------------


def find_targets(root: Path, config: Config, part: str = "") -> list[Target]:
    """Return the test targets of the whole repository, or of its folder `part`."""
    tests = config.test
    found = detect(
        root, command=tests.command, tests=tests.paths or None, runner_name=tests.runner, report=tests.report
    )
    if not found:
        raise UsageError(
            f"no test command found for {root}", hint='set one in ratchet.toml: [test] command = "python3 -m pytest"'
        )
    chosen = [target for target in found if not part or f"{target.root}/".startswith(f"{part}/")]
    if not chosen:
        roots = ", ".join(sorted({target.root for target in found}))
        raise UsageError(f"{part} has no tests of its own", hint=f"folders with tests: {roots}")
    return chosen


def recorded_targets(started: ev.RunStarted) -> list[Target]:
    """Return the targets recorded at the start: a step may have changed what detection would find now."""
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


def planned_gates(root: Path, config: Config, targets: list[Target], workflow: Workflow | None = None) -> list[Gate]:
    detected, _ = detect_gates(root, targets)
    return plan_gates([*detected, *default_judge(config, workflow)], config.gates)


def default_judge(config: Config, workflow: Workflow | None) -> list[Gate]:
    """Return the judge gate of a workflow without an auditor: another agent than the author where there is one.

    Its tests were not written for the change, so nothing else checks whether the change does what was asked.
    """
    author = _JUDGED.get(workflow.name) if workflow else None
    if author is None or not config.agent_for(author):
        return []
    return [Gate(name="judge", agent=config.agent_beside(author), why="default for workflows without an auditor")]


_JUDGED = {"build": Role.IMPLEMENTER, "loop": Role.IMPLEMENTER, "fix": Role.FIXER, "swarm": Role.FIXER}


def open_checks(root: Path, config: Config, targets: list[Target]) -> TestRun:
    """Return what runs these targets with the configured limits and environment."""
    tests = config.test
    return TestRun(
        targets=targets,
        timeout_s=tests.timeout_s,
        silence_s=tests.silence_s,
        env=allowed_environment(tests.env),
        origin=SourceTree(root=root),
    )


def union(lists: Iterable[Iterable[str]]) -> list[str]:
    """Return all names, each once, in the order of first occurrence."""
    return list(dict.fromkeys(name for names in lists for name in names))


def _item_policy(item: Item) -> dict[str, int]:
    return {"iterations": item.max_iterations} if item.max_iterations else {}
