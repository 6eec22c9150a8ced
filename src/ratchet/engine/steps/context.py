"""What every step works with (`RunContext`, `StepContext`) and returns (`StepResult`)."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from itertools import accumulate
from pathlib import Path

import msgspec

from ratchet.agents.protocol import Agent, OnEvent
from ratchet.checks.protocol import SuiteRunner
from ratchet.config import Config
from ratchet.core import events as ev
from ratchet.core.item import Item
from ratchet.core.lines import split_lines
from ratchet.core.receipt import Artifact
from ratchet.core.redact import Redactor
from ratchet.core.snapshot import path_text
from ratchet.core.state import Phase, RunState
from ratchet.core.workflows.workflow import PlannedStep
from ratchet.engine.attempt_workspaces import AttemptWorkspaces
from ratchet.engine.blocking import run_blocking
from ratchet.engine.budget_meter import BudgetMeter
from ratchet.engine.learning_library import LearningLibrary
from ratchet.engine.provider_limits import ProviderLimits
from ratchet.engine.run_ledger import RunLedger
from ratchet.store.run_directory import RunDirectory
from ratchet.workspace.git import repository
from ratchet.workspace.protocol import Workspace
from ratchet.workspace.sandbox import Sandboxes

AGENT_ENVIRONMENT = ("PATH", "HOME", "USER", "LANG", "LC_ALL", "TERM", "TMPDIR", "SHELL")


class AgentSet(msgspec.Struct, frozen=True, kw_only=True):
    """The agents and prompt templates of a run, opened before its first step."""

    by_role: dict[tuple[str, bool], Agent]
    prompts: dict[str, str]

    def get(self, role: str, *, stronger: bool = False) -> Agent:
        """Return the agent of a role, or its stronger one; or an agent by its own name."""
        return self.by_role[role, stronger]


class RunContext(msgspec.Struct, frozen=True, kw_only=True):
    """Everything the steps of a run share. Built once, by `RunSetup.context`.

    `workspace` and `sandboxes` are the run's own; a step that works in a fork replaces both. `ledger` records events
    while a step is in progress. `on_agent_event` receives what an agent reports, redacted.
    """

    item: Item
    config: Config
    repo: Path
    library: LearningLibrary
    ledger: RunLedger
    directory: RunDirectory
    workspace: Workspace
    sandboxes: Sandboxes
    attempts: AttemptWorkspaces
    checks: SuiteRunner
    agents: AgentSet
    budget: BudgetMeter
    provider_limits: ProviderLimits
    redact: Redactor
    on_agent_event: OnEvent

    def agent(self, role: str, state: RunState) -> Agent:
        """Return the agent of a role: the stronger one once the role is escalated."""
        return self.agents.get(role, stronger=state.escalated == role)

    def environment(self, role: str = "") -> dict[str, str]:
        """Return the variables that commands, or the agent of a role, may see."""
        own = self.config.role(role).env if role else []
        names = [*AGENT_ENVIRONMENT, *self.config.env, *own]
        return {name: os.environ[name] for name in names if name in os.environ}

    def workspace_environment(self, role: str = "") -> dict[str, str]:
        """Return the same for a process in the workspace: with the paths of the project's modules there."""
        return self.checks.environment(self.workspace.path, self.environment(role))

    def activation(self) -> dict[str, str]:
        """Return the variables that put the project's interpreter and installed tools first, as the tests have them."""
        bins = [Path(target.command[0]).parent for target in self.checks.targets if target.language == "python"]
        bins = [place for place in bins if (place.parent / "pyvenv.cfg").is_file()]
        tools = [self.workspace.path / target.root / "node_modules" / ".bin" for target in self.checks.targets]
        first = [*bins, *(place for place in tools if place.is_dir())]
        path = os.pathsep.join(dict.fromkeys([*map(str, first), os.environ.get("PATH", "")]))
        return ({"PATH": path} if first else {}) | ({"VIRTUAL_ENV": str(bins[0].parent)} if bins else {})

    def moved_base(self) -> str:
        """Return the repository's HEAD when it is no longer the item's base commit, else an empty string."""
        base = self.item.metadata.get("snapshot_of") or self.item.base_commit
        head = repository.commit_of(self.repo, "HEAD")
        return head if head and base and head != base else ""


@asynccontextmanager
async def fresh_context(
    context: RunContext, label: str, *, tree: str = "", head: str = ""
) -> AsyncIterator[RunContext]:
    """Yield the same context in a workspace made anew, with this tree and its branch at `head`; default: the base's.

    A command whose exit code decides runs here: resets of the run's own workspace spare dependency and build folders,
    in which an agent may have left programs, settings and byte code.
    """
    async with context.attempts.fresh(label) as (workspace, sandboxes):
        if tree:
            await run_blocking(workspace.reset, tree)
        if head:
            await run_blocking(workspace.restore_branch, head)
        yield msgspec.structs.replace(context, workspace=workspace, sandboxes=sandboxes)


class StepContext(msgspec.Struct, frozen=True, kw_only=True):
    """The step in progress: its plan, its announcement (`started`, made `at`), and the state it starts from."""

    plan: PlannedStep
    started: ev.StepStarted
    at: str
    state: RunState

    @property
    def number(self) -> int:
        return self.started.step

    @property
    def phase(self) -> Phase:
        return self.plan.phase


class StepResult(msgspec.Struct, frozen=True, kw_only=True):
    """The events of a step, its outcome last, and the artifacts they refer to."""

    events: list[ev.Event]
    artifacts: list[Artifact] = []


def new_log(path: Path) -> Path:
    """Remove the log of an earlier try: a repeated step starts its log again."""
    path.unlink(missing_ok=True)
    return path


TEXT_MAX_CHARS, PATHS_MAX, NAMES_MAX_BYTES = 2_000, 200, 131_072


def truncate(text: str) -> str:
    """Shorten text for an event: the full text is in the artifacts and logs."""
    return text if len(text) <= TEXT_MAX_CHARS else f"{text[:TEXT_MAX_CHARS]}… ({len(text)} characters)"


def ledger_paths(paths: list[str]) -> list[str]:
    """Return paths as text for an event, even those that are not UTF-8; of very many the first ones and a count."""
    texts = [path_text(os.fsencode(path))[:500] for path in paths[:PATHS_MAX]]
    return texts if len(paths) <= PATHS_MAX else [*texts, f"… and {len(paths) - PATHS_MAX} more"]


def bounded_names(names: Sequence[str]) -> list[str]:
    """Return the first names, as many as fit into an event: the report has all of them."""
    sizes = accumulate(len(name.encode()) + 3 for name in names)  # quotes and comma
    return [name for name, size in zip(names, sizes, strict=True) if size <= NAMES_MAX_BYTES]


def abbreviate(names: list[str]) -> str:
    """Join the first three names and the number of the others."""
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def first_line(text: str) -> str:
    lines = [line.strip() for line in split_lines(text) if line.strip()]
    return lines[0][:200] if lines else ""
