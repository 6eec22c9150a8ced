"""What other people's Python projects do that ours did not: each of these was found on one of them."""

from __future__ import annotations

import base64
import hashlib
import sys
from pathlib import Path

import pytest

from ratchet.app.tests import TestOutcome
from ratchet.checks.detect.commands import commands_with
from ratchet.checks.detect.registry import runner
from ratchet.checks.detect.targets import detect
from ratchet.core.report import ReportStatus, TestResult, TestStatus, expected_text, message_lines
from ratchet.interfaces.terminal.colour import painter
from ratchet.interfaces.terminal.test_results import view
from tests.checks.support import chosen, red, run, statuses
from tests.checks.test_detect import lay

_INNER = """
import os, subprocess, sys

pytest_plugins = ["pytester"]


def test_inside(pytester):
    pytester.makepyfile("def test_inner(): assert 0")
    pytester.runpytest_inprocess().assert_outcomes(failed=1)


def test_below(pytester):
    pytester.makepyfile("def test_inner(): assert 0")
    done = subprocess.run([sys.executable, "-m", "pytest"], capture_output=True, text=True)
    assert "1 failed" in done.stdout
    assert "PYTEST_ADDOPTS" not in os.environ


def test_afterwards():
    pass
"""


def test_sessions_that_a_plugins_tests_start_are_not_the_projects(tmp_path: Path) -> None:
    folder = lay(tmp_path / "it", {"test_plugin.py": _INNER})
    report = run(folder, PYTEST_DISABLE_PLUGIN_AUTOLOAD="1")
    names = ("test_inside", "test_below", "test_afterwards")
    assert statuses(report) == {f"test_plugin.py::{name}": "passed" for name in names}
    assert report.status is ReportStatus.PASSED


def test_unittests_files_may_be_named_by_their_ends(tmp_path: Path) -> None:
    text = "from unittest import TestCase\n\n\nclass A(TestCase):\n    def test_a(self):\n        pass\n"
    folder = lay(tmp_path / "it", {"it/__init__.py": "", "it/tests/__init__.py": "", "it/tests/a_test.py": text})
    report = run(folder)
    assert statuses(report) == {"it.tests.a_test.A.test_a": "passed"}
    assert statuses(run(folder, only=chosen(report, "it.tests.a_test.A.test_a"))) == statuses(report)


_MANY = """
import pytest

@pytest.mark.parametrize("n", range(1100), ids=lambda n: f"{n:04000d}")
def test_many(n):
    pass
"""


def test_the_terminal_is_the_callers_for_colours_are_others_on_a_dumb_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    text = "import os\ndef test_a(): assert os.environ['TERM'] == 'xterm'\n"
    folder = lay(tmp_path / "it", {"pytest.ini": "[pytest]\n", "test_a.py": text})
    assert run(folder).status is ReportStatus.PASSED


def test_names_may_be_so_long_that_all_of_them_fit_in_no_line(tmp_path: Path) -> None:
    report = run(lay(tmp_path / "it", {"test_many.py": _MANY}))
    assert (report.status, report.totals.passed, report.notes) == (ReportStatus.PASSED, 1100, [])


CASE = "import unittest\n\n\nclass It(unittest.TestCase):\n    def test_it(self):\n        self.assertEqual(1, 2)\n"


OWN_CASE = "from it.cases import TestCase\n\n\nclass TestIt(TestCase):\n    def test_it(self):\n        pass\n"


