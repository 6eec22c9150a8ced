"""Steps that ask an agent: build the prompt, call the agent, undo forbidden writes, interpret the answer."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta

import msgspec

from ratchet.agents.protocol import Agent, TurnFailed, TurnFinished, TurnResult
from ratchet.config import QuotaConfig
from ratchet.core import events as ev
from ratchet.core import prompts
from ratchet.core.cheats import inline_tests
from ratchet.core.failure import FAULT, FaultOwner, Reason
from ratchet.core.item import ParkReason
from ratchet.core.learning_sources import noted_learning
from ratchet.core.leftovers import is_referred_to, is_suspicious
from ratchet.core.receipt import Artifact
from ratchet.core.roles import Writes, default_writes
from ratchet.core.runner_settings import changes_runner_settings, has_runner_settings
from ratchet.core.timestamps import format_timestamp
from ratchet.core.verdict import Decision, Review, parse_review
from ratchet.engine.blocking import run_blocking
from ratchet.engine.parked import Parked
from ratchet.engine.steps.agent_call import Variant, call_agent, unreadable_to_git
from ratchet.engine.steps.context import RunContext, StepContext, StepResult, first_line, ledger_paths, truncate
from ratchet.engine.steps.prompt_values import prompt_of
from ratchet.engine.steps.refused_content import refused_content
from ratchet.errors import CommitDiffers, GitStalled
from ratchet.store.run_directory import ANSWERS
from ratchet.workspace.git import repository

FINDINGS_MAX = 50
QUOTA_S = 300.0


class AskResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of asking a role. `paths` are its permitted changes, `undone` the ones that were reverted."""

    outcome: TurnResult
    tree: str
    paths: list[str]
    undone: list[str]
    facts: list[ev.Event]
    artifacts: list[Artifact]

    @property
    def text(self) -> str:
        return self.outcome.text if isinstance(self.outcome, TurnFinished) else ""

    def result(self, outcome: ev.Event) -> StepResult:
        return StepResult(events=[*self.facts, outcome], artifacts=self.artifacts)


# --- one step for each kind of answer ---------------------------------------------------------------------------


async def propose(context: RunContext, step: StepContext) -> StepResult:
    asked = await ask_role(context, step)
    failed = step.plan.one_of(ev.AttemptFailed, ev.RefactorFailed)
    if isinstance(asked.outcome, TurnFailed):
        return asked.result(failed(step=step.number, reason=asked.outcome.reason, why=truncate(asked.outcome.detail)))
    summary = first_line(asked.text)
    if not asked.paths and ev.NothingChanged in step.plan.outcomes and not asked.undone:
        return asked.result(ev.NothingChanged(step=step.number, summary=summary))
    if not asked.paths:
        why = no_change(asked, "changed nothing", context, step)
        return asked.result(failed(step=step.number, reason=Reason.NO_PROGRESS, why=why))
    return asked.result(
        ev.ChangeProposed(step=step.number, paths=ledger_paths(asked.paths), tree=asked.tree, summary=summary)
    )


async def review(context: RunContext, step: StepContext) -> StepResult:
    asked = await ask_role(context, step)
    if isinstance(asked.outcome, TurnFailed):
        why = truncate(asked.outcome.detail)
        return asked.result(ev.ReviewFailed(step=step.number, reason=asked.outcome.reason, why=why))
    return asked.result(_review_event(step.number, parse_review(asked.text)))


def no_change(asked: AskResult, what: str, context: RunContext, step: StepContext) -> str:
    """Return why nothing came of it, in the agent's own last words. A question parks the run, or is answered."""
    words = last_words(asked.text)
    if words.endswith("?") and not asked.undone:
        if not (answer := context.config.role(step.plan.role).answer):
            raise Parked(ev.RunParked(reason=ParkReason.QUESTION, detail=truncate(f"question: {words}")), asked.facts)
        return f"{what}; you asked: {words} The answer is: {answer}"
    undone = f"; writes outside its paths were undone: {', '.join(asked.undone)}" if asked.undone else ""
    return f"{what}{undone}; the last words of the agent: {words}" if words else f"{what}{undone}"


def last_words(text: str) -> str:
    """Return the end of an answer: its last paragraph, shortened."""
    paragraphs = [" ".join(part.split()) for part in text.strip().split("\n\n") if part.strip()]
    return paragraphs[-1][-LAST_WORDS_CHARS:] if paragraphs else ""


LAST_WORDS_CHARS = 300


