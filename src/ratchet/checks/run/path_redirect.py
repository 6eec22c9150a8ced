"""Redirects path variables and editable installs away from the developer's tree, whose code must not be loaded by tests
of another tree."""

from __future__ import annotations

import os
import re
import shutil
import site
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import msgspec

from ratchet.checks.protocol import Target
from ratchet.core.lines import split_lines
from ratchet.process.spawn import path_in_namespace
from ratchet.tree_files import read_anywhere, read_source

_PATHS = ("PYTHONPATH", "NODE_PATH", "RUBYLIB", "PERL5LIB")  # module search paths of the languages


class SourceTree(msgspec.Struct, frozen=True, kw_only=True):
    """The tree in which targets were detected: its `root`, and the folder `inside` it where tests run."""

    root: Path
    inside: str = "."

    def redirect(self, env: Mapping[str, str], targets: Iterable[Target], folder: Path) -> dict[str, str]:
        """Return the environment of tests in `folder`, which replaces that place: paths into the original tree point to
        the new one, and packages installed from the original are imported from the new one."""
        top = folder.parents[len(Path(self.inside).parts) - 1] if self.inside != "." else folder
        if top == self.root:
            return dict(env)
        top = Path(path_in_namespace(str(top)))
        moved = {
            name: os.pathsep.join(self._moved(top, entry) for entry in env[name].split(os.pathsep))
            for name in _PATHS
            if env.get(name)
        }
        pythons = dict.fromkeys(target.command[0] for target in targets if target.language == "python")
        ours = [str(top / folder) for python in pythons for folder in editable_folders(python, self.root)]
        path = os.pathsep.join(dict.fromkeys([*ours, *filter(None, [moved.get("PYTHONPATH")])]))
        return {**env, **moved, **({"PYTHONPATH": path} if path else {})}

    def _moved(self, top: Path, entry: str) -> str:
        return str(top / Path(entry).relative_to(self.root)) if Path(entry).is_relative_to(self.root) else entry


def editable_folders(python: str, repo: Path) -> list[str]:
    """Return the folders inside the repository that are on the interpreter's module path, relative to the
    repository."""
    found: dict[str, None] = {}
    for place in site_packages(python):
        for folder in _listed_paths(place):
            if folder.is_absolute() and folder.is_relative_to(repo):
                found[folder.relative_to(repo).as_posix()] = None
    return list(found)


def site_packages(python: str) -> Iterator[Path]:
    """Yield the site-packages of a virtual environment, or of the interpreter itself and its user."""
    yield from Path(python).parent.parent.glob(_INSTALLED)
    if not (Path(python).parent.parent / "pyvenv.cfg").is_file():
        yield from Path(shutil.which(python) or python).resolve().parent.parent.glob(_INSTALLED)
        yield from Path(site.getuserbase()).glob(_INSTALLED)


def installed_copy(python: str, repo: Path) -> Path | None:
    """Return where a copy of the repository's own project is installed that does not lead to the repository."""
    return next((found for place in site_packages(python) for found in _installed(place, _project_name(repo))), None)


def installed_files(place: Path, repo: Path) -> list[Path]:
    """Return the files and folders of copies of the repository's own project in one folder of packages."""
    name = _project_name(repo)
    found = [each for info in _installed(place, name) for each in (info, *_top_level(info, name))]
    return [path for path in dict.fromkeys(found) if path.exists()]


def _installed(place: Path, name: str) -> Iterator[Path]:
    for found in (*place.glob("*.dist-info"), *place.glob("*.egg-info")):
        if _normal(re.split(r"-\d|\.(?:dist|egg)-info", found.name)[0]) == name and not _is_editable(found):
            yield found


def _top_level(info: Path, name: str) -> Iterator[Path]:
    """Yield the packages and modules of an installed project; its own name where it does not list them."""
    listed = [line.partition("/")[0].partition(",")[0] for line in _lines(info / "RECORD")]
    listed += [f"{line}{end}" for line in _lines(info / "top_level.txt") for end in ("", ".py")]
    own = [part for part in listed if part.strip(".") and not part.startswith("__") and not part.endswith("-info")]
    yield from (info.parent / part for part in own or (name, f"{name}.py"))


def _project_name(repo: Path) -> str:
    import tomllib  # noqa: PLC0415 — seldom needed

    try:
        project = tomllib.loads(read_source(repo, "pyproject.toml")).get("project", {})
    except (ValueError, RecursionError):
        project = {}
    return _normal(str(project.get("name", "") if isinstance(project, dict) else "") or repo.name)


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "_", name).lower()


def _is_editable(installed: Path) -> bool:
    """Whether the package was installed with `pip install -e` or the like."""
    text = "".join(_lines(installed / "direct_url.json"))
    return bool(re.search(r'"editable"\s*:\s*true', text)) or "__editable__" in "".join(_lines(installed / "RECORD"))


_INSTALLED = "lib/python*/site-packages"


def _listed_paths(place: Path) -> Iterator[Path]:
    for file in place.glob("*.pth"):
        for line in _lines(file):
            if line and not line.startswith(("#", "import ", "import\t")):
                yield Path(line)
    for file in place.glob("__editable___*_finder.py"):
        for target in _mapping(file).values():
            yield Path(target).parent


def _lines(file: Path) -> list[str]:
    try:
        return split_lines(read_anywhere(file).decode(errors="replace"))
    except OSError:
        return []


def _mapping(file: Path) -> dict[str, str]:
    """Read the mapping that setuptools writes as a variable of a generated module."""
    for line in _lines(file):
        name, _, value = line.partition("=")
        if name.split(":")[0].strip() == "MAPPING":
            import ast  # noqa: PLC0415 — seldom needed, and long to load

            try:
                found = ast.literal_eval(value.strip())
            except (ValueError, SyntaxError):
                return {}
            return found if isinstance(found, dict) else {}
    return {}
