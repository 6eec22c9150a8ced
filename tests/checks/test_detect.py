"""What is found in a project, and why."""

from __future__ import annotations

import json
import os
import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from ratchet.checks.detect import registry
from ratchet.checks.detect.project import Project
from ratchet.checks.detect.set_up import build_advice
from ratchet.checks.detect.targets import detect, excluded_folders
from ratchet.core.report import Failure, Report, ReportStatus, TestResult, TestStatus
from ratchet.core.roles import PathRules, Role, matches_glob
from ratchet.errors import ConfigError
from tests.checks.support import run, statuses
from tests.support import ratchet

EXAMPLE = Path(__file__).parents[2] / "examples" / "runner"


def lay(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def found(folder: Path) -> dict[str, str]:
    return {target.name: target.why for target in detect(folder)}


def package(**table: object) -> str:
    return json.dumps(table)


def test_an_empty_folder_has_no_tests(tmp_path: Path) -> None:
    assert detect(tmp_path) == []


def test_every_answer_has_its_reason(tmp_path: Path) -> None:
    lay(tmp_path, {"pyproject.toml": "[tool.pytest.ini_options]\n"})
    assert found(tmp_path) == {"pytest": "pyproject.toml configures pytest"}


def test_every_package_of_a_monorepo_is_found_with_its_own_runner(tmp_path: Path) -> None:
    lay(
        tmp_path,
        {
            "api/pyproject.toml": "[tool.pytest.ini_options]\n",
            "web/package.json": package(devDependencies={"vitest": "3"}, scripts={"test": "vitest run"}),
            "tool/go.mod": "module tool\n",
            "core/Cargo.toml": "[workspace]\nmembers = ['a']\n",
            "core/a/Cargo.toml": "[package]\nname='a'\n",
            "web/node_modules/x/package.json": package(scripts={"test": "jest"}),
        },
    )
    assert set(found(tmp_path)) == {"pytest@api", "vitest@web", "go@tool", "cargo@core"}


def test_a_package_inside_another_is_not_run_twice(tmp_path: Path) -> None:
    config = "[tool.pytest.ini_options]\n"
    lay(tmp_path, {"pyproject.toml": config, "plugins/a/pyproject.toml": config, "test_a.py": "def test_a(): pass\n"})
    root, plugin = detect(tmp_path)
    assert (root.name, plugin.name) == ("pytest", "pytest@plugins/a")
    assert "--ignore=plugins/a" in root.command


@pytest.mark.parametrize(
    ("files", "runner"),
    [
        ({"test_a.py": "import unittest\nclass A(unittest.TestCase): pass\n"}, "unittest"),
        ({"test_a.py": "import unittest\n\ndef test_a(): pass\n"}, "pytest"),
        ({"manage.py": "import django\n", "app/tests.py": "from django.test import TestCase\n"}, "django"),
        ({"manage.py": "import django\n", "pytest.ini": "[pytest]\n"}, "pytest"),
        ({"package.json": package(scripts={"test": "jest --ci"}, devDependencies={"mocha": "1", "jest": "1"})}, "jest"),
        ({"package.json": package(scripts={"test": "node --test"})}, "node"),
        ({"a.test.js": "import test from 'node:test'\n"}, "node"),
        ({"a.test.ts": "import { test } from 'bun:test'\n", "package.json": package(name="a")}, "bun"),
        ({"package.json": package(scripts={"test": "make check"})}, "command"),
        ({"Makefile": "test:\n\techo\n"}, "command"),
        ({"phpunit.xml.dist": "<phpunit/>"}, "phpunit"),
        ({"mix.exs": ""}, "exunit"),
        ({"spec/a_spec.rb": ""}, "rspec"),
        ({"pom.xml": "<project/>"}, "maven"),
        ({"build.gradle.kts": ""}, "gradle"),
        ({"CMakeLists.txt": "enable_testing()\n"}, "ctest"),
        ({"test/a.bats": ""}, "bats"),
        ({"t/a.t": ""}, "prove"),
        ({"Package.swift": ""}, "swift"),
        ({"pubspec.yaml": ""}, "dart"),
        ({"noxfile.py": "session.run('pytest')\n"}, "nox"),
        ({"A.Tests/A.Tests.csproj": '<PackageReference Include="Microsoft.NET.Test.Sdk"/>'}, "dotnet"),
    ],
)
def test_the_surest_sign_decides(files: dict[str, str], runner: str, tmp_path: Path) -> None:
    assert [target.runner for target in detect(lay(tmp_path, files))] == [runner]


def test_a_configured_command_wins_and_is_read_as_what_it_starts(tmp_path: Path) -> None:
    lay(tmp_path, {"go.mod": "module a\n"})
    (target,) = detect(tmp_path, command="python -m pytest -x tests")
    assert (target.runner, target.command, target.why) == (
        "pytest",
        ["python", "-m", "pytest", "-x", "tests"],
        "configured",
    )
    assert detect(tmp_path, command="./run-tests")[0].runner == "command"
    assert detect(tmp_path, command="./run-tests", runner_name="go")[0].runner == "go"
    with pytest.raises(ConfigError, match="unknown test runner 'gop'"):
        detect(tmp_path, command="./run-tests", runner_name="gop")


def test_path_rules_know_the_test_paths_of_every_language(tmp_path: Path) -> None:
    lay(tmp_path, {"api/pyproject.toml": "[tool.pytest.ini_options]\n", "tool/go.mod": "module tool\n"})
    scope = PathRules(tests=tuple(glob for target in detect(tmp_path) for glob in target.tests))
    assert scope.may_write(Role.AUDITOR, "api/tests/test_a.py")
    assert scope.may_write(Role.AUDITOR, "tool/deep/a_test.go")
    assert scope.may_write(Role.IMPLEMENTER, "tool/deep/a.go")
    assert not scope.may_write(Role.IMPLEMENTER, "tool/deep/a_test.go")


def test_a_third_partys_runner_is_found_run_and_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLE))
    theirs = EntryPoint(name="checklist", value="checklist:Checklist", group="ratchet.runners")
    monkeypatch.setitem(registry.runners(), "checklist", theirs.load()())
    lay(tmp_path, {"it/checklist.txt": "echo yes one\necho no two: not yet\necho done\nexit 1\n"})
    report = run(tmp_path / "it")
    assert statuses(report) == {"one": "passed", "two": "failed"}
    assert report.status is ReportStatus.FAILED
    (tmp_path / "it" / "checklist.txt").write_text("echo yes one\n")
    assert run(tmp_path / "it").status is ReportStatus.CRASHED
    assert "checklist" in sys.modules


