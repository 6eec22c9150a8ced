"""Workspaces beside a run's own: forks of it, and fresh ones. Gone with their branch, whatever way it ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from ratchet.process import this_process
from ratchet.steps import cross
from ratchet.workspace import Refused, Workspace
from ratchet.workspace.branches import drop_branch
from ratchet.workspace.registry import Workspaces
from ratchet.workspace.sandbox import Sandboxes, Settings
from ratchet.workspace.views import BRANCH


class Forks:
    def __init__(self, workspaces: Workspaces, *, repo: str, slug: str, settings: Settings) -> None:
        self.workspaces, self.repo, self.slug, self.settings = workspaces, Path(repo), slug, settings
        self._turn = asyncio.Lock()  # a fork checkpoints its origin, which has one index

    @asynccontextmanager
    async def open(self, label: str) -> AsyncIterator[tuple[Workspace, Sandboxes] | Refused]:
        name = f"{self.slug}{label}"
        async with self._turn:
            await cross(self._drop, name)  # what a worker that died left of it
            try:
                made = await cross(self.workspaces.fork, self.slug, name, owner=this_process())
            except BaseException:
                await cross(self._drop, name)
                raise
        if isinstance(made, Refused):
            yield made
            return
        sandboxes = Sandboxes(made, self.settings)
        try:
            yield made, sandboxes
        finally:
            sandboxes.close()
            await cross(self._drop, name)

    @asynccontextmanager
    async def fresh(self, create: Callable[[str], Workspace]) -> AsyncIterator[tuple[Workspace, Sandboxes]]:
        """From the base, with nothing in it that a step has left."""
        name = f"{self.slug}-final"
        await cross(self._drop, name)
        try:
            made = await cross(create, name)
            sandboxes = Sandboxes(made, self.settings)
            try:
                yield made, sandboxes
            finally:
                sandboxes.close()
        finally:
            await cross(self._drop, name)

    def _drop(self, name: str) -> None:
        self.workspaces.destroy(name)
        drop_branch(self.workspaces.source(self.repo).git_dir, BRANCH.format(slug=name))
