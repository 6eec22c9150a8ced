"""Which test runners a project uses, where, and how we know."""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path

import msgspec

from ratchet.checks import Runner, Strength, Target
from ratchet.checks.project import Project, is_aside
from ratchet.checks.registry import runner, runners
from ratchet.checks.run import COMMAND
from ratchet.errors import ConfigError


def detect(
    folder: Path, *, command: str = "", tests: list[str] | None = None, runner_name: str = "", report: str = ""
) -> list[Target]:
    """Every target of the project, the repository's own first. A command from the configuration always wins; one that
    leaves a `report` is read by that, whatever it starts."""
    project = Project(folder)
    if command:
        configured = _configured(project, _words(command), tests, runner_name or (COMMAND if report else ""))
        return [msgspec.structs.replace(configured, report=_glob(report))]
    if report:
        raise ConfigError("test.report is set without test.command", hint="say what writes it", key="test.report")
    names = [runner_name] if runner_name else list(runners())
    found = [target for name in names for target in _surest(runner(name), project)]
    kept = _one_of_each_family(found)
    kept = [target for target in kept if not is_aside(target.root)] or kept
    kept = [target for target in kept if not _covered(target, kept)] or kept
    kept = [target for target in kept if not _is_explained(target, kept)] or kept
    kept = [msgspec.structs.replace(target, command=_leaving_out(target, kept)) for target in kept]
    if tests:
        kept = [msgspec.structs.replace(target, tests=tests) for target in kept]
    return sorted(kept, key=lambda target: (target.root.count("/") + (target.root != "."), target.root, target.runner))


def left_out(folder: Path) -> dict[str, str]:
    """The folders of others that hold tests, and why they are not run unless somebody asks for them there."""
    found = {path: (why, detect(folder / path)) for path, why in sorted(Project(folder).left_out.items())}
    return {
        path: f"{why}, with tests of {', '.join(sorted({target.runner for target in targets}))}"
        for path, (why, targets) in found.items()
        if targets
    }


def _glob(report: str) -> str:
    try:
        list(Path(os.devnull).glob(report.lstrip("/"))) if report else None
    except (ValueError, NotImplementedError) as error:
        hint = 'as in "build/**/*.xml"'
        raise ConfigError(f"test.report is no path or glob: {error}", hint=hint, key="test.report") from error
    return report


# Signs that mean something to a shell outside of quotes, and a variable before the program.
_SHELL = re.compile(r"[|&;<>()$`*?~\n]|^\s*\w+=")
_QUOTED = re.compile(r"""'[^']*'|"[^"$`\\]*"|\\.""")


def _words(command: str) -> list[str]:
    """The words of a command; what only a shell understands is left to one, whole."""
    try:
        words = shlex.split(command)
    except ValueError:  # the shell will say what is wrong with it
        return ["sh", "-c", command]
    return ["sh", "-c", command] if _SHELL.search(_QUOTED.sub("", command)) else words


def _configured(project: Project, words: list[str], tests: list[str] | None, name: str) -> Target:
    """The given words, run and read as the runner they start; an unknown program is run and its text read."""
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
        strength=Strength.ASKED,
    )


def _surest(how: Runner, project: Project) -> list[Target]:
    """One target for each folder: the one with the best reason."""
    best: dict[str, Target] = {}
    for target in how.detect(project):
        if target.root not in best or target.strength > best[target.root].strength:
            best[target.root] = target
    return list(best.values())


def _one_of_each_family(found: list[Target]) -> list[Target]:
    """pytest runs unittest's tests too, vitest and jest claim the same files: in one folder one of them is right."""
    best: dict[tuple[str, str], Target] = {}
    for target in found:
        key = (target.root, runner(target.runner).family)
        if key not in best or target.strength > best[key].strength:
            best[key] = target
    return list(best.values())


def _covered(target: Target, others: list[Target]) -> bool:
    """A runner that goes into folders below has these tests already, unless the folder is configured by itself.

    A runner that the folder above only depends on is there for the packages below which say how they use it.
    """
    if _is_for_those_below(target, others):
        return True
    above = [other for other in others if _is_above(other, target) and _same_kind(other, target)]
    return any(_goes_down(other) and not _is_for_those_below(other, others) for other in above) and not (
        target.runner == "pytest" and target.strength >= Strength.CONFIG
    )


def _is_for_those_below(target: Target, others: list[Target]) -> bool:
    return target.strength is Strength.DEPENDENCY and any(
        other.runner == target.runner and _is_above(target, other) and other.strength >= Strength.SCRIPT
        for other in others
        if target.language == "javascript"
    )


def _is_explained(target: Target, kept: list[Target]) -> bool:
    """A command that nobody recognises is run only where nothing better is known: it mostly starts the others.

    Tests in a browser are no answer to what a test script does, unless it is them that it starts.
    """
    others = [other for other in kept if other.runner != COMMAND and not _is_in_a_browser(other)]
    return target.runner == COMMAND and any(
        other.root == target.root or _is_above(target, other) or (_is_above(other, target) and _goes_down(other))
        for other in others
    )


def _is_in_a_browser(target: Target) -> bool:
    return target.runner == "playwright" and target.strength is not Strength.SCRIPT


def _goes_down(target: Target) -> bool:
    return bool(getattr(runner(target.runner), "covers_below", False))


def _leaving_out(target: Target, kept: list[Target]) -> list[str]:
    """pytest above must not run the folders that pytest runs by themselves."""
    below = [other for other in kept if target.runner == other.runner == "pytest" and _is_above(target, other)]
    return [*target.command, *(f"--ignore={Path(other.root).relative_to(target.root)}" for other in below)]


def _same_kind(above: Target, below: Target) -> bool:
    same = runner(above.runner).family == runner(below.runner).family
    return above.runner == below.runner or (same and below.strength is Strength.PATTERN)


def _is_above(above: Target, below: Target) -> bool:
    return above.root != below.root and (above.root == "." or below.root.startswith(f"{above.root}/"))
