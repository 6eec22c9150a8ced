"""Programs of a project whose workspace is mounted in a namespace of its own."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ratchet.checks.detect.targets import detect
from ratchet.checks.run.executor import TestRun
from ratchet.process.spawn import ProcessResult
from tests.checks.test_detect import lay, package


def test_a_program_of_the_project_is_named_as_those_in_its_namespace_see_it(tmp_path: Path) -> None:
    lay(tmp_path, {"package.json": package(scripts={"test": "mocha lib"}), "node_modules/.bin/mocha": ""})
    started: list[str] = []

    async def start(argv: Sequence[str], **more: Any) -> ProcessResult:
        started.extend([*argv, *more["env"].values()])
        return ProcessResult(exit_code=0, duration_s=0.0)

    door = f"/proc/{os.getpid()}/root"
    tests = TestRun(targets=detect(tmp_path), timeout_s=9, env={}, run_command=start)
    asyncio.run(tests.run(Path(f"{door}{tmp_path}"), log=tmp_path / "log"))
    assert started[0] == str(tmp_path / "node_modules/.bin/mocha")
    assert not [text for text in started if door in text]
