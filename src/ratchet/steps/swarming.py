"""Many attempts at once, each in a fork of the workspace: the first that is fully verified there wins.

One step of the ledger: cut off, it is done again from its tree, and whoever comes next clears the forks that are left.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import msgspec
from msgspec.structs import replace

from ratchet.agents import Failed
from ratchet.core import events as ev
from ratchet.core.compare import judge_green
from ratchet.core.failure import Reason
from ratchet.core.receipt import Artifact, Usage
from ratchet.steps.asking import ask
from ratchet.steps.conversing import Variant, metered
from ratchet.steps.gates import Look
from ratchet.steps.gating import run_gates
from ratchet.steps.testing import report_in, run_tests
from ratchet.steps.work import Doing, Done, Parked, Work, clip, cross, first_line, shown
from ratchet.workspace import Refused

MOVED_EVERY_S = 1.0


class Attempt(msgspec.Struct, kw_only=True):
    """One way of asking, and what has come of it so far."""

    number: int
    variant: Variant
    began: float = 0.0
    how: str = "cancelled"
    why: str = "another was first"
    paths: list[str] = []
    tree: str = ""
    summary: str = ""
    facts: list[ev.Event] = []
    artifacts: list[Artifact] = []
    parked: Parked | None = None

    def told(self, step: int, role: str, now: float) -> list[ev.Event]:
        """Also of one that was cancelled: what it spent is spent."""
        agent = self.variant.agent.name
        seconds = round(now - self.began, 3) if self.began else 0.0
        facts = self.facts or [metered(step, role, agent, replace(sum(self.variant.spent, Usage()), seconds=seconds))]
        ended = ev.ForkEnded(
            step=step,
            attempt=self.number,
            agent=agent,
            how=self.how,
            why=clip(self.why),
            paths=shown(self.paths),
            tree=self.tree,
        )
        return [*facts, ended]


async def swarm(work: Work, doing: Doing) -> Done:
    attempts = _attempts(work, doing)
    moved = await _race(work, doing, attempts)
    now = asyncio.get_running_loop().time()
    winner = _winner(attempts)
    in_order = sorted(attempts, key=lambda attempt: attempt is winner)  # the last one told of is whose change it is
    facts = [fact for attempt in in_order for fact in attempt.told(doing.number, doing.step.role, now)]
    artifacts = [artifact for attempt in attempts for artifact in attempt.artifacts]
    await cross(work.workspace.reset, doing.started.tree)
    if moved:
        return Done(events=[*facts, ev.RunFailed(reason=Reason.CONFLICT, detail=f"the base moved on to {moved[:12]}")])
    if winner is None:
        return _none(doing, attempts, facts, artifacts)
    await cross(work.workspace.reset, winner.tree)
    proposed = ev.ChangeProposed(
        step=doing.number,
        paths=shown(winner.paths),
        tree=winner.tree,
        summary=winner.summary or f"Fix {work.item.title}",
    )
    return Done(events=[*facts, proposed], artifacts=artifacts)


def _winner(attempts: list[Attempt]) -> Attempt | None:
    """One only: who finished in the same moment was not first."""
    won = [attempt for attempt in attempts if attempt.how == "won"]
    for attempt in won[1:]:
        attempt.how, attempt.why = "cancelled", "another was first"
    return won[0] if won else None


def _none(doing: Doing, attempts: list[Attempt], facts: list[ev.Event], artifacts: list[Artifact]) -> Done:
    parked = [attempt.parked for attempt in attempts if attempt.parked]
    if len(parked) == len(attempts):
        raise Parked(parked[0].event, facts)
    why = "; ".join(f"{attempt.number}: {attempt.why}" for attempt in attempts)
    failed = ev.AttemptFailed(step=doing.number, reason=Reason.NO_PROGRESS, why=clip(why))
    return Done(events=[*facts, failed], artifacts=artifacts)


def _attempts(work: Work, doing: Doing) -> list[Attempt]:
    """Agents and hints in turn, as configured; each attempt of each round is a turn of its own."""
    role, size = doing.step.role, doing.state.policy.parallel
    names, hints = work.config.swarm.agents, work.config.swarm.hints or [""]
    agents = [work.agents(name, False) for name in names] or [work.agent(role, doing.state)]
    earlier = (work.turn(doing.step.action) - 1) * size
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


async def _race(work: Work, doing: Doing, attempts: list[Attempt]) -> str:
    """Until one has won, all have ended, or the base moved; returns where to. Nobody is left running."""
    tasks = [asyncio.create_task(_try(work, doing, attempt)) for attempt in attempts]
    try:
        async for moved in _watch(work):
            if moved:
                for attempt in attempts:
                    attempt.how, attempt.why = "cancelled", "the base moved"
                return moved
            done, running = await asyncio.wait(tasks, timeout=MOVED_EVERY_S, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()  # a fault of ours is not an attempt that failed
            if not running or any(attempt.how == "won" for attempt in attempts):
                return ""
            tasks = list(running)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    return ""


async def _watch(work: Work) -> AsyncIterator[str]:
    while True:
        yield await cross(work.moved)


async def _try(work: Work, doing: Doing, attempt: Attempt) -> None:
    attempt.began = asyncio.get_running_loop().time()
    async with work.fork(attempt.variant.label) as made:
        if isinstance(made, Refused):
            attempt.how, attempt.why = "failed", f"no workspace: {made.reason}"
            return
        workspace, sandboxes = made
        fork = replace(work, workspace=workspace, sandboxes=sandboxes)
        try:
            asked = await ask(fork, doing, attempt.variant)
        except Parked as parked:
            attempt.how, attempt.why, attempt.parked = "failed", parked.event.detail, parked
            attempt.facts = parked.facts
            return
        attempt.facts, attempt.artifacts = asked.facts, asked.artifacts
        attempt.paths, attempt.tree, attempt.summary = asked.paths, asked.tree, first_line(asked.text)
        if isinstance(asked.outcome, Failed) or not asked.paths:
            attempt.how = "failed"
            attempt.why = asked.outcome.detail if isinstance(asked.outcome, Failed) else "changed nothing"
            return
        why = await _refused(fork, doing, attempt)
        attempt.how, attempt.why = ("refused", why) if why else ("won", "all tests and gates passed")


async def _refused(fork: Work, doing: Doing, attempt: Attempt) -> str:
    """Full verification, in the fork: the tests, then the gates."""
    started = replace(doing.started, tree=attempt.tree)
    report, kept = await run_tests(fork, started, label=attempt.variant.label)
    attempt.artifacts = [*attempt.artifacts, kept]
    verdict = judge_green(await report_in(fork, doing.state.reference), report, doing.state.red)
    if not verdict.ok:
        return verdict.why
    looked = replace(doing, started=started)
    gated = await run_gates(Look(work=fork, doing=looked, before=doing.started.tree, label=attempt.variant.label))
    attempt.facts, attempt.artifacts = [*attempt.facts, *gated.facts], [*attempt.artifacts, *gated.artifacts]
    return gated.refused or gated.misconfigured
