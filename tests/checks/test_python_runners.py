"""What surrounds pytest: xdist, documentation, reruns, tox, nox, Django, and those who would cheat."""

from __future__ import annotations

import ast
import os
import shutil
import sys
from pathlib import Path

import msgspec
import pytest

from ratchet.app.tests import TestOutcome
from ratchet.checks.detect.rerun import rerun_command
from ratchet.checks.detect.targets import detect
from ratchet.checks.runners import REPORTERS
from ratchet.core.report import Report, ReportStatus, TestResult, TestStatus
from ratchet.interfaces.terminal.colour import painter
from ratchet.interfaces.terminal.test_results import view
from tests.checks.support import CACHE, chosen, red, run, statuses

TOOLS = CACHE / "venv" / "bin"
PASS = "def test_pass():\n    pass\n"


def lay(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def tool(name: str) -> str:
    if not (TOOLS / name).exists():
        pytest.skip(f"{name} is not in the cache: scripts/toolchains gets it")
    return str(TOOLS / name)


def quietly(folder: Path) -> Report:
    return run(folder, PYTEST_DISABLE_PLUGIN_AUTOLOAD="1")


def test_results_of_workers_are_complete_and_a_dead_worker_names_its_test(tmp_path: Path) -> None:
    tests = {"test_it.py": "import os\n\n\ndef test_dies():\n    os._exit(1)\n\n\n" + PASS}
    folder = lay(tmp_path / "it", {"pytest.ini": "[pytest]\naddopts = -p xdist -n 2\n"} | tests)
    report = quietly(folder)
    assert statuses(report) == {"test_it.py::test_pass": "passed", "test_it.py::test_dies": "error"}
    assert report.status is ReportStatus.FAILED
    (crash,) = [test.failure for test in report.tests if test.failure]
    assert (crash.type, crash.line) == ("Crashed", 0)
    late = TestOutcome(report=msgspec.structs.replace(report, status=ReportStatus.TIMEOUT), targets=[])
    assert "stopped in" not in "\n".join(view(late, painter(colour=False)))  # it was stopped when that one was over
    assert list(tmp_path.glob("pytest-of-*/pytest-0"))  # and those of our own earlier sessions are left alone


_DIES_AT_ITS_END = "import os\n\n\ndef pytest_sessionfinish():\n    os._exit(1)\n"


def test_a_runner_that_dies_after_its_last_test_does_not_die_in_one(tmp_path: Path) -> None:
    report = quietly(lay(tmp_path / "it", {"conftest.py": _DIES_AT_ITS_END, "test_it.py": PASS}))
    assert (report.status, statuses(report)) == (ReportStatus.CRASHED, {"test_it.py::test_pass": "passed"})
    assert report.notes == ["every test had ended; the runner, which then cleans up, had not"]


_IN_WORKERS = """
import os

import pytest


def test_catches():
    with pytest.raises(AssertionError):
        assert 7 == 8


def test_says_nothing():
    assert False


def test_compares():
    assert 1 == 2


def test_is_alone():
    assert "PYTEST_ADDOPTS" not in os.environ
"""


def test_workers_report_values_and_locations_and_their_children_get_no_variables(tmp_path: Path) -> None:
    ini = {"pytest.ini": "[pytest]\naddopts = -p xdist -n 1\n", "test_broken.py": "\nimport gone\n"}
    report = quietly(lay(tmp_path / "it", ini | {"test_it.py": _IN_WORKERS}))
    assert red(report) == {
        "test_it.py::test_says_nothing": ("test_it.py", 13, None, None),
        "test_it.py::test_compares": ("test_it.py", 17, "2", "1"),
    }
    (error,) = report.collection_errors
    assert (error.file, error.line, error.message) == ("test_broken.py", 2, "No module named 'gone'")


def test_documentation_is_tested_with_its_values_and_its_line(tmp_path: Path) -> None:
    text = '"""Shop.\n\n>>> 1 + 1\n3\n"""\n'
    folder = lay(tmp_path / "it", {"pytest.ini": "[pytest]\naddopts = --doctest-modules\n", "shop.py": text})
    report = quietly(folder)
    assert red(report) == {"shop.py::shop": ("shop.py", 3, "3", "2")}


def test_tests_that_were_only_set_up_did_not_pass(tmp_path: Path) -> None:
    folder = lay(tmp_path / "it", {"pytest.ini": "[pytest]\naddopts = --setup-only\n", "test_it.py": PASS})
    report = quietly(folder)
    assert (report.status, report.totals.passed) == (ReportStatus.INCONSISTENT, 0)


@pytest.mark.parametrize(
    ("name", "text", "line", "says"),
    [
        ("tests/conftest.py", "import os\nimport gone\n", 2, "No module named 'gone'"),
        ("tests/conftest.py", "def broken(:\n", 1, "invalid syntax"),
        ("pyproject.toml", "[tool.pytest.ini_options]\nx = [\n", 0, "Invalid"),
    ],
)
def test_what_keeps_pytest_from_beginning_is_a_file_that_does_not_load(
    name: str, text: str, line: int, says: str, tmp_path: Path
) -> None:
    report = quietly(lay(tmp_path / "it", {"pytest.ini": "", "tests/test_it.py": PASS, name: text}))
    assert report.status is ReportStatus.FAILED
    (error,) = report.collection_errors
    assert (error.file, error.line) == (name, line) and says in error.message


@pytest.mark.parametrize(
    "wants", ["addopts = --no-such-option", "required_plugins = pytest-of-nobody", "addopts = -p nobody"]
)
def test_a_plugin_that_is_not_installed_is_no_failure_of_the_tests(wants: str, tmp_path: Path) -> None:
    report = quietly(lay(tmp_path / "it", {"pytest.ini": f"[pytest]\n{wants}\n", "test_it.py": PASS}))
    assert report.status is ReportStatus.ERROR
    assert "install what is missing" in report.notes[0]


COVERED = {
    "pytest.ini": "[pytest]\naddopts = --cov=shop --cov-fail-under=100\n",
    "shop.py": "def one():\n    return 1\n\n\ndef two():\n    return 2\n",
    "test_it.py": "import shop\n\n\ndef test_one():\n    assert shop.one() == 1\n",
}


@pytest.mark.toolchain
def test_too_little_coverage_fails_the_run_and_says_so_but_not_that_of_a_part(tmp_path: Path) -> None:
    folder = lay(tmp_path / "it", COVERED)
    targets = detect(folder, command=f"{tool('python')} -m pytest")
    report = run(folder, targets, PYTEST_DISABLE_PLUGIN_AUTOLOAD="")
    assert (report.status, report.totals.passed) == (ReportStatus.FAILED, 1)
    (error,) = report.collection_errors
    assert error.message == "required test coverage of 100% not reached: total coverage is 75.00%"
    part = run(folder, targets, only={targets[0].name: report.tests}, PYTEST_DISABLE_PLUGIN_AUTOLOAD="")
    assert (part.status, part.totals.passed) == (ReportStatus.PASSED, 1)


@pytest.mark.parametrize(
    "conftest",
    [
        "import os\nos._exit(0)\n",
        "import pytest\n\n\n@pytest.hookimpl(tryfirst=True)\ndef pytest_runtest_logreport(report):\n"
        "    report.outcome = 'passed'\n",
        "def pytest_sessionfinish(session):\n    session.exitstatus = 0\n",
        "import pytest\n\n\n@pytest.hookimpl(trylast=True)\ndef pytest_collection_finish(session):\n"
        "    session.items.clear()\n",
        "import pytest\n\n\n@pytest.hookimpl(tryfirst=True)\ndef pytest_runtest_makereport(call):\n"
        "    call.excinfo = None\n",
    ],
    ids=["exit", "outcome", "exitstatus", "items", "excinfo"],
)
def test_a_project_cannot_talk_its_way_to_green(conftest: str, tmp_path: Path) -> None:
    folder = lay(tmp_path / "it", {"conftest.py": conftest, "test_it.py": "def test_fail():\n    assert False\n"})
    assert quietly(folder).status is not ReportStatus.PASSED


def test_a_test_that_the_project_reruns_counts_its_attempts(tmp_path: Path) -> None:
    hook = (
        "def pytest_runtest_protocol(item, nextitem):\n"
        "    from _pytest.runner import runtestprotocol\n"
        "    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)\n"
        "    for attempt in (1, 2):\n"
        "        reports = runtestprotocol(item, nextitem=nextitem, log=False)\n"
        "        for report in reports:\n"
        "            if attempt == 1 and report.failed:\n"
        "                report.outcome = 'rerun'\n"
        "            item.ihook.pytest_runtest_logreport(report=report)\n"
        "    return True\n"
    )
    test = "seen = []\n\n\ndef test_flaky():\n    seen.append(1)\n    assert len(seen) > 1\n"
    report = quietly(lay(tmp_path / "it", {"conftest.py": hook, "test_it.py": test}))
    assert [(str(test.status), test.attempts) for test in report.tests] == [("passed", 2)]


def test_a_command_around_pytest_is_read_all_the_same(tmp_path: Path) -> None:
    if not shutil.which("make"):
        pytest.skip("make is not installed")
    python = detect(lay(tmp_path / "it", {"test_it.py": PASS}))[0].command[0]
    lay(tmp_path / "it", {"Makefile": f"test:\n\t{python} -m pytest -q\n"})
    report = run(tmp_path / "it", detect(tmp_path / "it", command="make test"), PYTEST_DISABLE_PLUGIN_AUTOLOAD="1")
    assert (report.runner, report.status, report.totals.passed) == ("command", ReportStatus.PASSED, 1)


def test_pytest_behind_a_command_that_keeps_our_reporter_out_is_asked_for_its_own_report(tmp_path: Path) -> None:
    folder = lay(tmp_path / "it", {"test_it.py": "def test_it():\n    assert 1 == 2\n"})
    python = detect(folder)[0].command[0]
    command = f"env PYTHONPATH=. {python} -m pytest"
    report = run(folder, detect(folder, command=command, runner_name="command"), PYTEST_DISABLE_PLUGIN_AUTOLOAD="1")
    assert report.status is ReportStatus.FAILED
    assert red(report) == {"test_it.py::test_it": ("test_it.py", 2, "2", "1")}
    assert "our reporter is not loaded" in report.notes[0]


@pytest.mark.toolchain
@pytest.mark.parametrize("name", ["tox", "nox"])
def test_environments_of_their_own_let_our_reporter_in(name: str, tmp_path: Path) -> None:
    program, pytest_program = tool(name), tool("pytest")
    testenv = f"skip_install = true\nallowlist_externals = *\ncommands = {pytest_program}\n"
    ini = f"[tox]\nskipsdist = true\n\n[testenv]\n{testenv}"
    nox = (
        f"import nox\n\n\n@nox.session(venv_backend='none')\ndef tests(session):\n    session.run({pytest_program!r})\n"
    )
    files = {"tox": {"tox.ini": ini}, "nox": {"noxfile.py": nox}}[name]
    folder = lay(tmp_path / "it", files | {"test_it.py": PASS})
    report = run(folder, detect(folder, command=program, runner_name=name), PYTEST_DISABLE_PLUGIN_AUTOLOAD="1")
    assert statuses(report) == {"test_it.py::test_pass": "passed"}
    assert report.status is ReportStatus.PASSED


@pytest.mark.toolchain
def test_a_test_in_two_environments_is_two_and_each_is_run_again_in_its_own(tmp_path: Path) -> None:
    tool("tox")
    ini = f"""[tox]
envlist = test-a, test-b, lint
[testenv]
skip_install = true
allowlist_externals = *
set_env =
    test-b: BAD = 1
pass_env = PYTEST_DISABLE_PLUGIN_AUTOLOAD
commands = {tool("pytest")} {{posargs}}
[testenv:lint]
commands = false
"""
    test = "import os\n\n\ndef test_it():\n    assert 'BAD' not in os.environ\n"
    folder = lay(tmp_path / "it", {"tox.ini": ini, "test_it.py": test})
    targets = detect(folder, runner_name="tox")
    path = f"{TOOLS}:{os.environ['PATH']}"
    report = run(folder, targets, PATH=path, PYTEST_DISABLE_PLUGIN_AUTOLOAD="1")
    assert statuses(report) == {"test_it.py::test_it": "passed", "test_it.py::test_it (2)": "failed"}
    failed = report.tests[1]
    assert rerun_command(failed, targets) == "tox -e test-b -- test_it.py::test_it"
    report = run(folder, targets, only={"tox": [failed]}, PATH=path, PYTEST_DISABLE_PLUGIN_AUTOLOAD="1")
    assert statuses(report) == {"test_it.py::test_it (2)": "failed"}


_MANAGE = (
    "import os, sys\nfrom django.core.management import execute_from_command_line\n"
    "os.environ['DJANGO_SETTINGS_MODULE'] = 'settings'\nexecute_from_command_line(sys.argv)\n"
)
_SETTINGS = "SECRET_KEY = 'x'\nINSTALLED_APPS = ['shop']\nDATABASES = {}\n"
_DJANGO = {"manage.py": _MANAGE, "settings.py": _SETTINGS, "shop/__init__.py": ""}


@pytest.mark.toolchain
def test_django_runs_its_own_tests_through_our_result(tmp_path: Path) -> None:
    python = tool("python")
    tests = (
        "from django.test import SimpleTestCase\n\n\nclass It(SimpleTestCase):\n"
        "    def test_pass(self):\n        pass\n\n    def test_fail(self):\n        self.assertEqual(1 + 2, 4)\n"
    )
    folder = lay(tmp_path / "it", _DJANGO | {"shop/tests.py": tests})
    report = run(folder, detect(folder, command=f"{python} manage.py test"))
    assert statuses(report) == {"shop.tests.It.test_pass": "passed", "shop.tests.It.test_fail": "failed"}
    assert red(report) == {"shop.tests.It.test_fail": ("shop/tests.py", 9, "4", "3")}
    assert report.status is ReportStatus.FAILED


_OWN = """
from django.conf import settings
from django.test.runner import DiscoverRunner


class Own(DiscoverRunner):
    def setup_test_environment(self, **options):
        super().setup_test_environment(**options)
        settings.FLAG = 1

    def run_suite(self, suite, **options):
        raise NotImplementedError


class Pytest:
    def __init__(self, verbosity=1, **options):
        pass

    @classmethod
    def add_arguments(cls, parser):
        parser.add_argument("--keepdb", action="store_true")

    def run_tests(self, labels, **options):
        import pytest

        return pytest.main([*labels])
"""


@pytest.mark.toolchain
def test_what_a_project_made_of_djangos_runner_runs_its_tests(tmp_path: Path) -> None:
    python = tool("python")
    tests = (
        "from django.conf import settings\nfrom django.test import SimpleTestCase\n\n\nclass It(SimpleTestCase):\n"
        "    def test_flag(self):\n        self.assertEqual(settings.FLAG, 1)\n"
    )
    files = _DJANGO | {"runner.py": _OWN, "shop/tests.py": tests, "shop/test_more.py": "def test_it():\n    pass\n"}
    for name, reported in (("Own", "shop.tests.It.test_flag"), ("Pytest", "shop/test_more.py::test_it")):
        settings = f"{_SETTINGS}\nTEST_RUNNER = 'runner.{name}'\n"
        folder = lay(tmp_path / name, files | {"settings.py": settings})
        report = run(folder, detect(folder, command=f"{python} manage.py test"), PYTEST_DISABLE_PLUGIN_AUTOLOAD="1")
        assert (report.status, statuses(report)) == (ReportStatus.PASSED, {reported: "passed"})


_TORN_DOWN = """
from unittest import TestCase


class It(TestCase):
    @classmethod
    def tearDownClass(cls):
        raise OSError("full")

    def test_pass(self):
        pass


class Other(TestCase):
    def test_other(self):
        pass
"""


@pytest.mark.toolchain
@pytest.mark.parametrize("runs", ["manage.py test", "-m unittest"])
def test_a_file_or_what_failed_after_a_class_can_be_asked_for(runs: str, tmp_path: Path) -> None:
    folder = lay(tmp_path / "it", _DJANGO | {"shop/test_it.py": _TORN_DOWN})
    targets = detect(folder, command=f"{tool('python')} {runs}")
    whole = run(folder, targets)
    names = {"shop.test_it.It.test_pass": "passed", "shop.test_it.Other.test_other": "passed"}
    after = {"tearDownClass (shop.test_it.It)": "error"}
    assert statuses(whole) == names | after
    file = TestResult(id="shop/test_it.py", file="shop/test_it.py", status=TestStatus.TODO)
    assert statuses(run(folder, targets, only={targets[0].name: [file]})) == statuses(whole)
    torn = run(folder, targets, only=chosen(whole, *after))
    assert statuses(torn) == {"shop.test_it.It.test_pass": "passed"} | after


@pytest.mark.parametrize("config", ["pytest.ini", "it/below/pytest.ini"])
def test_names_start_where_pytest_was_started_wherever_its_configuration_is(config: str, tmp_path: Path) -> None:
    test = tmp_path / "it" / "below" / "test_it.py"
    test.parent.mkdir(parents=True)
    test.write_text("def test_bad():\n    assert 1 == 2\n")
    (test.parent / "test_broken.py").write_text("def test(:\n")
    (tmp_path / config).write_text("[pytest]\n")
    targets = detect(tmp_path / "it", command=f"{sys.executable} -m pytest below")
    report = run(tmp_path / "it", targets)
    assert red(report) == {"below/test_it.py::test_bad": ("below/test_it.py", 2, "2", "1")}
    assert [error.file for error in report.collection_errors] == ["below/test_broken.py"]
    plain = detect(tmp_path / "it", command=f"{sys.executable} -m pytest")
    again = run(tmp_path / "it", plain, only=chosen(report, "below/test_it.py::test_bad"))
    assert statuses(again) == {"below/test_it.py::test_bad": "failed"}


@pytest.mark.parametrize("guest", ["_ratchet_pytest", "_ratchet_pytest_guest", "_ratchet_unittest"])
def test_a_guest_speaks_a_python_that_is_old(guest: str) -> None:
    tree = ast.parse((REPORTERS / f"{guest}.py").read_text(), feature_version=(3, 6))
    # Dictionaries are joined so, and texts cut so, since 3.9 only.
    new = [node.lineno for node in ast.walk(tree) if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr)]
    called = [node for node in ast.walk(tree) if isinstance(node, ast.Attribute)]
    new += [node.lineno for node in called if node.attr in ("removeprefix", "removesuffix")]
    assert new == []


