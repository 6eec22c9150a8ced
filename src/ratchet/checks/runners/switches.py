"""The options by which a build of C or C++ is told to make its tests too, where it leaves them out by itself."""

from __future__ import annotations

import re

from ratchet.checks.project import Project, under

_CMAKE = re.compile(r'(?i)\boption\s*\(\s*(\w+)\s+(?:"[^"]*"|\w+)\s*(?:OFF|FALSE|NO|0)?\s*\)')
_MESON = re.compile(r"\boption\(\s*'([\w-]+)'([^)]*)\)")
# The project's own name may stand before it, in one word; what is between would be another kind of test.
_NAME = re.compile(
    r"(?i)(?:(?!install|skip|no|disable|fuzz|perf|bench)[a-z0-9]+_)?(?:(?:build|enable|with|make)_?)?(?:unit_?)?test(?:s|ing)?"
)
_OFF = {r"type\s*:\s*'boolean'.*value\s*:\s*false": "true", r"type\s*:\s*'feature'.*value\s*:\s*'disabled'": "enabled"}


def of_cmake(project: Project, root: str = ".") -> list[str]:
    """Each is asked by an `if` in the same file: an option that nobody asks would be a warning."""
    found: list[str] = []
    for path in project.named(*under(root, "CMakeLists.txt", "*.cmake", "cmake/*.cmake")):
        text = re.sub(r"(?m)^\s*#.*$", "", project.text(path))
        names = [name for name in _CMAKE.findall(text) if _NAME.fullmatch(name)]
        found += [f"-D{name}=ON" for name in names if re.search(rf"(?i)\bif\s*\([^)]*\b{name}\b", text)]
    return list(dict.fromkeys(found))


def of_meson(project: Project, root: str = ".") -> list[str]:
    return [
        f"-D{name}={on}"
        for path in project.named(*under(root, "meson_options.txt", "meson.options"))
        for name, body in _MESON.findall(project.text(path))
        for off, on in _OFF.items()
        if _NAME.fullmatch(name.replace("-", "_")) and re.search(off, body, re.S)
    ]
