"""Finds copies of a project that sandboxes would show: installed for other programs, or fetched by package managers.

They may be newer than a task, and so hold its answer.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from ratchet.checks.globs import find
from ratchet.checks.run.path_redirect import installed_files
from ratchet.tree_files import read_anywhere

# Where Python packages are installed, below a prefix and below the home.
_PREFIXES = ("/usr", "/usr/local", sys.prefix, sys.base_prefix)
_PYTHON = ("lib/python3*/site-packages", "lib/python3*/dist-packages")
_PYTHON_HOMES = (
    ".local", ".pyenv/versions/*", ".local/share/pipx/venvs/*", ".local/share/uv/tools/*", ".local/share/uv/python/*",
    ".local/share/virtualenvs/*", "miniconda3", "miniconda3/envs/*", "miniforge3", "miniforge3/envs/*", "anaconda3",
    "anaconda3/envs/*",
)  # fmt: skip
_MODULES = ("lib/node_modules",)
_MODULES_HOMES = (".npm-global", ".nvm/versions/node/*", ".volta/tools/image/node/*", ".local")


def find_copies(root: Path, home: Path) -> list[str]:
    """Return the files and folders of copies of the project in `root`, by the name that its manifests give it."""
    finders = (_of_python, _of_node, _of_go, _of_rust, _of_ruby, _of_java)
    found = {str(path): None for find in finders for path in find(root, home)}
    return [path for path in found if not Path(path).is_relative_to(root)]


def _prefixes(home: Path, below: Iterable[str]) -> Iterator[Path]:
    """Yield the folders that programs are installed in: the system's, those of programs on the PATH, the home's."""
    on_path = [str(Path(place).parent) for place in os.environ.get("PATH", "").split(os.pathsep) if place]
    yield from map(Path, dict.fromkeys((*_PREFIXES, *on_path)))
    for pattern in below:
        yield from find(home, pattern)


def _of_python(root: Path, home: Path) -> Iterator[Path]:
    for prefix in _prefixes(home, _PYTHON_HOMES):
        for pattern in _PYTHON:
            for place in find(prefix, pattern):
                yield from installed_files(place, root)


def _of_node(root: Path, home: Path) -> Iterator[Path]:
    try:
        given = json.loads(_text(root / "package.json"))
    except ValueError:
        return
    name = given.get("name") if isinstance(given, dict) else None
    if isinstance(name, str) and re.fullmatch(r"(?:@[\w.-]+/)?\w[\w.-]*", name):
        for prefix in _prefixes(home, _MODULES_HOMES):
            yield from _existing(prefix / folder / name for folder in _MODULES)


def _of_go(root: Path, home: Path) -> Iterator[Path]:
    """Also the other major versions of a module, whose paths end in `/v2` and so on."""
    for name in _named(root, "go.mod", r"(?m)^module\s+\"?([\w~-][\w./~-]*)"):
        path = re.sub(r"[A-Z]", lambda found: f"!{found[0].lower()}", re.sub(r"/v\d+$", "", name))
        for place in (home / "go/pkg/mod", home / "go/pkg/mod/cache/download"):
            yield from place.glob(f"{path}@*")
            yield from place.glob(f"{path}/v[0-9]*@*")
            yield from _existing([place / path / "@v", *place.glob(f"{path}/v[0-9]*/@v")])


def _of_rust(root: Path, home: Path) -> Iterator[Path]:
    for name in _named(root, "Cargo.toml", r"(?ms)^\[package\][^\[]*?^name\s*=\s*\"([\w-]+)\""):
        for place in ("src/*", "cache/*"):
            yield from (home / ".cargo/registry").glob(f"{place}/{name}-[0-9]*")
        for place in ("checkouts", "db"):
            yield from (home / ".cargo/git").glob(f"{place}/{name}-*")


def _of_ruby(root: Path, home: Path) -> Iterator[Path]:
    for manifest in root.glob("*.gemspec"):
        name = manifest.stem
        places = (Path("/var/lib/gems"), Path("/usr/share"), Path("/usr/lib/ruby"), home / ".gem/ruby",
                  home / ".local/share/gem/ruby", home / ".rbenv/versions", home / ".rvm/gems")  # fmt: skip
        for place in places:
            for folder in (*place.glob("gems"), *place.glob("*/gems"), *place.glob("*/lib/ruby/gems/*/gems")):
                yield from folder.glob(f"{name}-[0-9]*")


def _of_java(root: Path, home: Path) -> Iterator[Path]:
    for manifest in (root / "pom.xml", *root.glob("*/pom.xml")):
        parent, _, rest = _text(manifest).rpartition("</parent>")
        group = re.search(r"<groupId>\s*([\w.-]+)", rest.partition("<dependenc")[0]) or re.search(
            r"<groupId>\s*([\w.-]+)", parent
        )
        name = re.search(r"<artifactId>\s*([\w.-]+)", rest)
        if group and name:
            yield from _existing([home / ".m2/repository" / group[1].replace(".", "/") / name[1]])


def _named(root: Path, file: str, pattern: str) -> Iterator[str]:
    """Yield the names in the manifests of the root and of the folders in it."""
    for manifest in (root / file, *root.glob(f"*/{file}"), *root.glob(f"*/*/{file}")):
        yield from re.findall(pattern, _text(manifest))


def _existing(paths: Iterable[Path]) -> Iterator[Path]:
    return (path for path in paths if path.exists())


def _text(file: Path) -> str:
    try:
        return read_anywhere(file, max_bytes=1 << 20).decode(errors="replace")
    except OSError:
        return ""
