"""test && commit || revert, done by the factory."""

from __future__ import annotations

from collections.abc import Callable

from ratchet.core import events as ev
from ratchet.core import trailers
from ratchet.core.compare import Verdict, judge_green
from ratchet.core.compare import judge_fix as judge_progress
from ratchet.core.receipt import Artifact
from ratchet.core.report import Report, digest, fingerprint
from ratchet.errors import ArtifactBroken
from ratchet.steps.testing import report_in, run_tests, runner_changed
from ratchet.steps.work import Doing, Done, Work, clip, cross

Judge = Callable[[Report, Report, list[str]], Verdict]


async def judge(work: Work, doing: Doing) -> Done:
    """Everything that was to be made green is."""
    return await _kept_or_reverted(work, doing, judge_green)


async def judge_fix(work: Work, doing: Doing) -> Done:
    """Something of it is."""
    return await _kept_or_reverted(work, doing, judge_progress)


async def _kept_or_reverted(work: Work, doing: Doing, by: Judge) -> Done:
    """A commit that is already there, from before a crash, is not made again."""
    state = doing.state
    reference = await report_in(work, state.reference)
    if (found := await _committed(work, doing)) is not None:
        commit, kept = found
        verdict = by(reference, await report_in(work, kept), state.red)
    else:
        report, kept = await run_tests(work, doing.started)
        verdict = by(reference, report, state.red)
        why = verdict.why or runner_changed(state.tools, await cross(work.checks.tools, work.workspace.path))
        if why:
            return await _revert(work, doing, clip(why), kept)
        commit = await _commit(work, doing, report, verdict)
    assert state.proposal
    committed = ev.StepCommitted(
        step=doing.number,
        commit=commit,
        parent=state.head,
        subject=state.proposal.summary,
        tests=verdict.tests,
        report=kept,
        tree=doing.started.tree,
    )
    return Done(events=[committed], artifacts=[kept])


async def _committed(work: Work, doing: Doing) -> tuple[str, Artifact] | None:
    head, name = doing.state.head, f"reports/step-{doing.number}.json"
    commit = await cross(work.workspace.find_commit, doing.started.key, since=head)
    await cross(work.workspace.hold, commit or head)
    if commit is None:
        return None
    path = work.directory.path / name
    if not path.is_file():
        raise ArtifactBroken(f"the report of {commit[:12]} is gone: {path}", path=str(path))
    await cross(work.workspace.follow, commit)
    content = path.read_bytes()  # durable before the commit was made, so it is the one that went with it
    return commit, await cross(work.directory.put, name, content)


async def _commit(work: Work, doing: Doing, report: Report, verdict: Verdict) -> str:
    state = doing.state
    assert state.proposal
    was_red = fingerprint(await report_in(work, state.red_report), verdict.tests) if verdict.tests else ""
    proof = trailers.Proof(
        run=work.directory.path.name,
        key=doing.started.key,
        role=state.proposer,
        agent=state.proposed_by,
        tests=tuple(verdict.tests),
        red=was_red,
        green=digest(report),
        cost=f"{state.uncommitted_usage.cost_usd:.4f} USD",
    )
    message = trailers.message(state.proposal.summary or f"{doing.step.action} {work.item.title}", "", proof)
    return await cross(work.workspace.commit, message=message, parent=state.head, at=doing.at)


async def _revert(work: Work, doing: Doing, why: str, kept: Artifact) -> Done:
    state = doing.state
    kind = doing.step.one_of(ev.StepReverted, ev.RefactorReverted, ev.RevisionReverted)
    await cross(work.workspace.reset, state.before)
    paths = state.proposal.paths if state.proposal else []
    return Done(events=[kind(step=doing.number, why=why, paths=paths, tree=state.before)], artifacts=[kept])
