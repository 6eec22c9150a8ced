"""A workspace at a commit for tests alone: with its dependencies; nothing of it stays, or reaches the repository."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ratchet.config import Config
from ratchet.errors import EnvironmentCannot
from ratchet.places import open_workspaces, recipe_of, stand_ins
from ratchet.process import this_process
from ratchet.workspace import Refused, Workspace
from ratchet.workspace.standins import standing_in

_SLUG = "test-"


@contextmanager
def workspace_at(commit: str, repo: Path, config: Config) -> Iterator[Workspace]:
    slug, workspaces = f"{_SLUG}{secrets.token_hex(4)}", open_workspaces(config)
    workspaces.collect(_SLUG)  # of runs that were killed: they hold memory
    with standing_in(workspaces.source(repo), stand_ins()) as source:
        made = workspaces.create(
            slug,
            repo=source,
            commit=commit,
            kind=config.workspace.kind,
            on=config.workspace.on,
            recipe=recipe_of(config, repo),
            owner=this_process(),
        )
        if isinstance(made, Refused):
            raise EnvironmentCannot(f"no workspace: {made.reason}", hint=made.hint)
        try:
            yield made
        finally:
            workspaces.destroy(slug)
