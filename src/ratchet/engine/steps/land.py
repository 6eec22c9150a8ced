"""The last step: leave the result on its branch, with people's sealed tests if they are to land."""

from __future__ import annotations

from ratchet.core import events as ev
from ratchet.engine.blocking import run_blocking
from ratchet.engine.steps.context import RunContext, StepContext, StepResult
from ratchet.engine.steps.sealing import lay_over
from ratchet.engine.steps.user_sealed import user_files


async def land(context: RunContext, step: StepContext) -> StepResult:
    """Make sure that the branch is at the commit that the ledger names."""
    state = step.state
    assert state.started
    await run_blocking(context.workspace.restore_branch, state.head)
    head = await _with_sealed(context, step) if context.config.sealed.land and state.sealed_laid else state.head
    landed = ev.Landed(step=step.number, how="branch", branch=state.started.branch, head=head)
    return StepResult(events=[landed])


async def _with_sealed(context: RunContext, step: StepContext) -> str:
    """Commit people's sealed tests on top; the commit is the same when the step is repeated."""
    await run_blocking(context.workspace.reset, step.state.green_tree)
    await run_blocking(lay_over, context.workspace.path, await user_files(context, step))
    tree = await run_blocking(context.workspace.settle)
    message = f"Add the sealed tests that this passed\n\nRatchet-Run: {step.state.run}\n"
    return await run_blocking(context.workspace.commit, tree=tree, message=message, parent=step.state.head, at=step.at)
