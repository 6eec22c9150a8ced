"""The test suite of a test workspace: runs like `ratchet test`; its state is stored where tests cannot write."""

from __future__ import annotations

from pathlib import Path

from ratchet.app.tests import Suite
from ratchet.checks.run.environment import allowed_environment
from ratchet.checks.run.path_redirect import SourceTree
from ratchet.config import Config
from ratchet.core.packet import changed_ranges
from ratchet.workspace.git_workspace import GitWorkspace

_DIFF_BYTES = 2_000_000


class WorkspaceSuite(Suite):
    """The suite of a workspace. `source` is the developer's tree it was made from, `start` its initial tree."""

    def __init__(self, workspace: GitWorkspace, inside: str, settings: Config, *, state: Path, start: str) -> None:
        self.workspace, self._state, self._start = workspace, state, start
        self.source = Path(workspace.record.repo)
        super().__init__(workspace.path / inside, settings)

    def _find_repository(self, folder: Path) -> Path | None:  # noqa: ARG002 — what git says there is not trusted
        """Return none: git data comes from the workspace, since commands may have changed the `.git` in the tree."""
        return None

    @property
    def state(self) -> Path:
        return self._state

    def changes(self) -> dict[str, list[tuple[int, int]]]:
        now = self.workspace.checkpoint()
        return changed_ranges(self.workspace.diff(self._start, now, max_bytes=_DIFF_BYTES))

    def _tree(self) -> str:
        return self.workspace.checkpoint()

    def environment(self) -> dict[str, str]:
        """Redirect paths to the developer's tree, such as editable installs, to the workspace."""
        env = allowed_environment(self.config.test.env)
        return SourceTree(root=self.source).redirect(env, self.targets(), Path(self.workspace.record.path))
