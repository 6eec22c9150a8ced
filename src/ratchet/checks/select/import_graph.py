"""Builds the import graph from the text of the files. If an import cannot be resolved, the file may import anything."""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from typing import Any

from ratchet.checks.detect.project import Project, parent_of

ANYTHING = "*"
SCRIPTS = (".js", ".mjs", ".cjs", ".ts", ".mts", ".cts", ".jsx", ".tsx")
_PYTHON_IMPORT = re.compile(
    r"(?m)^\s*(?:from\s+([.\w]+)\s+import\s+(\([^)]*\)|[^\n#;]+)|import\s+([\w., ]+))|^\s*pytest_plugins\s*=\s*([^\n]+)"
)
_NAMED = re.compile(r"""["']([\w.]+)["']""")
_SCRIPT_IMPORT = re.compile(
    r"""(?:\bfrom\s*|\bimport\s*\(?\s*|\brequire(?:\.resolve|Actual)?\s*\(\s*|\b(?:jest|vi)\.\w*[mM]ock\s*\(\s*)["']([^"'\n]+)["']"""
)
_COMPUTED = re.compile(r"""(?<![\w.])(?:require|import)\s*\(\s*(?:[^"'\s)]|["'][^"']*["']\s*\+)""")
_BUILT_IN = {
    "assert", "async_hooks", "buffer", "child_process", "cluster", "console", "constants", "crypto", "dgram",
    "diagnostics_channel", "dns", "domain", "events", "fs", "http", "http2", "https", "inspector", "module", "net",
    "os", "path", "perf_hooks", "process", "punycode", "querystring", "readline", "repl", "stream", "string_decoder",
    "sys", "timers", "tls", "trace_events", "tty", "url", "util", "v8", "vm", "wasi", "worker_threads", "zlib",
}  # fmt: skip


def imports(project: Project, path: str) -> set[str]:
    """Return the files that this file imports; `ANYTHING` is included if an import cannot be resolved."""
    if path.endswith(".py"):
        return _python_imports(project, path) | _conftests(project, path)
    if path.endswith(SCRIPTS):
        return _script_imports(project, path)
    return set()


def _conftests(project: Project, path: str) -> set[str]:
    """Return the conftest files that pytest imports for every file in and below a folder."""
    above = [parent.as_posix() for parent in PurePosixPath(path).parents]
    names = {"conftest.py" if folder == "." else f"{folder}/conftest.py" for folder in above}
    return (names & project.file_set) - {path}


def _python_imports(project: Project, path: str) -> set[str]:
    names: set[str] = set()
    for source, members, plain, plugins in _PYTHON_IMPORT.findall(project.text(path)):
        names |= {_unaliased(name) for name in plain.split(",")} | set(_NAMED.findall(plugins))
        base = _absolute(source, path) if source else ""
        rows = re.sub(r"#[^\n]*|[()\\\\]", "", members).split(",") if source else []
        names |= {base, *(f"{base}.{_unaliased(member)}" for member in rows)}
    return {file for name in names if name for file in _module_files(name, path, project)}


def _unaliased(name: str) -> str:
    return re.split(r"\s+as\s+", name.strip())[0]


def _absolute(source: str, path: str) -> str:
    dots = len(source) - len(source.lstrip("."))
    if not dots:
        return source
    package = PurePosixPath(path).parents[dots - 1] if dots <= len(PurePosixPath(path).parents) else PurePosixPath()
    return ".".join([*package.parts, *([source[dots:]] if source[dots:] else [])])


def _module_files(name: str, path: str, project: Project) -> set[str]:
    """Return the files of a module, which may be found from any folder on the path; its packages' `__init__` run
    too."""
    parts = name.strip().split(".")
    found: set[str] = set()
    for length in range(1, len(parts) + 1):
        stem = "/".join(parts[:length])
        for file in (f"{stem}.py", f"{stem}/__init__.py"):
            found |= {other for other in _called(project, file) if other == file or other.endswith(f"/{file}")}
    return found - {path}


