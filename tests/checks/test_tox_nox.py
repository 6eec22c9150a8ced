"""Which of a project's environments run its tests, where only tox or nox can."""

from __future__ import annotations

from pathlib import Path

import pytest

from ratchet.checks.detect.set_up import set_up_commands
from ratchet.checks.detect.targets import detect
from tests.checks.test_detect import lay
from tests.checks.test_strangers_python import environment

_TOX = """[tox]
envlist = py{36,311}-{a, b}, 3.12,
    lint
[testenv]
commands = pytest {posargs}
[testenv:lint]
commands = ruff check
"""
_TOX_TOML = """env_list = ["lint", "3.11"]
env_run_base.commands = [["pytest"]]
env.lint.commands = [["ruff"]]
"""
_NOX = """import nox

@nox.session
def lint(session):
    session.run("ruff")

@nox.session(python=["3.6", "3.11", "3.12"])
def tests(session):
    session.run("pytest", *session.posargs)

@nox.session(name="tests-slow", venv_backend="none")
def slow(session):
    session.run("pytest", "slow")

@nox.session
def coverage(session):
    session.run("pytest", "--cov")
"""


@pytest.mark.parametrize(
    ("files", "names"),
    [
        ({"tox.ini": _TOX}, ["tox -e py311-a", "tox -e py311-b", "tox -e 3.12"]),
        ({"tox.ini": "[tox]\nenvlist = py36\n[testenv]\ncommands = pytest\n"}, ["tox -e py36"]),
        ({"tox.ini": "[testenv]\ncommands = pytest\n"}, ["tox"]),
        ({"tox.toml": _TOX_TOML}, ["tox -e 3.11"]),
        ({"pyproject.toml": f"[tool.tox]\nlegacy_tox_ini = '''{_TOX}'''\n"},
         ["tox -e py311-a", "tox -e py311-b", "tox -e 3.12"]),
        ({"noxfile.py": _NOX}, ["nox -s tests-3.11", "nox -s tests-3.12", "nox -s tests-slow"]),
    ],
)  # fmt: skip
def test_environments_that_run_pytest_are_run_where_no_interpreter_has_it(
    files: dict[str, str], names: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs = lay(tmp_path / "bin", dict.fromkeys(("tox", "nox", "python3.11", "python3.12"), "#!/bin/sh\n"))
    lay(tmp_path / "shims", {"python3.6": ""})
    for program in programs.iterdir():
        program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{tmp_path / 'shims'}")
    config = {"pytest.ini": "[pytest]\n", "test_a.py": "import pytest\n"}
    environment(lay(tmp_path / "it", files | config))
    (target,) = detect(tmp_path / "it")
    assert [" ".join(command) for command in (target.command, *target.also)] == names
    environment(tmp_path / "it", "pytest")
    assert [target.runner for target in detect(tmp_path / "it")] == ["pytest"]


def test_unittest_files_that_tox_runs_with_pytest_are_run_with_pytest(tmp_path: Path) -> None:
    case = "import unittest\n\n\nclass A(unittest.TestCase):\n    def test_a(self): ...\n"
    lay(tmp_path, {"tox.ini": "[testenv]\ncommands = py.test {posargs}\n", "tests/test_a.py": case})
    environment(tmp_path, "pytest")
    assert [target.runner for target in detect(tmp_path)] == ["pytest"]


@pytest.mark.parametrize(
    ("files", "commands"),
    [
        ({"setup.py": ""}, ["python3 -m venv .venv", ".venv/bin/python -m pip install -e . pytest"]),
        ({"setup.py": "", ".venv/pyvenv.cfg": ""}, [".venv/bin/python -m pip install -e . pytest"]),
        (
            {"pytest.ini": "[pytest]\naddopts =\n    --cov=it -n auto\n"},
            ["python3 -m venv .venv", ".venv/bin/python -m pip install pytest pytest-cov pytest-xdist"],
        ),
        ({"poetry.lock": ""}, ["poetry install"]),
    ],
)
def test_the_set_up_is_in_the_projects_environment_with_the_plugins_it_configures(
    files: dict[str, str], commands: list[str], tmp_path: Path
) -> None:
    (target,) = detect(lay(tmp_path, {"test_a.py": "def test_a(): ...\n"} | files))
    assert set_up_commands(target, tmp_path) == commands
