"""Finds the options that enable tests in a C or C++ build which omits them by default."""

from __future__ import annotations

import re

from ratchet.checks.detect.project import Project, join_root

_CMAKE = re.compile(r'(?i)\boption\s*\(\s*(\w+)\s+(?:"[^"]*"|\w+)\s*(?:OFF|FALSE|NO|0)?\s*\)')
_MESON = re.compile(r"\boption\(\s*'([\w-]+)'([^)]*)\)")
# The project's name may precede it as one word; anything else in between would be another kind of test.
_NAME = re.compile(
    r"(?i)(?:(?!install|skip|no|disable|fuzz|perf|bench)[a-z0-9]+_)?(?:(?:build|enable|with|make)_?)?(?:unit_?)?test(?:s|ing)?"
)
_OFF = {r"type\s*:\s*'boolean'.*value\s*:\s*false": "true", r"type\s*:\s*'feature'.*value\s*:\s*'disabled'": "enabled"}


def of_cmake(project: Project, root: str = ".") -> list[str]:
    """Return options that an `if` in the same file uses: unused options cause warnings."""
    found: list[str] = []
    for path in project.glob(*join_root(root, "CMakeLists.txt", "*.cmake", "cmake/*.cmake")):
        text = re.sub(r"(?m)^\s*#.*$", "", project.text(path))
        names = [name for name in _CMAKE.findall(text) if _NAME.fullmatch(name)]
        found += [f"-D{name}=ON" for name in names if re.search(rf"(?i)\bif\s*\([^)]*\b{name}\b", text)]
    return list(dict.fromkeys(found))


def of_meson(project: Project, root: str = ".") -> list[str]:
    return [
        f"-D{name}={on}"
        for path in project.glob(*join_root(root, "meson_options.txt", "meson.options"))
        for name, body in _MESON.findall(project.text(path))
        for off, on in _OFF.items()
        if _NAME.fullmatch(name.replace("-", "_")) and re.search(off, body, re.S)
    ]
