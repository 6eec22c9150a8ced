"""One call of an agent: which agent, in which session, within which sandbox, provider limit and budget."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from contextlib import suppress

import msgspec
from msgspec.structs import replace

from ratchet.agents.protocol import (
    Agent,
    AgentRequest,
    SessionStarted,
    TurnEvent,
    TurnFailed,
    TurnFinished,
    TurnResult,
    UsageReported,
    lent_files,
)
from ratchet.agents.watchdog import Intervention, WatchdogLimits, ask_with_watchdog
from ratchet.config import RoleConfig
from ratchet.core import events as ev
from ratchet.core.failure import Reason
from ratchet.core.receipt import Usage
from ratchet.engine.blocking import run_blocking
from ratchet.engine.budget_meter import UsageMeter
from ratchet.engine.steps.context import RunContext, StepContext, new_log, truncate
from ratchet.engine.steps.sealing import WITHHELD, Sealing, without_text
from ratchet.errors import GitStalled, RatchetError
from ratchet.process.spawn import confined

RESUMED = (
    "You were interrupted while working on this task. All files have been reset to their state at the start of the "
    "task: your earlier changes are gone. Start again, and use what you have learnt."
)


class Variant(msgspec.Struct, frozen=True, kw_only=True):
    """One way to ask for a step: which agent, which turn, which hint.

    `label` names its files; it is empty for the run's own call, and set for parallel attempts and judges. `sealing`
    takes what must stay sealed out of its workspace and its words.
    """

    agent: Agent
    turn: int
    label: str = ""
    hint: str = ""
    spent: list[Usage] = []
    sealing: Sealing | None = None


async def call_agent(
    context: RunContext, step: StepContext, variant: Variant, prompt: str
) -> tuple[TurnResult, list[ev.Event]]:
    """Call the agent; while agents are overloaded, call the role's next fallback. Returns the events to record too."""
    role, facts = context.config.role(step.plan.role), list[ev.Event]()
    fallbacks = [] if variant.label else [context.agents.get(name) for name in role.fallback]
    why = ""
    for agent in [variant.agent, *fallbacks]:
        if facts:
            await run_blocking(context.workspace.reset, step.started.tree)
        call = _AgentCall(context, step, replace(variant, agent=agent), role)
        result, usage, priced = await call.run(prompt)
        if variant.sealing:
            try:
                await run_blocking(variant.sealing.take, context.workspace, step.started.tree)
            except GitStalled as stalled:
                result = unreadable_to_git(stalled)
            result = variant.sealing.clean(result)
        facts.append(usage_event(step.number, step.plan.role, agent.name, usage, priced=priced, model=call.model))
        if agent is not variant.agent:
            facts.append(_replaced(step, variant.agent, agent, why))
        if not (isinstance(result, TurnFailed) and result.reason is Reason.OVERLOADED):
            break
        why = truncate(result.detail)
    return _redacted(result, context), facts


def unreadable_to_git(refused: RatchetError) -> TurnFailed:
    """Return the failure of an agent that left a tree with which git cannot work."""
    patterns = "; patterns in .gitignore or .gitattributes keep it busy" if isinstance(refused, GitStalled) else ""
    return TurnFailed(reason=Reason.NO_PROGRESS, detail=f"the change was undone: {refused.message}{patterns}")


def _replaced(step: StepContext, first: Agent, agent: Agent, why: str) -> ev.AgentReplaced:
    return ev.AgentReplaced(step=step.number, role=step.plan.role, agent=first.name, by=agent.name, why=why)


