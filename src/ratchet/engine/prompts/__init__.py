"""Load prompt templates by name: from the project, else the built-in one, else from a plugin."""

from __future__ import annotations

from collections.abc import Iterable
from importlib import resources
from pathlib import Path

from ratchet import plugins
from ratchet.config import read_project_file
from ratchet.core import prompts
from ratchet.core.roles import Role
from ratchet.core.workflows.workflow import Workflow
from ratchet.errors import ConfigError

GATE_PROMPTS = {"judge", "architecture"}  # prompts of gates, available in every workflow
_SEAL_PROMPTS = {"seal", "arbitrate"}


def load_templates(workflow: Workflow, folder: Path) -> dict[str, str]:
    """Read and check all prompts of a workflow before any agent is called."""
    named = {act.prompt or act.action or phase for phase, act in workflow.actions.items() if act.role} | GATE_PROMPTS
    if Role.AUDITOR in workflow.roles:
        named |= _SEAL_PROMPTS
    return {name: _checked(name, folder) for name in sorted(named)}


def _checked(name: str, folder: Path) -> str:
    where, text = _find(name, folder)
    if why := prompts.template_error(text):
        raise ConfigError(f"the prompt {where} cannot be filled in: {why}", hint="correct or remove the file")
    return text


def _find(name: str, folder: Path) -> tuple[str, str]:
    own = folder / f"{name}.md"
    if own.is_file():
        try:
            return str(own), read_project_file(own)
        except (OSError, ValueError) as error:
            raise ConfigError(f"cannot read the prompt {own}: {error}", hint="correct or remove the file") from error
    ours = resources.files(__name__) / f"{name}.md"
    if ours.is_file():
        return name, ours.read_text("utf-8")
    if entry := plugins.entry_points("prompts").get(name):
        return name, str(entry.load())
    raise ConfigError(f"there is no prompt {name!r}", hint=f"write {own}, or one of: {', '.join(_known())}")


def _known() -> Iterable[str]:
    return sorted(path.name[:-3] for path in resources.files(__name__).iterdir() if path.name.endswith(".md"))
