"""Detects which test runners a project uses, where, and why."""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path

import msgspec

from ratchet.checks.detect.project import Project, is_auxiliary
from ratchet.checks.detect.registry import runner, runners
from ratchet.checks.globs import find
from ratchet.checks.protocol import Confidence, Runner, Target
from ratchet.checks.run.executor import COMMAND
from ratchet.errors import ConfigError


def detect(
    folder: Path, *, command: str = "", tests: list[str] | None = None, runner_name: str = "", report: str = ""
) -> list[Target]:
    """Return every target of the project, the repository's own first. A configured command always wins; if it writes a
    `report`, that is parsed, whatever the command starts."""
    project = Project(folder)
    if command:
        configured = _configured(project, _words(command), tests, runner_name or (COMMAND if report else ""))
        return [msgspec.structs.replace(configured, report=_glob(report))]
    if report:
        raise ConfigError(
            "test.report is set without test.command",
            hint="set test.command to the command that writes it",
            key="test.report",
        )
    names = [runner_name] if runner_name else list(runners())
    found = [target for name in names for target in _best_per_folder(runner(name), project)]
    kept = _best_per_family(found)
    kept = [target for target in kept if not is_auxiliary(target.root)] or kept
    kept = [target for target in kept if not _is_covered(target, kept)] or kept
    kept = [target for target in kept if not _is_redundant_command(target, kept)] or kept
    kept = [msgspec.structs.replace(target, command=_with_ignores(target, kept)) for target in kept]
    if tests:
        kept = [msgspec.structs.replace(target, tests=tests) for target in kept]
    return sorted(kept, key=lambda target: (target.root.count("/") + (target.root != "."), target.root, target.runner))


def excluded_folders(folder: Path) -> dict[str, str]:
    """Return folders of third-party code that contain tests, and why they are skipped unless selected explicitly."""
    found = {path: (why, detect(folder / path)) for path, why in sorted(Project(folder).excluded.items())}
    return {
        path: f"{why}, with tests of {', '.join(sorted({target.runner for target in targets}))}"
        for path, (why, targets) in found.items()
        if targets
    }


def _glob(report: str) -> str:
    try:
        if any("**" in part and part != "**" for part in report.split("/")):
            raise ValueError("`**` must be a whole name")
        list(find(Path(os.devnull), report.lstrip("/"))) if report else None
    except (ValueError, NotImplementedError) as error:
        hint = 'as in "build/**/*.xml"'
        raise ConfigError(f"test.report is not a valid path or glob: {error}", hint=hint, key="test.report") from error
    return report


# Characters with a meaning to a shell outside of quotes, and a variable before the program.
_SHELL = re.compile(r"[|&;<>()$`*?~\n]|^\s*\w+=")
_QUOTED = re.compile(r"""'[^']*'|"[^"$`\\]*"|\\.""")


def _words(command: str) -> list[str]:
    """Split a command into words; a command that needs a shell is passed to one unchanged."""
    try:
        words = shlex.split(command)
    except ValueError:  # the shell reports what is wrong with it
        return ["sh", "-c", command]
    return ["sh", "-c", command] if _SHELL.search(_QUOTED.sub("", command)) else words


def _configured(project: Project, words: list[str], tests: list[str] | None, name: str) -> Target:
    """Return a target for the configured command, read as the runner that it starts; of an unknown program the output
    is parsed."""
    named = name or next((how.name for how in runners().values() if how.recognises(words)), COMMAND)
    usual = list(runner(named).detect(project))
    like = usual[0] if usual else Target(runner=named, command=[], tests=[], protected=[], why="")
    if not like.tests:
        every = [glob for how in runners().values() for target in how.detect(project) for glob in target.tests]
        like = msgspec.structs.replace(like, tests=list(dict.fromkeys(every)))
    return msgspec.structs.replace(
        like,
        command=words,
        also=[],
        root=".",
        tests=tests or like.tests,
        why="configured",
        strength=Confidence.ASKED,
    )


def _best_per_folder(how: Runner, project: Project) -> list[Target]:
    """Keep one target for each folder: the one with the highest confidence."""
    best: dict[str, Target] = {}
    for target in how.detect(project):
        if target.root not in best or target.strength > best[target.root].strength:
            best[target.root] = target
    return list(best.values())


def _best_per_family(found: list[Target]) -> list[Target]:
    """Keep one target for each folder and family: pytest also runs unittest tests, and vitest and jest claim the same
    files."""
    best: dict[tuple[str, str], Target] = {}
    for target in found:
        key = (target.root, runner(target.runner).family)
        if key not in best or target.strength > best[key].strength:
            best[key] = target
    return list(best.values())


def _is_covered(target: Target, others: list[Target]) -> bool:
    """Return whether a runner in a parent folder already runs these tests, unless this folder has its own
    configuration.

    A runner that the parent folder only depends on serves the packages below, which say how they use it.
    """
    if _is_for_subpackages(target, others):
        return True
    above = [other for other in others if _is_above(other, target) and _same_kind(other, target)]
    return any(_covers_subfolders(other) and not _is_for_subpackages(other, others) for other in above) and not (
        target.runner == "pytest" and target.strength >= Confidence.CONFIG
    )


def _is_for_subpackages(target: Target, others: list[Target]) -> bool:
    return target.strength is Confidence.DEPENDENCY and any(
        other.runner == target.runner and _is_above(target, other) and other.strength >= Confidence.SCRIPT
        for other in others
        if target.language == "javascript"
    )


def _is_redundant_command(target: Target, kept: list[Target]) -> bool:
    """Return whether an unrecognised command can be dropped because a known runner covers it: it mostly starts that
    runner.

    Browser tests do not explain a test script unless the script starts them.
    """
    others = [other for other in kept if other.runner != COMMAND and not _is_in_a_browser(other)]
    return target.runner == COMMAND and any(
        other.root == target.root
        or _is_above(target, other)
        or (_is_above(other, target) and _covers_subfolders(other))
        for other in others
    )


def _is_in_a_browser(target: Target) -> bool:
    return target.runner == "playwright" and target.strength is not Confidence.SCRIPT


def _covers_subfolders(target: Target) -> bool:
    return runner(target.runner).covers_subfolders


def _with_ignores(target: Target, kept: list[Target]) -> list[str]:
    """Exclude folders that have a pytest target of their own."""
    below = [other for other in kept if target.runner == other.runner == "pytest" and _is_above(target, other)]
    return [*target.command, *(f"--ignore={Path(other.root).relative_to(target.root)}" for other in below)]


def _same_kind(above: Target, below: Target) -> bool:
    same = runner(above.runner).family == runner(below.runner).family
    return above.runner == below.runner or (same and below.strength is Confidence.PATTERN)


def _is_above(above: Target, below: Target) -> bool:
    return above.root != below.root and (above.root == "." or below.root.startswith(f"{above.root}/"))