@pytest.mark.parametrize(
    ("files", "command"),
    [
        ({"tox.ini": "commands =\n  coverage run -p -m unittest discover -s src/a {posargs}\n",
          "src/a/b/__init__.py": "", "src/a/b/tests/__init__.py": "", "src/a/b/tests/test_a.py": CASE},
         ["unittest", "discover", "-s", "src/a"]),
        ({"tox.ini": "commands = coverage run -m unittest discover {toxinidir}/tests\n",
          "tests/__init__.py": "", "tests/test_a.py": OWN_CASE}, ["unittest", "discover", "tests"]),
        ({"noxfile.py": 'session.run("python", "-m", "unittest", "discover", "-s", "checks", "-f")\n',
          "checks/test_a.py": CASE}, ["unittest", "discover", "-s", "checks"]),
        ({"tox.ini": "[testenv]\nchangedir = src\ncommands = python -m unittest discover\n", "src/test_a.py": CASE},
         ["unittest", "discover", "-s", "src"]),
        ({"makefile": "test:\n\tpython -m unittest -v $(PKG).tests.perf\n", "tests/test_a.py": CASE},
         ["unittest", "discover", "-s", "tests"]),
        ({"src/a/__init__.py": "", "src/a/tests/__init__.py": "", "src/a/tests/test_a.py": CASE},
         ["unittest", "discover", "-s", "src"]),
        ({".stestr.conf": "[DEFAULT]\ntest_path=./it/tests\ntop_dir=./\n", "it/tests/__init__.py": "",
          "it/tests/test_a.py": OWN_CASE}, ["unittest", "discover", "-s", "it/tests", "-t", "."]),
        ({"it/__init__.py": "", "it/testing.py": CASE, "it/a_test.py": CASE, "it/b_test.py": CASE,
          "maint/c_test.py": "class TestMixin(object):\n    pass\n"}, ["unittest", "discover", "-p", "*_test.py"]),
        ({"test_a.py": "from unittest import mock\n\n\nclass TestIt:\n    def test_it(self): pass\n"}, ["pytest"]),
    ],
)  # fmt: skip
def test_unittest_is_called_as_the_project_does_it_or_finds_what_lies_there(
    files: dict[str, str], command: list[str], tmp_path: Path
) -> None:
    (target,) = detect(lay(tmp_path, files))
    assert target.command[2:] == command


_DOCUMENTED = "def one():\n    '''\n    >>> one()\n    2\n    '''\n    return 1\n"


_LOADS = """
import doctest, unittest

import shop


class It(unittest.TestCase):
    def test_other(self):
        pass


def load_tests(loader, tests, pattern):
    tests.addTests(doctest.DocTestSuite(shop))
    return tests
"""


def test_one_of_unittests_tests_runs_alone_however_it_was_loaded(tmp_path: Path) -> None:
    files = {"src/shop.py": _DOCUMENTED, "src/test_it.py": _LOADS, "src/test_broken.py": "def broken(:\n"}
    folder = lay(tmp_path / "it", files)
    whole = run(folder)
    assert statuses(whole) == {"shop.one": "failed", "test_it.It.test_other": "passed"}
    assert [error.file for error in whole.collection_errors] == ["src/test_broken.py"]
    assert red(whole)["shop.one"] == ("src/shop.py", 3, "2", "1")
    for name in statuses(whole):
        alone = run(folder, only=chosen(whole, name))
        assert (statuses(alone), alone.collection_errors) == ({name: statuses(whole)[name]}, [])
    by_file = {"unittest": [TestResult(id="src/test_it.py", status=TestStatus.TODO)]}
    assert statuses(run(folder, only=by_file)) == {"test_it.It.test_other": "passed"}
    repeats = {test.id: runner("unittest").rerun_command(detect(folder)[0], test) for test in whole.tests}
    assert repeats["shop.one"] == ["ratchet", "test", "shop.one"]
    case = repeats["test_it.It.test_other"]
    assert (case[:2], case[-3:]) == (["env", "PYTHONPATH=src"], ["-m", "unittest", "test_it.It.test_other"])


_COMPARES = """
import unittest


class It(unittest.TestCase):
    def test_differs(self):
        self.assertNotEqual(1, 1)

    def test_is_in(self):
        self.assertIn(1, [2])

    def test_is_more(self):
        self.assertGreater(1, 2)

    def test_is(self):
        self.assertIs(1, None)
"""


@pytest.mark.parametrize("runs", ["unittest", "pytest"])
def test_a_unittest_assertion_is_reported_with_its_values(runs: str, tmp_path: Path) -> None:
    folder = lay(tmp_path / "it", {"test_it.py": _COMPARES})
    report = run(folder, detect(folder, runner_name=runs, command=f"{sys.executable} -m {runs}"))
    failures = {test.name.partition(" ")[0].rpartition(".")[2]: test.failure for test in report.tests}
    assert {name: (expected_text(failure), failure.actual) for name, failure in failures.items() if failure} == {
        "test_differs": ("!= 1", "1"),
        "test_is_in": ("in [2]", "1"),
        "test_is_more": ("> 2", "1"),
        "test_is": ("is None", "1"),
    }


