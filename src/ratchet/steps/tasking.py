"""Whether a task is finished: its `Verify:` command says so, run by the factory."""

from __future__ import annotations

from ratchet.core import events as ev
from ratchet.process import confined, hint_for_shell
from ratchet.steps.work import Doing, Done, Work, clip, cross, fresh
from ratchet.supervision import supervise


async def check_task(work: Work, doing: Doing) -> Done:
    """Without a command a task is finished when a change for it was kept: the tests are green with it."""
    state = doing.state
    task = next(task for task in state.tasks if task.id == state.task)
    if task.verify:
        why = await _verify(work, doing, task.verify)
        how = f"verified: {task.verify}"
    else:
        why = "" if _kept(doing) else "nothing was changed, and there is no Verify: command to show it was done before"
        how = "a change was kept, all tests green"
    if why:
        return Done(events=[ev.TaskUnfinished(step=doing.number, task=task.id, why=clip(why))])
    return Done(events=[ev.TaskFinished(step=doing.number, task=task.id, how=how)])


def _kept(doing: Doing) -> bool:
    return doing.state.green_tree != doing.state.task_tree


async def _verify(work: Work, doing: Doing, command: str) -> str:
    """Why it does not hold. The command is the spec's, written for a shell; its sandbox is that of the tests."""
    log = fresh(work.directory.log_path(f"step-{doing.number}-verify.log"))
    timeout_s = work.config.test.timeout_s
    with confined(work.sandboxes.for_tests()):
        ended = await supervise(
            ["sh", "-c", command], cwd=work.workspace.path, env=work.surroundings(), output=log, timeout_s=timeout_s
        )
    await cross(work.workspace.reset, doing.started.tree)
    if ended.exit_code == 0 and not ended.timed_out:
        return ""
    said = log.read_bytes()[-1000:].decode(errors="replace").strip()
    how = f"no end after {timeout_s:.0f} s" if ended.timed_out else f"exit {ended.exit_code}"
    return f"Verify: {command} ({how}): {said}{hint_for_shell(ended.exit_code, said)}"
