"""A project's folder as detection sees it: its files, listed once and read at most once."""

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

from ratchet.core.roles import matches

# Dependencies, build results and caches: never a place of the project's own tests.
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
# Whole projects that lie below a project's tests are what it tests with, not what it is tested by.
_DATA_OF_TESTS = {"projects", "data", "examples"}
# Below these lie projects beside the project. They count where there is nothing else.
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
    """Paths are relative to the folder, in POSIX form."""

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
                name for name in folders if not self._is_anothers(above, name) and not self._is_skipped(top, name)
            )
            found += [name if above == "." else f"{above}/{name}" for name in sorted(names)]
            if len(found) > _FILES_MAX:
                break
        return found

    @cached_property
    def known(self) -> set[str]:
        return set(self.files)

    @property
    def left_out(self) -> dict[str, str]:
        """The folders that others wrote, and how that is known."""
        return self._left_out if self.files is not None else {}

    def _is_anothers(self, above: str, name: str) -> bool:
        path = name if above == "." else f"{above}/{name}"
        why = "" if name.startswith(".") else self._whose(path, name)
        if why:
            self._left_out[path] = why
        return bool(why)

    def _whose(self, path: str, name: str) -> str:
        """Why a folder is not the project's own; empty when it is."""
        if name in _OTHERS:
            return "a folder for the code of others"
        if path in self._submodules:
            return "a git submodule"
        if self._is_repository and (self.folder / path / ".git").exists():
            return "a git repository of its own"
        inside = next((part for part in PurePosixPath(path).parts[:-1] if part in _TESTS), "")
        licence = self._licence(path) if inside else ""
        return f"another project inside {inside}, it has a {licence}" if licence else ""

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
        """A folder that only holds repositories is theirs together."""
        return any((place / ".git").exists() for place in (self.folder, *self.folder.parents))

    @staticmethod
    def _is_skipped(top: str, name: str) -> bool:
        if name in _DATA_OF_TESTS and Path(top).name in ("tests", "test"):
            return True
        # A virtual environment may have any name; its marker file does not.
        return name in _SKIPPED or name.startswith(".") or Path(top, name, "pyvenv.cfg").exists()

    def named(self, *patterns: str) -> Iterator[str]:
        """The files whose path matches a glob, shallowest first."""
        hits = {path for pattern in patterns for path in self._matching(pattern)}
        yield from sorted(hits, key=lambda path: (path.count("/"), path))

    def _matching(self, pattern: str) -> list[str]:
        """Detection asks for a hundred names: those of the usual shapes are looked up, and no expression is made."""
        name = pattern.removeprefix("**/")
        if "/" in name or "?" in name or name.count("*") > 1:
            return [path for path in self.files if matches(path, pattern)]
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

    def inside(self, root: str) -> list[str]:
        return self.files if root == "." else [path for path in self.files if path.startswith(f"{root}/")]

    def has(self, path: str) -> bool:
        return (self.folder / path).is_file()

    def text(self, path: str) -> str:
        """The file's beginning; empty when it cannot be read."""
        if path not in self._texts:
            try:
                with (self.folder / path).open("rb") as file:
                    self._texts[path] = file.read(_READ_MAX).decode(errors="replace")
            except OSError:
                self._texts[path] = ""
        return self._texts[path]

    def toml(self, path: str) -> dict[str, Any]:
        try:
            return tomllib.loads(self.text(path))
        except tomllib.TOMLDecodeError:
            return {}

    def json(self, path: str) -> dict[str, Any]:
        try:
            value = json.loads(self.text(path))
        except ValueError:
            return {}
        return value if isinstance(value, dict) else {}


def is_aside(folder: str) -> bool:
    """What is shown or measured with a project has tests of its own seldom, and dependencies of its own always."""
    return any(part in _ASIDE or _SHOWN.match(part) for part in PurePosixPath(folder).parts)


def root_of(path: str) -> str:
    return PurePosixPath(path).parent.as_posix()


def under(root: str, *names: str) -> list[str]:
    """Names in a folder, as paths of the project."""
    return [name if root == "." else f"{root}/{name}" for name in names]
