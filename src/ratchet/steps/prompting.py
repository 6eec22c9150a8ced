"""What an ask is told: everything its template may name, read from the run as it stands."""

from __future__ import annotations

from ratchet.core import prompts
from ratchet.core.packet import packet
from ratchet.core.tasks import Task
from ratchet.steps.testing import report_in
from ratchet.steps.work import Doing, Work, cross


async def prompt_of(work: Work, doing: Doing, *, hint: str = "") -> str:
    step, state = doing.step, doing.state
    template = work.prompts(step.act.prompt or step.action)
    wanted = prompts.names_in(template)
    task = next((task for task in state.tasks if task.id == state.task), None)
    facts = {
        "spec": work.item.spec,
        "title": work.item.title,
        "task": _told(task),
        "verify": task.verify if task else "",
        "failures": await _failures(work, doing) if "failures" in wanted else "",
        "findings": _listed(step.inputs.get("findings", [])),
        "feedback": _listed(step.inputs.get("feedback", [])),
        "commits": _listed([kept.subject for kept in state.commits]),
        "finished": _listed(state.finished),
        "diff": await _diff(work, doing) if "diff" in wanted else "",
        "hint": hint,
        "learnings": _listed(await cross(work.learnings, work.item.title)) if "learnings" in wanted else "",
        "spec_path": state.scope.spec,
        "history": await cross(_history, work) if step.act.history and "history" in wanted else "",
    }
    return prompts.render(template, prompts.fitted(template, facts, work.config.role(step.role).prompt_tokens))


def _told(task: Task | None) -> str:
    return f"{task.id}: {task.title}\n\n{task.body}".strip() if task else ""


def _listed(texts: list[str]) -> str:
    return "\n".join(f"- {text}" for text in texts)


async def _failures(work: Work, doing: Doing) -> str:
    state = doing.state
    if state.packet:
        return (await cross(work.directory.get, state.packet)).decode()
    return packet(await report_in(work, state.red_report), only=state.red) if state.red_report else ""


async def _diff(work: Work, doing: Doing) -> str:
    state = doing.state
    return await cross(work.workspace.diff, state.task_tree or state.base_tree, state.green_tree)


def _history(work: Work) -> str:
    return prompts.recent(work.history(), work.config.history_tokens)
