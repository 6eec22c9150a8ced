"""Fill in a prompt template with the values of the run."""

from __future__ import annotations

import shlex

from ratchet.checks.detect.rerun import rerun_command
from ratchet.checks.protocol import Target
from ratchet.core import events as ev
from ratchet.core import prompts
from ratchet.core.packet import packet
from ratchet.core.roles import Writes
from ratchet.core.tasks import Task
from ratchet.engine.blocking import run_blocking
from ratchet.engine.run_setup import recorded_targets
from ratchet.engine.steps.context import RunContext, StepContext
from ratchet.engine.steps.delivery import Delivery, deliver
from ratchet.engine.steps.run_tests import load_report

TEST_PATHS_MAX = 20
_ALL_OTHERS = "Changes to any other file are undone."
MAY_WRITE = {
    Writes.NOTHING: "You may write nothing. Any change to a file is undone.",
    Writes.TESTS: f"You may write test files only. {_ALL_OTHERS}",
    Writes.SOURCE: f"You may write source files only, no tests, test configuration or spec. {_ALL_OTHERS}",
    Writes.ADDITIONS: "You may write source files, and tests in new test files. Changes to tests that existed before "
    "this run, to the test configuration or to the spec are undone.",
    Writes.SPEC: f"You may write the spec only. {_ALL_OTHERS}",
    Writes.PATHS: f"You may write only the files of your role. {_ALL_OTHERS}",
}

SEALED = """\
- Besides the open test file, write a sealed one for the same requirement: a new test file whose name contains the word
  `sealed`, such as `test_total_sealed.py`, `total_sealed_test.go` or `total.sealed.test.ts`.
- It tests the same behaviour with other examples: other inputs and values, the edges, a property where there is one. It
  needs nothing from the open file, and must fail now for the same reason.
- The implementer sees the open file only. A change that passes it and fails the sealed one is reverted. So the sealed
  examples follow from the spec and from the open test, and a correct implementation passes them.
- Your answer is passed on to the implementer: name nothing of the sealed file in it."""


async def prompt_of(context: RunContext, step: StepContext, *, hint: str = "") -> tuple[str, list[ev.Event]]:
    """Return the prompt of a step, shortened to the role's token limit, and the learnings delivered in it. Reads only
    values that the template names."""
    plan, state = step.plan, step.state
    template = context.agents.prompts[plan.act.prompt or plan.action]
    wanted = prompts.placeholders_in(template)
    task = next((task for task in state.tasks if task.id == state.task), None)
    delivery = await deliver(context, step) if "learnings" in wanted else Delivery()
    values = {
        "spec": context.item.spec,
        "title": context.item.title,
        "task": _task_text(task),
        "verify": task.verify if task else "",
        "failures": await _failures(context, step) if "failures" in wanted else "",
        "findings": bullets(plan.inputs.get("findings", [])),
        "feedback": bullets(plan.inputs.get("feedback", [])),
        "commits": bullets([kept.subject for kept in state.commits]),
        "finished": bullets(state.finished),
        "diff": await _diff(context, step) if "diff" in wanted else "",
        "hint": hint,
        "learnings": bullets(delivery.prompt),
        "sealed": SEALED if state.started and state.started.sealed else "",
        "may_write": MAY_WRITE[plan.writes],
        "spec_path": state.scope.spec,
        "history": await run_blocking(_history, context) if plan.act.history and "history" in wanted else "",
        "test_commands": await _test_commands(context, step) if "test_commands" in wanted else "",
        "test_paths": bullets([f"`{glob}`" for glob in state.scope.tests[:TEST_PATHS_MAX]]),
    }
    _put_beside_failure(values, delivery.packet)
    messages = _messages(state.messages)
    tokens = context.config.role(plan.role).prompt_tokens - len(messages) // prompts.CHARS_A_TOKEN
    return prompts.render(template, prompts.fit_to_tokens(template, values, tokens)) + messages, delivery.events


def _messages(messages: list[str]) -> str:
    """Return the last section of a prompt. It is in no template, so that a project's own templates have it too."""
    return f"\n# Messages from a person about this run\n{bullets(messages)}\n" if messages else ""


def _put_beside_failure(values: dict[str, str], learnings: list[str]) -> None:
    """Add learnings to the packet, else to the feedback of the last attempt; first, because an end may be cut off."""
    place = next((name for name in ("failures", "feedback") if values[name]), "learnings")
    if learnings:
        values[place] = f"Known about this failure from earlier runs:\n{bullets(learnings)}\n\n{values[place]}"


def _task_text(task: Task | None) -> str:
    return f"{task.id}: {task.title}\n\n{task.body}".strip() if task else ""


def bullets(texts: list[str]) -> str:
    """Return a list. Further lines of an entry are indented: text from an agent must not become a heading."""
    return "\n".join(f"- {text}".replace("\n", "\n  ") for text in texts)


async def _failures(context: RunContext, step: StepContext) -> str:
    state = step.state
    if state.packet:
        return (await run_blocking(context.directory.get, state.packet)).decode()
    return packet(await load_report(context, state.red_report), only=state.red) if state.red_report else ""


async def _diff(context: RunContext, step: StepContext) -> str:
    state = step.state
    return await run_blocking(context.workspace.diff, state.task_tree or state.base_tree, step.started.tree)


def _history(context: RunContext) -> str:
    return prompts.recent_entries(context.ledger.history(), context.config.history_tokens)


# --- test commands ------------------------------------------------------------------------------------------------


async def _test_commands(context: RunContext, step: StepContext) -> str:
    """Return the commands that run all tests, and one test of the last report as an example."""
    state = step.state
    assert state.started
    targets = recorded_targets(state.started)
    lines = [f"all tests: `{command}`" for target in targets for command in _suite_commands(target)]
    if example := await _one_test(context, step, targets):
        lines.append(example)
    return bullets(lines)


def _suite_commands(target: Target) -> list[str]:
    build = "".join(f"{shlex.join(words)} && " for words in target.builds)
    commands = [f"{build}{shlex.join(words)}" for words in [target.command, *target.also]]
    return [command if target.root == "." else f"(cd {shlex.quote(target.root)} && {command})" for command in commands]


async def _one_test(context: RunContext, step: StepContext, targets: list[Target]) -> str:
    """Return how to run one test: one that is to be made green, else the first of the reference report."""
    state = step.state
    artifact = state.red_report or state.reference
    report = await load_report(context, artifact) if artifact else None
    tests = report.tests if report else []
    test = next((test for test in tests if test.id in state.red), tests[0] if tests else None)
    command = rerun_command(test, targets) if test else ""
    return f"one test, here {test.id}: `{command}`" if test and command else ""
