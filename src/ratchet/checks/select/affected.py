"""Finds the test files and packages that a change affects, by imports. If that cannot be determined, all tests of a
target."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path, PurePosixPath

from ratchet.checks.detect import pytest_config
from ratchet.checks.detect.package_scripts import matches_word
from ratchet.checks.detect.project import Project, join_root
from ratchet.checks.protocol import Target
from ratchet.checks.select import package_graph
from ratchet.checks.select.import_graph import ANYTHING, SCRIPTS, imports, package_of
from ratchet.core.report import TestResult, TestStatus
from ratchet.core.roles import matches_glob

# Runners that accept file names. Go and cargo accept packages; the others run all tests of a target or none.
_BY_FILE = {"pytest", "jest", "vitest", "mocha", "node", "bun", "deno", "playwright", "bats", "rspec", "phpunit"}
# Files that affect everything without being imported.
_EVERYTHING = ("conftest.py", "pyproject.toml", "pytest.ini", "tox.ini", "setup.cfg", "package.json", "tsconfig.json")


def affected(folder: Path, targets: list[Target], changed: list[str]) -> dict[str, list[TestResult]]:
    """Return the affected test files of each affected target; an empty list means all tests of the target."""
    project = Project(folder)
    found = {target.name: _of_target(project, target, changed) for target in targets}
    return {name: tests for name, tests in found.items() if tests is not None}


def _of_target(project: Project, target: Target, changed: list[str]) -> list[TestResult] | None:
    prefix = "" if target.root == "." else f"{target.root}/"
    inside = [path for path in changed if path.startswith(prefix)]
    if not inside and target.language != "javascript":
        return [] if changed and _uses_outside_code(project, target) else None
    if target.runner in {"go", "cargo"}:
        return _of_packages(project, target, inside, prefix)
    known = project.file_set
    graphed = all(path.endswith((".py", *SCRIPTS)) and path in known for path in inside)
    shared = any(PurePosixPath(path).name in _EVERYTHING for path in inside) or _is_shared(target, changed)
    if not inside and not shared and not any(path.startswith(prefix) for path in _dependents(project, changed)):
        return None
    if target.runner not in _BY_FILE or shared or not graphed or _tests_are_anywhere(project, target):
        return []
    reached = _dependents(project, changed if target.language == "javascript" else inside)
    if _is_set_up_by(project, prefix, reached):
        return []
    settings = pytest_config.collection_settings(project, target.root) if target.runner == "pytest" else {}
    named = {f"{prefix}{path.removeprefix('./')}" for path in settings.get("testpaths", [])}
    below = [path for path in sorted(reached) if path.startswith(prefix)]
    own = [path.removeprefix(prefix) for path in below if path in named or _is_test_file(path, target)]
    every = [path.removeprefix(prefix) for path in project.files_below(target.root)]
    own = _run_by_commands(own, target, every, settings)
    return [TestResult(id=path, file=path, status=TestStatus.TODO) for path in own] or None


_SHARED = re.compile(
    r"tsconfig.*\.json|.+\.config\.[cm]?[jt]s|.*lock.*|\.(?:babelrc|swcrc|npmrc).*|pnpm-workspace\.yaml"
)


def _is_shared(target: Target, changed: list[str]) -> bool:
    """Return whether a file above a JavaScript package changed that packages may share."""
    above = {parent.as_posix() for parent in PurePosixPath(target.root).parents} if target.root != "." else set()
    names = [PurePosixPath(path).name for path in changed if PurePosixPath(path).parent.as_posix() in above]
    return target.language == "javascript" and any(name in _EVERYTHING or _SHARED.fullmatch(name) for name in names)


def _tests_are_anywhere(project: Project, target: Target) -> bool:
    """Return whether pytest is configured to collect files that are not named like tests."""
    texts = (
        [project.text(path) for path in join_root(target.root, *_PYTEST_CONFIG)] if target.runner == "pytest" else []
    )
    return any("python_files" in text or "--doctest" in text for text in texts)


_PYTEST_CONFIG = ("pyproject.toml", "pytest.ini", ".pytest.ini", "pytest.toml", "tox.ini", "setup.cfg")
_SCRIPT_CONFIG = ("*.config.*", ".mocharc*", ".taprc", "spec/support/jasmine.*")
_KEYS = ("scripts", "jest", "mocha", "ava", "vitest", "tap", "c8", "nyc")


def _is_set_up_by(project: Project, prefix: str, reached: set[str]) -> bool:
    """Return whether one of these is loaded before every test, according to the configuration of a JavaScript
    runner."""
    manifest = project.json(f"{prefix}package.json")
    names = project.glob(*(f"{prefix}{pattern}" for pattern in _SCRIPT_CONFIG))
    text = "\n".join([str([manifest.get(key) for key in _KEYS]), *map(project.text, names)])
    stems = (path.removeprefix(prefix).rpartition(".")[0] for path in reached if path.endswith(SCRIPTS))
    return any(re.search(rf"[\"' /=,]{re.escape(stem)}(?:\.[cm]?[jt]sx?)?[\"' ,]", text) for stem in stems)


def _uses_outside_code(project: Project, target: Target) -> bool:
    """Return whether a change outside the target's folder may affect it."""
    if target.runner == "go":
        return package_graph.go_uses_outside_code(project, target.root)
    return target.runner in {"cargo", "nextest"} and package_graph.cargo_uses_outside_code(project, target.root)