class _AgentCall:
    """One call of one agent. The watchdog may interrupt it and ask again within the same call."""

    def __init__(self, context: RunContext, step: StepContext, variant: Variant, role: RoleConfig) -> None:
        self.context, self.step, self.variant, self.role = context, step, variant, role
        self.agent, self.log = variant.agent, f"step-{step.number}{variant.label}-{step.plan.role}.log"
        self._recording: set[asyncio.Task[None]] = set()

    async def run(self, prompt: str) -> tuple[TurnResult, Usage, bool]:
        """Call the agent in its sandbox, when the provider has a free slot, within a reserved budget."""
        context, step = self.context, self.step
        request = self._request(context.redact.text(prompt))
        limits = WatchdogLimits(idle_s=self.role.idle_s, repeats=self.role.repeats, answer=self.role.answer)
        network = {"on": True, "off": False}.get(self.role.network)
        sandbox = context.sandboxes.for_role(
            step.plan.role, step.state.scope, step.plan.writes, network=network, lent=lent_files(self.agent)
        )
        try:
            with confined(sandbox):
                async with (
                    context.provider_limits.slot(self.agent, request.env) as report_result,
                    context.budget.reserve(step.state, request.timeout_s) as meter,
                ):
                    turn = _as_fault_of_agent(
                        ask_with_watchdog(
                            self.agent,
                            replace(request, allowance=meter.allowance),
                            lambda event: self._on_event(event, meter),
                            limits,
                            self._record_nudge,
                        )
                    )
                    result = await meter.enforce(turn)
                    report_result(result)
        finally:
            if self._recording:
                await asyncio.wait(self._recording)
            await run_blocking(context.directory.clean, self.log)
            if self.variant.sealing:
                await run_blocking(context.directory.withhold, self.log, WITHHELD)
        for task in self._recording:
            task.result()
        return result, meter.usage(), meter.priced

    def _on_event(self, event: TurnEvent, meter: UsageMeter) -> None:
        if isinstance(event, UsageReported):
            event = replace(event, usage=event.usage.sane)
        shown = without_text(event) if self.variant.sealing else event
        self.context.on_agent_event(_clean(shown, self.context))
        if isinstance(event, UsageReported):
            self.variant.spent.append(event.usage)
            meter.add(event.usage, priced=event.priced)
        elif isinstance(event, SessionStarted) and not (self.variant.label or self.variant.sealing):
            opened = self._session_opened(event.session)
            self._recording.add(asyncio.ensure_future(self.context.ledger.record(opened)))

    def _session_opened(self, session: str) -> ev.SessionOpened:
        step = self.step
        return ev.SessionOpened(step=step.number, role=step.plan.role, agent=self.agent.name, session=session)

    async def _record_nudge(self, intervention: Intervention) -> None:
        step, sealing = self.step, self.variant.sealing
        # A checkpoint would store sealed files in the repository of trees.
        tree = step.started.tree
        with suppress(GitStalled):
            tree = tree if sealing else await run_blocking(self.context.workspace.checkpoint)
        why = truncate(WITHHELD if sealing else intervention.why)
        nudged = ev.AgentNudged(step=step.number, role=step.plan.role, agent=self.agent.name, why=why, tree=tree)
        await self.context.ledger.record(nudged)

    def _request(self, prompt: str) -> AgentRequest:
        context, step, session = self.context, self.step, self._session()
        role = step.plan.role
        return AgentRequest(
            run=context.directory.path.name,
            item=context.item.id,
            role=role,
            action=step.plan.action,
            turn=self.variant.turn,
            key=step.started.key,
            snapshot=step.started.snapshot,
            prompt=f"{RESUMED}\n\n{prompt}" if session else prompt,
            inputs=step.plan.inputs,
            folder=context.workspace.path,
            log=new_log(context.directory.log_path(self.log)),
            env=(env := context.environment(role)),
            modules=dict(context.workspace_environment(role).items() - env.items()),
            activation=context.activation(),
            timeout_s=self.role.timeout_s,
            session=session,
            model=self._asked_model(),
            scope=step.state.scope,
            home=context.sandboxes.agent_home(role),
            prices=context.config.prices,
        )

    def _session(self) -> str:
        """Return the session that an interrupted try of this very step opened with this agent."""
        known = self.step.state.session
        is_ours = known and not self.variant.label and known.step == self.step.number
        # Redacted as it was recorded: a key may be a word that is also part of the agent's name (`ollama-local`).
        name = self.context.redact.text(self.agent.name)
        return known.session if known and is_ours and known.agent == name else ""

    @property
    def model(self) -> str:
        """The model that answers, as far as it is known: the role's, or the agent's own."""
        return self._asked_model() or str(getattr(self.agent, "model", ""))

    def _asked_model(self) -> str:
        """Return the role's model for the role's own agent; a fallback uses its own default."""
        own = self.context.agents.get(self.step.plan.role) if not self.variant.label else None
        return self.role.model if self.agent is own else ""


def usage_event(
    step: int, role: str, agent: str, usage: Usage, *, priced: bool = True, model: str = ""
) -> ev.UsageMetered:
    return ev.UsageMetered(
        step=step,
        role=role,
        agent=agent,
        tokens_in=usage.tokens_in,
        tokens_out=usage.tokens_out,
        cost_usd=usage.cost_usd,
        seconds=usage.seconds,
        priced=priced,
        model=model,
    )


def _redacted(result: TurnResult, context: RunContext) -> TurnResult:
    if isinstance(result, TurnFinished):
        return replace(result, text=context.redact.text(result.text))
    return replace(result, detail=context.redact.text(result.detail))


def _clean(event: TurnEvent, context: RunContext) -> TurnEvent:
    texts = {name: value for name in event.__struct_fields__ if isinstance(value := getattr(event, name), str)}
    return replace(event, **{name: context.redact.text(value) for name, value in texts.items()})


async def _as_fault_of_agent(turn: Awaitable[TurnResult]) -> TurnResult:
    """Fail the turn when what the agent printed cannot be read: the run goes on as after any other failed turn."""
    try:
        return await turn
    except (ArithmeticError, ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
        detail = f"its output cannot be read: {type(error).__name__}: {str(error)[:300]}"
        return TurnFailed(reason=Reason.AGENT_CRASHED, detail=detail)
