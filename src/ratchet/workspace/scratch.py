"""Temporary workspaces for test runs: with dependencies, isolated from the repository, removed afterwards."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ratchet.config import Config
from ratchet.errors import EnvironmentCannot
from ratchet.files import require_own_settings
from ratchet.paths import isolated_git_dirs
from ratchet.process.spawn import this_process
from ratchet.workspace.from_config import open_workspaces, recipe_of
from ratchet.workspace.git.isolated_git_dir import isolated_git_dir
from ratchet.workspace.protocol import Workspace, WorkspaceRefused

_SLUG = "test-"


@contextmanager
def workspace_at(commit: str, repo: Path, config: Config) -> Iterator[Workspace]:
    slug, workspaces = f"{_SLUG}{secrets.token_hex(4)}", open_workspaces(config)
    workspaces.collect(_SLUG)  # leftovers of killed runs occupy memory
    with isolated_git_dir(workspaces.source(repo), isolated_git_dirs()) as source:
        made = workspaces.create(
            slug,
            repo=source,
            commit=commit,
            kind=config.workspace.kind,
            on=config.workspace.on,
            recipe=recipe_of(config, repo),
            owner=this_process(),
        )
        if isinstance(made, WorkspaceRefused):
            raise EnvironmentCannot(f"no workspace: {made.reason}", hint=made.hint)
        try:
            require_own_settings(Path(made.record.path))
            yield made
        finally:
            workspaces.destroy(slug)
