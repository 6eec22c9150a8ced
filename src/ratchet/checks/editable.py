"""Where variables and editable installs lead: to the developer's tree, whose code tests of another must not load."""

from __future__ import annotations

import os
import shutil
import site
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import msgspec

from ratchet.checks import Target

_PATHS = ("PYTHONPATH", "NODE_PATH", "RUBYLIB", "PERL5LIB")  # where languages look for modules


class Origin(msgspec.Struct, frozen=True, kw_only=True):
    """The tree that targets were found in: its `root`, and where `inside` it tests are run."""

    root: Path
    inside: str = "."

    def led(self, env: Mapping[str, str], targets: Iterable[Target], folder: Path) -> dict[str, str]:
        """The environment of tests in `folder`, which stands for that place: what leads to the one tree leads to the
        other, and modules that are installed from the one come from the other."""
        top = folder.parents[len(Path(self.inside).parts) - 1] if self.inside != "." else folder
        if top == self.root:
            return dict(env)
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
    """The folders inside the repository that the interpreter looks for modules in, relative to it."""
    found: dict[str, None] = {}
    for place in _places(python):
        for folder in _named(place):
            if folder.is_absolute() and folder.is_relative_to(repo):
                found[folder.relative_to(repo).as_posix()] = None
    return list(found)


def _places(python: str) -> Iterator[Path]:
    """Of a virtual environment, or of the interpreter itself and its user."""
    yield from Path(python).parent.parent.glob(_INSTALLED)
    if not (Path(python).parent.parent / "pyvenv.cfg").is_file():
        yield from Path(shutil.which(python) or python).resolve().parent.parent.glob(_INSTALLED)
        yield from Path(site.getuserbase()).glob(_INSTALLED)


_INSTALLED = "lib/python*/site-packages"


def _named(place: Path) -> Iterator[Path]:
    for file in place.glob("*.pth"):
        for line in _lines(file):
            if line and not line.startswith(("#", "import ", "import\t")):
                yield Path(line)
    for file in place.glob("__editable___*_finder.py"):
        for target in _mapping(file).values():
            yield Path(target).parent


def _lines(file: Path) -> list[str]:
    try:
        return file.read_text(errors="replace").splitlines()
    except OSError:
        return []


def _mapping(file: Path) -> dict[str, str]:
    """setuptools keeps it in a variable of a module it writes."""
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
