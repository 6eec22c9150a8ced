"""Steps that ask an agent: what is asked, what of the answer stays, and what it means."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import msgspec

from ratchet.agents import Answered, Failed, Finished
from ratchet.config import QuotaConfig
from ratchet.core import events as ev
from ratchet.core import prompts
from ratchet.core.failure import FAULT, Fault, Reason
from ratchet.core.item import ParkReason
from ratchet.core.receipt import Artifact
from ratchet.core.roles import Writes
from ratchet.core.runner_settings import says_how_tests_run, touches_runner
from ratchet.core.verdict import Decision, Review, read_review, requirements_complete
from ratchet.steps.conversing import Variant, converse
from ratchet.steps.prompting import prompt_of
from ratchet.steps.work import Doing, Done, Parked, Work, clip, cross, first_line, shown
from ratchet.store.database import stamp
from ratchet.store.rundir import ANSWERS

FINDINGS_MAX = 50
QUOTA_S = 300.0


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """What came of asking: `paths` are the changes the role was allowed to make."""

    outcome: Answered
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
    # The auditor's word is no gate either: its own test has shown that something is missing.
    given_back = ", ".join(doing.state.given_back)
    if requirements_complete(asked.text) and not given_back:
        return asked.done(ev.RequirementsMet(step=step, summary=summary))
    why = _nothing(asked, "wrote no test and did not say that the requirements are complete")
    if given_back:
        why = (
            f"{given_back} was rightly red and given back, and nothing was made green since: write another test for it"
        )
    return asked.done(ev.AuditFailed(step=step, reason=Reason.NO_PROGRESS, why=why))


async def propose(work: Work, doing: Doing) -> Done:
    asked = await ask(work, doing)
    failed = doing.step.one_of(ev.AttemptFailed, ev.RefactorFailed)
    if isinstance(asked.outcome, Failed):
        return asked.done(failed(step=doing.number, reason=asked.outcome.reason, why=clip(asked.outcome.detail)))
    summary = first_line(asked.text)
    if not asked.paths and ev.NothingChanged in doing.step.outcomes and not asked.undone:
        return asked.done(ev.NothingChanged(step=doing.number, summary=summary))
    if not asked.paths:
        why = _nothing(asked, "changed nothing")
        return asked.done(failed(step=doing.number, reason=Reason.NO_PROGRESS, why=why))
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


async def ask(work: Work, doing: Doing, variant: Variant | None = None) -> Asked:
    """Ask the role's agent; what it may not write is undone, what it spent is metered."""
    role = doing.step.role
    variant = variant or Variant(agent=work.agent(role, doing.state), turn=work.turn(doing.step.action), spent=[])
    name = f"step-{doing.number}{variant.label}"
    text = await prompt_of(work, doing, hint=variant.hint)
    prompt = await cross(work.directory.put, f"prompts/{name}.md", text.encode())
    outcome, facts = await converse(work, doing, variant, text)
    await cross(work.workspace.hold, doing.state.head)
    if isinstance(outcome, Failed):
        await cross(work.workspace.reset, doing.started.tree)
        if outcome.reason is Reason.QUESTION or FAULT[outcome.reason] is Fault.PROVIDER:
            raise Parked(_parked(outcome, work.config.quota), facts)
    tree, paths, undone = await cross(_confine, work, doing)
    if undone:
        facts.append(ev.WritesUndone(step=doing.number, role=role, paths=shown(undone)))
    answer = await _kept_answer(work, doing, outcome, name)
    return Asked(outcome=outcome, tree=tree, paths=paths, undone=undone, facts=facts, artifacts=[prompt, answer])


async def _kept_answer(work: Work, doing: Doing, outcome: Answered, name: str) -> Artifact:
    said = outcome.text if isinstance(outcome, Finished) else f"failed: {outcome.reason}: {outcome.detail}"
    entry = prompts.history_entry(doing.number, doing.step.role, said)
    return await cross(work.directory.put, f"{ANSWERS}{name}.md", entry.encode())


def _confine(work: Work, doing: Doing) -> tuple[str, list[str], list[str]]:
    """Undo what the role may not write; returns the tree, the changes that stay, and those undone."""
    before, tree = doing.started.tree, work.workspace.checkpoint()
    changed = work.workspace.changes(before, tree)
    there = _at_the_base(work, doing, changed)
    undone = [path for path in changed if not _may_write(work, doing, path, tree, exists=path in there)]
    undone += work.lock([path for path in changed if path not in undone])
    if not undone:
        return tree, changed, []
    work.workspace.restore(undone, before)
    tree = work.workspace.checkpoint()
    return tree, work.workspace.changes(before, tree), undone


def _at_the_base(work: Work, doing: Doing, paths: list[str]) -> set[str]:
    """For who may only add. New is what is new since the run began: a test kept by an earlier step is its author's."""
    if doing.step.writes is not Writes.ADDITIONS:
        return set()
    read = work.workspace.read_all(doing.state.base_tree, paths)
    return {path for path in paths if read.get(path, b"") is not None}


def _may_write(work: Work, doing: Doing, path: str, after: str, *, exists: bool) -> bool:
    """By its path, and for files that also say how tests are run, by what was changed in them."""
    step, scope = doing.step, doing.state.scope
    if not scope.may_write(step.role, path, writes=step.writes, paths=step.act.paths, exists=exists):
        return False
    return not says_how_tests_run(path) or not touches_runner(
        path, work.workspace.read(doing.started.tree, path), work.workspace.read(after, path)
    )


def _parked(outcome: Failed, quota: QuotaConfig) -> ev.RunParked:
    detail = clip(f"{outcome.reason}: {outcome.detail}")
    if outcome.reason in (Reason.AUTH, Reason.QUESTION):
        return ev.RunParked(reason=ParkReason.QUESTION, detail=detail)
    if quota.resume == "ask":
        return ev.RunParked(reason=ParkReason.QUESTION, detail=f"{detail}; resume after {outcome.until or 'a while'}?")
    # Waiting for a provider ends by itself: one that does not say when is asked again after a while.
    until = outcome.until or stamp(datetime.now(UTC) + timedelta(seconds=QUOTA_S))
    return ev.RunParked(reason=ParkReason.QUOTA, detail=detail, until=until if quota.resume == "auto" else "")
