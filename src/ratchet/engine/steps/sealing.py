"""Keeps sealed tests away from the roles that implement: takes them out of a workspace, and runs them in a fork.

An auditor works in a fork too: whatever it and its tests leave behind (compiled tests, caches, its home with the
transcript of its session) goes with the fork.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from msgspec.structs import replace

from ratchet.agents.protocol import Text, ToolCall, TurnEvent, TurnFailed, TurnFinished, TurnResult
from ratchet.core.cheats import inline_tests
from ratchet.core.receipt import Artifact
from ratchet.core.report import Report
from ratchet.core.roles import PathRules
from ratchet.core.sealed import BYTES_MAX, FILES_MAX, Withheld, has_sealed_name, withheld
from ratchet.engine.blocking import run_blocking
from ratchet.engine.sealed_vault import unseal
from ratchet.engine.steps.context import RunContext
from ratchet.errors import EnvironmentCannot
from ratchet.process.spawn import confined
from ratchet.tree_files import (
    open_inside,
    read_link_inside,
    remove_inside,
    replace_inside,
    temporary_folder,
    write_inside,
)
from ratchet.workspace.protocol import Workspace, WorkspaceRefused

_FORMAL = (
    'the sealed open test tests spec of is REQUIREMENTS_COMPLETE {"verdict": "approved" "changes_requested" "summary" '
    '"findings" "file" "line" "severity" "issue" "suggestion" "error" "warning" "info" true false null}'
)
WITHHELD = "withheld: this agent writes sealed tests"


def _is_kept(folder: Path, path: str, before: bytes | None) -> bool:
    """Whether a source file is as it was, or differs in its inline tests only, which an auditor may write."""
    if before is None:
        return False
    if read_link_inside(folder, path) == before:  # git lists a link whose stat it does not know yet
        return True
    try:
        with open_inside(folder, path, os.O_RDONLY) as file:
            after = os.read(file, max(BYTES_MAX, len(before)) + 1)
    except OSError:
        return False
    old, new = before.decode(errors="replace"), after.decode(errors="replace")
    return before == after or (inline_tests.is_possible(path) and inline_tests.same_source(path, old, new))


@asynccontextmanager
async def fork_for(context: RunContext, label: str, tree: str) -> AsyncIterator[RunContext]:
    """Yield the same context in a fork of the workspace with this tree. The fork is removed with all that it holds."""
    async with context.attempts.fork(label) as made:
        if isinstance(made, WorkspaceRefused):
            raise EnvironmentCannot(f"no workspace for sealed tests: {made.reason}", hint=made.hint)
        workspace, sandboxes = made
        await run_blocking(workspace.reset, tree)
        yield replace(context, workspace=workspace, sandboxes=sandboxes)


async def run_with_sealed(context: RunContext, tree: str, files: dict[str, bytes]) -> Report:
    """Run all tests of the tree with the sealed files laid over it. Nothing of it is stored."""
    async with fork_for(context, "-sealed", tree) as fork:
        await run_blocking(lay_over, fork.workspace.path, files)
        with temporary_folder("ratchet-sealed-") as logs, confined(fork.sandboxes.for_tests()):
            report = await fork.checks.run(fork.workspace.path, log=Path(logs) / "tests.log")
    return report


def lay_over(folder: Path, files: dict[str, bytes]) -> None:
    for path, content in files.items():
        write_inside(folder, path, content)


async def sealed_files(context: RunContext, sealed: Artifact | None) -> dict[str, bytes]:
    return await run_blocking(unseal, context.directory, sealed) if sealed else {}


def texts(files: dict[str, bytes]) -> list[str]:
    return [content.decode(errors="replace") for content in files.values()]


class Sealing:
    """Takes the sealed files out of the workspace of one auditor, and what only they hold out of every text.

    `known` are texts that the implementer has anyway; the open tests are added when the files are taken.
    """

    def __init__(self, scope: PathRules, known: Iterable[str], files: dict[str, bytes] | None = None) -> None:
        self.scope, self.known = scope, [*known, _FORMAL]
        self.files = dict(files or {})
        self.left: dict[str, bytes] = {}  # as the last call left them
        self.refused = ""

    def take(self, workspace: Workspace, tree: str) -> None:
        """Move test files with a sealed name that the tree does not have into memory; the implementer knows others.

        Everything else but tests is undone later. It is blanked here, because a checkpoint would store it before.
        """
        changed = workspace.uncommitted()
        before = workspace.read_all(tree, changed)
        for path in changed:
            if self.scope.is_test(path) and not self.scope.is_protected(path):
                if before.get(path) is None:
                    self._take(workspace.path, path)
            elif not _is_kept(workspace.path, path, before.get(path)):
                with suppress(OSError):
                    replace_inside(workspace.path, path, WITHHELD.encode())

    def _take(self, folder: Path, path: str) -> None:
        try:
            with open_inside(folder, path, os.O_RDONLY) as file:
                content = os.read(file, BYTES_MAX + 1)
        except OSError:
            content = b""
        if not has_sealed_name(path):
            self.known.append(content.decode(errors="replace"))
            return
        remove_inside(folder, path)
        if len(content) > BYTES_MAX or len(self.files) >= FILES_MAX:
            self.refused = f"sealed files are at most {FILES_MAX}, of {BYTES_MAX} bytes each"
        elif content:
            self.files[path] = self.left[path] = content

    @property
    def withheld(self) -> Withheld:
        return withheld([*texts(self.files), *self.files], self.known)

    def clean(self, result: TurnResult) -> TurnResult:
        hidden = self.withheld
        if isinstance(result, TurnFinished):
            return replace(result, text=hidden.clean(result.text))
        return replace(result, detail=hidden.clean(result.detail)) if isinstance(result, TurnFailed) else result


def without_text(event: TurnEvent) -> TurnEvent:
    """Return what may be shown of an auditor at work: that it works, not what it writes."""
    match event:
        case Text():
            return Text(WITHHELD)
        case ToolCall(name):
            return ToolCall(name, "")
        case _:
            return event
