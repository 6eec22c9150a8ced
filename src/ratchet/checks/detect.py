"""Which test runner a project uses, and how we know."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ratchet.checks import Target

PYTEST_TESTS = ["tests/**", "test/**", "**/test_*.py", "**/*_test.py", "**/conftest.py"]
PYTEST_PROTECTED = [
    "pytest.ini",
    ".pytest.ini",
    "tox.ini",
    "**/sitecustomize.py",
    "**/usercustomize.py",
    "**/*.pth",
]


def detect(folder: Path, *, command: str = "", tests: list[str] | None = None) -> Target | None:
    """The project's tests, or None. A command from the configuration always wins."""
    why = "configured" if command else next(_evidence(folder), "")
    if not why:
        return None
    words = shlex.split(command) if command else [python_of(folder), "-m", "pytest"]
    return Target(
        runner="pytest",
        command=words,
        tests=tests or PYTEST_TESTS,
        protected=PYTEST_PROTECTED,
        why=why,
    )


def _evidence(folder: Path) -> Iterator[str]:
    for name in ("pytest.ini", ".pytest.ini", "conftest.py"):
        if (folder / name).is_file():
            yield f"there is a {name}"
    if "pytest" in _toml(folder / "pyproject.toml").get("tool", {}):
        yield "pyproject.toml configures pytest"
    for name, marker in (("tox.ini", "[pytest]"), ("setup.cfg", "[tool:pytest]")):
        if (folder / name).is_file() and marker in (folder / name).read_text("utf-8", "replace"):
            yield f"{name} configures pytest"
    for place in ("tests", "test", "."):
        for pattern in ("test_*.py", "*_test.py"):
            for found in sorted((folder / place).glob(pattern)):
                yield f"{found.relative_to(folder)} is named like a pytest file"


def _toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError):
        return {}


def python_of(folder: Path) -> str:
    """The interpreter the project is installed in: its own, the active one, ours with pytest, the system's."""
    candidates = [folder / ".venv" / "bin" / "python", folder / "venv" / "bin" / "python"]
    if active := os.environ.get("VIRTUAL_ENV"):
        candidates.append(Path(active) / "bin" / "python")
    for candidate in candidates:
        if candidate.is_file():
            return str(candidate)
    return sys.executable if _has_pytest() else shutil.which("python3") or sys.executable


def _has_pytest() -> bool:
    from importlib.util import find_spec  # noqa: PLC0415 — only needed here

    return find_spec("pytest") is not None
