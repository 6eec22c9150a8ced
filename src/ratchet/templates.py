"""Prompt templates by name: the project's own file where it has one, else ours, else one that came with a workflow."""

from __future__ import annotations

from collections.abc import Iterable
from importlib import resources
from pathlib import Path

from ratchet import plugins
from ratchet.core import prompts
from ratchet.core.workflow import Workflow
from ratchet.errors import ConfigError

JUDGED = {"judge", "architecture"}  # what gates may ask, in any workflow


def templates(workflow: Workflow, folder: Path) -> dict[str, str]:
    """All that the workflow asks with, read and checked before anything is spent."""
    named = {act.prompt or act.action or phase for phase, act in workflow.acts.items() if act.role} | JUDGED
    return {name: _checked(name, folder) for name in sorted(named)}


def _checked(name: str, folder: Path) -> str:
    where, text = _find(name, folder)
    if why := prompts.wrong_with(text):
        raise ConfigError(f"the prompt {where} cannot be filled in: {why}", hint="correct it, or remove the file")
    return text


def _find(name: str, folder: Path) -> tuple[str, str]:
    own = folder / f"{name}.md"
    if own.is_file():
        return str(own), own.read_text("utf-8")
    ours = resources.files("ratchet") / "prompts" / f"{name}.md"
    if ours.is_file():
        return name, ours.read_text("utf-8")
    if entry := plugins.found("prompts").get(name):
        return name, str(entry.load())
    raise ConfigError(f"there is no prompt {name!r}", hint=f"write {own}, or one of: {', '.join(_known())}")


def _known() -> Iterable[str]:
    return sorted(path.name.removesuffix(".md") for path in (resources.files("ratchet") / "prompts").iterdir())