_ALL_KINDS = """
import unittest


class TestIt(unittest.TestCase):
    def test_equal(self):
        self.assertEqual(1, 2)

    @unittest.expectedFailure
    def test_expected(self):
        self.fail()

    @unittest.skip("later")
    def test_later(self):
        pass

    def test_sub(self):
        with self.subTest(n=1):
            self.fail("no")


class TestNone(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        raise ValueError("none")

    def test_it(self):
        pass
"""


@pytest.mark.toolchain
@pytest.mark.parametrize("version", ["3.6", "3.7", "3.8", "3.9", "3.12"])
def test_old_pythons_report_every_kind_of_result(version: str, tmp_path: Path) -> None:
    python = next(Path.home().glob(f".pyenv/versions/{version}.*/bin/python"), None)
    if not python:
        pytest.skip(f"there is no Python {version}")
    folder = lay(tmp_path / "it", {"test_it.py": _ALL_KINDS})
    (target,) = detect(folder)
    report = run(folder, [msgspec.structs.replace(target, command=[str(python), *target.command[1:]])])
    assert {name.removeprefix("test_it."): status for name, status in statuses(report).items()} == {
        "TestIt.test_equal": "failed",
        "TestIt.test_expected": "xfailed",
        "TestIt.test_later": "skipped",
        "TestIt.test_sub": "failed",
        "TestNone.test_it": "error",
    }
    assert red(report)["test_it.TestIt.test_equal"] == ("test_it.py", 7, "2", "1")