@pytest.mark.parametrize(
    ("scripts", "runner", "command"),
    [
        ({"test": "npm run unit", "unit": "nyc mocha --exit spec"}, "mocha", ["mocha", "--exit", "spec"]),
        ({"test": "npm run lint && yarn unit", "lint": "eslint .", "unit": "jest"}, "jest", ["jest"]),
        ({"test": "npm run tests-only", "tests-only": "nyc tape 'test/**/*.js'"}, "tape", ["tape", "test/**/*.js"]),
        ({"test": "npm run test"}, "command", ["npm", "test", "--silent"]),
    ],
)
def test_scripts_that_call_scripts_lead_to_the_runner(
    tmp_path: Path, scripts: dict[str, str], runner: str, command: list[str]
) -> None:
    (tmp_path / "package.json").write_text(json.dumps({"scripts": scripts}))
    (target,) = detect(tmp_path)
    assert (target.runner, target.command) == (runner, command)


def test_what_the_test_script_builds_first_belongs_to_the_set_up(tmp_path: Path) -> None:
    scripts = {
        "build:es": "babel src -d es",
        "build:node": "babel src -d .",
        "build": "run-p build:*",
        "pretest": "npm run build && npm run lint",
        "lint": "eslint .",
        "test": "nyc mocha --recursive",
    }
    files = {"package.json": package(main="index.js", scripts=scripts), "package-lock.json": "{}"}
    targets = detect(lay(tmp_path, files | {"test/a.test.js": "require('../index')\n"}))
    assert [target.setup for target in targets] == [["npm ci", "npm run build"]]
    failure = Failure(type="Error", message="Cannot find module '../index'")
    test = TestResult(id="test/a.test.js::it", status=TestStatus.FAILED, failure=failure)
    unbuilt = Report(runner="mocha", status=ReportStatus.FAILED, tests=[test])
    assert build_advice(unbuilt, targets, tmp_path) == "build the project first: npm run build"
    assert build_advice(Report(runner="mocha", status=ReportStatus.FAILED), targets, tmp_path) == ""


