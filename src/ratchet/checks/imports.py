"""Who imports whom, as far as the text of the files tells."""

from __future__ import annotations

import re
from pathlib import PurePosixPath

from ratchet.checks.project import Project

_PYTHON_IMPORT = re.compile(r"(?m)^\s*(?:from\s+([.\w]+)\s+import\s+([\w, ()*]+)|import\s+([\w., ]+))")
_SCRIPT_IMPORT = re.compile(r"""(?:from\s*|import\s*\(?\s*|require\s*\(\s*)["'](\.{1,2}/[^"']+)["']""")
SCRIPTS = (".js", ".mjs", ".cjs", ".ts", ".mts", ".cts", ".jsx", ".tsx")


def imports(project: Project, path: str) -> set[str]:
    if path.endswith(".py"):
        return _python_imports(project, path)
    if path.endswith(SCRIPTS):
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
        ends = [*SCRIPTS, *(f"/index{end}" for end in SCRIPTS)]
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
