"""Complete a verified commit: add the sealed tests that it passed, and the doubts that no judge decided.

Until the gates have passed, the commit holds neither, because a gate may still revert it. The completed commit replaces
the verified one.
"""

from __future__ import annotations

import msgspec

from ratchet.core import events as ev
from ratchet.core import trailers
from ratchet.core.report import report_digest
from ratchet.core.sealed import sealed_result
from ratchet.core.state import KeptCommit
from ratchet.engine.blocking import run_blocking
from ratchet.engine.steps.context import RunContext, StepContext
from ratchet.engine.steps.sealing import lay_over, sealed_files
from ratchet.engine.steps.test_commit_revert import load_sealed_report
from ratchet.workspace.git import repository

DOUBTS_MAX, DOUBT_CHARS = 10, 300


async def complete(context: RunContext, step: StepContext, doubts: list[str]) -> ev.Completion | None:
    """Replace the last commit by the completed one; None when there is nothing to add."""
    state = step.state
    doubts = [" ".join(doubt.split())[:DOUBT_CHARS] for doubt in doubts[:DOUBTS_MAX]]
    if not (state.sealed_report or doubts):
        return None
    last = state.commits[-1]
    await run_blocking(context.workspace.restore_branch, last.commit)
    made, message = await _prepare(context, step, doubts)
    commit = await run_blocking(
        context.workspace.commit,
        tree=made.tree,
        message=message,
        parent=last.parent,
        at=step.at,
        replaces=last.commit,
    )
    return msgspec.structs.replace(made, commit=commit)


async def completed_before(context: RunContext, step: StepContext) -> ev.Completion | None:
    """Return the completion that was committed before a crash: its gates had passed."""
    last, tip = step.state.commits[-1], await run_blocking(context.workspace.tip)
    if tip in (last.commit, last.parent, ""):
        return None
    found, ours = await run_blocking(_proof_of, context, tip), await run_blocking(_proof_of, context, last.commit)
    if not (found and ours and found.key == ours.key and (found.sealed or found.doubts)):
        return None
    made, _ = await _prepare(context, step, list(found.doubts))
    if await run_blocking(context.workspace.differing_paths, tip, made.tree):
        return None
    return msgspec.structs.replace(made, commit=tip)


async def _prepare(context: RunContext, step: StepContext, doubts: list[str]) -> tuple[ev.Completion, str]:
    """Make the workspace the completed tree; returns the completion and the commit's message."""
    state, last = step.state, step.state.commits[-1]
    await run_blocking(context.workspace.reset, step.started.tree)
    proof = await run_blocking(_proof_of, context, last.commit)
    assert proof
    made = ev.Completion(commit=last.commit, tree=step.started.tree, doubts=doubts)
    if state.sealed_report:
        made, proof = await _with_sealed(context, step, made, proof)
    proof = msgspec.structs.replace(proof, doubts=tuple(doubts))
    return made, trailers.commit_message(_subject(context, last), "", proof)


async def _with_sealed(
    context: RunContext, step: StepContext, made: ev.Completion, proof: trailers.Proof
) -> tuple[ev.Completion, trailers.Proof]:
    assert step.state.sealed_report
    files = await sealed_files(context, step.state.sealed)
    report = await load_sealed_report(context, step.state.sealed_report)
    await run_blocking(lay_over, context.workspace.path, files)
    tree = await run_blocking(context.workspace.settle)
    name = f"reports/step-{step.number}-sealed.json"
    kept = await run_blocking(context.directory.put, name, msgspec.json.encode(report))
    passed = sealed_result(report, files).passed
    proof = msgspec.structs.replace(
        proof, sealed=str(passed), sealed_files=tuple(sorted(files)), green=report_digest(report)
    )
    return msgspec.structs.replace(made, tree=tree, report=kept, sealed=passed), proof


def _proof_of(context: RunContext, commit: str) -> trailers.Proof | None:
    return trailers.parse_proof(repository.message_of(context.repo, commit))


def _subject(context: RunContext, kept: KeptCommit) -> str:
    return repository.message_of(context.repo, kept.commit).partition("\n")[0]