_GLOBS = ["**/*.py", "*.py", "**/test_*.py", "**/test.py", "test.py", "t*t.py", "**/*", "*", "a/*.py", "a/**", "?.py"]


@pytest.mark.parametrize("pattern", _GLOBS)
def test_names_that_are_looked_up_are_those_that_the_glob_matches(tmp_path: Path, pattern: str) -> None:
    paths = ["test.py", "tt.py", "t.py", "test_a.py", "a/test.py", "a/test_b.py", "a/b/x.py", "a/b/test_.txt", "ab.txt"]
    lay(tmp_path, dict.fromkeys(paths, ""))
    assert set(Project(tmp_path).glob(pattern)) == {path for path in paths if matches_glob(path, pattern)}


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("python -m pytest -k 'a and (b | c)'", ["python", "-m", "pytest", "-k", "a and (b | c)"]),
        ("cd it && pytest | tee log", ["sh", "-c", "cd it && pytest | tee log"]),
        ("A=1 pytest", ["sh", "-c", "A=1 pytest"]),
        ("./run tests/*.sh", ["sh", "-c", "./run tests/*.sh"]),
        ("./run --name=a 'b", ["sh", "-c", "./run --name=a 'b"]),
    ],
)
def test_a_command_in_a_shells_words_is_given_to_one(command: str, words: list[str], tmp_path: Path) -> None:
    (target,) = detect(tmp_path, command=command)
    assert target.command == words


@pytest.mark.parametrize(
    ("manifest", "setup"),
    [
        ("[project]\n", "python3 -m pip install -e ."),
        ("[project.optional-dependencies]\ndoc = []\ntest = []\n", "python3 -m pip install -e '.[test]'"),
        ("[project]\n[dependency-groups]\ndev = []\ntests = []\n", "python3 -m pip install -e . --group tests"),
        ("[dependency-groups]\ndev = []\n", ""),
        ("[tool.poetry]\nname = 'a'\n", "poetry install"),
        ("[project]\n[tool.pdm.scripts]\ntest = 'pytest'\n", "pdm install"),
        ("[project]\n[tool.pdm.version]\nsource = 'scm'\n", "python3 -m pip install -e ."),
        ("[project]\n[tool.hatch.envs.default]\ndependencies = ['pytest']\n", "hatch env create"),
        ("[project.optional-dependencies]\ntest = []\n[tool.hatch.envs.lint]\n", "python3 -m pip install -e '.[test]'"),
    ],
)
def test_a_project_is_set_up_with_what_it_says_its_tests_need(manifest: str, setup: str, tmp_path: Path) -> None:
    (target,) = detect(lay(tmp_path, {"pyproject.toml": manifest, "pytest.ini": ""}))
    assert " && ".join(target.setup) == setup


