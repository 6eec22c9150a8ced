"""Computes digests of the test tools, to detect a runner that was changed during a run.

Digests depend on the content only, not on paths or times, so the same runner has the same digest in every workspace and
on every host. Only tools that decide about results are included, not all dependencies.

What an agent installed is read outside of its sandbox: within bounds, and by way of a link only in the tree and where
packages are installed. Of other links the target counts: what is there, an agent cannot change.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import islice
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
_TOOLS_MAX, _ENTRIES_MAX, _BYTES_MAX = 2_000, 50_000, 1 << 30  # of one project
_INSTALLED = {"node_modules", "site-packages", "vendor"}
BYTE_CODE = " (byte code)"


class TooMuch(Exception):
    """There is more than a digest is made of."""


class _Allowance:
    """What may still be looked at and read."""

    def __init__(self) -> None:
        self._entries, self._bytes = _ENTRIES_MAX, _BYTES_MAX

    def use(self, size: int = 0) -> None:
        self._entries, self._bytes = self._entries - 1, self._bytes - size
        if min(self._entries, self._bytes) < 0:
            raise TooMuch


def tool_digests(targets: Iterable[Target], folder: Path) -> dict[str, str]:
    """Return one digest for each tool, by a name that does not depend on the folder."""
    found: dict[str, str] = {}
    allowance = _Allowance()
    for target in targets:
        try:
            for name, place in islice(_places(target, folder / target.root), _TOOLS_MAX):
                if name not in found:
                    found |= {key: digest for key, digest in _digests(name, place, folder, allowance) if digest}
        except (OSError, RuntimeError, ValueError):  # locked, or links in a circle
            found[f"the tools of {target.name}"] = "not readable"
    return found


def _digests(name: str, place: Path, folder: Path, allowance: _Allowance) -> list[tuple[str, str]]:
    """Return the digests of a tool and of its byte code; empty if there is none."""
    try:
        source, compiled = _digest(place, folder, allowance)
    except TooMuch:
        source, compiled = "too much to read", ""
    except (OSError, RuntimeError, ValueError):
        source, compiled = "not readable", ""
    return [(name, source), (f"{name}{BYTE_CODE}", compiled)]


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
    scoped = [f"{path.parent.name}/{path.name}" for path in islice(modules.glob("@*/*"), _ENTRIES_MAX)]
    for name in sorted([*(path.name for path in islice(modules.iterdir(), _ENTRIES_MAX)), *scoped]):
        if _NODE.fullmatch(name):
            yield f"node_modules/{name}", modules / name
            if (modules / ".bin" / name).exists():
                yield f"node_modules/.bin/{name}", modules / ".bin" / name


def _digest(place: Path, folder: Path, allowance: _Allowance) -> tuple[str, str]:
    """Return the digest of a file, or of all files in a folder, and that of its byte code."""
    allowance.use()
    if not place.is_file() and not place.is_dir():
        return "", ""
    real = resolve(place)
    if not _may_be_read(place, real, folder):
        return hashlib.sha256(f"a link to {real}".encode(errors="replace")).hexdigest(), ""
    if place.is_file():
        return _of_file(place, allowance), ""
    files = sorted(_files(str(real), folder, allowance))
    return _whole(row for row in files if not row[0].endswith(".pyc")), _whole(
        row for row in files if row[0].endswith(".pyc")
    )


def _may_be_read(named: Path, real: Path, folder: Path) -> bool:
    """Whether it is no link out of the tree, or one to an installed package. What is not named in the tree is ours."""
    is_in_tree = real.is_relative_to(resolve(folder)) or not named.is_relative_to(folder)
    return is_in_tree or not _INSTALLED.isdisjoint(real.parts)


def _whole(files: Iterable[tuple[str, str]]) -> str:
    whole, count = hashlib.sha256(), 0
    for count, (path, digest) in enumerate(files, 1):  # noqa: B007 — whether there is any
        whole.update(f"{path}\0{digest}\0".encode(errors="replace"))
    return whole.hexdigest() if count else ""


def _files(top: str, folder: Path, allowance: _Allowance) -> Iterator[tuple[str, str]]:
    """Yield the path below the top, and the digest, of each file."""
    folders = [top]
    while folders:
        with os.scandir(folders.pop()) as entries:
            for entry in entries:
                allowance.use()
                path = entry.path.removeprefix(top)
                if entry.is_dir(follow_symlinks=False):
                    folders.append(entry.path)
                elif entry.is_symlink() and not _may_be_read(folder, resolve(Path(entry.path)), folder):
                    yield path, f"a link to {os.readlink(entry.path)}"  # noqa: PTH115 — a string
                elif entry.is_file():
                    yield path, _of_file(Path(entry.path), allowance)


def _of_file(path: Path, allowance: _Allowance) -> str:
    try:
        is_now = path.stat()
    except OSError:
        return ""
    if is_now.st_size > _LARGEST_PROGRAM_BYTES:
        return f"{is_now.st_size} bytes"
    allowance.use(is_now.st_size)
    # A writer cannot set ctime: an unchanged stat means unchanged content, which need not be read again.
    return _read(str(path), is_now.st_ino, is_now.st_size, is_now.st_mtime_ns, is_now.st_ctime_ns)


@lru_cache(maxsize=20_000)
def _read(path: str, *_stat: int) -> str:
    try:
        return hashlib.sha256(read_anywhere(Path(path), max_bytes=_LARGEST_PROGRAM_BYTES)).hexdigest()
    except OSError:
        return ""
