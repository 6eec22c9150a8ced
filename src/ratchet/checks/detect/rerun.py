"""The shell command that runs one test alone."""

from __future__ import annotations

import os
import shlex

from ratchet.checks.detect.commands import commands_with
from ratchet.checks.detect.registry import runner
from ratchet.checks.protocol import Target
from ratchet.core.report import TestResult


def rerun_command(test: TestResult, targets: list[Target], *, top: str = ".") -> str:
    """Return the runner's own command for this test alone; `top` is the path to the tested folder."""
    named = [target for target in targets if target.owns(test)] or targets[:1]
    if not named:
        return ""
    target = named[0]
    prefix = "" if target.root == "." else f"{target.root}/"
    own = _own(test, prefix)
    argv = runner(target.runner).rerun_command(commands_with(target, own)[0], own)
    words = argv[2] if argv[:2] == ["sh", "-c"] else shlex.join(argv)  # `sh -c` already holds a shell command line
    place = os.path.normpath(f"{top}/{target.root}")
    return words if place == "." else f"(cd {shlex.quote(place)} && {words})"


def _own(test: TestResult, prefix: str) -> TestResult:
    return TestResult(
        id=test.id.removeprefix(prefix),
        status=test.status,
        name=test.name,
        suite=test.suite,
        file=test.file.removeprefix(prefix),
        line=test.line,
        target=test.target,
    )
