"""Load prompt templates by name: from the project, else the built-in one, else from a plugin."""

from __future__ import annotations

import os
from collections.abc import Iterable
from importlib import resources
from pathlib import Path

from ratchet import plugins
from ratchet.core import prompts
from ratchet.core.roles import Role
from ratchet.core.workflows.workflow import Workflow
from ratchet.errors import ConfigError
from ratchet.tree_files import read_anywhere, read_inside

GATE_PROMPTS = {"judge", "architecture"}  # prompts of gates, available in every workflow
_SEAL_PROMPTS = {"seal", "arbitrate"}


def load_templates(workflow: Workflow, root: Path, folder: str) -> dict[str, str]:
    """Read and check all prompts of a workflow before any agent is called.

    A folder in the repository at `root` is read without following links out of it; a user may name one elsewhere.
    """
    named = {act.prompt or act.action or phase for phase, act in workflow.actions.items() if act.role} | GATE_PROMPTS
    if Role.AUDITOR in workflow.roles:
        named |= _SEAL_PROMPTS
    return {name: _checked(name, root, folder) for name in sorted(named)}


def _checked(name: str, root: Path, folder: str) -> str:
    where, text = _find(name, root, folder)
    if why := prompts.template_error(text):
        raise ConfigError(f"the prompt {where} cannot be filled in: {why}", hint="correct or remove the file")
    return text


def _find(name: str, root: Path, folder: str) -> tuple[str, str]:
    own = Path(os.path.normpath(root / folder / f"{name}.md"))
    if os.path.lexists(own):
        return str(own), _read_own(own, root)
    ours = resources.files(__name__) / f"{name}.md"
    if ours.is_file():
        return name, ours.read_text("utf-8")
    if entry := plugins.entry_points("prompts").get(name):
        return name, str(entry.load())
    raise ConfigError(f"there is no prompt {name!r}", hint=f"write {own}, or one of: {', '.join(_known())}")


def _read_own(path: Path, root: Path) -> str:
    inside = path.is_relative_to(root)
    try:
        found = read_inside(root, path.relative_to(root).as_posix(), max_bytes=_MAX_BYTES) if inside else None
        found = found if inside else read_anywhere(path, max_bytes=_MAX_BYTES)
    except OSError:
        found = None
    if found is None:
        raise ConfigError(f"the prompt {path} is no file of the repository", hint="put a copy in the place of the link")
    return found.decode(errors="replace")


_MAX_BYTES = 1 << 20


def _known() -> Iterable[str]:
    return sorted(path.name[:-3] for path in resources.files(__name__).iterdir() if path.name.endswith(".md"))