def _review_event(number: int, review: Review | str) -> ev.Event:
    if isinstance(review, str):
        return ev.ReviewFailed(step=number, reason=Reason.AGENT_REFUSED, why=truncate(review))
    if review.verdict is Decision.APPROVED:
        return ev.ReviewApproved(step=number, summary=truncate(review.summary))
    findings = [truncate(prompts.finding_text(finding)) for finding in review.findings[:FINDINGS_MAX]]
    return ev.ChangesRequested(step=number, summary=truncate(review.summary), findings=findings)


# --- ask a role -------------------------------------------------------------------------------------------------------


async def ask_role(context: RunContext, step: StepContext, variant: Variant | None = None) -> AskResult:
    """Ask the role's agent, undo what it may not write, and record what it spent."""
    role = step.plan.role
    variant = variant or Variant(
        agent=context.agent(role, step.state), turn=context.ledger.turn(step.plan.action), spent=[]
    )
    name = f"step-{step.number}{variant.label}"
    text, delivered = await prompt_of(context, step, hint=variant.hint)
    shown = variant.sealing.withheld.clean(text) if variant.sealing else text
    prompt = await run_blocking(context.directory.put, f"prompts/{name}.md", shown.encode())
    outcome, facts = await call_agent(context, step, variant, text)
    facts = [*delivered, *facts]
    # In a sandbox no agent can move the branch: if it is moved, a person did that.
    undo = context.workspace.restore_branch if context.sandboxes.contains else context.workspace.put_branch_back
    await run_blocking(undo, step.state.head)
    if isinstance(outcome, TurnFailed):
        await run_blocking(context.workspace.reset, step.started.tree)
        if outcome.reason is Reason.MISCONFIGURED:  # asking again would fail again
            raise Parked(ev.RunFailed(reason=outcome.reason, detail=truncate(outcome.detail)), facts)
        if outcome.reason is Reason.QUESTION or FAULT[outcome.reason] is FaultOwner.PROVIDER:
            raise Parked(_parked(outcome, context.config.quota, variant.agent), facts)
    try:
        tree, paths, undone = await run_blocking(_confine, context, step)
        if undone:
            facts.append(ev.WritesUndone(step=step.number, role=role, paths=ledger_paths(undone)))
        if paths and (left := await run_blocking(_leave_out, context, step, paths)):
            facts.append(ev.FilesLeftOut(step=step.number, role=role, paths=ledger_paths(left)))
        if paths:  # what is tested from here on is what a checkout of the commit gives
            tree = await run_blocking(context.workspace.settle)
            paths = await run_blocking(context.workspace.changes, step.started.tree, tree)
    except (GitStalled, CommitDiffers) as refused:
        await run_blocking(context.workspace.reset, step.started.tree)
        tree, paths, undone, outcome = step.started.tree, [], [], unreadable_to_git(refused)
    answer = await _save_answer(context, step, outcome, name)
    # An author of sealed tests may reveal too much.
    if isinstance(outcome, TurnFinished) and not variant.sealing and (noted := noted_learning(outcome.text)):
        facts.append(ev.LearningNoted(step=step.number, role=role, content=noted))
    return AskResult(outcome=outcome, tree=tree, paths=paths, undone=undone, facts=facts, artifacts=[prompt, answer])


async def _save_answer(context: RunContext, step: StepContext, outcome: TurnResult, name: str) -> Artifact:
    text = outcome.text if isinstance(outcome, TurnFinished) else f"failed: {outcome.reason}: {outcome.detail}"
    entry = prompts.history_entry(step.number, step.plan.role, text)
    return await run_blocking(context.directory.put, f"{ANSWERS}{name}.md", entry.encode())


def _confine(context: RunContext, step: StepContext) -> tuple[str, list[str], list[str]]:
    """Undo what the role may not write; returns the tree, the remaining changes, and the undone ones."""
    removed = [f"{path} (git refuses the name)" for path in context.workspace.remove_refused()]
    before, tree = step.started.tree, context.workspace.checkpoint()
    changed = context.workspace.changes(before, tree)
    there = _existing_at_base(context, step, changed)
    undone = [path for path in changed if not _may_write(context, step, path, tree, exists=path in there)]
    undone = _without_inline_tests(context, step, changed, undone, tree)
    undone += context.ledger.lock([path for path in changed if path not in undone])
    refused = refused_content(context, before, tree, [path for path in changed if path not in undone])
    undone += refused
    if not undone:
        return tree, changed, removed
    context.workspace.restore(undone, before)
    tree = context.workspace.checkpoint()
    shown = [f"{path} ({refused[path]})" if path in refused else path for path in undone]
    return tree, context.workspace.changes(before, tree), [*shown, *removed]


