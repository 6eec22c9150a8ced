"""Which test files and packages a change can reach, by who imports whom. When that cannot be told, all of a target's
tests."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path, PurePosixPath

from ratchet.checks import Target, packages, pytest_ini
from ratchet.checks.imports import ANYTHING, SCRIPTS, imports, package_of
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
    if not inside and target.language != "javascript":
        return [] if changed and _reaches_out(project, target) else None
    if target.runner in {"go", "cargo"}:
        return _of_packages(project, target, inside, prefix)
    known = project.known
    graphed = all(path.endswith((".py", *SCRIPTS)) and path in known for path in inside)
    shared = any(PurePosixPath(path).name in _EVERYTHING for path in inside) or _is_shared(target, changed)
    if not inside and not shared and not any(path.startswith(prefix) for path in _reached(project, changed)):
        return None
    if target.runner not in _BY_FILE or shared or not graphed or _tests_are_anywhere(project, target):
        return []
    reached = _reached(project, changed if target.language == "javascript" else inside)
    if _is_set_up_by(project, prefix, reached):
        return []
    told = pytest_ini.places(project, target.root) if target.runner == "pytest" else {}
    named = {f"{prefix}{path.removeprefix('./')}" for path in told.get("testpaths", [])}
    below = [path for path in sorted(reached) if path.startswith(prefix)]
    own = [path.removeprefix(prefix) for path in below if path in named or _is_test_file(path, target)]
    every = [path.removeprefix(prefix) for path in project.inside(target.root)]
    own = _taken(own, target, every, told)
    return [TestResult(id=path, file=path, status=TestStatus.TODO) for path in own] or None


_SHARED = re.compile(
    r"tsconfig.*\.json|.+\.config\.[cm]?[jt]s|.*lock.*|\.(?:babelrc|swcrc|npmrc).*|pnpm-workspace\.yaml"
)


def _is_shared(target: Target, changed: list[str]) -> bool:
    """Whether something above a package of JavaScript's changed that its packages may have in common."""
    above = {parent.as_posix() for parent in PurePosixPath(target.root).parents} if target.root != "." else set()
    names = [PurePosixPath(path).name for path in changed if PurePosixPath(path).parent.as_posix() in above]
    return target.language == "javascript" and any(name in _EVERYTHING or _SHARED.fullmatch(name) for name in names)


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
    """Of each file, and each package, who imports it."""
    if "_importers" not in project.__dict__:
        found: dict[str, set[str]] = {}
        for path in project.files:
            for imported in imports(project, path):
                found.setdefault(imported, set()).add(path)
        project.__dict__["_importers"] = found
    known: dict[str, set[str]] = project.__dict__["_importers"]
    return known
