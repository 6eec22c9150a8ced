"""What every step works with, what it is asked to do, and what it comes to."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import TypeVar

import msgspec

from ratchet.agents import Agent, Answered, Said
from ratchet.checks import Checks
from ratchet.config import Config
from ratchet.core import events as ev
from ratchet.core.item import Item
from ratchet.core.receipt import Artifact, Usage
from ratchet.core.redact import Redactor
from ratchet.core.snapshot import path_text
from ratchet.core.state import Phase, RunState
from ratchet.core.workflow import Step
from ratchet.store.rundir import RunDirectory
from ratchet.workspace import Refused, Workspace
from ratchet.workspace.sandbox import Sandboxes

T = TypeVar("T")
# Given how to tell what is spent, and the most that it may be.
Asking = Callable[[Callable[[Usage], None], Usage], Awaitable[Answered]]


async def cross(function: Callable[..., T], *args: object, **kwargs: object) -> T:
    """The one crossing from the async side to plain functions that wait on disk or git.

    A cancelled caller still waits for the thread: nobody else may touch what it is working on.
    """
    work = asyncio.ensure_future(asyncio.to_thread(function, *args, **kwargs))
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        await asyncio.wait({work})
        if not work.cancelled():
            work.exception()  # looked at: nobody is left to hear of it, and it is no defect that nobody does
        raise


class Work(msgspec.Struct, frozen=True, kw_only=True):
    """A run at work: where it happens and who takes part.

    `agents` takes a role and whether its stronger agent is wanted, or the whole name of an agent; `meter` asks within a
    budget, `pace` when the provider has room; `record` puts a fact into the ledger while a step goes on; `environ` is
    what a role may see; `learnings` are lessons about some words; `lock` names the paths that are somebody else's;
    `moved` says where the base went, if it did; `fork` makes a
    copy of the workspace with sandboxes of its own, and `fresh` another one from the same base; both are gone when they
    are left.
    """

    item: Item
    config: Config
    directory: RunDirectory
    workspace: Workspace
    checks: Checks
    agents: Callable[[str, bool], Agent]
    tell: Callable[[Said], None]
    turn: Callable[[str], int]
    history: Callable[[], str]
    meter: Callable[[Doing, float, Asking], Awaitable[tuple[Answered, Usage]]]
    pace: Callable[[str], AbstractAsyncContextManager[Callable[[Answered], None]]]
    record: Callable[[ev.Event], Awaitable[None]]
    redact: Redactor
    learnings: Callable[[str], list[str]]
    lock: Callable[[list[str]], list[str]]
    env: dict[str, str]
    environ: Callable[[str], dict[str, str]]
    sandboxes: Sandboxes
    prompts: Callable[[str], str]
    moved: Callable[[], str]
    fork: Callable[[str], AbstractAsyncContextManager[tuple[Workspace, Sandboxes] | Refused]]
    fresh: Callable[[], AbstractAsyncContextManager[tuple[Workspace, Sandboxes]]]

    def surroundings(self, role: str = "") -> dict[str, str]:
        """The environment of commands in the workspace, or of a role's agent there."""
        return self.checks.surroundings(self.workspace.path, self.environ(role) if role else self.env)

    def agent(self, role: str, state: RunState) -> Agent:
        return self.agents(role, state.escalated == role)


class Doing(msgspec.Struct, frozen=True, kw_only=True):
    """The step in hand: what was planned, as it was announced and when, and the state it starts from."""

    step: Step
    started: ev.StepStarted
    at: str
    state: RunState

    @property
    def number(self) -> int:
        return self.started.step

    @property
    def phase(self) -> Phase:
        return self.step.phase


class Done(msgspec.Struct, frozen=True, kw_only=True):
    """What doing a step came to: the facts, and the files that go with them."""

    events: list[ev.Event]
    artifacts: list[Artifact] = []


class Parked(Exception):
    """The step cannot go on now; the event says until when, or that it never can."""

    def __init__(self, event: ev.RunParked | ev.RunFailed, facts: list[ev.Event]) -> None:
        super().__init__(event.detail)
        self.event, self.facts = event, facts


def fresh(path: Path) -> Path:
    path.unlink(missing_ok=True)  # a step that is done again starts its log again
    return path


TEXT_MAX_CHARS, PATHS_MAX = 2_000, 200


def clip(text: str) -> str:
    """An event is small: what an agent, a gate or a test says at length is in the artifacts and logs."""
    return text if len(text) <= TEXT_MAX_CHARS else f"{text[:TEXT_MAX_CHARS]}… ({len(text)} characters)"


def shown(paths: list[str]) -> list[str]:
    """Paths as text for the ledger, also those that are no text; of very many the first ones and a count."""
    texts = [path_text(os.fsencode(path))[:500] for path in paths[:PATHS_MAX]]
    return texts if len(paths) <= PATHS_MAX else [*texts, f"… and {len(paths) - PATHS_MAX} more"]


def some(names: list[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def first_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[0][:200] if lines else ""
