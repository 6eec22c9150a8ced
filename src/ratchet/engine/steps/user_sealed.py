"""Sealed tests of people: a folder outside the repository, laid over the tree at every judgement and at the end.

At a judgement, examples that passed on the base must pass; at the end all of them must. Each refusal reveals a
little about them, so refusals are counted and bounded.
"""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from ratchet.core import events as ev
from ratchet.core.failure import Reason
from ratchet.core.report import GREEN, Report
from ratchet.core.sealed import BYTES_MAX, is_in, sealed_result
from ratchet.engine.blocking import run_blocking
from ratchet.engine.sealed_vault import seal, unseal
from ratchet.engine.steps.context import RunContext, StepContext
from ratchet.engine.steps.sealing import run_with_sealed
from ratchet.tree_files import open_inside

FILES_MAX = 500
_GREEN = "green"


async def lay_user_sealed(context: RunContext, step: StepContext) -> ev.SealedLaid | ev.RunFailed | None:
    """Take the folder as it is now, and record which of its tests pass on the base."""
    if not context.config.sealed.dir:
        return None
    folder = Path(context.config.sealed.dir)
    files = await run_blocking(read_folder, folder)
    if not files:
        return ev.RunFailed(reason=Reason.MISCONFIGURED, detail=f"no sealed tests can be read in {folder}")
    report = await run_with_sealed(context, step.started.tree, files)
    kept = await run_blocking(seal, context.directory, "own", files)
    green = msgspec.json.encode(_green(report, files))
    passed = await run_blocking(seal, context.directory, "own-base", {_GREEN: green})
    tests = sealed_result(report, files)
    return ev.SealedLaid(step=step.number, files=kept, passed=passed, tests=tests.tests, green=tests.passed)


def read_folder(folder: Path) -> dict[str, bytes]:
    """Read the regular files of a folder by relative path; links and large files are left out."""
    files: dict[str, bytes] = {}
    for top, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith(".") and name != "__pycache__")
        for name in sorted(names):
            path = str((Path(top) / name).relative_to(folder))
            content = _read(folder, path)
            if content is not None and len(files) < FILES_MAX:
                files[path] = content
    return files


def _read(folder: Path, path: str) -> bytes | None:
    try:
        with open_inside(folder, path, os.O_RDONLY) as file:
            content = os.read(file, BYTES_MAX + 1)
    except OSError:
        return None
    return content if len(content) <= BYTES_MAX else None


def _green(report: Report, files: dict[str, bytes]) -> list[str]:
    return sorted(test.id for test in report.tests if is_in(test, files) and test.status in GREEN)


async def user_files(context: RunContext, step: StepContext) -> dict[str, bytes]:
    laid = step.state.sealed_laid
    return await run_blocking(unseal, context.directory, laid.files) if laid else {}


async def why_lost(context: RunContext, step: StepContext, report: Report, files: dict[str, bytes]) -> str:
    """Return how many sealed examples of people no longer pass that passed on the base; empty when all do."""
    laid = step.state.sealed_laid
    if laid is None:
        return ""
    before = msgspec.json.decode((await run_blocking(unseal, context.directory, laid.passed))[_GREEN], type=list[str])
    lost = set(before) - set(_green(report, files))
    return f"{len(lost)} of {len(before)} sealed examples that passed before no longer pass" if lost else ""


async def why_not_all(context: RunContext, step: StepContext) -> str:
    """Return how many sealed examples of people do not pass on the result; empty when all do."""
    files = await user_files(context, step)
    if not files:
        return ""
    result = sealed_result(await run_with_sealed(context, step.state.green_tree, files), files)
    return "" if result.ok else f"the result does not generalise: {result}"
