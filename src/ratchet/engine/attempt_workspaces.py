"""Extra workspaces of a run: forks for parallel attempts, and fresh ones. Each is removed with its branch when left."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from ratchet.engine.blocking import run_blocking
from ratchet.process.spawn import this_process
from ratchet.workspace.git.branches import delete_branch
from ratchet.workspace.git_workspace import BRANCH
from ratchet.workspace.protocol import Workspace, WorkspaceRefused
from ratchet.workspace.registry import Workspaces
from ratchet.workspace.sandbox import Sandboxes, SandboxSettings

CreateWorkspace = Callable[[str, str], Workspace]


class AttemptWorkspaces:
    """Makes extra workspaces for the run `slug`. `create` makes one with a given slug at a given commit."""

    def __init__(
        self,
        workspaces: Workspaces,
        *,
        repo: Path,
        slug: str,
        base_commit: str,
        create: CreateWorkspace,
        settings: SandboxSettings,
        check_owner: Callable[[], None],
    ) -> None:
        self.workspaces, self.repo, self.slug, self.settings = workspaces, repo, slug, settings
        self.base_commit, self.create = base_commit, create
        self.check_owner = check_owner
        self._forking = asyncio.Lock()  # a fork checkpoints its origin, which has only one index

    @asynccontextmanager
    async def fork(self, label: str) -> AsyncIterator[tuple[Workspace, Sandboxes] | WorkspaceRefused]:
        """Copy the run's workspace, with sandboxes for the copy."""
        name = f"{self.slug}{label}"
        async with self._forking:
            await run_blocking(self._remove, name)  # a worker that died may have left one
            try:
                made = await run_blocking(self.workspaces.fork, self.slug, name, owner=this_process())
            except BaseException:
                await run_blocking(self._remove, name)
                raise
        if isinstance(made, WorkspaceRefused):
            yield made
            return
        sandboxes = Sandboxes(made, self.settings)
        try:
            yield made, sandboxes
        finally:
            sandboxes.close()
            await run_blocking(self._remove, name)

    @asynccontextmanager
    async def fresh(self, label: str) -> AsyncIterator[tuple[Workspace, Sandboxes]]:
        """Create a workspace from the base, without anything that a step has left behind."""
        name = f"{self.slug}{label}"
        await run_blocking(self._remove, name)
        try:
            made = await run_blocking(self.create, name, self.base_commit)
            sandboxes = Sandboxes(made, self.settings)
            try:
                yield made, sandboxes
            finally:
                sandboxes.close()
        finally:
            await run_blocking(self._remove, name)

    def _remove(self, name: str) -> None:
        self.check_owner()  # a later worker's workspaces have the same names
        self.workspaces.destroy(name)
        delete_branch(self.workspaces.source(self.repo).git_dir, BRANCH.format(slug=name))