@pytest.mark.parametrize(
    ("file", "text", "more"),
    [
        ("Makefile", "test:\n\tDJANGO_SETTINGS_MODULE=a.settings \\\n\t\tpython -m django test $${ARGS:-checks}\n",
         ["--settings=a.settings", "checks"]),
        ("tox.ini", "setenv =\n  DJANGO_SETTINGS_MODULE = a.b\ncommands = python -m django test -v2 {posargs:a}\n",
         ["--settings=a.b", "a"]),
        ("noxfile.py", 'session.run("django-admin", "test", "--settings=a.b")\n', ["--settings=a.b"]),
    ],
)  # fmt: skip
def test_djangos_settings_and_tests_are_those_of_the_projects_own_call(
    file: str, text: str, more: list[str], tmp_path: Path
) -> None:
    (target,) = detect(lay(tmp_path, {file: text, "checks/test_a.py": CASE}))
    assert target.command[1:] == ["-m", "django", "test", *more]
    one = runner("django").rerun_command(target, TestResult(id="checks.test_a.It.test_it", status=TestStatus.FAILED))
    assert one[4:] == [*[word for word in more if word.startswith("-")], "checks.test_a.It.test_it"]


_NOTED = """
import unittest

import pytest


def test_noted():
    try:
        assert 1 == 2
    except AssertionError as error:
        error.add_note("Falsifying example: test_noted(\\n    n=0,\\n)")
        raise


def test_many():
    raise ExceptionGroup("many", [ValueError(1), ExceptionGroup("more", [KeyError("k")])])


@pytest.mark.xfail(strict=True, reason="not yet")
def test_strict():
    pass
"""


def test_notes_of_an_exception_and_members_of_a_group_are_reported(tmp_path: Path) -> None:
    folder = lay(tmp_path / "it", {"test_it.py": _NOTED})
    failures = {test.name: test.failure for test in run(folder).tests if test.failure}
    assert message_lines(failures["test_noted"]) == [
        "assert 1 == 2", "note: Falsifying example: test_noted(", "    n=0,", ")",
    ]  # fmt: skip
    assert message_lines(failures["test_many"])[1:] == [
        "note: ValueError: 1",
        "note: ExceptionGroup: more (1 sub-exception)",
        "note: KeyError: 'k'",
    ]
    strict = failures["test_strict"]
    assert (strict.type, strict.message) == ("UnexpectedSuccess", "passed although it was expected to fail: not yet")


@pytest.mark.parametrize(
    ("shop", "says"),
    [
        ("x = 1\nimport gone\n", "No module named 'gone' (shop.py:2)"),
        ("x = 1\n\ndef broken(:\n", "invalid syntax (shop.py:3:12)"),
    ],
)
def test_a_test_file_that_a_broken_module_keeps_from_loading_names_it_and_its_own_line(
    shop: str, says: str, tmp_path: Path
) -> None:
    files = dict.fromkeys(("test_a.py", "test_b.py"), "\n\n\nimport shop\n\n\ndef test_it():\n    pass\n")
    report = run(lay(tmp_path / "it", files | {"shop.py": shop, "pytest.ini": "[pytest]\n"}))
    assert [(error.file, error.line, error.message) for error in report.collection_errors] == [
        ("test_a.py", 4, says),
        ("test_b.py", 4, says),
    ]
    first, *rest = view(TestOutcome(report=report, targets=[]), painter(colour=False))
    assert first == "✘ test_a.py:4 does not load; the same for test_b.py"
    assert sum("shop.py" in line for line in rest) == 1


def test_a_signal_that_kills_unittest_leaves_the_place_behind(tmp_path: Path) -> None:
    text = CASE.replace("self.assertEqual(1, 2)", "__import__('ctypes').string_at(0)")
    report = run(lay(tmp_path / "it", {"test_it.py": text}))
    assert report.status is ReportStatus.CRASHED
    assert red(report) == {"test_it.It.test_it": ("test_it.py", 6, None, None)}


