"""Which test files and packages a change can reach, by who imports whom. When that cannot be told, all of a target's
tests."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path, PurePosixPath

from ratchet.checks import Target, packages
from ratchet.checks.project import Project
from ratchet.core.report import TestResult, TestStatus
from ratchet.core.roles import matches

# Runners that take file names. Go and cargo take packages; for the others a target is all or nothing.
_BY_FILE = {"pytest", "jest", "vitest", "mocha", "node", "bun", "deno", "playwright", "bats", "rspec", "phpunit"}
_PYTHON_IMPORT = re.compile(r"(?m)^\s*(?:from\s+([.\w]+)\s+import\s+([\w, ()*]+)|import\s+([\w., ]+))")
_SCRIPT_IMPORT = re.compile(r"""(?:from\s*|import\s*\(?\s*|require\s*\(\s*)["'](\.{1,2}/[^"']+)["']""")
_SCRIPTS = (".js", ".mjs", ".cjs", ".ts", ".mts", ".cts", ".jsx", ".tsx")
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
    graphed = all(path.endswith((".py", *_SCRIPTS)) and path in known for path in inside)
    shared = any(PurePosixPath(path).name in _EVERYTHING for path in inside)
    if target.runner not in _BY_FILE or shared or not graphed:
        return []
    reached = _reached(project, inside)
    files = sorted(path for path in reached if _is_test_file(path, target))
    own = [path.removeprefix(prefix) for path in files]
    return [TestResult(id=path, file=path, status=TestStatus.TODO) for path in own] or None


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


def _reached(project: Project, changed: Iterable[str]) -> set[str]:
    """The changed files and everything that imports them, directly or not."""
    importers: dict[str, set[str]] = {}
    for path in project.files:
        for imported in _imports(project, path):
            importers.setdefault(imported, set()).add(path)
    reached, todo = set(changed), list(changed)
    while todo:
        for importer in importers.get(todo.pop(), set()) - reached:
            reached.add(importer)
            todo.append(importer)
    return reached


def _imports(project: Project, path: str) -> set[str]:
    if path.endswith(".py"):
        return _python_imports(project, path)
    if path.endswith(_SCRIPTS):
        return _script_imports(project, path)
    return set()


def _python_imports(project: Project, path: str) -> set[str]:
    names: set[str] = set()
    for source, members, plain in _PYTHON_IMPORT.findall(project.text(path)):
        if plain:
            names |= {name.split(" as ")[0].strip() for name in plain.split(",")}
            continue
        base = _absolute(source, path)
        names |= {base} | {f"{base}.{member.strip(' ()')}" for member in members.split(",")}
    known = project.known
    return {file for name in names for file in _module_files(name, path, known)}


def _absolute(source: str, path: str) -> str:
    dots = len(source) - len(source.lstrip("."))
    if not dots:
        return source
    package = PurePosixPath(path).parents[dots - 1] if dots <= len(PurePosixPath(path).parents) else PurePosixPath()
    return ".".join([*package.parts, *([source[dots:]] if source[dots:] else [])])


def _module_files(name: str, path: str, known: set[str]) -> set[str]:
    """A module may be found from the top, from `src`, or beside the file that imports it; importing it runs its
    packages' `__init__` too."""
    parts = name.strip().split(".")
    found: set[str] = set()
    for place in ("", "src/", f"{PurePosixPath(path).parent.as_posix()}/".removeprefix("./")):
        for length in range(1, len(parts) + 1):
            stem = place + "/".join(parts[:length])
            found |= {f"{stem}.py", f"{stem}/__init__.py"} & known
    return found - {path}


def _script_imports(project: Project, path: str) -> set[str]:
    known = project.known
    found: set[str] = set()
    for name in _SCRIPT_IMPORT.findall(project.text(path)):
        stem = _normal(PurePosixPath(path).parent / name)
        bare = re.sub(r"\.[cm]?jsx?$", "", stem)
        ends = [*_SCRIPTS, *(f"/index{end}" for end in _SCRIPTS)]
        found |= ({stem} | {bare + end for end in ends} | {stem + end for end in ends}) & known
    return found


def _normal(path: PurePosixPath) -> str:
    parts: list[str] = []
    for part in path.parts:
        if part == ".." and parts:
            parts.pop()
        elif part not in (".", ".."):
            parts.append(part)
    return "/".join(parts)
