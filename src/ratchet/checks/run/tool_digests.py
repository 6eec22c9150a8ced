"""Computes digests of the test tools, to detect a runner that was changed during a run.

Digests depend on the content only, not on paths or times, so the same runner has the same digest in every workspace and
on every host. Only tools that decide about results are included, not all dependencies.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from collections.abc import Iterable, Iterator
from functools import lru_cache
from pathlib import Path

from ratchet.checks.protocol import Target
from ratchet.checks.runners import find_upward
from ratchet.checks.runners.python import find_python
from ratchet.process.spawn import resolve
from ratchet.tree_files import read_anywhere, read_source

# Names in `site-packages`; packages that register a pytest plugin are added.
_PYTHON = ("pytest", "_pytest", "py.py", "pluggy", "iniconfig", "xdist", "django/test", "sitecustomize.py",
           "usercustomize.py")  # fmt: skip
_NODE = re.compile(
    r"(?:@(?:jest|vitest|playwright)/[\w.-]+|@hapi/lab|(?:jest|babel-jest|ts-jest|vitest|vite-node|mocha|chai|expect|ava|tap|tape|uvu"
    r"|jasmine|karma|playwright|c8|nyc)(?:-[\w.-]+)?)"
)
_PHP = ("vendor/phpunit", "vendor/pestphp", "vendor/bin/phpunit", "vendor/bin/pest")
_LARGEST_PROGRAM_BYTES = 200_000_000
BYTE_CODE = " (byte code)"


def tool_digests(targets: Iterable[Target], folder: Path) -> dict[str, str]:
    """Return one digest for each tool, by a name that does not depend on the folder."""
    found: dict[str, str] = {}
    for target in targets:
        for name, place in _places(target, folder / target.root):
            if name not in found and (digest := _digest(place, byte_code=False)):
                found[name] = digest
                if compiled := _digest(place, byte_code=True):
                    found[f"{name}{BYTE_CODE}"] = compiled
    return found


def changed_tools(before: dict[str, str], after: dict[str, str]) -> list[str]:
    """Return the tools that changed, disappeared or appeared: an additional plugin runs before any test."""
    return [name for name in _differing(before, after) if not name.endswith(BYTE_CODE)]


def has_new_bytecode(before: dict[str, str], after: dict[str, str]) -> bool:
    """Return whether a tool has new byte code. Every run writes it, so it proves nothing, but it may behave differently
    from the source."""
    return any(name.endswith(BYTE_CODE) for name in _differing(before, after))


def _differing(before: dict[str, str], after: dict[str, str]) -> list[str]:
    return sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))


def _places(target: Target, root: Path) -> Iterator[tuple[str, Path]]:
    if target.language == "python" or target.runner == "command":
        yield from _python(_interpreter(target, root))
    if target.language == "javascript" or target.runner == "command":
        yield from _node(root)
    yield from ((name, root / name) for name in _PHP)
    # A program found by its bare name belongs to the system or the user: `go`, `cargo`, `mvn`.
    word = target.command[0] if target.command else ""
    if word and "/" not in word and (program := shutil.which(word)):
        yield f"the program {word}", Path(program)


def _interpreter(target: Target, root: Path) -> str:
    """Return the interpreter that is started; for a command without a path, that of the project."""
    word = target.command[0] if target.command else ""
    return str(root / word) if "/" in word and Path(word).name.startswith("python") else find_python(root, "pytest")


def _python(python: str) -> Iterator[tuple[str, Path]]:
    for packages in Path(python).parent.parent.glob("lib/python*/site-packages"):
        yield from ((f"site-packages/{name}", packages / name) for name in _PYTHON)
        for listed in sorted(packages.glob("*.dist-info/entry_points.txt")):
            yield from ((f"site-packages/{name}", packages / name) for name in _plugins(listed))
        for path in sorted(packages.glob("*.pth")):
            yield f"site-packages/{path.name}", path
    # The home of the interpreter itself, which a virtual environment only links to.
    for library in sorted(resolve(Path(python)).parent.parent.glob("lib/python3.*/unittest"))[:1]:
        yield "the library's unittest", library


def _plugins(listed: Path) -> Iterator[str]:
    section = read_source(listed.parent, listed.name).partition("[pytest11]")[2].partition("\n[")[0]
    for module in re.findall(r"=\s*([\w.]+)", section):
        top = module.split(".")[0]
        yield from (top, f"{top}.py")


def _node(root: Path) -> Iterator[tuple[str, Path]]:
    modules = find_upward(root, "node_modules")
    if modules is None or not modules.is_dir():
        return
    scoped = [f"{path.parent.name}/{path.name}" for path in modules.glob("@*/*")]
    for name in sorted([*(path.name for path in modules.iterdir()), *scoped]):
        if _NODE.fullmatch(name):
            yield f"node_modules/{name}", modules / name
            if (modules / ".bin" / name).exists():
                yield f"node_modules/.bin/{name}", modules / ".bin" / name


def _digest(place: Path, *, byte_code: bool) -> str:
    """Return the digest of a file, or of all files in a folder; empty if there is none."""
    if place.is_file():
        return "" if byte_code else _of_file(place)
    if not place.is_dir():
        return ""
    top = str(resolve(place))
    files = sorted(path for path in _files(top) if path.endswith(".pyc") == byte_code)
    whole = hashlib.sha256()
    for path in files:
        whole.update(f"{path.removeprefix(top)}\0{_of_file(Path(path))}\0".encode(errors="replace"))
    return whole.hexdigest() if files else ""


def _files(folder: str) -> Iterator[str]:
    for entry in os.scandir(folder):
        if entry.is_dir(follow_symlinks=False):
            yield from _files(entry.path)
        elif entry.is_file():
            yield entry.path


def _of_file(path: Path) -> str:
    try:
        is_now = path.stat()
    except OSError:
        return ""
    if is_now.st_size > _LARGEST_PROGRAM_BYTES:
        return f"{is_now.st_size} bytes"
    # A writer cannot set ctime: an unchanged stat means unchanged content, which need not be read again.
    return _read(str(path), is_now.st_ino, is_now.st_size, is_now.st_mtime_ns, is_now.st_ctime_ns)


@lru_cache(maxsize=20_000)
def _read(path: str, *_stat: int) -> str:
    try:
        return hashlib.sha256(read_anywhere(Path(path), max_bytes=_LARGEST_PROGRAM_BYTES)).hexdigest()
    except OSError:
        return ""