def test_unittests_tests_in_several_places_all_run(tmp_path: Path) -> None:
    files = {
        "tests/test_a.py": CASE, "tests/unit/test_a.py": CASE, "tools/b_test.py": CASE, "tools/test_c.py": CASE,
        "it/__init__.py": "", "it/tests/__init__.py": "", "it/tests/test_d.py": CASE,
        "it/tests/support/scene/test_data.py": CASE, "examples/test_shown.py": CASE,
    }  # fmt: skip
    folder = lay(tmp_path / "it", files)
    report = run(folder)
    places = {"tests/test_a.py", "tests/unit/test_a.py", "tools/b_test.py", "tools/test_c.py", "it/tests/test_d.py"}
    assert {test.file for test in report.tests} == places
    assert (len(report.tests), report.status, report.notes) == (5, ReportStatus.FAILED, [])
    (target,) = detect(folder)
    for test in report.tests:
        alone = run(folder, only=chosen(report, test.id))
        assert test.file in {each.file for each in alone.tests} and alone.status is ReportStatus.FAILED
    reported = sorted(report.tests, key=lambda test: test.file)
    repeats = [runner("unittest").rerun_command(commands_with(target, test)[0], test)[:2] for test in reported]
    assert repeats == [
        target.command[:2],  # in the package
        ["env", "PYTHONPATH=tests"],
        ["ratchet", "test"],  # of two that have one name
        ["env", "PYTHONPATH=tools"],
        ["env", "PYTHONPATH=tools"],
    ]


@pytest.mark.parametrize("ends", ["os._exit(0)", "os.abort()"])
def test_one_of_several_places_that_dies_is_not_made_good_by_the_next(ends: str, tmp_path: Path) -> None:
    dies = CASE.replace("class It", "def tearDownModule():\n    import os\n    " + ends + "\n\n\nclass It")
    folder = lay(
        tmp_path / "it", {"a/test_a.py": dies.replace("1, 2", "1, 1"), "b/test_b.py": CASE.replace("1, 2", "1, 1")}
    )
    report = run(folder)
    assert (report.status, report.totals.passed) == (ReportStatus.CRASHED, 2)


def test_all_calls_of_unittest_that_a_project_makes_are_made(tmp_path: Path) -> None:
    makefile = "test:\n\tpython -m unittest discover -s a\n\tpython -m unittest discover -s b\n"
    files = {"Makefile": makefile, "a/test_a.py": CASE, "b/test_b.py": CASE, "c/test_c.py": CASE}
    report = run(lay(tmp_path / "it", files))
    assert [test.file for test in report.tests] == ["a/test_a.py", "b/test_b.py"]
    reported = detect(tmp_path / "it", command=f"{sys.executable} -m unittest discover -s c")
    assert [test.file for test in run(tmp_path / "it", reported).tests] == ["c/test_c.py"]


_OWN_ITEMS = """
import pytest


class Own(pytest.Item):
    def runtest(self):
        assert 1 == 2


def pytest_collection_modifyitems(session, items):
    for name in (".::project", "test_it.py::made"):
        items.append(Own.from_parent(session, name=name, nodeid=name))
"""


@pytest.mark.parametrize("name", [".::project", "test_it.py::made"])
def test_a_name_that_pytest_gave_and_does_not_take_runs_all_the_same(name: str, tmp_path: Path) -> None:
    tests = "def test_a():\n    assert 0\n\n\ndef test_b():\n    assert 0\n"
    folder = lay(tmp_path / "it", {"conftest.py": _OWN_ITEMS, "test_it.py": tests, "test_other.py": tests})
    whole = run(folder)
    assert len(whole.tests) == 6 and statuses(whole)[name] == "failed"
    alone = run(folder, only=chosen(whole, name))
    assert (statuses(alone), alone.status) == ({name: "failed"}, ReportStatus.FAILED)
    both = run(folder, only=chosen(whole, name, "test_other.py::test_b"))
    assert set(statuses(both)) == {name, "test_other.py::test_b"}
    gone = TestResult(id="test_it.py::test_gone", file="test_it.py", status=TestStatus.TODO)
    assert run(folder, only={"pytest": [gone]}).status is ReportStatus.NO_TESTS


_HANGS = """
import threading
import unittest


def waits():
    threading.Event().wait()


class It(unittest.TestCase):
    def test_it(self):
        waits()
"""


