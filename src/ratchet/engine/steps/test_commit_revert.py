"""test && commit || revert: run the tests, then commit the change or revert it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

import msgspec

from ratchet.core import events as ev
from ratchet.core import trailers
from ratchet.core.compare import Judgement, judge_green
from ratchet.core.compare import judge_fix as judge_progress
from ratchet.core.failure import RevertOutcome
from ratchet.core.learning import FINGERPRINTS_MAX, failure_fingerprint, report_fingerprints
from ratchet.core.receipt import Artifact, format_cost
from ratchet.core.report import GREEN, RED, Report, fingerprint, report_digest
from ratchet.core.sealed import SealedResult, sealed_result, without_sealed
from ratchet.engine.blocking import run_blocking
from ratchet.engine.sealed_vault import seal
from ratchet.engine.steps.context import RunContext, StepContext, StepResult, bounded_names, truncate
from ratchet.engine.steps.refused_content import reasons, refused_content
from ratchet.engine.steps.run_tests import load_report, run_tests, runner_changed
from ratchet.engine.steps.sealing import run_with_sealed, sealed_files
from ratchet.engine.steps.user_sealed import user_files, why_lost
from ratchet.errors import ArtifactBroken, CommitDiffers, WorkspaceChanged

Judge = Callable[[Report, Report, list[str]], Judgement]


async def judge(context: RunContext, step: StepContext) -> StepResult:
    """Keep the change if all target tests pass."""
    return await _commit_or_revert(context, step, judge_green)


async def judge_fix(context: RunContext, step: StepContext) -> StepResult:
    """Keep the change if at least one target test passes now."""
    return await _commit_or_revert(context, step, judge_progress)


async def _commit_or_revert(context: RunContext, step: StepContext, by: Judge) -> StepResult:
    """Commit or revert. A commit that was made before a crash is found by its key and not made again."""
    state = step.state
    reference, flaky = await load_report(context, state.reference), list[ev.Event]()
    if (found := await _committed(context, step)) is not None:
        commit, kept = found
        verdict = by(reference, await load_report(context, kept), state.red)
    else:
        tested = await _test(context, step, lambda report: by(reference, report, state.red))
        kept, verdict = tested.kept, tested.verdict
        if not verdict.ok:
            return await _revert(context, step, tested, _failures(reference, tested.report))
        tools = await run_blocking(context.checks.tool_digests, context.workspace.path)
        if why := runner_changed(state.tools, tools) or await run_blocking(_refused, context, step):
            changed = Judgement(ok=False, why=why, outcome=RevertOutcome.GATE)
            return await _revert(context, step, msgspec.structs.replace(tested, verdict=changed), [])
        flaky = _flaky(step, tested.report)
        try:
            commit = await _commit(context, step, tested.report, verdict)
        except CommitDiffers as differs:
            lossy = Judgement(ok=False, why=differs.message, outcome=RevertOutcome.GATE)
            return await _revert(context, step, msgspec.structs.replace(tested, verdict=lossy), [])
    assert state.proposal
    committed = ev.StepCommitted(
        step=step.number,
        commit=commit,
        parent=state.head,
        subject=state.proposal.summary,
        tests=verdict.tests,
        report=kept,
        tree=step.started.tree,
        sealed_report=await _sealed_report(context, step),
    )
    return StepResult(
        events=[*flaky, committed], artifacts=[kept, *([committed.sealed_report] if committed.sealed_report else [])]
    )


class Tested(msgspec.Struct, frozen=True, kw_only=True):
    """`report` is what may be shown: without the sealed tests."""

    report: Report
    kept: Artifact
    verdict: Judgement
    disclosed: int = 0


async def _test(context: RunContext, step: StepContext, by: Callable[[Report], Judgement]) -> Tested:
    """Run all tests, with the sealed ones in a fork. If that is not green, the open tests say which side failed."""
    mine, theirs = await user_files(context, step), await sealed_files(context, step.state.sealed)
    whole = await run_with_sealed(context, step.started.tree, mine | theirs) if mine or theirs else None
    lost = await why_lost(context, step, whole, mine) if whole else ""
    if whole:
        whole = without_sealed(whole, mine.keys() - theirs.keys())
    if whole and by(whole).ok and not lost and (not theirs or sealed_result(whole, theirs).ok):
        return await _all_green(context, step, whole, theirs, by)
    report, kept = await run_tests(context, step.started)
    verdict = by(report)
    if whole and verdict.ok and lost:
        verdict = Judgement(ok=False, why=lost, outcome=RevertOutcome.OVERFITTED)
    elif whole and verdict.ok:
        verdict = _disagreement(step, by(without_sealed(whole, theirs)), sealed_result(whole, theirs))
    return Tested(report=report, kept=kept, verdict=verdict, disclosed=int(verdict.why == lost != ""))


async def _all_green(
    context: RunContext, step: StepContext, whole: Report, sealed: dict[str, bytes], by: Callable[[Report], Judgement]
) -> Tested:
    report = without_sealed(whole, sealed) if sealed else whole
    if sealed:
        encoded = {_REPORT: msgspec.json.encode(whole)}
        await run_blocking(seal, context.directory, sealed_report_name(step.number), encoded)
    kept = await run_blocking(context.directory.put, report_name(step.number), msgspec.json.encode(report))
    return Tested(report=report, kept=kept, verdict=by(report))


def _disagreement(step: StepContext, others: Judgement, sealed: SealedResult) -> Judgement:
    """Return why the change is refused: the open tests pass alone, and not all pass together with the sealed ones."""
    if sealed.ok and not others.ok:
        return others
    why = f"the change does not generalise: {step.state.requirement or 'the requirement'}: {sealed}"
    return Judgement(ok=False, why=why, outcome=RevertOutcome.OVERFITTED)


_REPORT = "report.json"


def report_name(step: int) -> str:
    return f"reports/step-{step}.json"


def sealed_report_name(step: int) -> str:
    return f"step-{step}-report"


async def _sealed_report(context: RunContext, step: StepContext) -> Artifact | None:
    """Return the report with the sealed tests: stored before the commit, so it is there after a crash too."""
    if not step.state.sealed:
        return None
    name = f"sealed/{sealed_report_name(step.number)}.bin"
    return await run_blocking(_stored, context, name)


def _stored(context: RunContext, name: str) -> Artifact:
    path = context.directory.latest(name)
    if path is None:
        raise ArtifactBroken(f"the sealed report is missing: {name}", path=name)
    content = path.read_bytes()
    found = path.relative_to(context.directory.path).as_posix()
    return Artifact(path=found, sha256=hashlib.sha256(content).hexdigest(), size=len(content))


async def load_sealed_report(context: RunContext, artifact: Artifact) -> Report:
    files = await sealed_files(context, artifact)
    return msgspec.json.decode(files[_REPORT], type=Report)


def _refused(context: RunContext, step: StepContext) -> str:
    """Return why the tree may not be committed: it holds a secret, or a link that leads out of it."""
    before, tree = step.state.base_tree, step.started.tree
    return reasons(refused_content(context, before, tree, context.workspace.changes(before, tree)))


async def _committed(context: RunContext, step: StepContext) -> tuple[str, Artifact] | None:
    head, name = step.state.head, report_name(step.number)
    commit = await run_blocking(context.workspace.find_commit, step.started.key, since=head)
    differing: list[str] = []
    if commit:
        differing = await run_blocking(context.workspace.differing_paths, commit, step.started.tree)
    if differing:
        commit = None  # not the announced tree, so not ours: judge again
    await run_blocking(context.workspace.restore_branch, commit or head)
    if commit is None:
        return None
    path = context.directory.latest(name)
    if path is None:
        raise ArtifactBroken(f"the report of {commit[:12]} is missing: {name}", path=name)
    await run_blocking(context.workspace.follow, commit)
    content = path.read_bytes()  # written durably before the commit, so it belongs to it
    return commit, await run_blocking(context.directory.put, name, content)


async def _commit(context: RunContext, step: StepContext, report: Report, verdict: Judgement) -> str:
    state = step.state
    assert state.proposal
    was_red = fingerprint(await load_report(context, state.red_report), verdict.tests) if verdict.tests else ""
    proof = trailers.Proof(
        run=context.directory.path.name,
        key=step.started.key,
        role=state.proposer,
        agent=state.proposed_by,
        tests=tuple(verdict.tests),
        red=was_red,
        green=report_digest(report),
        cost=format_cost(state.uncommitted_usage, priced=state.uncommitted_priced),
        ledger=context.ledger.anchor,
    )
    message = trailers.commit_message(state.proposal.summary or f"{step.plan.action} {context.item.title}", "", proof)
    return await _commit_judged(context, step, message)


async def _commit_judged(context: RunContext, step: StepContext, message: str) -> str:
    """Commit the tree that was tested. Files that were written since are removed first, twice at most."""
    for last in (False, False, True):
        try:
            return await run_blocking(
                context.workspace.commit,
                tree=step.started.tree,
                message=message,
                parent=step.state.head,
                at=step.at,
            )
        except WorkspaceChanged:
            if last:
                raise
            await run_blocking(context.workspace.reset, step.started.tree)
    raise AssertionError("unreachable")


async def _revert(context: RunContext, step: StepContext, tested: Tested, failures: list[str]) -> StepResult:
    verdict = tested.verdict
    state = step.state
    kind = step.plan.one_of(ev.StepReverted, ev.RefactorReverted, ev.RevisionReverted)
    await run_blocking(context.workspace.reset, state.before)
    paths = state.proposal.paths if state.proposal else []
    reverted = kind(
        step=step.number,
        why=truncate(verdict.why),
        paths=paths,
        tree=state.before,
        outcome=verdict.outcome,
        disclosed=tested.disclosed,
        failures=failures or [failure_fingerprint(str(verdict.outcome), verdict.why, "")],
    )
    return StepResult(events=[*_flaky(step, tested.report), reverted], artifacts=[tested.kept])


def _failures(reference: Report, report: Report) -> list[str]:
    """Return the fingerprints of the failures that the change has made, and of those that it has left."""
    known = {test.id for test in reference.tests if test.status in RED}
    new = {test.id for test in report.tests if test.status in RED} - known
    found = [*report_fingerprints(report, new), *report_fingerprints(report, known)]
    return list(dict.fromkeys(found))[:FINGERPRINTS_MAX]


def _flaky(step: StepContext, report: Report) -> list[ev.Event]:
    """Tests that the runner itself repeated until they passed."""
    flaky = bounded_names([test.id for test in report.tests if test.attempts > 1 and test.status in GREEN])
    return [ev.FlakyTestsFound(step=step.number, tests=flaky)] if flaky else []
