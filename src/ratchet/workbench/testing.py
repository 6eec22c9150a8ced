"""The suite of a test workspace: run as `ratchet test` runs it, remembered where no test can write."""

from __future__ import annotations

import os
from pathlib import Path

from ratchet.checks.editable import editable_folders
from ratchet.checks.environment import allowed_environment
from ratchet.config import Config
from ratchet.core.packet import changed_lines
from ratchet.suite import Suite
from ratchet.workspace.views import GitWorkspace

_DIFF_BYTES = 2_000_000


class BenchSuite(Suite):
    """`source` is the developer's tree the workspace was made from; `start` the tree it began with."""

    def __init__(self, workspace: GitWorkspace, inside: str, settings: Config, *, state: Path, start: str) -> None:
        self.workspace, self._state, self._start = workspace, state, start
        self.source = Path(workspace.record.repo)
        super().__init__(workspace.path / inside, settings)
        self.repo = (
            None  # what git can tell of this tree is asked of the workspace, whose .git no test can have changed
        )

    @property
    def state(self) -> Path:
        return self._state

    def changes(self) -> dict[str, list[tuple[int, int]]]:
        now = self.workspace.checkpoint()
        return changed_lines(self.workspace.diff(self._start, now, max_bytes=_DIFF_BYTES))

    def _tree(self) -> str:
        return self.workspace.checkpoint()

    def environment(self) -> dict[str, str]:
        """An interpreter's editable installs lead to the developer's tree: here they lead to the workspace."""
        env, top = allowed_environment(), self.workspace.record.path
        pythons = [target.command[0] for target in self.targets() if target.language == "python" and target.command]
        found = [f"{top}/{folder}" for python in pythons for folder in editable_folders(python, self.source)]
        named = [_moved(top, str(self.source), folder) for folder in env.get("PYTHONPATH", "").split(os.pathsep)]
        path = os.pathsep.join(dict.fromkeys(filter(None, [*found, *named])))
        return env | ({"PYTHONPATH": path} if path else {})


def _moved(top: str, source: str, folder: str) -> str:
    inside = folder == source or folder.startswith(f"{source}/")
    return f"{top}{folder[len(source) :]}" if inside else folder
