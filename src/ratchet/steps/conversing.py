"""Who is asked, in which session and on which terms: one asking of a role, until it has an answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec
from msgspec.structs import replace

from ratchet.agents import Agent, Answered, Ask, Failed, Finished, Said, SessionOpened, Spent
from ratchet.agents.vigil import Limits, Wrong, watched
from ratchet.config import RoleConfig
from ratchet.core import events as ev
from ratchet.core.failure import Reason
from ratchet.core.receipt import Usage
from ratchet.process import confined
from ratchet.steps.work import Doing, Work, clip, cross, fresh

RESUMED = (
    "You were cut off in the middle of this. Every file is again as it was when you were first asked: what you had "
    "changed is undone. Begin again with what you know now."
)


class Variant(msgspec.Struct, frozen=True, kw_only=True):
    """One of several ways to ask the same: by whom, as which turn, with which hint. `label` keeps their files apart."""

    agent: Agent
    turn: int
    label: str = ""
    hint: str = ""
    spent: list[Usage] = []


async def converse(work: Work, doing: Doing, variant: Variant, text: str) -> tuple[Answered, list[ev.Event]]:
    """Ask, and while the agents are overloaded, the next one of the role's fallbacks. Says what is to be recorded."""
    role, facts = work.config.role(doing.step.role), list[ev.Event]()
    others = [] if variant.label else [work.agents(name, False) for name in role.fallback]
    why = ""
    for agent in [variant.agent, *others]:
        if facts:
            await cross(work.workspace.reset, doing.started.tree)
        outcome, usage = await _Asking(work, doing, replace(variant, agent=agent), role).ask(text)
        facts.append(metered(doing.number, doing.step.role, agent.name, usage))
        if agent is not variant.agent:
            facts.append(_replaced(doing, variant.agent, agent, why))
        if not (isinstance(outcome, Failed) and outcome.reason is Reason.OVERLOADED):
            break
        why = clip(outcome.detail)
    return _redacted(outcome, work), facts


def _replaced(doing: Doing, first: Agent, agent: Agent, why: str) -> ev.AgentReplaced:
    return ev.AgentReplaced(step=doing.number, role=doing.step.role, agent=first.name, by=agent.name, why=why)


class _Asking:
    """One agent asked once, and again where it has to be nudged."""

    def __init__(self, work: Work, doing: Doing, variant: Variant, role: RoleConfig) -> None:
        self.work, self.doing, self.variant, self.role = work, doing, variant, role
        self.agent, self.log = variant.agent, f"step-{doing.number}{variant.label}-{doing.step.role}.log"
        self.told: set[asyncio.Task[None]] = set()

    async def ask(self, text: str) -> tuple[Answered, Usage]:
        work, doing, role = self.work, self.doing, self.role
        words = self._words(work.redact.text(text))
        network = {"on": True, "off": False}.get(role.network)
        sandbox = work.sandboxes.for_role(doing.step.role, doing.state.scope, doing.step.writes, network=network)
        try:
            with confined(sandbox):
                async with work.pace(self.agent.name) as told:
                    answer = await work.meter(
                        doing, words.timeout_s, lambda spend, most: self._watched(words, spend, most)
                    )
                    told(answer[0])
        finally:
            if self.told:
                await asyncio.wait(self.told)
            await cross(work.directory.clean, self.log)
        for task in self.told:
            task.result()
        return answer

    async def _watched(self, words: Ask, spend: Callable[[Usage], None], most: Usage) -> Answered:
        limits = Limits(idle_s=self.role.idle_s, repeats=self.role.repeats, answer=self.role.answer)
        words = replace(words, allowance=most)
        return await watched(self.agent, words, lambda said: self._hear(said, spend), limits, self._nudged)

    def _hear(self, said: Said, spend: Callable[[Usage], None]) -> None:
        self.work.tell(_clean(said, self.work))
        if isinstance(said, Spent):
            self.variant.spent.append(said.usage)
            spend(said.usage)
        elif isinstance(said, SessionOpened) and not self.variant.label:
            self.told.add(asyncio.ensure_future(self.work.record(self._opened(said.session))))

    def _opened(self, session: str) -> ev.SessionOpened:
        doing = self.doing
        return ev.SessionOpened(step=doing.number, role=doing.step.role, agent=self.agent.name, session=session)

    async def _nudged(self, wrong: Wrong) -> None:
        doing, tree = self.doing, await cross(self.work.workspace.checkpoint)
        nudged = ev.AgentNudged(
            step=doing.number, role=doing.step.role, agent=self.agent.name, why=clip(wrong.why), tree=tree
        )
        await self.work.record(nudged)

    def _words(self, text: str) -> Ask:
        work, doing, session = self.work, self.doing, self._session()
        role = doing.step.role
        return Ask(
            run=work.directory.path.name,
            item=work.item.id,
            role=role,
            action=doing.step.action,
            turn=self.variant.turn,
            key=doing.started.key,
            snapshot=doing.started.snapshot,
            prompt=f"{RESUMED}\n\n{text}" if session else text,
            inputs=doing.step.inputs,
            folder=work.workspace.path,
            log=fresh(work.directory.log_path(self.log)),
            env=(env := work.environ(role)),
            modules=dict(work.surroundings(role).items() - env.items()),
            timeout_s=self.role.timeout_s,
            session=session,
            model=self._model(),
            scope=doing.state.scope,
            prices=work.config.prices,
        )

    def _session(self) -> str:
        """Of this very step and agent: what was announced and cut off goes on where it was."""
        known = self.doing.state.session
        is_ours = known and not self.variant.label and known.step == self.doing.number
        # As it was recorded: a key may be a word that is also in the agent's name (`ollama-local`).
        name = self.work.redact.text(self.agent.name)
        return known.session if known and is_ours and known.agent == name else ""

    def _model(self) -> str:
        """The role's model is its own agent's; whoever stands in for that one has its own."""
        own = self.work.agents(self.doing.step.role, False) if not self.variant.label else None
        return self.role.model if self.agent is own else ""


def metered(step: int, role: str, agent: str, usage: Usage) -> ev.UsageMetered:
    return ev.UsageMetered(
        step=step,
        role=role,
        agent=agent,
        tokens_in=usage.tokens_in,
        tokens_out=usage.tokens_out,
        cost_usd=usage.cost_usd,
        seconds=usage.seconds,
    )


def _redacted(outcome: Answered, work: Work) -> Answered:
    if isinstance(outcome, Finished):
        return replace(outcome, text=work.redact.text(outcome.text))
    return replace(outcome, detail=work.redact.text(outcome.detail))


def _clean(said: Said, work: Work) -> Said:
    texts = {name: value for name in said.__struct_fields__ if isinstance(value := getattr(said, name), str)}
    return replace(said, **{name: work.redact.text(value) for name, value in texts.items()})
