"""test && commit || revert, done by the factory."""

from __future__ import annotations

from ratchet.core import events as ev
from ratchet.core import trailers
from ratchet.core.compare import judge_green
from ratchet.core.receipt import Artifact
from ratchet.core.report import Report, digest
from ratchet.core.roles import Role
from ratchet.core.state import Phase
from ratchet.errors import ArtifactBroken
from ratchet.steps.testing import report_in, run_tests
from ratchet.steps.work import Doing, Done, Work, clip, cross


async def judge(work: Work, doing: Doing) -> Done:
    """A commit that is already there, from before a crash, is not made again."""
    state = doing.state
    red = state.red if doing.phase is Phase.JUDGE else []
    if (found := await _committed(work, doing)) is not None:
        commit, kept = found
    else:
        report, kept = await run_tests(work, doing.started)
        verdict = judge_green(await report_in(work, state.reference), report, red)
        if not verdict.ok:
            return await _revert(work, doing, clip(verdict.why), kept)
        commit = await _commit(work, doing, report)
    assert state.proposal
    committed = ev.StepCommitted(
        step=doing.number,
        commit=commit,
        parent=state.head,
        subject=state.proposal.summary,
        tests=red,
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


async def _commit(work: Work, doing: Doing, report: Report) -> str:
    state = doing.state
    asked_by = Role.ARCHITECT if doing.phase is Phase.JUDGE_REFACTOR else Role.IMPLEMENTER
    assert state.proposal
    feature = doing.phase is Phase.JUDGE
    proof = trailers.Proof(
        run=work.directory.path.name,
        key=doing.started.key,
        role=asked_by,
        agent=work.agents(asked_by).name,
        tests=tuple(state.red) if feature else (),
        red=state.fingerprint if feature else "",
        green=digest(report),
        cost=f"{state.uncommitted_usage.cost_usd:.4f} USD",
    )
    message = trailers.message(state.proposal.summary or f"{doing.step.action} {work.item.title}", "", proof)
    return await cross(work.workspace.commit, message=message, parent=state.head, at=doing.at)


async def _revert(work: Work, doing: Doing, why: str, kept: Artifact) -> Done:
    state = doing.state
    kind, tree = {
        Phase.JUDGE: (ev.StepReverted, state.red_tree),
        Phase.JUDGE_REFACTOR: (ev.RefactorReverted, state.green_tree),
        Phase.JUDGE_REVISION: (ev.RevisionReverted, state.green_tree),
    }[doing.phase]
    await cross(work.workspace.reset, tree)
    paths = state.proposal.paths if state.proposal else []
    return Done(events=[kind(step=doing.number, why=why, paths=paths, tree=tree)], artifacts=[kept])
