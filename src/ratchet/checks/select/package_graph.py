"""Finds the packages of a Go module or a Cargo workspace that a change affects, from their files without running a
tool.

A change to anything but plain source (a manifest, a lock file, embedded data, C) may affect everything: then the result
is None and all tests run.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import PurePosixPath
from typing import Any

from ratchet.checks.detect.project import Project, parent_of

Edges = dict[str, set[str]]  # package → its dependencies

_GO_MODULE = re.compile(r"(?m)^module\s+(\S+)")
_GO_IMPORTS = re.compile(r'(?m)^import\s+(?:[\w.]+\s+)?"([^"]+)"|^import\s*\(([^)]*)\)')
_GO_ELSEWHERE = re.compile(r"(?m)=>\s*\.")  # a local module replaces a published one
_TABLES = ("dependencies", "dev-dependencies", "build-dependencies")


def affected_go_tests(project: Project, root: str, changed: list[str]) -> list[str] | None:
    """Return a test file of each affected package; None if unknown."""
    files = _go_files(project, root)
    folders = {parent_of(path) for path in files}
    if not all(path.endswith(".go") and parent_of(path) in folders for path in changed):
        return None
    uses, tested = _go_edges(project, root, files)
    moved = {parent_of(path) for path in changed if not path.endswith("_test.go")}
    reached = _dependents(moved, uses)
    # The imports of a package's tests do not affect its importers.
    wanted = {parent_of(path) for path in changed} | reached | {name for name, used in tested.items() if used & reached}
    first = {parent_of(path): path for path in sorted(files, reverse=True) if path.endswith("_test.go")}
    return sorted(first[folder] for folder in wanted & first.keys())


def go_uses_outside_code(project: Project, root: str) -> bool:
    """Return whether the module may include code outside of its folder."""
    return project.has("go.work") or bool(_GO_ELSEWHERE.search(project.text(_inside(root, "go.mod"))))


def _go_files(project: Project, root: str) -> list[str]:
    inner = [parent_of(path) for path in project.glob("**/go.mod") if parent_of(path) != root]
    own = [path for path in project.files_below(root) if path.endswith(".go")]
    return [path for path in own if not any(path.startswith(f"{folder}/") for folder in inner if folder != ".")]


def _go_edges(project: Project, root: str, files: Iterable[str]) -> tuple[Edges, Edges]:
    """Return the imports of each package within the module: of its code and of its tests."""
    module = _GO_MODULE.search(project.text(_inside(root, "go.mod")))
    uses: Edges = {}
    tested: Edges = {}
    for path in files:
        edges = tested if path.endswith("_test.go") else uses
        names = _go_imports(project.text(path))
        found = {_go_folder(name, module.group(1) if module else "", root) for name in names}
        edges.setdefault(parent_of(path), set()).update(found - {""})
    return uses, tested


def _go_imports(text: str) -> list[str]:
    found = _GO_IMPORTS.findall(text)
    return [name for one, block in found for name in ([one] if one else re.findall(r'"([^"]+)"', block))]


def _go_folder(name: str, module: str, root: str) -> str:
    """Return the folder of an import path; empty for other modules."""
    if name == module:
        return root
    return _inside(root, name[len(module) + 1 :]) if module and name.startswith(f"{module}/") else ""


def affected_cargo_packages(project: Project, root: str, changed: list[str]) -> dict[str, str] | None:
    """Return the affected packages with their manifests; None if unknown."""
    manifests = {parent_of(path): path for path in project.glob("**/Cargo.toml") if path in project.files_below(root)}
    tables = {folder: project.toml(path) for folder, path in manifests.items()}
    names = {folder: str(table["package"].get("name", "")) for folder, table in tables.items() if "package" in table}
    owners = {_owner(path, names) for path in changed}
    if "" in owners or not all(path.endswith(".rs") and path in project.file_set for path in changed):
        return None
    if any(PurePosixPath(path).name == "build.rs" for path in changed):
        return None
    folders = {name: folder for folder, name in names.items()}
    uses = {folder: {folders[name] for name in _needs(tables[folder]) if name in folders} for folder in names}
    reached = _dependents(owners, uses)
    return None if reached == set(names) else {names[folder]: manifests[folder] for folder in sorted(reached)}


def cargo_uses_outside_code(project: Project, root: str) -> bool:
    return any('"../' in project.text(path) and root == parent_of(path) for path in project.glob("**/Cargo.toml"))


def _owner(path: str, packages: Iterable[str]) -> str:
    """Return the innermost package that contains the file."""
    above = [parent.as_posix() for parent in PurePosixPath(path).parents]
    return next((folder for folder in above if folder in set(packages)), "")


def _needs(table: dict[str, Any]) -> set[str]:
    """Return the package names in all dependency tables, with renames resolved."""
    places = [table, *(place for place in table.get("target", {}).values() if isinstance(place, dict))]
    found = [item for place in places for key in _TABLES for item in place.get(key, {}).items()]
    return {str(wish.get("package", name)) if isinstance(wish, dict) else name for name, wish in found}


def _dependents(moved: Iterable[str], uses: Edges) -> set[str]:
    """Return the changed packages and all that depend on them, directly or indirectly."""
    reached, grown = set(moved), True
    while grown:
        more = {name for name, used in uses.items() if used & reached} - reached
        reached |= more
        grown = bool(more)
    return reached


def _inside(root: str, name: str) -> str:
    return name if root == "." else f"{root}/{name}"
