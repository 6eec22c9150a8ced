"""Which packages of a Go module or a Cargo workspace a change can reach, read from their files: no tool is run.

Whatever is not plainly source of a package (a manifest, a lock, embedded data, C) may reach everything: then nothing is
said, and all tests run.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import PurePosixPath
from typing import Any

from ratchet.checks.project import Project, root_of

Edges = dict[str, set[str]]  # who depends on whom

_GO_MODULE = re.compile(r"(?m)^module\s+(\S+)")
_GO_IMPORTS = re.compile(r'(?m)^import\s+(?:[\w.]+\s+)?"([^"]+)"|^import\s*\(([^)]*)\)')
_GO_ELSEWHERE = re.compile(r"(?m)=>\s*\.")  # a module that lies on this disk stands in for a published one
_TABLES = ("dependencies", "dev-dependencies", "build-dependencies")


def go_tests(project: Project, root: str, changed: list[str]) -> list[str] | None:
    """A test file of each package that the changed files can reach; nothing when that cannot be told."""
    files = _go_files(project, root)
    folders = {root_of(path) for path in files}
    if not all(path.endswith(".go") and root_of(path) in folders for path in changed):
        return None
    uses, tested = _go_edges(project, root, files)
    moved = {root_of(path) for path in changed if not path.endswith("_test.go")}
    reached = _reached(moved, uses)
    # What a test imports is not handed on to those who import its package.
    wanted = {root_of(path) for path in changed} | reached | {name for name, used in tested.items() if used & reached}
    first = {root_of(path): path for path in sorted(files, reverse=True) if path.endswith("_test.go")}
    return sorted(first[folder] for folder in wanted & first.keys())


def go_reaches_out(project: Project, root: str) -> bool:
    """Whether code outside the module's folder may be part of it."""
    return project.has("go.work") or bool(_GO_ELSEWHERE.search(project.text(_inside(root, "go.mod"))))


def _go_files(project: Project, root: str) -> list[str]:
    inner = [root_of(path) for path in project.named("**/go.mod") if root_of(path) != root]
    own = [path for path in project.inside(root) if path.endswith(".go")]
    return [path for path in own if not any(path.startswith(f"{folder}/") for folder in inner if folder != ".")]


def _go_edges(project: Project, root: str, files: Iterable[str]) -> tuple[Edges, Edges]:
    """What each package's code imports of the module, and what its tests do."""
    module = _GO_MODULE.search(project.text(_inside(root, "go.mod")))
    uses: Edges = {}
    tested: Edges = {}
    for path in files:
        edges = tested if path.endswith("_test.go") else uses
        names = _go_imports(project.text(path))
        found = {_go_folder(name, module.group(1) if module else "", root) for name in names}
        edges.setdefault(root_of(path), set()).update(found - {""})
    return uses, tested


def _go_imports(text: str) -> list[str]:
    found = _GO_IMPORTS.findall(text)
    return [name for one, block in found for name in ([one] if one else re.findall(r'"([^"]+)"', block))]


def _go_folder(name: str, module: str, root: str) -> str:
    """The folder of an import path; nothing for other modules."""
    if name == module:
        return root
    return _inside(root, name[len(module) + 1 :]) if module and name.startswith(f"{module}/") else ""


def cargo_packages(project: Project, root: str, changed: list[str]) -> dict[str, str] | None:
    """The packages that the changed files can reach, with their manifests; nothing when that cannot be told."""
    manifests = {root_of(path): path for path in project.named("**/Cargo.toml") if path in project.inside(root)}
    tables = {folder: project.toml(path) for folder, path in manifests.items()}
    names = {folder: str(table["package"].get("name", "")) for folder, table in tables.items() if "package" in table}
    owners = {_owner(path, names) for path in changed}
    if "" in owners or not all(path.endswith(".rs") and path in project.known for path in changed):
        return None
    if any(PurePosixPath(path).name == "build.rs" for path in changed):
        return None
    folders = {name: folder for folder, name in names.items()}
    uses = {folder: {folders[name] for name in _needs(tables[folder]) if name in folders} for folder in names}
    reached = _reached(owners, uses)
    return None if reached == set(names) else {names[folder]: manifests[folder] for folder in sorted(reached)}


def cargo_reaches_out(project: Project, root: str) -> bool:
    return any('"../' in project.text(path) and root == root_of(path) for path in project.named("**/Cargo.toml"))


def _owner(path: str, packages: Iterable[str]) -> str:
    """The innermost package that the file lies in."""
    above = [parent.as_posix() for parent in PurePosixPath(path).parents]
    return next((folder for folder in above if folder in set(packages)), "")


def _needs(table: dict[str, Any]) -> set[str]:
    """Names of the packages in every table of dependencies, under their own names."""
    places = [table, *(place for place in table.get("target", {}).values() if isinstance(place, dict))]
    found = [item for place in places for key in _TABLES for item in place.get(key, {}).items()]
    return {str(wish.get("package", name)) if isinstance(wish, dict) else name for name, wish in found}


def _reached(moved: Iterable[str], uses: Edges) -> set[str]:
    """Those that moved, and who depends on them, directly or not."""
    reached, grown = set(moved), True
    while grown:
        more = {name for name, used in uses.items() if used & reached} - reached
        reached |= more
        grown = bool(more)
    return reached


def _inside(root: str, name: str) -> str:
    return name if root == "." else f"{root}/{name}"
