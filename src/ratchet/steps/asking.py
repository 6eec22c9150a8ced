"""Steps that ask an agent: what is asked, what of the answer stays, and what it means."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec

from ratchet.agents import Agent, Ask, Failed, Finished, Outcome, Said, Spent
from ratchet.core import events as ev
from ratchet.core import prompts
from ratchet.core.failure import FAULT, Fault, Reason
from ratchet.core.item import ParkReason
from ratchet.core.packet import packet
from ratchet.core.receipt import Artifact, Usage
from ratchet.core.roles import Role
from ratchet.core.runner_settings import says_how_tests_run, touches_runner
from ratchet.core.state import Phase
from ratchet.core.verdict import Decision, Review, read_review, requirements_complete
from ratchet.process import confined
from ratchet.steps.testing import report_in
from ratchet.steps.work import Doing, Done, Parked, Work, clip, cross, first_line, fresh, shown
from ratchet.store.rundir import ANSWERS

FINDINGS_MAX = 50


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """What came of asking: `paths` are the changes the role was allowed to make."""

    outcome: Outcome
    tree: str
    paths: list[str]
    undone: list[str]
    facts: list[ev.Event]
    artifacts: list[Artifact]

    @property
    def text(self) -> str:
        return self.outcome.text if isinstance(self.outcome, Finished) else ""

    def done(self, outcome: ev.Event) -> Done:
        return Done(events=[*self.facts, outcome], artifacts=self.artifacts)


# --- one step for each kind of answer ---------------------------------------------------------------------------


async def audit(work: Work, doing: Doing) -> Done:
    asked = await ask(work, doing)
    step, summary = doing.number, first_line(asked.text)
    if isinstance(asked.outcome, Failed):
        return asked.done(ev.AuditFailed(step=step, reason=asked.outcome.reason, why=clip(asked.outcome.detail)))
    if asked.paths:
        return asked.done(ev.TestWritten(step=step, paths=shown(asked.paths), tree=asked.tree, summary=summary))
    if requirements_complete(asked.text):
        return asked.done(ev.RequirementsMet(step=step, summary=summary))
    why = _nothing(asked, "wrote no test and did not say that the requirements are complete")
    return asked.done(ev.AuditFailed(step=step, reason=Reason.NO_PROGRESS, why=why))


async def propose(work: Work, doing: Doing) -> Done:
    asked = await ask(work, doing)
    failed = ev.RefactorFailed if doing.phase is Phase.REFACTOR else ev.AttemptFailed
    if isinstance(asked.outcome, Failed):
        return asked.done(failed(step=doing.number, reason=asked.outcome.reason, why=clip(asked.outcome.detail)))
    if not asked.paths:
        why = _nothing(asked, "changed nothing")
        return asked.done(failed(step=doing.number, reason=Reason.NO_PROGRESS, why=why))
    summary = first_line(asked.text)
    return asked.done(ev.ChangeProposed(step=doing.number, paths=shown(asked.paths), tree=asked.tree, summary=summary))


async def review(work: Work, doing: Doing) -> Done:
    asked = await ask(work, doing)
    if isinstance(asked.outcome, Failed):
        why = clip(asked.outcome.detail)
        return asked.done(ev.ReviewFailed(step=doing.number, reason=asked.outcome.reason, why=why))
    return asked.done(_reviewed(doing.number, read_review(asked.text)))


def _nothing(asked: Asked, what: str) -> str:
    return f"{what}; writes outside its paths were undone: {', '.join(asked.undone)}" if asked.undone else what


def _reviewed(step: int, review: Review | str) -> ev.Event:
    if isinstance(review, str):
        return ev.ReviewFailed(step=step, reason=Reason.AGENT_REFUSED, why=clip(review))
    if review.verdict is Decision.APPROVED:
        return ev.ReviewApproved(step=step, summary=clip(review.summary))
    findings = [clip(prompts.finding_text(finding)) for finding in review.findings[:FINDINGS_MAX]]
    return ev.ChangesRequested(step=step, summary=clip(review.summary), findings=findings)


# --- asking -------------------------------------------------------------------------------------------------------


async def ask(work: Work, doing: Doing) -> Asked:
    """Ask the role's agent once; what it may not write is undone, what it spent is metered."""
    role = doing.step.role
    assert role
    agent = work.agents(role)
    text = await _prompt(work, doing)
    prompt = await cross(work.directory.put, f"prompts/step-{doing.number}.md", text.encode())
    spent: list[Usage] = []

    def hear(said: Said) -> None:
        if isinstance(said, Spent):
            spent.append(said.usage)
        work.tell(said)

    began = asyncio.get_running_loop().time()
    with confined(work.sandboxes.for_role(role, doing.state.scope)):
        outcome = await _answer(agent, _words(work, doing, text), hear)
    seconds = asyncio.get_running_loop().time() - began
    facts: list[ev.Event] = [_metered(doing.number, role, agent.name, spent, seconds)]
    await cross(work.workspace.hold, doing.state.head)
    if isinstance(outcome, Failed):
        await cross(work.workspace.reset, doing.started.tree)
        if FAULT[outcome.reason] is Fault.PROVIDER:
            raise Parked(_parked(outcome), facts)
    tree, paths, undone = await cross(_confine, work, doing)
    if undone:
        facts.append(ev.WritesUndone(step=doing.number, role=role, paths=shown(undone)))
    answer = await _kept_answer(work, doing, outcome)
    return Asked(outcome=outcome, tree=tree, paths=paths, undone=undone, facts=facts, artifacts=[prompt, answer])