@pytest.mark.parametrize("runs", ["pytest", "unittest"])
def test_a_hanging_test_is_reported_with_the_line_where_it_hangs(runs: str, tmp_path: Path) -> None:
    folder = lay(tmp_path / "it", {"test_it.py": _HANGS})
    targets = detect(folder, command=f"{sys.executable} -m {runs} {'' if runs == 'unittest' else '-s'}")
    report = run(folder, targets, silence_s=4, PYTEST_DISABLE_PLUGIN_AUTOLOAD="1")
    assert report.status is ReportStatus.TIMEOUT
    (test,) = report.tests
    assert (test.file, test.line, test.failure and test.failure.line) == ("test_it.py", 11, 7)
    assert test.failure and [frame.function for frame in test.failure.frames] == ["test_it", "waits"]


def test_tests_that_hang_in_workers_are_reported_with_their_lines(tmp_path: Path) -> None:
    tests = "import threading\n\n\ndef test_a():\n    threading.Event().wait()\n\n\ndef test_b():\n    test_a()\n"
    folder = lay(tmp_path / "it", {"test_it.py": tests, "pytest.ini": "[pytest]\naddopts = -p xdist -n 2\n"})
    report = run(folder, silence_s=8, PYTEST_DISABLE_PLUGIN_AUTOLOAD="1")
    assert {name: at[:2] for name, at in red(report).items()} == {
        "test_it.py::test_a": ("test_it.py", 4),
        "test_it.py::test_b": ("test_it.py", 8),
    }


_MANAGE = "import os, sys\nfrom django.core.management import execute_from_command_line\n"


@pytest.mark.parametrize(
    ("files", "names"),
    [
        ({"a/manage.py": _MANAGE, "a/app/tests.py": CASE, "b/manage.py": _MANAGE, "b/app/tests.py": CASE},
         ["django@a", "django@b"]),
        ({"a/manage.py": _MANAGE, "a/app/tests.py": CASE, "c/test_c.py": CASE}, ["unittest", "django@a"]),
        ({"pytest.ini": "[pytest]\n", "a/manage.py": _MANAGE, "a/app/tests.py": CASE}, ["pytest", "django@a"]),
        ({"pytest.ini": "[pytest]\nDJANGO_SETTINGS_MODULE = a.s\n", "src/a/manage.py": _MANAGE}, ["pytest"]),
        ({"setup.cfg": "[tool:pytest]\naddopts = --ds=a.s\n", "a/manage.py": _MANAGE}, ["pytest"]),
        ({"a/pytest.ini": "[pytest]\n", "a/test_a.py": CASE, "c/test_c.py": CASE}, ["unittest", "pytest@a"]),
        ({"pytest.ini": "[pytest]\n", "tests/test_a.py": CASE, "tests/scenes/one/pytest.ini": "[pytest]\n",
          "tests/scenes/one/conftest.py": "", "tests/scenes/one/fail.rst": ">>> 1\n2\n"}, ["pytest"]),
        ({"pytest.ini": "[pytest]\n", "tests/test_a.py": CASE, "tests/slow/pytest.ini": "[pytest]\n",
          "tests/slow/test_b.py": CASE, "tests/odd/pytest.ini": "[pytest]\npython_files = check*.py\n"},
         ["pytest", "pytest@tests/odd", "pytest@tests/slow"]),
    ],
)  # fmt: skip
def test_folders_that_say_how_they_are_tested_are_not_tested_twice(
    files: dict[str, str], names: list[str], tmp_path: Path
) -> None:
    assert [target.name for target in detect(lay(tmp_path, files))] == names


def environment(folder: Path, *modules: str) -> str:
    """A virtual environment as far as detection looks at it."""
    python = folder / ".venv" / "bin" / "python"
    lay(folder, {f".venv/lib/python3.11/site-packages/{name}/__init__.py": "" for name in modules})
    lay(folder, {".venv/pyvenv.cfg": "", ".venv/bin/python": ""})
    return str(python)


def test_the_environment_of_a_repository_is_that_of_the_folders_in_it(tmp_path: Path) -> None:
    folder = lay(tmp_path / "it", {"a/pytest.ini": "[pytest]\n", "a/test_a.py": CASE, "b/manage.py": _MANAGE})
    python = environment(folder, "pytest", "django")
    assert [target.command[0] for target in detect(folder)] == [python, python]
    lay(folder, {".git/HEAD": ""})
    assert [target.command[0] for target in detect(folder / "a")] == [python]
    own = environment(folder / "a", "pytest")
    assert [target.command[0] for target in detect(folder)] == [own, python]