def _without_inline_tests(
    context: RunContext, step: StepContext, changed: list[str], undone: list[str], tree: str
) -> list[str]:
    """Apply the rules for tests to tests inside source files: what a role may not write there is undone as well, and a
    role that writes tests may write those."""
    scope, writes = step.state.scope, step.plan.writes or default_writes(step.plan.role)
    mixed = [path for path in changed if not scope.is_test(path) and inline_tests.is_possible(path)]
    if writes not in (Writes.TESTS, Writes.SOURCE, Writes.ADDITIONS, Writes.PATHS) or not mixed:
        return undone
    origin = step.state.base_tree if writes is Writes.ADDITIONS else step.started.tree
    before, after = (_texts(context, side, mixed) for side in (origin, tree))
    if writes is Writes.TESTS:
        mine = {
            path
            for path in mixed
            if not scope.is_protected(path) and inline_tests.same_source(path, before[path], after[path])
        }
        return [path for path in undone if path not in mine]
    moved = sum((inline_tests.units(path, after[path]) for path in mixed if before[path] is None), Counter[str]())
    lost = {path for path in mixed if not inline_tests.keeps_tests(path, before[path], after[path], moved)}
    return [path for path in changed if path in undone or path in lost]


def _texts(context: RunContext, tree: str, paths: list[str]) -> dict[str, str | None]:
    found = context.workspace.read_all(tree, paths)
    return {path: None if (text := found.get(path)) is None else text.decode(errors="replace") for path in paths}


def _leave_out(context: RunContext, step: StepContext, paths: list[str]) -> list[str]:
    """Remove new files that nothing refers to: logs, output and scratch files that the agent left by accident."""
    before = context.workspace.read_all(step.started.tree, paths)
    tree = context.workspace.checkpoint()
    after = context.workspace.read_all(tree, paths)
    new = [path for path in paths if before.get(path) is None and is_suspicious(path)]
    kept = [content for path, content in after.items() if content and path not in new]
    texts = [context.item.spec, *(content.decode(errors="replace") for content in kept)]
    left = [path for path in new if not is_referred_to(path, texts) and not _is_named_at(context, step, path)]
    if left:
        context.workspace.restore(left, step.started.tree)
    return left


def _is_named_at(context: RunContext, step: StepContext, path: str) -> bool:
    return repository.mentions(context.repo, step.state.head, path.rpartition("/")[2])


def _existing_at_base(context: RunContext, step: StepContext, paths: list[str]) -> set[str]:
    """Return the paths that exist at the base, for a role that may only add files.

    Tests that an earlier step of this run added count as new.
    """
    if step.plan.writes is not Writes.ADDITIONS:
        return set()
    read = context.workspace.read_all(step.state.base_tree, paths)
    return {path for path in paths if read.get(path, b"") is not None}


def _may_write(context: RunContext, step: StepContext, path: str, after: str, *, exists: bool) -> bool:
    """Decide by path; for files that also configure the test runner, by the changed content."""
    plan, scope = step.plan, step.state.scope
    if not scope.may_write(plan.role, path, writes=plan.writes, paths=plan.act.paths, exists=exists):
        return False
    return not has_runner_settings(path) or not changes_runner_settings(
        path, context.workspace.read(step.started.tree, path), context.workspace.read(after, path)
    )


def _parked(outcome: TurnFailed, quota: QuotaConfig, agent: Agent) -> ev.RunParked:
    detail = truncate(f"{outcome.reason}: {outcome.detail}")
    if outcome.reason is Reason.AUTH:
        command = getattr(agent, "login_command", "") or f"log in to {agent.name}"
        return ev.RunParked(reason=ParkReason.LOGIN, detail=f"{detail}; log in with: {command}")
    if outcome.reason is Reason.QUESTION:
        return ev.RunParked(reason=ParkReason.QUESTION, detail=detail)
    if quota.resume == "ask":
        return ev.RunParked(reason=ParkReason.QUESTION, detail=f"{detail}; resume after {outcome.until or 'a while'}?")
    # A provider limit ends by itself: without a time from the provider, retry after `QUOTA_S`.
    until = outcome.until or format_timestamp(datetime.now(UTC) + timedelta(seconds=QUOTA_S))
    return ev.RunParked(reason=ParkReason.QUOTA, detail=detail, until=until if quota.resume == "auto" else "")
