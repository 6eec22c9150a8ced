"""`ratchet test` with wrong arguments, interrupted, or with few permissions: it prints its results and a hint."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from ratchet.checks.runners import find_upward
from tests.support import git, make_repository, ratchet, small_project
from tests.workspace.test_unprivileged import NOBODY, as_nobody, packages, python

__all__ = ["python"]
RED = "def test_red():\n    assert 1 == 2\n"


def lay(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


@pytest.mark.parametrize(
    "wrong",
    [
        ["--timeout", "0"],
        ["--timeout", "nan"],
        ["--rerun-failures", "-1"],
        ["--junit", "nowhere/it.xml"],
        [""],
        ["--ctrf", "."],
    ],
)
def test_a_wrong_call_is_refused_before_anything_runs(wrong: list[str], tmp_path: Path) -> None:
    folder = lay(tmp_path / "it", {"test_it.py": f"open({str(tmp_path / 'ran')!r}, 'w')\n{RED}"})
    done = ratchet("test", *wrong, cwd=folder)
    assert done.returncode == 2 and not done.stdout and done.stderr
    assert not (tmp_path / "ran").exists()


def test_results_are_printed_although_the_report_file_cannot_be_written(tmp_path: Path) -> None:
    folder = lay(tmp_path / "it", {"test_it.py": RED})
    done = ratchet("test", "--json", "--junit", "/dev/full", cwd=folder)
    assert json.loads(done.stdout)["totals"]["failed"] == 1
    assert done.returncode == 2 and "cannot write /dev/full: No space left on device" in done.stderr


def test_annotations_come_with_the_results_people_read(tmp_path: Path) -> None:
    done = ratchet("test", "--github", cwd=lay(tmp_path / "it", {"test_it.py": RED}))
    first, second, *_, last = done.stdout.splitlines()
    assert first.startswith("::error file=test_it.py,line=2")
    assert second == "✘ test_it.py::test_red" and last.startswith("FAILED  1 failed")


def test_detect_can_be_followed_by_hand_and_says_what_to_do_where_nothing_is_found(tmp_path: Path) -> None:
    files = {"apps/one/pytest.ini": "[pytest]\n", "apps/one/test_it.py": RED}
    _, place, run, *_ = ratchet("test", "--detect", cwd=lay(tmp_path / "it", files)).stdout.splitlines()
    assert place == "  in:     apps/one" and run.startswith("  run:    ")
    for command in ("check 'a b'", "\"check 'a b'\""):  # the second as it stands in ratchet.toml
        output = ratchet("test", "--detect", "--set", f"test.command={command}", cwd=tmp_path).stdout
        assert output.splitlines()[1] == "  run:    check 'a b'"
    none = ratchet("test", "--detect", cwd=lay(tmp_path / "none", {"readme.txt": ""}))
    assert none.returncode == 2 and "hint: set [test] command" in none.stderr


CRASHES = "import os\n\n\ndef test_it():\n    os._exit(3)\n"


def test_what_a_run_that_died_did_not_reach_is_neither_gone_nor_forgotten(tmp_path: Path) -> None:
    files = {"test_a.py": "def test_it():\n    pass\n", "test_b.py": RED}
    folder = make_repository(tmp_path / "it", files)
    ratchet("test", cwd=folder)
    (folder / "test_a.py").write_text(CRASHES)
    crashed = ratchet("test", cwd=folder)
    assert "! 1 more test was not reached\n" in crashed.stdout
    assert "since the last run: 1 newly failing\nCRASHED" in crashed.stdout
    unknown = ratchet("test", "--set", "test.command=true", cwd=folder).stdout
    assert "removed" not in unknown and "hint: if the runner writes JUnit XML" in unknown
    (folder / "test_a.py").write_text(files["test_a.py"])
    (folder / "test_b.py").write_text("import nowhere\n")
    assert "since the last run: 1 fixed\nFAILED  1 passed, 1 file not loaded" in ratchet("test", cwd=folder).stdout
    (folder / "test_b.py").write_text(RED)
    assert "since the last run: 1 still failing\n" in ratchet("test", cwd=folder).stdout


def test_a_note_explains_why_failed_ran_all_tests(tmp_path: Path) -> None:
    folder = make_repository(tmp_path / "it", {"test_it.py": RED, "test_broken.py": "import nowhere\n"})
    first = json.loads(ratchet("test", "--failed", "--json", cwd=folder).stdout)
    again = json.loads(ratchet("test", "--failed", "--json", cwd=folder).stdout)
    assert first["notes"] == ["ran all tests: there is no earlier run"]
    assert again["notes"] == ["ran all tests: a file did not load in the last run"]


@pytest.fixture
def others() -> Iterator[Path]:
    """A folder that another user can reach, whose repository is not theirs to write."""
    place = Path(tempfile.mkdtemp(prefix="ratchet-others-"))
    place.chmod(0o755)
    (place / "tmp").mkdir()
    (place / "tmp").chmod(0o1777)
    yield place
    shutil.rmtree(place)


def test_a_user_without_a_home_or_root_tests_a_repository_of_another_user(python: str, others: Path) -> None:
    """As in a container started with a user id: no home folder, a read-only project, no capability."""
    folder = make_repository(others / "it", {"test_it.py": "def test_it():\n    assert open(__file__)\n"})

    def test(*args: str) -> subprocess.CompletedProcess[str]:
        command = [python, "-m", "ratchet", "test", "-C", str(folder), *args]
        return as_nobody(command, PYTHONPATH=packages(), HOME="/nonexistent", TMPDIR=str(others / "tmp"))

    done = test()
    assert (done.returncode, done.stderr) == (0, ""), done
    refused = test("--affected")
    assert refused.returncode == 2 and f"safe.directory {folder}" in refused.stderr
    subprocess.run(["chown", "-R", str(NOBODY), folder], check=True)
    apart = test("--isolated", "test_it.py")
    assert "PASSED  1 passed" in apart.stdout, apart
    assert {path.name for path in folder.iterdir()} <= {".git", ".ratchet", "test_it.py"}


@pytest.mark.parametrize(
    ("git_file", "command"),
    [
        ("", "test"), ("repository", "test"), ("", "config show"), ("", "doctor"), ("", "workspace list"),
        ("repository", "queue"), ("", "serve --port 0"), ("", "agents try claude"),
    ],
)  # fmt: skip
def test_what_another_user_put_into_a_common_parent_is_not_obeyed(
    python: str, others: Path, git_file: str, command: str
) -> None:
    common = others / "tmp"
    if git_file:
        make_repository(common, {"it.txt": ""})
    else:
        (common / ".git").touch()
    lay(common, {"ratchet.toml": f'store = "{common}/evil.db"\n[test]\ncommand = "touch {common}/ran"\n'})
    for path in [*common.rglob("*")]:
        os.lchown(path, 65533, 65533)
    mine = lay(common / "mine", {"test_it.py": "def test_it():\n    pass\n"})
    for path in (mine, mine / "test_it.py"):
        os.lchown(path, NOBODY, NOBODY)
    before = {path.name for path in common.iterdir()}
    argv = [python, "-m", "ratchet", *command.split(), "-C", str(mine)]
    home = {"HOME": str(mine), "XDG_STATE_HOME": str(mine / "state"), "XDG_CACHE_HOME": str(mine / "cache")}
    refused = as_nobody(argv, PYTHONPATH=packages(), **home)
    assert refused.returncode == 3 and f"safe.directory {common}" in refused.stderr, refused
    assert {path.name for path in common.iterdir()} == before
    if command == "test":
        (mine / "ratchet.toml").touch()
        os.chown(mine / "ratchet.toml", NOBODY, NOBODY)
        own = as_nobody(argv, PYTHONPATH=packages(), **home)
        assert "PASSED  1 passed" in own.stdout, own
        (mine / "ratchet.toml").unlink()
        (mine / ".gitconfig").write_text(f"[safe]\n\tdirectory = {common}\n")
        as_nobody(argv, PYTHONPATH=packages(), **home)
        assert (common / "ran").exists(), "a user may trust it"


def test_programs_that_another_user_put_into_a_common_parent_are_not_started(python: str, others: Path) -> None:
    common = others / "tmp"
    lay(common, {"vendor/bin/phpunit": f"#!/bin/sh\ntouch {others}/ran\n", "vendor/autoload.php": ""})
    mine = lay(common / "mine", {"phpunit.xml": "<phpunit/>", "tests/ATest.php": "<?php\n"})
    os.lchown(common / "vendor", 65533, 65533)
    assert find_upward(mine, "vendor/bin/phpunit") is None


def test_the_suspects_of_a_packet_are_code_and_no_reports_that_lie_about(tmp_path: Path) -> None:
    folder = make_repository(tmp_path / "it", {"test_it.py": RED})
    lay(folder, {"junit.xml": "<testsuites/>", "helper.py": "x = 1\n"})
    assert "\nsuspects: helper.py (changed)\n" in ratchet("test", "--packet", cwd=folder).stdout


def test_from_a_folder_below_or_elsewhere_files_are_named_from_there_and_one_is_run_again_from_there(
    tmp_path: Path,
) -> None:
    folder = make_repository(tmp_path / "it", {"tests/test_it.py": RED, "src/thing.py": "x = 1\n"})
    for place, name in (
        (folder / "src", "../tests/test_it.py"),
        (tmp_path, str(folder / "tests/test_it.py::test_red")),
    ):
        args = ["-C", str(folder), name] if place == tmp_path else [name]
        done = ratchet("test", *args, cwd=place)
        assert done.stdout.startswith("✘ tests/test_it.py::test_red\n"), done.stdout
        command = done.stdout.partition("    rerun: ")[2].splitlines()[0]
        again = subprocess.run(["sh", "-c", command], cwd=place, capture_output=True, text=True, check=False)
        assert again.returncode == 1 and "1 failed" in again.stdout, command
        assert command in ratchet("test", "--packet", *args, cwd=place).stdout
    here = ratchet("test", "./tests/test_it.py::test_red", cwd=folder)
    assert "FAILED  1 failed in" in here.stdout and "!" not in here.stdout


def test_an_unknown_bare_test_name_gets_suggestions(tmp_path: Path) -> None:
    folder = make_repository(tmp_path / "it", {"test_it.py": RED})
    ratchet("test", cwd=folder)
    assert "test_red: did you mean test_it.py::test_red?\n" in ratchet("test", "test_red", cwd=folder).stdout
    assert f"{'x' * 5_000}: no test has that name\n" in ratchet("test", "x" * 5_000, cwd=folder).stdout


def test_a_setting_that_git_ignores_is_named_when_a_copy_fails_without_it_and_can_be_taken_along(
    tmp_path: Path,
) -> None:
    files = {"test_it.py": "def test_it():\n    open('.env')\n", ".gitignore": ".env\n*.pyc\n"}
    folder = lay(make_repository(tmp_path / "it", files), {".env": "KEY=1\n", "test_it.pyc": ""})
    apart = ratchet("test", "--isolated", cwd=folder).stdout
    assert "! the copy lacks files that git ignores: .env; add them to workspace.carry\n" in apart
    assert ratchet("test", "--isolated", "--set", "workspace.carry=.env", cwd=folder).returncode == 0


CASE = "import unittest\n\n\nclass Case(unittest.TestCase):\n    def test_it(self):\n        self.assertEqual(1, {})\n"


def test_a_folder_stands_for_its_tests_also_where_the_runner_takes_none(tmp_path: Path) -> None:
    files = {f"{name}/tests/test_{name}.py": CASE.format(n) for n, name in enumerate(["one", "two"])}
    folder = lay(tmp_path / "it", files)
    for place in ("one", "one/tests/"):
        done = ratchet("test", place, cwd=folder)
        assert done.stdout.startswith("✘ test_one.Case.test_it\n    AssertionError: 1 != 0\n")
        assert "FAILED  1 failed in" in done.stdout


MANY = "import pytest\n\n\n@pytest.mark.parametrize('n', range(25))\ndef test_many(n):\n    assert n == -1\n"


def test_of_many_failures_all_are_named_and_new_ones_are_marked(tmp_path: Path) -> None:
    folder = make_repository(tmp_path / "it", {"test_it.py": MANY})
    output = ratchet("test", "--save-baseline", cwd=folder).stdout.splitlines()
    assert output[-3] == "✘ test_it.py::test_many[24]  AssertionError: assert 24 == -1"
    assert output[-1].startswith("FAILED  25 failed, 25 known") and output[-1].endswith("; no new failures")
    (folder / "test_new.py").write_text(RED)
    done = ratchet("test", "--baseline", cwd=folder)
    again = json.loads(ratchet("test", "--json", cwd=folder).stdout)
    assert len(again["known"]) == 25 and again["flaky"] == []
    assert len(again["delta"]["still_failing"]) == 26 and again["delta"]["new_failures"] == []
    since, end = done.stdout.splitlines()[-2:]
    assert (done.returncode, since) == (1, "since the last run: 1 newly failing, 25 still failing")
    assert end.startswith("FAILED  26 failed, 25 known") and "no new" not in end


@pytest.mark.parametrize(
    "words", [("test",), ("run", "-d", "Subtract", "--agent", "command:true"), ("watch", "--once")]
)
def test_a_repository_that_brings_our_state_along_is_refused_before_anything_is_written(
    tmp_path: Path, words: tuple[str, ...]
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    place = small_project(tmp_path / "p")
    (place / ".ratchet").symlink_to(outside)
    done = ratchet(*words, cwd=place)
    assert done.returncode == 2 and "is a link" in done.stderr
    (place / ".ratchet").unlink()
    (place / ".ratchet" / "trees.git").mkdir(parents=True)
    (place / ".ratchet" / "trees.git" / "config").write_text('[filter "x"]\n\tclean = touch ran\n')
    git("add", "-f", ".ratchet", cwd=place)
    done = ratchet(*words, cwd=place)
    assert done.returncode == 2 and "part of its commits" in done.stderr
    assert not [*outside.iterdir()]