@pytest.mark.parametrize("runs", ["pytest", "unittest"])
def test_programs_of_the_projects_environment_are_found_as_if_it_were_active(runs: str, tmp_path: Path) -> None:
    text = CASE.replace("self.assertEqual(1, 2)", "self.assertEqual(__import__('subprocess').call(['its-own']), 0)")
    folder = lay(tmp_path / "it", {"test_it.py": text, ".venv/pyvenv.cfg": "", ".venv/bin/its-own": "#!/bin/sh\n"})
    python = folder / ".venv" / "bin" / "python"
    (folder / ".venv" / "bin" / "its-own").chmod(0o755)
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    python.chmod(0o755)
    report = run(folder, detect(folder, command=f"{python} -m {runs}"), PYTEST_DISABLE_PLUGIN_AUTOLOAD="1")
    assert report.status is ReportStatus.PASSED


@pytest.mark.parametrize(
    ("file", "place"),
    [
        ("pyproject.toml", ".cache/pypoetry/virtualenvs/shop-{key}-py3.11"),
        ("pyproject.toml", ".local/share/hatch/env/virtual/shop/{key}/hatch-test.py3.11"),
        ("Pipfile", ".local/share/virtualenvs/shop-{key}"),
    ],
)
def test_an_environment_that_poetry_hatch_or_pipenv_keep_elsewhere_is_the_projects(
    file: str, place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("VIRTUAL_ENV", "CONDA_PREFIX", "XDG_CACHE_HOME", "XDG_DATA_HOME", "WORKON_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    folder = lay(tmp_path / "shop", {file: "", "pytest.ini": "[pytest]\n"})
    key = base64.urlsafe_b64encode(hashlib.sha256(str(folder).encode()).digest()).decode()[:8]
    environments = tmp_path / "home" / place.format(key=key)
    lay(environments, {"pyvenv.cfg": "", "bin/python": "", ".project": str(folder)})
    lay(environments, {"lib/python3.11/site-packages/pytest/__init__.py": ""})
    lay(environments.with_name("shop-00000000-py3.11"), {"pyvenv.cfg": "", "bin/python": "", ".project": "/other"})
    (target,) = detect(folder)
    assert target.command[0] == str(environments / "bin" / "python")


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("pyproject.toml", '[tool.poetry.group.dev.dependencies]\npytest = "^8"\n'),
        ("Pipfile", '[dev-packages]\npytest = "*"\n'),
        ("setup.cfg", "[options.extras_require]\ntest =\n    pytest>=6\n    coverage\n"),
        ("setup.py", "from setuptools import setup\nsetup(extras_require={'test': ['pytest>=6']})\n"),
    ],
)
def test_pytest_is_a_dependency_wherever_dependencies_are_named(file: str, text: str, tmp_path: Path) -> None:
    (target,) = detect(lay(tmp_path, {file: text, "tests/test_a.py": CASE}))
    assert (target.runner, target.why) == ("pytest", f"{file} names pytest as a dependency")


def test_files_that_are_skipped_as_a_whole_or_do_not_load_say_why(tmp_path: Path) -> None:
    files = {
        "pytest.ini": "[pytest]\n",
        "test_whole.py": "import pytest\n\npytest.importorskip('gone')\n\n\ndef test_it():\n    pass\n",
        "a/test_same.py": "def test_it():\n    pass\n",
        "b/test_same.py": "def test_it():\n    pass\n",
        "c/conftest.py": "\ndef broken(:\n",
        "c/test_it.py": "def test_it():\n    pass\n",
    }
    report = run(lay(tmp_path / "it", files), PYTEST_DISABLE_PLUGIN_AUTOLOAD="1")
    assert statuses(report) == {"test_whole.py": "skipped", "a/test_same.py::test_it": "passed"}
    assert report.tests[0].reason == "could not import 'gone': No module named 'gone'"
    same, conftest = report.collection_errors
    assert same.file == "b/test_same.py"
    assert same.message.startswith("import file mismatch:")
    assert (conftest.file, conftest.line, conftest.type) == ("c/conftest.py", 2, "SyntaxError")
    only = {"test_whole.py": files["test_whole.py"]}
    assert run(lay(tmp_path / "two", only), PYTEST_DISABLE_PLUGIN_AUTOLOAD="1").status is ReportStatus.NO_TESTS
