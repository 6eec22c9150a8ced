"""A read-only view of a project's files for detection: listed once, read at most once."""

from __future__ import annotations

import json
import os
import re
import tomllib
from collections.abc import Iterator
from contextlib import suppress
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Any

from ratchet.core.roles import matches_glob
from ratchet.tree_files import is_source, read_source

# Dependencies, build results and caches: they never contain the project's own tests.
_SKIPPED = {
    "node_modules", "bower_components", "vendor", "target", "build", "dist", "out", "venv", "env", "site-packages",
    "__pycache__", "_build", "deps", "zig-cache", "zig-out", "coverage", "htmlcov", "testdata", "fixtures",
    "__fixtures__",
}  # fmt: skip
_OTHERS = {
    "vendor", "deps", "third_party", "third-party", "thirdparty", "3rdparty", "external", "externals", "extern",
}  # fmt: skip
_TESTS = {"tests", "test", "spec", "specs", "testing"}
_LICENCE = re.compile(r"(?:(?:un)?licen[cs]e|copying)(?:[-.](?:mit|apache|bsd)[\w.-]*)?(?:\.(?:txt|md|rst))?", re.I)
_SUBMODULE = re.compile(r"(?m)^\s*path\s*=\s*(.+?)/?\s*$")
# Whole projects below a project's tests are test data, not tests.
_DATA_OF_TESTS = {"projects", "data", "examples"}
# Auxiliary projects inside of the project. They count only if there is nothing else.
_ASIDE = {
    "examples", "example", "samples", "demo", "demos", "fuzz", "fuzzing", "bench", "benches", "benchmark",
    "benchmarks", "perf", "perfs", "template", "templates", "playground", "sandbox",
}  # fmt: skip
_SHOWN = re.compile(r"(?:samples?|examples?|demos?)[-_]")
_FILES_MAX = 50_000
_READ_MAX = 200_000


def _is_between(head: str, name: str, tail: str) -> bool:
    return len(name) >= len(head) + len(tail) and name.startswith(head) and name.endswith(tail)


class Project:
    """The files of a folder. Paths are relative to it, in POSIX form."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._texts: dict[str, str] = {}
        self._left_out: dict[str, str] = {}

    @cached_property
    def files(self) -> list[str]:
        found: list[str] = []
        for top, folders, names in os.walk(self.folder):
            above = Path(top).relative_to(self.folder).as_posix()
            folders[:] = sorted(
                name for name in folders if not self._is_foreign(above, name) and not self._is_skipped(top, name)
            )
            found += [name if above == "." else f"{above}/{name}" for name in sorted(names)]
            if len(found) > _FILES_MAX:
                break
        return found

    @cached_property
    def file_set(self) -> set[str]:
        return set(self.files)

    @property
    def excluded(self) -> dict[str, str]:
        """Folders with third-party code, each with the evidence."""
        return self._left_out if self.files is not None else {}

    def _is_foreign(self, above: str, name: str) -> bool:
        path = name if above == "." else f"{above}/{name}"
        why = "" if name.startswith(".") else self._foreign_reason(path, name)
        if why:
            self._left_out[path] = why
        return bool(why)

    def _foreign_reason(self, path: str, name: str) -> str:
        """Return why a folder holds third-party code, or an empty string."""
        if name in _OTHERS:
            return "a folder for third-party code"
        if path in self._submodules:
            return "a git submodule"
        if self._is_repository and os.path.lexists(self.folder / path / ".git"):
            return "a git repository of its own"
        inside = next((part for part in PurePosixPath(path).parts[:-1] if part in _TESTS), "")
        licence = self._licence(path) if inside else ""
        return f"another project inside {inside} (it has a {licence})" if licence else ""

    def _licence(self, path: str) -> str:
        for below in ("", "docs/", "doc/"):
            with suppress(OSError):
                names = sorted(place.name for place in (self.folder / path / below).iterdir())
                if found := next(filter(_LICENCE.fullmatch, names), ""):
                    return f"{below}{found}"
        return ""

    @cached_property
    def _submodules(self) -> set[str]:
        return set(_SUBMODULE.findall(self.text(".gitmodules")))

    @cached_property
    def _is_repository(self) -> bool:
        """Return whether the folder belongs to a git repository. A folder that only contains repositories does not, and
        all of them count."""
        return any(os.path.lexists(place / ".git") for place in (self.folder, *self.folder.parents))

    @staticmethod
    def _is_skipped(top: str, name: str) -> bool:
        if name in _DATA_OF_TESTS and Path(top).name in ("tests", "test"):
            return True
        # A virtual environment may have any name, but always has this marker file.
        return name in _SKIPPED or name.startswith(".") or os.path.lexists(f"{top}/{name}/pyvenv.cfg")

    def glob(self, *patterns: str) -> Iterator[str]:
        """Yield the files whose path matches a glob, shallowest first."""
        hits = {path for pattern in patterns for path in self._matching(pattern)}
        yield from sorted(hits, key=lambda path: (path.count("/"), path))

    def _matching(self, pattern: str) -> list[str]:
        """Look up the usual patterns by file name: detection tries a hundred patterns, and regular expressions would be
        slow."""
        name = pattern.removeprefix("**/")
        if "/" in name or "?" in name or name.count("*") > 1:
            return [path for path in self.files if matches_glob(path, pattern)]
        head, star, tail = name.partition("*")
        names = self._by_name
        alike = [other for other in names if _is_between(head, other, tail)] if star else [name]
        found = [path for other in alike for path in names.get(other, ())]
        return found if name != pattern else [path for path in found if "/" not in path]

    @cached_property
    def _by_name(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for path in self.files:
            found.setdefault(path.rpartition("/")[2], []).append(path)
        return found

    def files_below(self, root: str) -> list[str]:
        return self.files if root == "." else [path for path in self.files if path.startswith(f"{root}/")]

    def has(self, path: str) -> bool:
        return is_source(self.folder, path)

    def text(self, path: str) -> str:
        """Return the beginning of a file; empty if it cannot be read."""
        if path not in self._texts:
            self._texts[path] = read_source(self.folder, path, max_bytes=_READ_MAX)
        return self._texts[path]

    def toml(self, path: str) -> dict[str, Any]:
        try:
            return tomllib.loads(self.text(path))
        except (ValueError, RecursionError):
            return {}

    def json(self, path: str) -> dict[str, Any]:
        try:
            value = json.loads(self.text(path))
        except (ValueError, RecursionError):
            return {}
        return value if isinstance(value, dict) else {}


def is_auxiliary(folder: str) -> bool:
    """Return whether a folder holds examples, benchmarks or the like, which seldom have tests but always
    dependencies."""
    return any(part in _ASIDE or _SHOWN.match(part) for part in PurePosixPath(folder).parts)


def parent_of(path: str) -> str:
    return PurePosixPath(path).parent.as_posix()


def join_root(root: str, *names: str) -> list[str]:
    """Join names to a folder, as paths relative to the project."""
    return [name if root == "." else f"{root}/{name}" for name in names]
