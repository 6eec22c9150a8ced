"""Run several attempts in parallel, each in a fork of the workspace: the first that passes all checks wins.

All attempts are one step of the ledger. An interrupted step is repeated from its tree, after removing leftover forks.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import msgspec
from msgspec.structs import replace

from ratchet.agents.protocol import TurnFailed
from ratchet.core import events as ev
from ratchet.core.compare import judge_green
from ratchet.core.failure import Reason
from ratchet.core.receipt import Artifact, Usage
from ratchet.engine.blocking import run_blocking
from ratchet.engine.parked import Parked
from ratchet.engine.steps.agent_call import Variant, usage_event
from ratchet.engine.steps.ask import ask_role
from ratchet.engine.steps.builtin_gates import GateInput
from ratchet.engine.steps.context import RunContext, StepContext, StepResult, first_line, ledger_paths, truncate
from ratchet.engine.steps.gate_pipeline import run_gates
from ratchet.engine.steps.run_tests import load_report, run_tests
from ratchet.workspace.protocol import WorkspaceRefused

BASE_POLL_S = 1.0


class Attempt(msgspec.Struct, kw_only=True):
    """One parallel attempt and its result so far."""

    number: int
    variant: Variant
    began: float = 0.0
    how: str = "cancelled"
    why: str = "another attempt was first"
    paths: list[str] = []
    tree: str = ""
    summary: str = ""
    facts: list[ev.Event] = []
    artifacts: list[Artifact] = []
    parked: Parked | None = None

    def events(self, number: int, role: str, now: float) -> list[ev.Event]:
        """Return the events of this attempt. A cancelled attempt reports its usage too."""
        agent = self.variant.agent.name
        seconds = round(now - self.began, 3) if self.began else 0.0
        facts = self.facts or [
            usage_event(number, role, agent, replace(sum(self.variant.spent, Usage()), seconds=seconds))
        ]
        ended = ev.ForkEnded(
            step=number,
            attempt=self.number,
            agent=agent,
            how=self.how,
            why=truncate(self.why),
            paths=ledger_paths(self.paths),
            tree=self.tree,
        )
        return [*facts, ended]


async def swarm(context: RunContext, step: StepContext) -> StepResult:
    attempts = _attempts(context, step)
    moved = await _race(context, step, attempts)
    now = asyncio.get_running_loop().time()
    winner = _winner(attempts)
    in_order = sorted(
        attempts, key=lambda attempt: attempt is winner
    )  # the winner comes last: its agent is the author of the change
    facts = [fact for attempt in in_order for fact in attempt.events(step.number, step.plan.role, now)]
    artifacts = [artifact for attempt in attempts for artifact in attempt.artifacts]
    await run_blocking(context.workspace.reset, step.started.tree)
    if moved:
        return StepResult(
            events=[*facts, ev.RunFailed(reason=Reason.CONFLICT, detail=f"the base moved on to {moved[:12]}")]
        )
    if winner is None:
        return _no_winner(step, attempts, facts, artifacts)
    await run_blocking(context.workspace.reset, winner.tree)
    proposed = ev.ChangeProposed(
        step=step.number,
        paths=ledger_paths(winner.paths),
        tree=winner.tree,
        summary=winner.summary or f"Fix {context.item.title}",
    )
    return StepResult(events=[*facts, proposed], artifacts=artifacts)


def _winner(attempts: list[Attempt]) -> Attempt | None:
    """Return the winner. Of several that finished together, the first in the list wins and the others are cancelled."""
    won = [attempt for attempt in attempts if attempt.how == "won"]
    for attempt in won[1:]:
        attempt.how, attempt.why = "cancelled", "another attempt was first"
    return won[0] if won else None


def _no_winner(
    step: StepContext, attempts: list[Attempt], facts: list[ev.Event], artifacts: list[Artifact]
) -> StepResult:
    parked = [attempt.parked for attempt in attempts if attempt.parked]
    if len(parked) == len(attempts):
        raise Parked(parked[0].event, facts)
    why = "; ".join(f"{attempt.number}: {attempt.why}" for attempt in attempts)
    failed = ev.AttemptFailed(step=step.number, reason=Reason.NO_PROGRESS, why=truncate(why))
    return StepResult(events=[*facts, failed], artifacts=artifacts)


def _attempts(context: RunContext, step: StepContext) -> list[Attempt]:
    """Distribute the configured agents and hints over the attempts; every attempt of every round is its own turn."""
    role, size = step.plan.role, step.state.policy.parallel
    names, hints = context.config.swarm.agents, context.config.swarm.hints or [""]
    agents = [context.agents.get(name) for name in names] or [context.agent(role, step.state)]
    earlier = (context.ledger.turn(step.plan.action) - 1) * size
    return [
        Attempt(
            number=n + 1,
            variant=Variant(
                agent=agents[n % len(agents)],
                turn=earlier + n + 1,
                label=f"-{n + 1}",
                hint=hints[n % len(hints)],
                spent=list[Usage](),
            ),
        )
        for n in range(size)
    ]


async def _race(context: RunContext, step: StepContext, attempts: list[Attempt]) -> str:
    """Wait until one has won, all have ended, or the base moved; returns the new base. Cancels the rest."""
    tasks = [asyncio.create_task(_try(context, step, attempt)) for attempt in attempts]
    try:
        async for moved in _watch(context):
            if moved:
                for attempt in attempts:
                    attempt.how, attempt.why = "cancelled", "the base moved"
                return moved
            done, running = await asyncio.wait(tasks, timeout=BASE_POLL_S, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()  # raise: a defect of ours is not a failed attempt
            if not running or any(attempt.how == "won" for attempt in attempts):
                return ""
            tasks = list(running)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    return ""


async def _watch(context: RunContext) -> AsyncIterator[str]:
    while True:
        yield await run_blocking(context.moved_base)


async def _try(context: RunContext, step: StepContext, attempt: Attempt) -> None:
    attempt.began = asyncio.get_running_loop().time()
    async with context.attempts.fork(attempt.variant.label) as made:
        if isinstance(made, WorkspaceRefused):
            attempt.how, attempt.why = "failed", f"no workspace: {made.reason}"
            return
        workspace, sandboxes = made
        fork = replace(context, workspace=workspace, sandboxes=sandboxes)
        try:
            asked = await ask_role(fork, step, attempt.variant)
        except Parked as parked:
            attempt.how, attempt.why, attempt.parked = "failed", parked.event.detail, parked
            attempt.facts = parked.facts
            return
        attempt.facts, attempt.artifacts = asked.facts, asked.artifacts
        attempt.paths, attempt.tree, attempt.summary = asked.paths, asked.tree, first_line(asked.text)
        if isinstance(asked.outcome, TurnFailed) or not asked.paths:
            attempt.how = "failed"
            attempt.why = asked.outcome.detail if isinstance(asked.outcome, TurnFailed) else "changed nothing"
            return
        why = await _verify(fork, step, attempt)
        attempt.how, attempt.why = ("refused", why) if why else ("won", "all tests and gates passed")


async def _verify(fork: RunContext, step: StepContext, attempt: Attempt) -> str:
    """Run all tests and gates in the fork; returns why the attempt is rejected, or an empty string."""
    started = replace(step.started, tree=attempt.tree)
    report, kept = await run_tests(fork, started, label=attempt.variant.label)
    attempt.artifacts = [*attempt.artifacts, kept]
    verdict = judge_green(await load_report(fork, step.state.reference), report, step.state.red)
    if not verdict.ok:
        return verdict.why
    verified = replace(step, started=started)
    gated = await run_gates(
        GateInput(context=fork, step=verified, before=step.started.tree, label=attempt.variant.label)
    )
    attempt.facts, attempt.artifacts = [*attempt.facts, *gated.facts], [*attempt.artifacts, *gated.artifacts]
    return gated.refused or gated.misconfigured
