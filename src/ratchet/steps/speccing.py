"""The scribe's step: the spec is kept true, and nothing but the scribe's own sections of it is changed."""

from __future__ import annotations

from pathlib import Path

from ratchet.agents import Failed
from ratchet.core import events as ev
from ratchet.core import scribe
from ratchet.errors import EnvironmentCannot
from ratchet.steps.asking import Asked, ask
from ratchet.steps.work import Doing, Done, Work, clip, cross, first_line, shown


async def update_spec(work: Work, doing: Doing) -> Done:
    path = doing.state.scope.spec
    before = await cross(_lay_down, work, doing, path)
    asked = await ask(work, doing)
    after = await cross(_text, work, asked.tree, path)
    why = asked.outcome.detail if isinstance(asked.outcome, Failed) else scribe.refused(before, after)
    if why:
        await cross(work.workspace.reset, doing.started.tree)
        return asked.done(ev.SpecRefused(step=doing.number, why=clip(why)))
    summary = first_line(asked.text)
    if after == before:
        await cross(work.workspace.reset, doing.started.tree)
        return asked.done(ev.SpecUnchanged(step=doing.number, summary=summary))
    return asked.done(_proposed(doing, asked, path, summary))


def _proposed(doing: Doing, asked: Asked, path: str, summary: str) -> ev.ChangeProposed:
    return ev.ChangeProposed(
        step=doing.number, paths=shown([path]), tree=asked.tree, summary=summary or "Keep the spec true"
    )


def _lay_down(work: Work, doing: Doing, path: str) -> str:
    """A spec that is not in the base yet is put there for the scribe, as it was asked."""
    work.workspace.reset(doing.started.tree)
    if work.workspace.read(doing.started.tree, path) is None:
        _write(work.workspace.path, path, work.item.spec)
        return work.item.spec
    return _text(work, doing.started.tree, path)


def _write(folder: Path, path: str, text: str) -> None:
    target = folder / path
    target.parent.mkdir(parents=True, exist_ok=True)
    if not target.parent.resolve().is_relative_to(folder.resolve()):
        raise EnvironmentCannot(
            f"the spec's folder {path} leads out of the workspace", hint="keep it in the repository"
        )
    target.write_text(text, "utf-8")


def _text(work: Work, tree: str, path: str) -> str:
    return (work.workspace.read(tree, path) or b"").decode(errors="surrogateescape")
