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
from ratchet.process.containers import ContainerEngine

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


def containerfile(
    targets: Iterable[Target], root: Path, *, base: str = BASE, wheel: str = "", steps: bool = False
) -> str:
    """Return a Containerfile with what the tests need, and git. Workers need a sandbox and Ratchet too, which the wheel
    in the same folder or the package index provides; `steps` do not."""
    targets = list(targets)
    languages = sorted({target.language for target in targets if target.language})
    found = ", ".join(f"{target.name} ({target.language or 'any'})" for target in targets) or "no tests"
    python = list(dict.fromkeys(name for target in targets for name in python_packages(target, root)))
    packages = {*(_ALWAYS[1:] if steps else _ALWAYS), *(name for each in languages for name in PACKAGES.get(each, ()))}
    if base != BASE and (python or not steps):
        packages |= {"python3", "python3-pip"}
    missing = [language for language in languages if language not in PACKAGES]
    return "\n".join(
        [
            f"# An image for {'steps' if steps else 'workers'} of this project: {found}.",
            "# Made by `ratchet image`; edit it freely and build it: ratchet image --file Containerfile --build",
            f"FROM {base}",
            "",
            "RUN apt-get update \\",
            " && apt-get install -y --no-install-recommends \\",
            *(f"      {name} \\" for name in sorted(packages)),
            " && rm -rf /var/lib/apt/lists/*",
            *(f"# To add: the tools of {language}, which Debian has no package of." for language in missing),
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
    manifest = _manifest(folder / "pyproject.toml")
    project = manifest.get("project", {})
    found += project.get("dependencies", [])
    set_up = " ".join(target.setup)
    for file in re.findall(r"-r (\S+)", set_up):
        found += _requirements(folder / file)
    for name in re.findall(r"\[(\w+)\]|--group (\S+)", set_up):
        table = project.get("optional-dependencies", {}) if name[0] else manifest.get("dependency-groups", {})
        found += [row for row in table.get(name[0] or name[1], []) if isinstance(row, str)]
    return found


def _manifest(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text("utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}


def _requirements(file: Path) -> list[str]:
    """Return the requirements of a file, without its options and paths: `-r`, `-e`, hashes."""
    try:
        rows = [row.partition(" #")[0].strip() for row in file.read_text("utf-8").splitlines()]
    except (OSError, ValueError):
        return []
    plain = [row.removesuffix("\\").partition(" --")[0].strip() for row in rows]
    return [row for row in plain if re.match(r"[A-Za-z0-9]", row) and "://" not in row]


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