def _of_packages(project: Project, target: Target, changed: list[str], prefix: str) -> list[TestResult] | None:
    """Select packages by one of their files; cargo also needs the package name."""
    if target.runner == "cargo":
        found = package_graph.affected_cargo_packages(project, target.root, changed)
        return _chosen({} if found is None else {path.removeprefix(prefix): name for name, path in found.items()})
    files = package_graph.affected_go_tests(project, target.root, changed)
    return _chosen({path.removeprefix(prefix): "" for path in files or []}) or (None if files == [] else [])


def _chosen(files: dict[str, str]) -> list[TestResult]:
    return [TestResult(id=file, file=file, name=name, status=TestStatus.TODO) for file, name in files.items()]


def _is_test_file(path: str, target: Target) -> bool:
    if target.runner == "pytest":
        name = PurePosixPath(path).name
        return name.startswith("test_") or name.endswith("_test.py")
    return any(matches_glob(path, glob) for glob in target.tests)


def _run_by_commands(files: list[str], target: Target, every: list[str], settings: dict[str, list[str]]) -> list[str]:
    """Keep the files that a command of the target runs, if it names files: others beside them may not be tests."""
    if target.runner == "pytest":
        return [path for path in files if pytest_config.is_collected(settings, path)]
    if target.language != "javascript":
        return files
    taken = {path for words in [target.command, *target.also] for path in _run_by(words, files, every)}
    return [path for path in files if path in taken]


def _run_by(command: list[str], files: list[str], every: list[str]) -> list[str]:
    words = [word.removeprefix("./") for word in command[1:] if not word.startswith("-")]
    named = [word for word in words if any(matches_word(word, path) for path in every)]
    return [path for path in files if any(matches_word(word, path) for word in named)] or files


def _dependents(project: Project, changed: Iterable[str]) -> set[str]:
    """Return the changed files and everything that imports them, directly or indirectly."""
    importers, changed = _importers(project), set(changed)
    reached, todo = set(changed), [*changed, *(package_of(project, path) for path in changed)]
    if any(path.endswith(SCRIPTS) for path in changed):
        todo.append(ANYTHING)
    while todo:
        for importer in importers.get(todo.pop(), set()) - reached:
            reached.add(importer)
            todo += [importer, package_of(project, importer)]
    return reached


def _importers(project: Project) -> dict[str, set[str]]:
    """Map each file and package to the files that import it."""
    if "_importers" not in project.__dict__:
        found: dict[str, set[str]] = {}
        for path in project.files:
            for imported in imports(project, path):
                found.setdefault(imported, set()).add(path)
        project.__dict__["_importers"] = found
    known: dict[str, set[str]] = project.__dict__["_importers"]
    return known