@pytest.mark.parametrize("mark", ["pyvenv.cfg", "conda-meta/history"])
def test_an_environment_that_is_first_on_the_path_is_the_active_one(
    mark: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = lay(tmp_path / "it", {"test_it.py": "def test_it(): ..."})
    lay(
        tmp_path / "env", {"bin/python": "#!/bin/sh\n", mark: "", "lib/python3.11/site-packages/pytest/__init__.py": ""}
    )
    (tmp_path / "env/bin/python").chmod(0o755)
    monkeypatch.delenv("VIRTUAL_ENV", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "env/bin"), prepend=os.pathsep)
    assert [target.command[0] for target in detect(folder)] == [str(tmp_path / "env/bin/python")]


SPEC = "describe 'x' do\n  it('y') {}\nend\n"


def test_third_party_tests_are_skipped_with_a_note(tmp_path: Path) -> None:
    lay(
        tmp_path,
        {
            "go.mod": "module it\n",
            "it_test.go": "package it\n",
            ".gitmodules": '[submodule "lib"]\n\tpath = libs/json\n\turl = ../json\n',
            "libs/json/package.json": package(scripts={"test": "jest"}),
            "tests/unity/docs/license.txt": "",
            "tests/unity/test/spec/a_spec.rb": SPEC,
            "tests/unit/license.py": "",
            "tests/unit/licenses/MIT": "",
            "tests/unit/spec/d_spec.rb": SPEC,
            "tests/frame/COPYING": "",
            "tests/frame/Cargo.toml": "[package]\nname='a'\n",
            "external/tool/pyproject.toml": "[tool.pytest.ini_options]\n",
            "third-party/x/spec/b_spec.rb": SPEC,
            "cloned/.git/HEAD": "",
            "cloned/spec/c_spec.rb": SPEC,
            ".git/HEAD": "",
        },
    )
    assert found(tmp_path) == {
        "go": "there is a go.mod",
        "rspec": "tests/unit/spec/d_spec.rb is named like a spec",
    }
    assert excluded_folders(tmp_path) == {
        "cloned": "a git repository of its own, with tests of rspec",
        "external": "a folder for third-party code, with tests of pytest",
        "libs/json": "a git submodule, with tests of jest",
        "tests/frame": "another project inside tests (it has a COPYING), with tests of cargo",
        "tests/unity": "another project inside tests (it has a docs/license.txt), with tests of rspec",
        "third-party": "a folder for third-party code, with tests of rspec",
    }
    assert list(found(tmp_path / "tests" / "unity")) == ["rspec"]  # asked for


def test_a_folder_that_holds_only_repositories_has_the_tests_of_all_of_them(tmp_path: Path) -> None:
    lay(tmp_path, {"a/.git/HEAD": "", "a/spec/a_spec.rb": SPEC, "b/.git/HEAD": "", "b/go.mod": "module b\n"})
    assert set(found(tmp_path)) == {"rspec", "go@b"}


def test_where_only_others_have_tests_it_is_said_where(tmp_path: Path) -> None:
    lay(tmp_path, {"vendor/x/spec/b_spec.rb": SPEC})
    done = ratchet("test", cwd=tmp_path)
    assert done.returncode == 2 and "vendor is skipped" in done.stderr
    shown = ratchet("test", "--detect", cwd=tmp_path)
    assert "skipped: vendor (a folder for third-party code, with tests of rspec)" in shown.stdout


@pytest.mark.parametrize(
    ("settings", "path"),
    [('testpaths = ["test.py"]', "test.py"), ('python_files = "check_*.py test_*.py"', "shop/check_vat.py")],
)
def test_files_that_only_the_configuration_makes_tests_are_the_auditors(
    settings: str, path: str, tmp_path: Path
) -> None:
    manifest = f"[tool.pytest.ini_options]\n{settings}\n"
    (target,) = detect(lay(tmp_path, {"pyproject.toml": manifest, path: "def test_a(): ...\n"}))
    scope = PathRules(tests=tuple(target.tests))
    assert scope.may_write(Role.AUDITOR, path) and not scope.may_write(Role.IMPLEMENTER, path)
    assert scope.may_write(Role.IMPLEMENTER, "shop/vat.py")
