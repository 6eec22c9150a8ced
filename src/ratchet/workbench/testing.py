"""The suite of a test workspace: run as `ratchet test` runs it, remembered where no test can write."""

from __future__ import annotations

from pathlib import Path

from ratchet.checks.editable import Origin
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
        """What leads to the developer's tree, as an interpreter's editable installs do, leads to the workspace here."""
        env = allowed_environment(self.config.test.env)
        return Origin(root=self.source).led(env, self.targets(), Path(self.workspace.record.path))
