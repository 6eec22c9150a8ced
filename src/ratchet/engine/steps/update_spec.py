"""The scribe's step: update the spec, and reject changes outside the scribe's own sections."""

from __future__ import annotations

from pathlib import Path

from ratchet.agents.protocol import TurnFailed
from ratchet.core import events as ev
from ratchet.core import spec_sections
from ratchet.engine.blocking import run_blocking
from ratchet.engine.steps.ask import AskResult, ask_role
from ratchet.engine.steps.context import RunContext, StepContext, StepResult, first_line, ledger_paths, truncate
from ratchet.errors import EnvironmentCannot
from ratchet.tree_files import write_inside


async def update_spec(context: RunContext, step: StepContext) -> StepResult:
    path = step.state.scope.spec
    before = await run_blocking(_ensure_spec, context, step, path)
    asked = await ask_role(context, step)
    after = await run_blocking(_text, context, asked.tree, path)
    why = asked.outcome.detail if isinstance(asked.outcome, TurnFailed) else spec_sections.rejection(before, after)
    if why:
        await run_blocking(context.workspace.reset, step.started.tree)
        return asked.result(ev.SpecRefused(step=step.number, why=truncate(why)))
    summary = first_line(asked.text)
    if after == before:
        await run_blocking(context.workspace.reset, step.started.tree)
        return asked.result(ev.SpecUnchanged(step=step.number, summary=summary))
    return asked.result(_proposed(step, asked, path, summary))


def _proposed(step: StepContext, asked: AskResult, path: str, summary: str) -> ev.ChangeProposed:
    return ev.ChangeProposed(
        step=step.number, paths=ledger_paths([path]), tree=asked.tree, summary=summary or "Keep the spec true"
    )


def _ensure_spec(context: RunContext, step: StepContext, path: str) -> str:
    """Return the spec in the workspace; write the item's spec there first when the base does not contain it."""
    context.workspace.reset(step.started.tree)
    if context.workspace.read(step.started.tree, path) is None:
        _write(context.workspace.path, path, context.item.spec)
        return context.item.spec
    return _text(context, step.started.tree, path)


def _write(folder: Path, path: str, text: str) -> None:
    try:
        write_inside(folder, path, text.encode())
    except OSError as error:
        raise EnvironmentCannot(
            f"the spec {path} cannot be written: {error.strerror}",
            hint="keep it in the repository, in folders that are not symlinks",
        ) from error


def _text(context: RunContext, tree: str, path: str) -> str:
    return (context.workspace.read(tree, path) or b"").decode(errors="surrogateescape")
