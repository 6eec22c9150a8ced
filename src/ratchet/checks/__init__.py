"""Checks: find the tests of a project, run them, and say in one structured report what happened."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

import msgspec

from ratchet.core.report import Report


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """One test runner in one folder: how to call it, which paths are tests, and how we came to know."""

    runner: str
    command: list[str]
    root: str = "."
    tests: list[str]
    protected: list[str]
    why: str


class Checks(Protocol):
    """What the engine needs of the tests."""

    async def run(self, folder: Path, *, log: Path) -> Report: ...
