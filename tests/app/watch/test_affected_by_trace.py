"""What each test used, recorded by a guest in its pytest, and what a change therefore reaches."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ratchet.checks.detect.targets import detect
from ratchet.checks.runners import REPORTERS
from ratchet.checks.select.affected_by_trace import TraceMap, outline, read_trace

CODE = """
import subprocess, threading, json
LIMIT = 3

def plain():
    return 1

class Thing:
    def method(self):
        return [x for x in self._inner()]

    def _inner(self):
        return [LIMIT]

def in_thread():
    return 2

def for_all():
    return {"ready": True}

def starts():
    return subprocess.run(["true"]).returncode
"""
TESTS = """
import threading
import pytest
import code_under as code

@pytest.fixture(scope="module")
def shared():
    return code.for_all()

def test_plain():
    assert code.plain() == 1

def test_method():
    assert code.Thing().method() == [3]

def test_first(shared):
    assert shared["ready"]

def test_second(shared):
    assert shared["ready"]

def test_thread():
    worker = threading.Thread(target=code.in_thread)
    worker.start()
    worker.join()

def test_starts():
    assert code.starts() == 0

def test_reads():
    assert open("words.txt").read() == "one"
"""


def record(folder: Path) -> TraceMap:
    place = folder.parent / "recorded"
    place.mkdir(exist_ok=True)
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": str(REPORTERS), "_RATCHET_IMPACT": str(place),
           "_RATCHET_ROOT": str(folder), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}  # fmt: skip
    command = [sys.executable, "-m", "pytest", "-q", "-p", "_ratchet_impact", "-p", "no:cacheprovider"]
    subprocess.run(command, cwd=folder, env=env, check=True, capture_output=True)
    made = read_trace(place, folder)
    assert made
    return made


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    place = tmp_path / "project"
    (place / "tests").mkdir(parents=True)
    (place / "code_under.py").write_text(CODE)
    (place / "tests" / "test_it.py").write_text(TESTS)
    (place / "conftest.py").write_text("")
    (place / "words.txt").write_text("one")
    return place


def reached(impact: TraceMap, folder: Path, path: str) -> set[str] | None:
    found = impact.affected(folder, detect(folder)[0], [path], prefix="")
    return None if found is None else {name.rpartition("::")[2] for name in found}


@pytest.mark.parametrize(
    ("old", "new", "tests"),
    [
        ("return 1", "return 9", {"test_plain"}),
        ("return [LIMIT]", "return [4]", {"test_method"}),
        ("return 2", "return 8", {"test_thread"}),
        ('{"ready": True}', '{"ready": 1}', {"test_first", "test_second"}),
    ],
)
def test_a_changed_function_reaches_the_tests_that_used_it(folder: Path, old: str, new: str, tests: set[str]) -> None:
    impact = record(folder)
    (folder / "code_under.py").write_text(CODE.replace(old, new))
    assert reached(impact, folder, "code_under.py") == tests | {"test_starts"}, "who starts processes is always reached"


def test_a_data_file_reaches_its_readers(folder: Path) -> None:
    impact = record(folder)
    assert reached(impact, folder, "words.txt") == {"test_reads", "test_starts"}


@pytest.mark.parametrize(
    ("old", "new", "tests"),
    [
        ("code.plain() == 1", "code.plain() == 2", {"test_plain"}),
        ("return code.for_all()", "return dict(code.for_all())", {"test_first", "test_second"}),
        ("def test_plain", "def test_simple", {"tests/test_it.py"}),
        ("import threading\n", "import threading, os\n", {"tests/test_it.py"}),
    ],
)
def test_a_test_file_reaches_the_tests_that_changed_or_all_of_its_own(
    folder: Path, old: str, new: str, tests: set[str]
) -> None:
    impact = record(folder)
    (folder / "tests/test_it.py").write_text(TESTS.replace(old, new, 1))
    assert reached(impact, folder, "tests/test_it.py") == tests | {"test_starts"}
    (folder / "tests/test_it.py").unlink()
    assert reached(impact, folder, "tests/test_it.py") == {"test_starts"}


def test_a_comment_affects_no_test_and_a_constant_every_test_that_imports_it(folder: Path) -> None:
    impact = record(folder)
    (folder / "code_under.py").write_text(CODE.replace("LIMIT = 3", "# three\nLIMIT = 3"))
    assert reached(impact, folder, "code_under.py") == {"test_starts"}
    (folder / "code_under.py").write_text(CODE.replace("LIMIT = 3", "LIMIT = 4"))
    assert reached(impact, folder, "code_under.py") == {"tests/test_it.py", "test_starts"}


def test_everything_runs_where_the_affected_tests_are_unknown(folder: Path) -> None:
    impact = record(folder)
    assert reached(impact, folder, "conftest.py") is None
    assert reached(impact, folder, "pyproject.toml") is None


def test_a_function_that_moved_did_not_change() -> None:
    before, after = outline("def f():\n    return 1\n"), outline("\n\ndef f():\n    return 1\n")
    assert before and after
    assert (before.digests(), before.skeleton) == (after.digests(), after.skeleton)
    assert outline("def f(:") is None


@pytest.mark.parametrize(
    ("before", "after", "same"),
    [
        ("def f():\n    return 1\n", "def f():\n    # why\n\n    return 1\n", True),
        ('def f():\n    """Says."""\n    return 1\n', 'def f():\n    """Says."""\n    # why\n    return 1\n', True),
        ('def f():\n    """Says\n    # one"""\n', 'def f():\n    """Says\n    # two"""\n', False),
        ('def f():\n    return """\n# one\n"""\n', 'def f():\n    return """\n# two\n"""\n', False),
        ('T = """\n# one\n"""\n', 'T = """\n# two\n"""\n', False),
        ('class C:\n    T = """\n# one\n"""\n', 'class C:\n    T = """\n\n# one\n"""\n', False),
        ("def f():\n    return 'a\\\n# one'\n", "def f():\n    return 'a\\\n# two'\n", False),
        ("def f():\n    return 1\n", "def f():\n    return 1  # why\n", False),
    ],
)
def test_a_comment_in_a_function_is_no_change_but_what_only_looks_like_one_is(
    before: str, after: str, same: bool
) -> None:
    one, two = outline(before), outline(after)
    assert one and two
    assert ((one.digests(), one.skeleton) == (two.digests(), two.skeleton)) is same
