"""Finds the build commands in a JavaScript test script: without them the tests would use the results of the last
build."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from typing import Any

from ratchet.checks.detect.package_scripts import Judge, commands_before
from ratchet.checks.detect.project import Project, join_root

_BUILDERS = (
    "tsc", "tsup", "tsdown", "tshy", "rollup", "esbuild", "webpack", "babel", "swc", "unbuild", "microbundle",
    "pkgroll", "vite",
)  # fmt: skip
_OUTPUT = {"dist", "build", "out"}
_NOT_OUTPUT = {"node_modules", "coverage", "tmp", "temp", "logs"}
_IGNORED = re.compile(r"(?m)^/?([\w.-]+)/?\s*$")
_TOP = ("*.js", "*.mjs", "*.cjs")
_FILES_MAX = 300


def build_commands(
    project: Project, root: str, command: list[str], tests: Iterable[str], is_runner: Judge
) -> list[list[str]]:
    """Return the commands that build before the runner starts, if the tests use what they build."""
    table = project.json(*join_root(root, "package.json"))
    found = scripted_builds(project, root, is_runner)
    return found if found and _is_used(project, root, table, command, tests) else []


def scripted_builds(project: Project, root: str, is_runner: Judge) -> list[list[str]]:
    """Return the commands of the test script and its `pretest` that build before the runner starts."""
    table = project.json(*join_root(root, "package.json"))
    return commands_before(table, is_runner, lambda words: _is_build(project, root, words))


def _is_build(project: Project, root: str, words: list[str]) -> bool:
    """Return whether a command writes build results: type checks and watchers do not."""
    at = _start(words, _BUILDERS)
    if at is None or {"--noEmit", "--watch", "-w"} & set(words) or (words[at] == "vite" and "build" not in words):
        return False
    option = next((n for n, word in enumerate(words) if word in ("-p", "--project")), 0)
    settings = words[option + 1] if option and option + 1 < len(words) else "tsconfig.json"
    looking = words[at] == "tsc" and re.search(r'"noEmit"\s*:\s*true', project.text(*join_root(root, settings)))
    return not looking


def _start(words: list[str], programs: Collection[str]) -> int | None:
    """Return the index of one of these programs, after variables and starters such as `npx`."""
    at = next((n for n, word in enumerate(words) if "=" not in word and word not in ("npx", "cross-env", "env")), None)
    return at if at is not None and re.sub(r"^.*/", "", words[at]) in programs else None


def _is_used(project: Project, root: str, table: dict[str, Any], command: list[str], tests: Iterable[str]) -> bool:
    """Return whether the runner gets built files, or the tests or top-level files import them."""
    named = "|".join(map(re.escape, _folders(project, root)))
    if any(re.match(rf"(?:\./)?(?:{named})/", word) for word in command):
        return True
    places = [rf"\.?\.?/(?:\.\./)*(?:{named})"]
    entries = str([table.get(key) for key in ("main", "module", "exports", "bin")])
    if re.search(rf"""["'](?:\./)?(?:{named})/""", entries):
        places += [r"\.\./?", r"\./?", re.escape(str(table.get("name")))]
    used = re.compile(rf"""(?:from|import|require)\s*\(?\s*["'](?:{"|".join(places)})["'/]""")
    files = list(project.glob(*tests, *join_root(root, *_TOP)))[:_FILES_MAX]
    return any(used.search(project.text(path)) for path in files)


def _folders(project: Project, root: str) -> list[str]:
    """Return the folders that may hold build results: the usual ones and those that git ignores."""
    texts = [project.text(path) for path in {".gitignore", *join_root(root, ".gitignore")}]
    ignored = {name for text in texts for name in _IGNORED.findall(text) if "." not in name}
    return sorted(_OUTPUT | ignored - _NOT_OUTPUT)
