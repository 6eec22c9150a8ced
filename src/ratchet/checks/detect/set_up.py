"""Explains tests that cannot run because the project is not set up: what is missing, which interpreter was used and
why, and the commands that set the project up."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Iterable
from pathlib import Path

from ratchet.checks.protocol import Target
from ratchet.core.compare import missing_package
from ratchet.core.report import Report, load_errors
from ratchet.tree_files import read_source

_NOT_FOUND = re.compile(
    r"(?:command not found|: not found|No module named (?:pytest|nose2|tox)\b|cannot find module)", re.I
)


def is_not_set_up(report: Report) -> bool:
    """Whether the tests failed because a package or the test tool itself is not there."""
    messages = [error.message for error in load_errors(report)]
    messages += [test.failure.message for test in report.tests if test.failure]
    if any(missing_package(message) for message in messages):
        return True
    return not report.tests and _NOT_FOUND.search(report.output[-4_000:]) is not None


def build_advice(report: Report, targets: Iterable[Target], root: Path) -> str:
    """Return the commands that build what a test imports by its path and does not find; empty if none are known."""
    messages = [error.message for error in load_errors(report)]
    messages += [test.failure.message for test in report.tests if test.failure]
    if not any(_NO_FILE.search(message) for message in messages):
        return ""
    commands = [command for target in targets for command in set_up_commands(target, root)]
    builds = [command for command in dict.fromkeys(commands) if command.startswith(_BUILDS)]
    return f"build the project first: {' && '.join(builds)}" if builds else ""


_NO_FILE = re.compile(r"Cannot find (?:module|package) '[./]")
_BUILDS = ("npm run ", "npx ")


def set_up_advice(targets: Iterable[Target], root: Path) -> str:
    """Return which interpreter ran the tests and the commands that set the project up; empty if none are known."""
    lines = []
    for target in targets:
        if target.language == "python" and Path(target.command[0]).name.startswith("python"):
            lines.append(f"the tests ran with {target.command[0]}: {python_reason(target.command[0], root)}")
        if commands := set_up_commands(target, root):
            lines.append(f"set up the project: {' && '.join(commands)}")
    return "\n".join(dict.fromkeys(lines))


def set_up_commands(target: Target, root: Path) -> list[str]:
    """Return the commands for people to type at the root of the repository."""
    commands = _in_environment(target, root) if target.language == "python" else list(target.setup)
    return [f"cd {target.root}", *commands] if commands and target.root != "." else commands


def _in_environment(target: Target, root: Path) -> list[str]:
    """Return the commands that install into the project's own environment: Debian refuses to install into its own."""
    commands = list(target.setup) or ["python3 -m pip install"]
    if not all(command.startswith("python3 -m pip") for command in commands):
        return commands
    folder = root / target.root
    own = next((name for name in (".venv", "venv", "env") if (folder / name).is_dir()), "")
    commands = [re.sub(r"^python3", f"{own or '.venv'}/bin/python", command) for command in commands]
    commands[-1] += "".join(f" {package}" for package in test_packages(target, root))
    return [*([] if own else ["python3 -m venv .venv"]), *commands]


def test_packages(target: Target, root: Path) -> list[str]:
    """Return the Python packages of the test tool itself: with the plugins that its configuration needs."""
    return [target.runner, *_plugins(root / target.root)] if target.runner in _INSTALLED else []


def _plugins(folder: Path) -> list[str]:
    """Return the pytest plugins without which the project's own configuration is refused."""
    names = ("pytest.ini", ".pytest.ini", "pyproject.toml", "setup.cfg", "tox.ini")
    text = "\n".join(read_source(folder, name) for name in names)
    asked = "\n".join(_ADDOPTS.findall(text))
    return [plugin for plugin, option in _PLUGINS.items() if re.search(option, asked)]


_INSTALLED = ("pytest", "nose2", "tox", "nox")
_ADDOPTS = re.compile(r"(?m)^[ \t]*addopts[ \t]*=((?:.*\n)(?:[ \t\]]+.*\n|\n)*)")
_PLUGINS = {
    "pytest-cov": r"--(?:no-)?cov\b",
    "pytest-xdist": r"(?:^|[\s\"'=])(?:-n[ =\d]|--dist|--numprocesses)",
    "pytest-timeout": r"--timeout\b",
    "pytest-benchmark": r"--benchmark",
    "pytest-asyncio": r"--asyncio-mode",
}


def missing_set_up(target: Target, root: Path) -> str:
    """Continue a message about something missing with the commands that set the project up; empty if none are known."""
    commands = set_up_commands(target, root)
    return f", or set up the project first: {' && '.join(commands)}" if commands else ""


def python_reason(python: str, root: Path) -> str:
    """Return whose interpreter it is."""
    place = Path(python)
    home = place.parent.parent
    if place.is_relative_to(root):
        return "the project's own environment"
    if home == Path(sys.prefix):
        return "Ratchet's own, because the project has no environment (.venv) with its test tool"
    if str(home) in (os.environ.get("VIRTUAL_ENV"), os.environ.get("CONDA_PREFIX")):
        return "the active environment"
    if place == Path(shutil.which("python3") or ""):
        return "the system's, because the project has no environment (.venv)"
    return "an environment of the project's tools"