def _called(project: Project, file: str) -> list[str]:
    """Return the project's files that end with this path."""
    if "_by_end" not in project.__dict__:
        ends: dict[str, list[str]] = {}
        for path in project.files:
            if path.endswith(".py"):
                ends.setdefault(_end(path), []).append(path)
        project.__dict__["_by_end"] = ends
    found: list[str] = project.__dict__["_by_end"].get(_end(file), [])
    return found


def _end(path: str) -> str:
    return "/".join(path.split("/")[-2:]) if path.endswith("__init__.py") else path.rpartition("/")[2]


def _script_imports(project: Project, path: str) -> set[str]:
    text = project.text(path)
    found = {ANYTHING} if _COMPUTED.search(text) and _is_test(path) else set()
    for name in _SCRIPT_IMPORT.findall(text):
        if name.startswith("."):
            found |= _relative(project, PurePosixPath(path).parent, name)
        elif own := packages(project).get(_package(name)):
            found.add(own)
        elif not _is_foreign(project, name):
            found.add(ANYTHING)
    return found - {path}


def _is_test(path: str) -> bool:
    return re.search(r"(?:^|/)(?:__)?(?:tests?|specs?)(?:__)?/|[.-](?:test|spec)\.", path) is not None


def _relative(project: Project, folder: PurePosixPath, name: str) -> set[str]:
    stem = _normal(folder / name.partition("?")[0])
    bare = re.sub(r"\.[cm]?jsx?$", "", stem)
    ends = [*SCRIPTS, ".json", ".node", ".vue", ".svelte"]
    below = f"{stem}/index" if stem else "index"
    main = project.json(f"{stem}/package.json" if stem else "package.json").get("main")
    entry = {_normal(PurePosixPath(stem) / main)} if isinstance(main, str) else set()
    places = {stem, *entry, *(f"{end}{suffix}" for end in (bare, stem, below, *entry) for suffix in ends)}
    return places & project.file_set or {ANYTHING}


def packages(project: Project) -> dict[str, str]:
    """Map the names of the project's packages to their folders. Importing a package counts as importing all of its
    files, because a build may decide which of them it exports."""
    if "_packages" not in project.__dict__:
        named = {path: project.json(path).get("name") for path in project.glob("**/package.json")}
        project.__dict__["_packages"] = {
            name: f"{parent_of(path)}/" for path, name in named.items() if isinstance(name, str) and name
        }
    found: dict[str, str] = project.__dict__["_packages"]
    return found


def package_of(project: Project, path: str) -> str:
    """Return the package of a file; tests do not belong to what others import."""
    folders = {*packages(project).values()}
    above = [f"{parent.as_posix()}/" for parent in PurePosixPath(path).parents]
    return "" if _is_test(path) else next((folder for folder in above if folder in folders), "")


def _package(name: str) -> str:
    parts = name.split("/")
    return "/".join(parts[:2]) if name.startswith("@") else parts[0]


def _is_foreign(project: Project, name: str) -> bool:
    """Return whether a name is an external package: an undeclared name is an alias."""
    package = _package(name)
    return ":" in name or package in _BUILT_IN or package in _declared_dependencies(project)


def _declared_dependencies(project: Project) -> set[str]:
    if "_asked_for" not in project.__dict__:
        manifests = [project.json(path) for path in project.glob("**/package.json")]
        own = {str(manifest.get("name")) for manifest in manifests}
        project.__dict__["_asked_for"] = {name for manifest in manifests for name in _dependencies(manifest)} - own
    found: set[str] = project.__dict__["_asked_for"]
    return found


def _dependencies(manifest: dict[str, Any]) -> set[str]:
    kinds = ("dependencies", "devDependencies", "peerDependencies", "optionalDependencies")
    tables = [manifest.get(kind) for kind in kinds]
    return {str(name) for table in tables if isinstance(table, dict) for name in table}


def _normal(path: PurePosixPath) -> str:
    parts: list[str] = []
    for part in path.parts:
        if part == ".." and parts:
            parts.pop()
        elif part not in (".", ".."):
            parts.append(part)
    return "/".join(parts)
