"""The image of workers or of steps: a Containerfile for a project, from the languages of its tests, and its build."""

from __future__ import annotations

import io
import re
import shlex
import tarfile
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from ratchet import __version__
from ratchet.checks.detect.set_up import test_packages
from ratchet.checks.protocol import Target
from ratchet.errors import UsageError
from ratchet.process.containers import ContainerEngine
from ratchet.tree_files import read_source

BASE = "docker.io/library/python:3.13-slim"
EXTRAS = "postgres"
_ALWAYS = ("bubblewrap", "ca-certificates", "git", "util-linux")
# Packages of Debian by the language of a test target. Other languages are left to the reader of the Containerfile.
PACKAGES = {
    "c": ("build-essential", "cmake", "ninja-build", "pkg-config"),
    "c++": ("build-essential", "cmake", "ninja-build", "pkg-config"),
    "elixir": ("elixir",),
    "erlang": ("erlang", "rebar3"),
    "go": ("golang-go",),
    "haskell": ("cabal-install", "ghc"),
    "java": ("default-jdk-headless", "gradle", "maven"),
    "javascript": ("nodejs", "npm"),
    "lua": ("lua-busted",),
    "nim": ("nim",),
    "ocaml": ("ocaml-dune",),
    "perl": ("perl",),
    "php": ("composer", "php-cli", "php-xml", "phpunit"),
    "python": ("build-essential",),
    "r": ("r-base-core", "r-cran-testthat"),
    "ruby": ("bundler", "ruby-full"),
    "rust": ("build-essential", "cargo", "pkg-config"),
    "shell": ("bats",),
}

# What pip takes as a name with extras, versions and a marker, and never as an option, an address or a path.
_REQUIREMENT = re.compile(
    r"[A-Za-z0-9](?:[\w.-]*[A-Za-z0-9])?(?: ?\[[\w., -]*\])?(?: ?\(?[<>=!~]=?[\w.*+!<>=~, -]*\)?)?"
    r"""(?: ?; ?[\w.<>=!~'"() -]+)?""",
    re.ASCII,
)
_PLAIN_WORD = re.compile(r"[A-Za-z0-9][\w.:/@+-]*", re.ASCII)


def containerfile(
    targets: Iterable[Target], root: Path, *, base: str = BASE, wheel: str = "", steps: bool = False
) -> str:
    """Return a Containerfile with what the tests need, and git. Workers need a sandbox and Ratchet too, which the wheel
    in the same folder or the package index provides; `steps` do not."""
    targets = list(targets)
    for what, value in (("--base", base), ("--wheel", wheel)):
        if value and not _PLAIN_WORD.fullmatch(value):
            raise UsageError(f"{what} {value!r} is no name for a Containerfile", hint="letters, digits and ._:/@+-")
    languages = sorted({target.language for target in targets if target.language})
    found = ", ".join(f"{_in_comment(target.name)} ({_in_comment(target.language or 'any')})" for target in targets)
    python = list(dict.fromkeys(name for target in targets for name in python_packages(target, root)))
    packages = {*(_ALWAYS[1:] if steps else _ALWAYS), *(name for each in languages for name in PACKAGES.get(each, ()))}
    if base != BASE and (python or not steps):
        packages |= {"python3", "python3-pip"}
    missing = [language for language in languages if language not in PACKAGES]
    return "\n".join(
        [
            f"# An image for {'steps' if steps else 'workers'} of this project: {found or 'no tests'}.",
            "# Made by `ratchet image`; edit it freely and build it: ratchet image --file Containerfile --build",
            f"FROM {base}",
            "",
            "RUN apt-get update \\",
            " && apt-get install -y --no-install-recommends \\",
            *(f"      {name} \\" for name in sorted(packages)),
            " && rm -rf /var/lib/apt/lists/*",
            *(
                f"# To add: the tools of {_in_comment(language)}, which Debian has no package of."
                for language in missing
            ),
            "",
            # Debian refuses to let pip install beside its own packages.
            *(["ENV PIP_BREAK_SYSTEM_PACKAGES=1"] if python or not steps else []),
            *(["RUN python3 -m pip install --no-cache-dir " + " ".join(map(shlex.quote, python))] if python else []),
            *([] if steps else _install(wheel)),
            *([] if steps and not python else [""]),
            "# To add: the agents that items name, for example",
            "# RUN npm install -g @anthropic-ai/claude-code",
            "",
            "RUN useradd --uid 1000 --create-home ratchet",
            "USER 1000:1000",
            *([] if steps else ['CMD ["ratchet", "worker", "--once", "--wait"]']),
            "",
        ]
    )


def python_packages(target: Target, root: Path) -> list[str]:
    """Return what pip installs for the tests of a Python target: the test tool, and the dependencies that its manifests
    name. Of poetry and others that do not use [project], only the tool is known."""
    if target.language != "python":
        return []
    folder, found = root / target.root, test_packages(target, root)
    manifest = _manifest(folder)
    project = _table(manifest, "project")
    found += _rows(project, "dependencies")
    set_up = " ".join(target.setup)
    for file in re.findall(r"-r (\S+)", set_up):
        found += _requirements(folder, file)
    for name in re.findall(r"\[(\w+)\]|--group (\S+)", set_up):
        table = _table(project, "optional-dependencies") if name[0] else _table(manifest, "dependency-groups")
        found += _rows(table, name[0] or name[1])
    return [row.strip() for row in found if _REQUIREMENT.fullmatch(row.strip())]


def _table(table: dict[str, Any], key: str) -> dict[str, Any]:
    found = table.get(key)
    return found if isinstance(found, dict) else {}


def _rows(table: dict[str, Any], key: str) -> list[str]:
    found = table.get(key)
    return [row for row in found if isinstance(row, str)] if isinstance(found, list) else []


def _in_comment(text: str) -> str:
    """Return a name of the repository's so that it cannot end the line: what follows would be an instruction."""
    return "".join(each if each.isprintable() and each != "\\" else "?" for each in text)


def _manifest(folder: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(read_source(folder, "pyproject.toml"))
    except (ValueError, RecursionError):
        return {}


def _requirements(folder: Path, file: str) -> list[str]:
    """Return the requirements of a file, without hashes and comments."""
    rows = [row.partition(" #")[0].strip() for row in read_source(folder, file).splitlines()]
    return [row.removesuffix("\\").partition(" --")[0].strip() for row in rows]


def _install(wheel: str) -> list[str]:
    if wheel:
        return [f"COPY {wheel} /wheels/", f"RUN python3 -m pip install --no-cache-dir '/wheels/{wheel}[{EXTRAS}]'"]
    return [
        f'ARG RATCHET="ratchet-factory[{EXTRAS}]=={__version__}"',
        'RUN python3 -m pip install --no-cache-dir "$RATCHET"',
    ]


def build_image(
    engine: ContainerEngine, text: str, name: str, *, files: Iterable[Path] = (), network: str = ""
) -> Iterator[str]:
    """Build the image from a Containerfile and files beside it; yields what the engine prints."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as archive:
        for file in files:
            archive.add(file, arcname=file.name)
        entry = tarfile.TarInfo("Containerfile")
        entry.size = len(text.encode())
        archive.addfile(entry, io.BytesIO(text.encode()))
    yield from engine.build(content.getvalue(), name, network=network)