async def _kept_answer(work: Work, doing: Doing, outcome: Outcome) -> Artifact:
    assert doing.step.role
    said = outcome.text if isinstance(outcome, Finished) else f"failed: {outcome.reason}: {outcome.detail}"
    entry = prompts.history_entry(doing.number, doing.step.role, said)
    return await cross(work.directory.put, f"{ANSWERS}step-{doing.number}.md", entry.encode())


def _words(work: Work, doing: Doing, text: str) -> Ask:
    role = doing.step.role
    assert role
    return Ask(
        run=work.directory.path.name,
        item=work.item.id,
        role=role,
        action=doing.step.action,
        turn=work.turn(doing.step.action),
        key=doing.started.key,
        snapshot=doing.started.snapshot,
        prompt=text,
        inputs=doing.step.inputs,
        folder=work.workspace.path,
        log=fresh(work.directory.log_path(f"step-{doing.number}-{role}.log")),
        env=work.env,
        timeout_s=work.config.role(role).timeout_s,
    )


async def _answer(agent: Agent, ask: Ask, tell: Callable[[Said], None]) -> Outcome:
    """An adapter keeps its own deadline; this one holds even when it does not."""
    try:
        async with asyncio.timeout(ask.timeout_s + 30):
            return await agent.ask(ask, tell)
    except TimeoutError:
        return Failed(reason=Reason.AGENT_TIMED_OUT, detail=f"no end after {ask.timeout_s:.0f} s")


async def _prompt(work: Work, doing: Doing) -> str:
    failures = diff = ""
    state = doing.state
    if doing.phase is Phase.IMPLEMENT:
        failures = packet(await report_in(work, state.red_report), only=state.red)
    if doing.phase is Phase.REVIEW:
        diff = await cross(work.workspace.diff, state.base_tree, state.green_tree)
    history = await cross(work.history)
    return prompts.prompt(doing.step, spec=work.item.spec, failures=failures, history=history, diff=diff)


def _confine(work: Work, doing: Doing) -> tuple[str, list[str], list[str]]:
    """Undo what the role may not write; returns the tree, the changes that stay, and those undone."""
    before, tree = doing.started.tree, work.workspace.checkpoint()
    changed = work.workspace.changes(before, tree)
    undone = [path for path in changed if not _may_write(work, doing, path, tree)]
    if not undone:
        return tree, changed, []
    work.workspace.restore(undone, before)
    tree = work.workspace.checkpoint()
    return tree, work.workspace.changes(before, tree), undone


def _may_write(work: Work, doing: Doing, path: str, after: str) -> bool:
    """By its path, and for files that also say how tests are run, by what was changed in them."""
    assert doing.step.role
    if not doing.state.scope.may_write(doing.step.role, path):
        return False
    return not says_how_tests_run(path) or not touches_runner(
        path, work.workspace.read(doing.started.tree, path), work.workspace.read(after, path)
    )


def _parked(outcome: Failed) -> ev.RunParked:
    reason = ParkReason.QUESTION if outcome.reason is Reason.AUTH else ParkReason.QUOTA
    return ev.RunParked(reason=reason, detail=clip(f"{outcome.reason}: {outcome.detail}"), until=outcome.until)


def _metered(step: int, role: Role, agent: str, spent: list[Usage], seconds: float) -> ev.UsageMetered:
    total = sum(spent, Usage())
    return ev.UsageMetered(
        step=step,
        role=role,
        agent=agent,
        tokens_in=total.tokens_in,
        tokens_out=total.tokens_out,
        cost_usd=total.cost_usd,
        seconds=round(seconds, 3),
    )
