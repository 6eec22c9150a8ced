"""Decide whether a task is finished: run its `Verify:` command, and in the end those of all finished tasks again."""

from __future__ import annotations

from ratchet.core import events as ev
from ratchet.engine.steps.context import RunContext, StepContext, StepResult, fresh_context, new_log, truncate
from ratchet.process.spawn import confined, missing_python_hint
from ratchet.process.supervise import supervise


async def check_task(context: RunContext, step: StepContext) -> StepResult:
    """Run the task's command. Without one, a task is finished when a change was kept for it, with all tests green."""
    state = step.state
    task = next(task for task in state.tasks if task.id == state.task)
    if task.verify:
        why = await _verify(context, step, task.verify)
        how = f"verified: {task.verify}"
    else:
        why = "" if _kept(step) else "nothing was changed, and no Verify: command shows that the task was already done"
        how = "a change was kept, all tests green"
    if why:
        return StepResult(events=[ev.TaskUnfinished(step=step.number, task=task.id, why=truncate(why))])
    return StepResult(events=[ev.TaskFinished(step=step.number, task=task.id, how=how)])


def _kept(step: StepContext) -> bool:
    return step.state.green_tree != step.state.task_tree


async def why_undone(context: RunContext, step: StepContext) -> str:
    """Return which finished task a later change has undone; an empty string when all still hold."""
    finished = [task for task in step.state.tasks if task.id in step.state.finished and task.verify]
    for task in finished:
        if why := await _verify(context, step, task.verify):
            return f"{task.id} was finished and no longer is: {why}"
    return ""


async def _verify(context: RunContext, step: StepContext, command: str) -> str:
    """Run the command in a shell, on the last kept tree; returns why it failed, or an empty string."""
    log = new_log(context.directory.log_path(f"step-{step.number}-verify.log"))
    timeout_s, state = context.config.test.timeout_s, step.state
    async with fresh_context(context, "-check", tree=state.green_tree, head=state.head) as fresh:
        with confined(fresh.sandboxes.for_tests()):
            ended = await supervise(
                ["sh", "-c", command],
                cwd=fresh.workspace.path,
                env=fresh.workspace_environment(),
                output=log,
                timeout_s=timeout_s,
            )
    if ended.exit_code == 0 and not ended.timed_out:
        return ""
    output = log.read_bytes()[-1000:].decode(errors="replace").strip()
    how = f"timed out after {timeout_s:.0f} s" if ended.timed_out else f"exit {ended.exit_code}"
    return f"Verify: {command} ({how}): {output}{missing_python_hint(ended.exit_code, output)}"