# As pytest-retry and pytest-check do it.
_OTHER_PLUGINS = """
import pytest


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    report = (yield).get_result()
    if call.when != "call":
        return
    if item.name == "test_tried_again":
        report.outcome = "retried"
        item.ihook.pytest_runtest_logreport(report=report)
        report.outcome = "passed"
    if item.name == "test_soft":
        report.outcome = "failed"
        report.longrepr = "FAILURE: check 1 == 2\\ntest_it.py:17 in test_soft() -> it\\n\\nFAILURE: check 3 == 4"
"""
_WITH_PLUGINS = """
def test_tried_again():
    assert 1 == 2


def test_group():
    try:
        assert 3 == 4
    except AssertionError as error:
        raise ExceptionGroup("two", [ExceptionGroup("one", [error])])


def test_last():
    assert 5 == 6

def test_soft():
    pass
"""


def test_failures_changed_by_plugins_are_reported_and_all_tests_are_run(tmp_path: Path) -> None:
    files = {
        "pytest.ini": "[pytest]\naddopts = --lf --stepwise\n",
        ".pytest_cache/v/cache/lastfailed": '{"test_it.py::test_last": true}',
        "conftest.py": _OTHER_PLUGINS,
        "test_it.py": _WITH_PLUGINS,
    }
    report = quietly(lay(tmp_path / "it", files))
    assert (report.status, report.notes) == (ReportStatus.FAILED, [])
    assert red(report) == {
        "test_it.py::test_group": ("test_it.py", 8, "4", "3"),
        "test_it.py::test_last": ("test_it.py", 14, "6", "5"),
        "test_it.py::test_soft": ("test_it.py", 17, None, None),
    }
    (again,) = [test for test in report.tests if test.attempts > 1]
    assert (again.id, again.status) == ("test_it.py::test_tried_again", TestStatus.PASSED)


