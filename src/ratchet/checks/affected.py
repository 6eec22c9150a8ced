"""Which test files and packages a change can reach, by who imports whom. When that cannot be told, all of a target's
tests."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path, PurePosixPath

from ratchet.checks import Target, packages, pytest_ini
from ratchet.checks.imports import ANYTHING, SCRIPTS, imports
from ratchet.checks.project import Project, under
from ratchet.checks.scripts import names
from ratchet.core.report import TestResult, TestStatus
from ratchet.core.roles import matches

# Runners that take file names. Go and cargo take packages; for the others a target is all or nothing.
_BY_FILE = {"pytest", "jest", "vitest", "mocha", "node", "bun", "deno", "playwright", "bats", "rspec", "phpunit"}
# Files everything depends on without importing them.
_EVERYTHING = ("conftest.py", "pyproject.toml", "pytest.ini", "tox.ini", "setup.cfg", "package.json", "tsconfig.json")


def affected(folder: Path, targets: list[Target], changed: list[str]) -> dict[str, list[TestResult]]:
    """For each target that the changed files can reach, its test files; a target with all of its tests has none."""
    project = Project(folder)
    found = {target.name: _of_target(project, target, changed) for target in targets}
    return {name: tests for name, tests in found.items() if tests is not None}


def _of_target(project: Project, target: Target, changed: list[str]) -> list[TestResult] | None:
    prefix = "" if target.root == "." else f"{target.root}/"
    inside = [path for path in changed if path.startswith(prefix)]
    if not inside:
        return [] if changed and _reaches_out(project, target) else None
    if target.runner in {"go", "cargo"}:
        return _of_packages(project, target, inside, prefix)
    known = project.known
    graphed = all(path.endswith((".py", *SCRIPTS)) and path in known for path in inside)
    shared = any(PurePosixPath(path).name in _EVERYTHING for path in inside)
    if target.runner not in _BY_FILE or shared or not graphed or _tests_are_anywhere(project, target):
        return []
    reached = _reached(project, inside)
    if _is_set_up_by(project, prefix, reached):
        return []
    told = pytest_ini.places(project, target.root) if target.runner == "pytest" else {}
    named = {f"{prefix}{path.removeprefix('./')}" for path in told.get("testpaths", [])}
    own = [path.removeprefix(prefix) for path in sorted(reached) if path in named or _is_test_file(path, target)]
    every = [path.removeprefix(prefix) for path in project.inside(target.root)]
    own = _taken(own, target, every, told)
    return [TestResult(id=path, file=path, status=TestStatus.TODO) for path in own] or None


def _tests_are_anywhere(project: Project, target: Target) -> bool:
    """Whether pytest is told to take files that are not named like tests."""
    texts = [project.text(path) for path in under(target.root, *_PYTEST_CONFIG)] if target.runner == "pytest" else []
    return any("python_files" in text or "--doctest" in text for text in texts)


_PYTEST_CONFIG = ("pyproject.toml", "pytest.ini", ".pytest.ini", "pytest.toml", "tox.ini", "setup.cfg")
_SCRIPT_CONFIG = ("*.config.*", ".mocharc*", ".taprc", "spec/support/jasmine.*")
_KEYS = ("scripts", "jest", "mocha", "ava", "vitest", "tap", "c8", "nyc")


def _is_set_up_by(project: Project, prefix: str, reached: set[str]) -> bool:
    """Whether one of these is loaded before every test, as the configuration of a JavaScript runner may say."""
    manifest = project.json(f"{prefix}package.json")
    names = project.named(*(f"{prefix}{pattern}" for pattern in _SCRIPT_CONFIG))
    text = "\n".join([str([manifest.get(key) for key in _KEYS]), *map(project.text, names)])
    stems = (path.removeprefix(prefix).rpartition(".")[0] for path in reached if path.endswith(SCRIPTS))
    return any(re.search(rf"[\"' /=,]{re.escape(stem)}(?:\.[cm]?[jt]sx?)?[\"' ,]", text) for stem in stems)


def _reaches_out(project: Project, target: Target) -> bool:
    """Whether a change outside the target's folder may be a change to it."""
    if target.runner == "go":
        return packages.go_reaches_out(project, target.root)
    return target.runner in {"cargo", "nextest"} and packages.cargo_reaches_out(project, target.root)


def _of_packages(project: Project, target: Target, changed: list[str], prefix: str) -> list[TestResult] | None:
    """A package is chosen by a file in it that its runner knows it by; cargo needs its name, too."""
    if target.runner == "cargo":
        found = packages.cargo_packages(project, target.root, changed)
        return _chosen({} if found is None else {path.removeprefix(prefix): name for name, path in found.items()})
    files = packages.go_tests(project, target.root, changed)
    return _chosen({path.removeprefix(prefix): "" for path in files or []}) or (None if files == [] else [])


def _chosen(files: dict[str, str]) -> list[TestResult]:
    return [TestResult(id=file, file=file, name=name, status=TestStatus.TODO) for file, name in files.items()]


def _is_test_file(path: str, target: Target) -> bool:
    if target.runner == "pytest":
        name = PurePosixPath(path).name
        return name.startswith("test_") or name.endswith("_test.py")
    return any(matches(path, glob) for glob in target.tests)


def _taken(files: list[str], target: Target, every: list[str], told: dict[str, list[str]]) -> list[str]:
    """Those that a command takes, if it names some: what else lies beside them may be no test."""
    if target.runner == "pytest":
        return [path for path in files if pytest_ini.is_looked_at(told, path)]
    if target.language != "javascript":
        return files
    taken = {path for words in [target.command, *target.also] for path in _taken_by(words, files, every)}
    return [path for path in files if path in taken]


def _taken_by(command: list[str], files: list[str], every: list[str]) -> list[str]:
    words = [word.removeprefix("./") for word in command[1:] if not word.startswith("-")]
    named = [word for word in words if any(names(word, path) for path in every)]
    return [path for path in files if any(names(word, path) for word in named)] or files


def _reached(project: Project, changed: Iterable[str]) -> set[str]:
    """The changed files and everything that imports them, directly or not."""
    importers: dict[str, set[str]] = {}
    for path in project.files:
        for imported in imports(project, path):
            importers.setdefault(imported, set()).add(path)
    reached, todo = set(changed), list(changed)
    if any(path.endswith(SCRIPTS) for path in changed):
        todo.append(ANYTHING)
    while todo:
        for importer in importers.get(todo.pop(), set()) - reached:
            reached.add(importer)
            todo.append(importer)
    return reached