_FUNCTIONS = """
def test_good():
    pass


def test_bad():
    assert 1 == 2
"""
_SUITE = """

def test_suite():
    return unittest.defaultTestLoader.loadTestsFromName(__name__)
"""


@pytest.mark.toolchain
@pytest.mark.parametrize(
    ("program", "files", "prefix", "more"),
    [
        ("nose2", {"nose2.cfg": "", "test_it.py": _ALL_KINDS + _FUNCTIONS}, "test_it",
         {"test_it.test_good": "passed", "test_it.test_bad": "failed", "setUpClass (test_it.TestNone)": "error"}),
        ("zope-testrunner", {"tox.ini": "commands = zope-testrunner --path=src {posargs:-vc}\n",
                             "src/a/__init__.py": "", "src/a/tests.py": _ALL_KINDS + _SUITE}, "a.tests",
         {"a.tests.TestNone.test_it": "passed"}),  # it does without what goes before a class
    ],
)  # fmt: skip
def test_other_runners_of_unittest_report_each_test(
    program: str,
    files: dict[str, str],
    prefix: str,
    more: dict[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tool(program)
    monkeypatch.setenv("VIRTUAL_ENV", str(TOOLS.parent))
    folder = lay(tmp_path / "it", files)
    (target,) = detect(folder)
    report = run(folder, [target])
    kinds = {"test_equal": "failed", "test_expected": "xfailed", "test_later": "skipped", "test_sub": "failed"}
    assert statuses(report) == {f"{prefix}.TestIt.{name}": status for name, status in kinds.items()} | more
    equal = f"{prefix}.TestIt.test_equal"
    assert red(report)[equal][1:] == (7, "2", "1")
    assert statuses(run(folder, [target], only=chosen(report, equal))) == {equal: "failed"}
