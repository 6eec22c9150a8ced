"""`ratchet test` as a person or an agent calls it."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from ratchet import config
from ratchet.app.tests import Suite
from ratchet.core.report import Report, ReportStatus, TestResult, TestStatus, merge_targets
from tests.support import RATCHET, git, install_editable, make_repository, quick_environment, ratchet

GREEN = "def test_one():\n    assert 1 == 1\n"
RED = "from shop import total\n\n\ndef test_one():\n    assert total([1, 2]) == 4\n\n\ndef test_two():\n    pass\n"
LEAVES = "import os\n\nos._exit(0)\n"
SHOP = {"shop.py": "def total(prices):\n    return sum(prices)\n", "test_shop.py": RED, "pytest.ini": "[pytest]\n"}


def lay(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def fingerprint(folder: Path) -> dict[str, str]:
    """Every file of the project, and what is in it; ours and git's own are not the project's."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.rglob("*")
        if path.is_file()
        and not {".git", ".ratchet", "__pycache__", ".pytest_cache"} & set(path.relative_to(folder).parts)
    }


def test_any_folder_will_do_without_git_and_without_a_trace(tmp_path: Path) -> None:
    folder = lay(tmp_path / "it", {"test_it.py": GREEN})
    done = ratchet("test", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert "PASSED  1 passed" in done.stdout
    assert set(fingerprint(folder)) == {"test_it.py"}
    assert not (folder / ".ratchet").exists()


def test_failures_are_shown_first_with_values_place_and_how_to_run_one_again(tmp_path: Path) -> None:
    folder = lay(tmp_path / "it", SHOP)
    done = ratchet("test", cwd=folder)
    assert done.returncode == 1
    first, *rest = done.stdout.splitlines()
    assert first == "✘ test_shop.py::test_one"
    assert "    expected: 4" in rest and "    actual:   3" in rest
    assert "    at test_shop.py:5 in test_one" in rest
    assert any(line.startswith("    rerun: ") and line.endswith("test_shop.py::test_one") for line in rest)
    assert rest[-1].startswith("FAILED  1 failed, 1 passed")


ODD = """
def test_rings():
    print("\\x1b[2J\\x07out")
    raise ValueError("\\x1b[31mred\\x1b[0m \\x00 \\udce4")


def test_long():
    assert "x" * 3000 + "<here>" + "y" * 3000 == "x" * 3000 + "<there>" + "y" * 3000


def test_lines():
    assert "\\n".join(map(str, range(60))) == "\\n".join(map(str, [*range(30), "thirty", *range(31, 60)]))


def test_end():
    assert "a\\n" * 100 == "a\\n" * 99 + "a"
"""


def test_what_a_test_says_does_nothing_to_the_terminal_and_long_values_show_where_they_differ(tmp_path: Path) -> None:
    output = ratchet("test", cwd=lay(tmp_path / "it", {"test_it.py": ODD})).stdout
    assert "    ValueError: red \\x00 ?\n" in output and "      | \\x07out\n" in output
    assert not {"\x1b", "\x07", "\x00"} & set(output)
    assert "x<there>y" in output and "x<here>y" in output
    assert "      29\n    - thirty\n    + 30\n      31\n" in output and "\n      12\n" not in output
    assert "a\\na'\n" in output.partition("test_end")[2]


@pytest.mark.parametrize(
    ("files", "args", "code"),
    [
        ({"test_it.py": GREEN}, [], 0),
        (SHOP, [], 1),
        ({"readme.txt": ""}, [], 2),
        ({"test_it.py": "def helper():\n    pass\n", "pytest.ini": "[pytest]\n"}, [], 2),
        ({"test_it.py": GREEN}, ["--set", "test.nonsense=1"], 2),
        ({"it.txt": ""}, ["--set", "test.command=no-such-program"], 3),
    ],
)
def test_the_exit_code_says_what_happened(files: dict[str, str], args: list[str], code: int, tmp_path: Path) -> None:
    assert ratchet("test", *args, cwd=lay(tmp_path / "it", files)).returncode == code


def test_detect_says_what_and_why_and_runs_nothing(tmp_path: Path) -> None:
    folder = lay(tmp_path / "it", SHOP)
    output = ratchet("test", "--detect", cwd=folder)
    assert output.returncode == 0
    assert output.stdout.startswith("pytest (python): there is a pytest.ini")
    (target,) = json.loads(ratchet("test", "--detect", "--json", cwd=folder).stdout)
    assert target["runner"] == "pytest"
    assert target["why"]


def test_several_runners_are_all_run_and_reported_as_one(tmp_path: Path) -> None:
    tests = {"b/test_it.py": "import unittest\nclass A(unittest.TestCase):\n    def test_b(self): self.fail('no')\n"}
    folder = lay(
        tmp_path / "it",
        {
            "a/pytest.ini": "[pytest]\n",
            "a/test_it.py": GREEN,
        }
        | tests,
    )
    lay(folder, {"c/pytest.ini": "[pytest]\n", "c/test_it.py": GREEN})
    done = ratchet("test", "--json", cwd=folder)
    report = json.loads(done.stdout)
    assert {(part["runner"], part["root"]) for part in report["parts"]} == {
        ("pytest", "a"),
        ("unittest", "."),
        ("pytest", "c"),
    }
    ids = [test["id"] for test in report["tests"]]
    assert set(ids) == {"a/test_it.py::test_one", "c/test_it.py::test_one", "test_it.A.test_b"}
    assert (done.returncode, report["status"]) == (1, "failed")
    alone = json.loads(ratchet("test", "--json", "c/test_it.py::test_one", cwd=folder).stdout)
    assert [test["id"] for test in alone["tests"]] == ["c/test_it.py::test_one"]


def test_json_has_every_field_even_when_nothing_could_run(tmp_path: Path) -> None:
    whole = json.loads(ratchet("test", "--json", cwd=lay(tmp_path / "green", {"test_it.py": GREEN})).stdout)
    cannot = ratchet("test", "--json", "--set", "test.command=no-such-program", cwd=lay(tmp_path / "a", {"a": ""}))
    none = ratchet("test", "--json", cwd=lay(tmp_path / "b", {"a": ""}))
    for done, code, status in ((cannot, 3, "error"), (none, 2, "no_tests")):
        report = json.loads(done.stdout)
        assert (done.returncode, report["status"], report["totals"]["tests"]) == (code, status, 0)
        assert report.keys() == whole.keys()
        assert report["notes"]


def test_a_file_that_loaded_is_no_load_error_when_it_ends_badly(tmp_path: Path) -> None:
    ends = "import test from 'node:test';\ntest('a', () => {});\nprocess.on('exit', () => { process.exitCode = 3; });\n"
    lay(tmp_path / "it", {"a.test.mjs": ends, "b.test.mjs": "import './none.mjs';\n"})
    output = ratchet("test", "-C", "it", cwd=tmp_path).stdout
    assert "✘ a.test.mjs went wrong outside of its tests\n    Crashed: the file's process ended with 3\n" in output
    assert "✘ b.test.mjs does not load" in output
    assert "1 passed, 1 file not loaded, 1 error outside of tests" in output


def test_a_test_that_kills_the_process_of_its_file_has_its_end_and_the_others_have_their_results(
    tmp_path: Path,
) -> None:
    dies = "import test from 'node:test';\ntest('a', () => {});\ntest('dies', () => process.kill(process.pid, 9));\n"
    lay(tmp_path / "it", {"a.test.mjs": dies})
    output = ratchet("test", "-C", "it", cwd=tmp_path).stdout
    assert output.startswith("✘ a.test.mjs::dies\n    Crashed: the file's process ended by SIGKILL\n")
    assert "CRASHED  1 error, 1 passed" in output


def test_a_crash_names_how_the_runner_died_and_its_last_output(tmp_path: Path) -> None:
    text = "import ctypes\n\n\ndef test_dies():\n    ctypes.string_at(0)\n"
    output = ratchet("test", "-C", "it", cwd=lay(tmp_path, {"it/test_it.py": text}).resolve()).stdout
    assert "test_it.py::test_dies was running when the runner was killed by SIGSEGV" in output
    assert "    at test_it.py:5 in test_dies" in output
    lay(
        tmp_path,
        {"it/test_it.py": "import os\n\n\ndef test_dies():\n    os.write(2, b'farewell\\n')\n    os._exit(3)\n"},
    )
    output = ratchet("test", "-C", "it", "--set", f"test.command={sys.executable} -m pytest -s", cwd=tmp_path).stdout
    assert "was running when the runner died (exit code 3)" in output
    assert "  | test_it.py farewell" in output


STUCK = """import threading
from pathlib import Path


def test_bad():
    assert 1 == 2


def test_stuck():
    Path("reached").write_text("yes")
    threading.Event().wait()
"""


@pytest.mark.parametrize(
    ("number", "text", "first", "last"),
    [
        (signal.SIGINT, STUCK, "✘ test_it.py::test_bad\n", "INTERRUPTED  1 failed in"),
        (signal.SIGTERM, STUCK.replace("1 == 2", "True"), "! interrupted in", "INTERRUPTED  1 passed in"),
    ],
)
def test_an_interrupt_prints_the_results_so_far(
    number: signal.Signals, text: str, first: str, last: str, tmp_path: Path
) -> None:
    folder = lay(tmp_path / "it", {"test_it.py": text, "test_more.py": GREEN})
    os.mkfifo(folder / "reached")
    running = subprocess.Popen(
        [*RATCHET, "test"], cwd=folder, env=quick_environment(), stdout=subprocess.PIPE, text=True
    )
    (folder / "reached").read_text()  # until the test is there
    running.send_signal(number)
    output, _ = running.communicate(timeout=60)
    assert running.returncode == 130
    assert output.startswith(first)
    note, left, end = output.splitlines()[-3:]
    assert note == "! interrupted in test_it.py::test_stuck: these are the results up to then"
    assert left == "! 1 more test was not reached" and end.startswith(last)


def test_json_junit_ctrf_and_annotations_agree(tmp_path: Path) -> None:
    folder = lay(tmp_path / "it", SHOP | {"test_broken.py": "def test(:\n"})
    junit, ctrf = tmp_path / "junit.xml", tmp_path / "ctrf.json"
    done = ratchet("test", "--json", "--junit", junit, "--ctrf", ctrf, cwd=folder)
    report = json.loads(done.stdout)
    assert (report["totals"]["failed"], report["totals"]["passed"]) == (1, 1)
    root = ET.parse(junit).getroot()
    assert (root.get("tests"), root.get("failures"), root.get("errors")) == ("3", "1", "1")
    summary = json.loads(ctrf.read_text())["results"]["summary"]
    assert (summary["tests"], summary["failed"], summary["passed"]) == (3, 2, 1)
    lines = ratchet("test", "--github", cwd=folder).stdout.splitlines()
    assert lines[0].startswith("::error file=test_broken.py,line=1")
    assert lines[1].startswith("::error file=test_shop.py,line=5,title=test_shop.py%3A%3Atest_one::")


def test_annotations_start_at_the_repository_and_leave_the_json_alone(tmp_path: Path) -> None:
    files = {f"packages/shop/{name}": text for name, text in SHOP.items()}
    folder = (
        make_repository(tmp_path / "it", files | {"packages/shop/test_broken.py": "def test(:\n"}) / "packages/shop"
    )
    (tmp_path / "link").symlink_to(folder)
    done = ratchet("test", "-C", tmp_path / "link", "--github", "--json", cwd=tmp_path)
    assert json.loads(done.stdout)["totals"]["failed"] == 1
    places = [line.partition(",title=")[0] for line in done.stderr.splitlines()]
    assert places == [
        "::error file=packages/shop/test_broken.py,line=1,col=10",
        "::error file=packages/shop/test_shop.py,line=5",
    ]


def test_only_what_failed_last_time(tmp_path: Path) -> None:
    folder = make_repository(tmp_path / "it", SHOP)
    assert ratchet("test", cwd=folder).returncode == 1
    again = json.loads(ratchet("test", "--failed", "--json", cwd=folder).stdout)
    assert [test["id"] for test in again["tests"]] == ["test_shop.py::test_one"]
    (folder / "shop.py").write_text("def total(prices):\n    return 4\n")
    assert ratchet("test", "--failed", cwd=folder).returncode == 0
    nothing = ratchet("test", "--failed", cwd=folder)
    assert (nothing.returncode, nothing.stdout) == (0, "no tests failed last time\n")
    assert git("status", "--porcelain", "--ignored", cwd=folder).splitlines()[0].endswith("shop.py")


def test_a_test_that_was_asked_for_and_is_not_there_is_no_pass(tmp_path: Path) -> None:
    folder = lay(tmp_path / "it", {"test_it.py": GREEN, "test_more.py": GREEN})
    assert ratchet("test", cwd=folder).returncode == 0
    some = ratchet("test", "test_it.py::test_one", "test_it.py::test_oen", cwd=folder)
    assert some.returncode == 1 and "INCONSISTENT  1 passed" in some.stdout
    assert "no result for test_it.py::test_oen: did you mean test_it.py::test_one?" in some.stdout
    none = ratchet("test", "gone.py::test_one", cwd=folder)
    assert none.returncode == 2 and none.stdout.startswith("! no result for gone.py::test_one")


def test_of_what_failed_last_time_the_rest_runs_though_one_is_gone(tmp_path: Path) -> None:
    folder = lay(tmp_path / "it", {"test_it.py": "def test_a():\n    assert 0\n\n\ndef test_b():\n    assert 0\n"})
    assert ratchet("test", cwd=folder).returncode == 1
    lay(folder, {"test_it.py": "def test_b():\n    assert 1\n"})
    done = ratchet("test", "--failed", cwd=folder)
    assert "no result for test_it.py::test_a: it no longer exists" in done.stdout
    assert done.stdout.splitlines()[-1].startswith("INCONSISTENT  1 passed")


def test_a_folder_of_a_monorepo_stands_for_all_its_tests(tmp_path: Path) -> None:
    ours = {"a/pytest.ini": "[pytest]\n", "b/pytest.ini": "[pytest]\n", "a/test_it.py": GREEN, "b/test_it.py": GREEN}
    folder = lay(tmp_path / "it", ours)
    report = json.loads(ratchet("test", "a/", "--json", cwd=folder).stdout)
    assert [test["id"] for test in report["tests"]] == ["a/test_it.py::test_one"]
    assert report["status"] == "passed"


@pytest.mark.parametrize("before", [None, {"test_bad.py": "import gone\n"}, {"test_bad.py": LEAVES}])
def test_what_failed_last_time_may_be_anywhere_if_that_run_named_no_test(
    tmp_path: Path, before: dict[str, str] | None
) -> None:
    """No run is remembered; a file did not load; the runner died."""
    folder = make_repository(tmp_path / "it", {"test_good.py": GREEN} | (before or {}))
    if before:
        assert ratchet("test", cwd=folder).returncode == 1
        (folder / "test_bad.py").write_text(GREEN)
    done = ratchet("test", "--failed", "--json", cwd=folder)
    assert (done.returncode, json.loads(done.stdout)["totals"]["tests"]) == (0, 2 if before else 1)


def test_a_file_that_did_not_load_is_looked_at_again_beside_the_tests_that_failed(tmp_path: Path) -> None:
    folder = make_repository(tmp_path / "it", SHOP | {"test_bad.py": "import gone\n"})
    assert ratchet("test", cwd=folder).returncode == 1
    (folder / "shop.py").write_text("def total(prices):\n    return 4\n")
    done = ratchet("test", "--failed", cwd=folder)
    assert done.returncode == 1 and "test_bad.py" in done.stdout


def test_only_what_a_change_can_reach(tmp_path: Path) -> None:
    files = SHOP | {"other.py": "x = 1\n", "test_other.py": "import other\n\n\ndef test_other():\n    pass\n"}
    folder = make_repository(tmp_path / "it", files)
    (folder / "other.py").write_text("x = 2\n")
    report = json.loads(ratchet("test", "--affected", "--json", cwd=folder).stdout)
    assert [test["id"] for test in report["tests"]] == ["test_other.py::test_other"]
    git("commit", "-qam", "more", cwd=folder)
    nothing = ratchet("test", "--affected", cwd=folder)
    assert (nothing.returncode, nothing.stdout) == (0, "no tests are affected by your changes\n")
    since = json.loads(ratchet("test", "--since", "HEAD~1", "--json", cwd=folder).stdout)
    assert [test["id"] for test in since["tests"]] == ["test_other.py::test_other"]
    (folder / "pytest.ini").write_text("[pytest]\n# changed\n")
    everything = json.loads(ratchet("test", "--affected", "--json", cwd=folder).stdout)
    assert everything["totals"]["tests"] == 3


def test_an_environment_that_git_does_not_ignore_is_no_change(tmp_path: Path) -> None:
    folder = make_repository(tmp_path / "it", SHOP)
    lay(folder, {"mine/pyvenv.cfg": "", "mine/lib/a.py": "", "mine/bin/activate": "", "node_modules/a/b.txt": ""})
    nothing = ratchet("test", "--affected", cwd=folder)
    assert nothing.stdout == "no tests are affected by your changes\n"
    lay(folder, {"shop.py": "def total(prices):\n    return 0\n"})
    reported = ratchet("test", "--isolated", "--packet", cwd=folder).stdout
    assert "suspects: shop.py (changed)\n" in reported


def test_a_report_that_was_asked_for_is_no_change_of_the_developers(tmp_path: Path) -> None:
    """Not a suspect, not a reason to run anything, not another tree: on the same one what fails and passes is flaky."""
    body = "p = pathlib.Path('../seen')\n    seen = p.exists()\n    p.touch()\n    assert seen\n"
    files = SHOP | {"test_it.py": f"import pathlib\n\n\ndef test_flaky():\n    {body}", "old.xml": "<old/>\n"}
    folder = make_repository(tmp_path / "it", files)
    exports = ["--junit", "old.xml", "--ctrf", "new.json"]
    ratchet("test", *exports, cwd=folder)
    assert ratchet("test", "--affected", cwd=folder).stdout == "no tests are affected by your changes\n"
    assert "test_it.py::test_flaky is flaky" in ratchet("test", *exports, cwd=folder).stdout
    lay(folder, {"shop.py": "def total(prices):\n    return 0\n"})
    assert "suspects: shop.py (changed)\n" in ratchet("test", "--packet", *exports, cwd=folder).stdout
    lay(folder, {"old.xml": "<mine/>\n"})
    assert "suspects: old.xml (changed); shop.py (changed)\n" in ratchet("test", "--packet", cwd=folder).stdout


def test_a_file_whose_results_vanish_is_no_pass_until_it_goes_or_is_accepted(tmp_path: Path) -> None:
    """The inventory: what earlier runs found, in `.ratchet/tests/all/inventory.json`."""
    folder = make_repository(tmp_path / "it", {"test_one.py": GREEN, "test_two.py": GREEN})
    assert ratchet("test", cwd=folder).returncode == 0
    inventory = folder / ".ratchet" / "tests" / "all" / "inventory.json"
    assert json.loads(inventory.read_text()) == ["test_one.py", "test_two.py"]
    (folder / "pytest.ini").write_text("[pytest]\npython_files = test_one.py\n")
    for _ in range(2):
        vanished = ratchet("test", cwd=folder)
        assert vanished.returncode != 0
        assert "no results from existing test files: test_two.py" in vanished.stdout
    ratchet("test", "--save-baseline", cwd=folder)
    assert ratchet("test", cwd=folder).returncode == 0


def test_a_test_file_that_is_deleted_is_not_missed(tmp_path: Path) -> None:
    folder = make_repository(tmp_path / "it", {"test_one.py": GREEN, "test_two.py": GREEN})
    assert ratchet("test", cwd=folder).returncode == 0
    (folder / "test_two.py").unlink()
    assert ratchet("test", cwd=folder).returncode == 0


def test_a_test_that_fails_and_then_passes_on_the_same_tree_is_reported_as_flaky(tmp_path: Path) -> None:
    marker = tmp_path / "marker"
    body = f"p = pathlib.Path({str(marker)!r})\n    seen = p.exists()\n    p.touch()\n    assert seen\n"
    text = f"import pathlib\n\n\ndef test_flaky():\n    {body}"
    folder = make_repository(tmp_path / "it", {"test_it.py": text})
    done = ratchet("test", "--rerun-failures", "2", cwd=folder)
    assert done.returncode == 0
    assert "test_it.py::test_flaky is flaky" in done.stdout
    report = json.loads((folder / ".ratchet" / "tests" / "all" / "last.json").read_text())
    assert report["tests"][0]["attempts"] == 2


def test_what_passes_at_another_revision_is_not_flaky_and_is_not_remembered_of_this_one(tmp_path: Path) -> None:
    folder = make_repository(tmp_path / "it", {"test_it.py": GREEN, "pytest.ini": "[pytest]\n"})
    lay(folder, {"test_it.py": GREEN.replace("== 1", "== 2")})
    assert ratchet("test", cwd=folder).returncode == 1
    before = ratchet("test", "--ref", "HEAD", cwd=folder)
    assert (before.returncode, "flaky" in before.stdout) == (0, False)
    again = ratchet("test", "--failed", cwd=folder)
    assert "FAILED  1 failed" in again.stdout


def test_known_failures_are_shown_and_no_longer_make_the_answer_no(tmp_path: Path) -> None:
    folder = make_repository(tmp_path / "it", SHOP)
    assert ratchet("test", "--save-baseline", cwd=folder).returncode == 0
    known = ratchet("test", "--baseline", cwd=folder)
    assert known.returncode == 0
    assert "test_shop.py::test_one  (known)" in known.stdout
    lay(folder, {"test_more.py": "def test_more():\n    assert False\n"})
    assert ratchet("test", "--baseline", cwd=folder).returncode == 1


def test_a_known_failure_stays_known_under_another_name(tmp_path: Path) -> None:
    folder = make_repository(tmp_path / "it", SHOP)
    ratchet("test", "--save-baseline", cwd=folder)
    lay(folder, {"test_shop.py": RED.replace("test_one", "test_sum")})
    for _ in range(2):
        done = ratchet("test", "--baseline", cwd=folder)
        assert done.returncode == 0, done.stdout
        assert done.stdout.splitlines()[-1].startswith("FAILED  1 failed, 1 known, 1 passed in")


def test_isolated_runs_see_uncommitted_work_and_leave_no_trace_here(tmp_path: Path) -> None:
    writes = "import pathlib\n\n\ndef test_writes():\n    pathlib.Path('dropping.txt').write_text('x')\n"
    folder = make_repository(tmp_path / "it", SHOP | {"test_writes.py": writes, "gone.py": ""})
    lay(folder, {"shop.py": "def total(prices):\n    return 4\n", "test_new.py": GREEN})
    (folder / "gone.py").unlink()
    before, branches = fingerprint(folder), git("branch", "--list", cwd=folder)
    report = json.loads(ratchet("test", "--isolated", "--json", cwd=folder).stdout)
    assert report["totals"] == report["totals"] | {"tests": 4, "passed": 4}
    assert fingerprint(folder) == before
    assert git("branch", "--list", cwd=folder) == branches
    assert git("worktree", "list", cwd=folder).count("\n") == 0


COMMITS = """import subprocess


def test_commits():
    for words in (["add", "-A"], ["commit", "-qm", "x", "--allow-empty"], ["branch", "other"], ["tag", "v9"]):
        subprocess.run(["git", "-c", "user.name=n", "-c", "user.email=e", *words], check=True)


def test_the_history_is_there():
    said = subprocess.run(["git", "describe", "--tags", "main"], capture_output=True, text=True, check=True).stdout
    assert said == "v1\\n", said
    assert subprocess.run(["git", "rev-parse", "-q", "--verify", "v9"]).returncode in (0, 1)
"""


def times(folder: Path) -> dict[str, tuple[int, str]]:
    """When everything was written, and what. Git gives an object that it would have written again the time of day, so
    that nobody prunes it: of objects only the content counts."""
    return {
        str(path): (
            0 if path.is_file() and "objects" in path.parts else path.lstat().st_mtime_ns,
            hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "",
        )
        for path in [folder, *folder.rglob("*")]
    }


def test_another_revision_is_tested_with_its_own_code_though_the_project_is_installed_from_here(tmp_path: Path) -> None:
    files = {"src/shop.py": "def total(prices):\n    return 0\n", "tests/test_shop.py": RED.replace("4", "3")}
    project = make_repository(tmp_path / "it", files)
    install_editable(project)
    (project / "src" / "shop.py").write_text(SHOP["shop.py"])
    git("commit", "-qam", "mended", cwd=project)
    assert ratchet("test", cwd=project).returncode == 0
    old = ratchet("test", "--ref", "HEAD~1", cwd=project)
    assert old.returncode == 1 and "actual:   0" in old.stdout, old.stdout
    (project / "src" / "shop.py").write_text("def total(prices):\n    return __file__\n")
    assert ratchet("test", "--ref", "HEAD", cwd=project).returncode == 0
    changed = ratchet("test", "--isolated", cwd=project, PYTHONPATH=str(project / "src"))
    assert changed.returncode == 1 and "src/shop.py" in changed.stdout and f"{project}/src" not in changed.stdout


PACKAGES = {
    ".gitignore": "node_modules/\n",
    "packages/a/package.json": '{"name": "a", "scripts": {"test": "node --test"}, "dependencies": {"b": "*"}}',
    "packages/a/a.test.js": "const test = require('node:test'); const b = require('b');\n"
    "test('b', () => require('node:assert').strictEqual(b, 'new'));\n",
    "packages/b/package.json": '{"name": "b", "main": "b.js"}',
    "packages/b/b.js": "module.exports = 'old';\n",
}


@pytest.mark.skipif(not shutil.which("node"), reason="node is not installed")
def test_another_revision_is_tested_with_its_own_packages_though_they_are_linked_to_here(tmp_path: Path) -> None:
    project = make_repository(tmp_path / "it", PACKAGES)
    (project / "packages" / "a" / "node_modules").mkdir()
    (project / "packages" / "a" / "node_modules" / "b").symlink_to("../../b")
    (project / "packages" / "b" / "b.js").write_text("module.exports = 'new';\n")
    git("commit", "-qam", "new", cwd=project)
    done = [ratchet("test", *more, cwd=project) for more in ([], ["--ref", "HEAD"], ["--ref", "HEAD~1"])]
    assert [each.returncode for each in done] == [0, 0, 1], done
    assert "actual:   old" in done[2].stdout


FAILS = "TAP version 13\nnot ok 1 adds\n  ---\n  at: test/a.js:1:1\n  ...\nok 2 more\n1..2\n"


def test_a_runner_that_names_the_files_of_failures_only_is_believed_when_they_are_mended(tmp_path: Path) -> None:
    files = {
        "test/a.js": "test('adds', () => {})\n",
        "tap.txt": FAILS,
        "ratchet.toml": "[test]\ncommand = 'sh run.sh'\n",
    }
    project = make_repository(tmp_path / "it", files | {"run.sh": "cat tap.txt; ! grep -q '^not ok' tap.txt\n"})
    red = ratchet("test", "--json", cwd=project)
    assert red.returncode == 1 and json.loads(red.stdout)["tests"][0]["file"] == "test/a.js"
    (project / "tap.txt").write_text("TAP version 13\nok 1 adds\nok 2 more\n1..2\n")
    green = ratchet("test", cwd=project)
    assert green.returncode == 0 and "PASSED  2 passed" in green.stdout, green.stdout


SEES = """
import os


def test_sees():
    assert os.environ["SHOP_URL"] == "here" and "GIT_DIR" not in os.environ and "PYTEST_XDIST_WORKER" not in os.environ
    assert os.environ["PWD"] == os.getcwd()
"""


def test_tests_see_the_callers_variables_but_not_those_that_name_another_repository_or_runner(tmp_path: Path) -> None:
    project = make_repository(tmp_path / "it", {"test_it.py": SEES, "inner/nothing.txt": ""})
    other = make_repository(tmp_path / "other", {"a": ""})
    seen = {"SHOP_URL": "here", "GIT_DIR": f"{other}/.git", "PYTEST_XDIST_WORKER": "gw3", "PWD": f"{project}/inner"}
    for more in ([], ["--isolated"]):
        done = ratchet("test", *more, cwd=project, **seen)
        assert done.returncode == 0, done.stdout + done.stderr


def test_an_isolated_run_writes_nothing_into_the_repository_not_even_where_its_tests_commit(tmp_path: Path) -> None:
    folder = make_repository(tmp_path / "it", {"test_it.py": COMMITS})
    git("tag", "v1", cwd=folder)
    before = times(folder / ".git")
    for _ in range(2):  # what the tests of the first have done is not there in the second
        done = ratchet("test", "--isolated", cwd=folder, XDG_CACHE_HOME=str(tmp_path / "cache"))
        assert "PASSED  2 passed" in done.stdout, done.stdout + done.stderr
    assert times(folder / ".git") == before
    ratchet("test", "--ref", "HEAD", cwd=folder, XDG_CACHE_HOME=str(tmp_path / "cache"))
    assert times(folder / ".git") == before


def test_a_failure_in_an_isolated_run_leaves_the_index_as_it_was(tmp_path: Path) -> None:
    folder = make_repository(tmp_path / "it", {"test_it.py": "def test_it():\n    assert 0\n"})
    os.utime(folder / "test_it.py", (1, 1))  # git would like to note that it is as it was
    before = times(folder / ".git")
    assert ratchet("test", "--isolated", cwd=folder, XDG_CACHE_HOME=str(tmp_path / "cache")).returncode == 1
    assert times(folder / ".git") == before


def test_a_read_only_repository_is_tested_in_isolation(tmp_path: Path) -> None:
    folder = make_repository(tmp_path / "it", {"test_it.py": GREEN})
    frozen = f"mount --bind {folder} {folder} && mount -o remount,ro,bind {folder} && cd {folder} && ! touch x && exec "
    done = subprocess.run(
        ["unshare", "-rm", "sh", "-c", f"{frozen} {' '.join(RATCHET)} test --isolated"],
        cwd=folder,
        env=quick_environment() | {"HOME": str(tmp_path / "home")},
        capture_output=True,
        text=True,
        check=False,
    )
    if "unshare" in done.stderr or "mount:" in done.stderr:
        pytest.skip(done.stderr)
    assert "PASSED  1 passed" in done.stdout, done.stdout + done.stderr
    assert not (folder / ".ratchet").exists()


def result(name: str, status: TestStatus, phase: str = "call") -> TestResult:
    return TestResult(id=f"a.js::s > {name}", name=name, file="a.js", status=status, phase=phase)


def test_a_hook_that_was_mended_is_no_longer_red_nor_are_the_tests_it_kept_from_running_forgotten(
    tmp_path: Path,
) -> None:
    """mocha tells of a hook only when it fails, and then of none of its tests."""
    suite = Suite(make_repository(tmp_path / "it", {"a.js": ""}), config.Config())
    hook = result('"before all" hook for "one"', TestStatus.ERROR, "setup")
    red = merge_targets([Report(runner="mocha", status=ReportStatus.FAILED, tests=[hook])])
    suite.compare_and_store(red, whole=True, log=tmp_path / "log")
    reported = Report(runner="mocha", status=ReportStatus.PASSED, tests=[result("one", TestStatus.PASSED)])
    suite.compare_and_store(reported, whole=False, log=tmp_path / "log")  # of other tests: nothing is known of the hook
    assert hook in (suite.last() or red).tests
    suite.compare_and_store(reported, whole=False, log=tmp_path / "log", asked=[hook.id])
    last = suite.last()
    assert last and [test.name for test in last.tests] == ["one"]
    assert (last.status, last.totals.passed, last.totals.errors) == (ReportStatus.PASSED, 1, 0)


TURNS = """#!/bin/sh
if mkdir first 2>/dev/null; then
    echo "2 examples, 1 failure"
    touch printed
    read -r _ < go
    exit 1
fi
echo "1 example, 0 failures"
"""


def test_two_runs_at_once_do_not_read_each_others_output(tmp_path: Path) -> None:
    folder = make_repository(tmp_path / "it", {"run-tests": TURNS})
    (folder / "run-tests").chmod(0o755)
    os.mkfifo(folder / "go")
    words = [*RATCHET, "test", "--set", "test.command=./run-tests"]
    with subprocess.Popen(words, cwd=folder, env=quick_environment(), stdout=subprocess.PIPE, text=True) as first:
        with (folder / "go").open("w") as go:  # opened when the first one has printed and waits
            second = subprocess.run(
                words, cwd=folder, env=quick_environment(), capture_output=True, text=True, check=False
            )
            go.write("on\n")
        output, _ = first.communicate()
    assert "PASSED  1 passed" in second.stdout
    assert "FAILED  1 failed, 1 passed" in output, output
    kept = sorted(path.name for path in (folder / ".ratchet" / "tests" / "all").iterdir())
    assert [name for name in kept if name.endswith(".log")] == ["last.log"]


def test_a_run_whose_results_were_taken_away_says_so(tmp_path: Path) -> None:
    (tmp_path / "tmp").mkdir()
    removes = f"import shutil\n\n\ndef test_it():\n    shutil.rmtree({str(tmp_path / 'tmp')!r})\n"
    folder = make_repository(tmp_path / "it", {"test_it.py": removes})
    done = ratchet("test", cwd=folder, TMPDIR=str(tmp_path / "tmp"))
    assert done.returncode == 1 and "CRASHED" in done.stdout
    assert "! the result channel was removed during the run" in done.stdout


def test_the_workspace_of_an_isolated_run_that_was_killed_goes_with_the_next_one(tmp_path: Path) -> None:
    waits = f"def test_it():\n    open({str(tmp_path / 'go')!r}).read()\n"
    folder = make_repository(tmp_path / "it", {"test_it.py": waits})
    os.mkfifo(tmp_path / "go")
    place = ("--set", f"workspace.root={tmp_path / 'workspaces'}")
    words = [*RATCHET, "test", "--isolated", *place]
    first = subprocess.Popen(words, cwd=folder, env=quick_environment(), stdout=subprocess.DEVNULL)
    with first, (tmp_path / "go").open("w"):  # opened when the test runs
        first.kill()
        first.wait()
    assert len(list((tmp_path / "workspaces").glob("test-*"))) == 1
    lay(folder, {"test_it.py": GREEN})
    assert ratchet("test", "--isolated", *place, cwd=folder).returncode == 0
    assert not list((tmp_path / "workspaces").glob("test-*"))


LOUD = """def test_loud(capfd):
    with capfd.disabled():
        print("the first words")
        for _ in range(30):
            print("x" * 1_000_000)
        print("the last words")
"""


def test_of_a_flood_of_output_beginning_and_end_are_kept(tmp_path: Path) -> None:
    folder = make_repository(tmp_path / "it", {"test_it.py": LOUD})
    assert ratchet("test", cwd=folder).returncode == 0
    log = folder / ".ratchet" / "tests" / "all" / "last.log"
    output = log.read_text()
    assert "the first words" in output and "the last words" in output and len(output) < 5_000_000
    left = re.search(r"\n\[ratchet left out (\d+) bytes here\]\n", output)
    assert left and 30_000_000 < len(output) - len(left[0]) + int(left[1]) < 30_010_000


LINKS = """import os
from pathlib import Path

HERE = Path(__file__).parent


def test_all_is_as_the_developer_sees_it():
    assert os.readlink(HERE / "turned") == "test_it.py"
    assert not (HERE / "out").is_symlink() and (HERE / "out").read_text() == "mine"
    assert (HERE / "folder").read_text() == "now a file" and (HERE / "file" / "below").read_text() == "now a folder"
    assert (HERE / "inner" / "new.txt").read_text() == "of a repository inside"
"""


def test_isolated_runs_see_links_and_folders_that_changed_and_write_through_none(tmp_path: Path) -> None:
    outside = lay(tmp_path, {"outside": "precious"}) / "outside"
    folder = make_repository(tmp_path / "it", {"test_it.py": LINKS, "folder/below": "", "file": ""})
    (folder / "turned").symlink_to("file")
    (folder / "out").symlink_to(outside)
    git("add", "-A", cwd=folder)
    git("commit", "-qm", "links", cwd=folder)
    for name in ("turned", "out", "file", "folder/below"):
        (folder / name).unlink()
    (folder / "folder").rmdir()
    (folder / "turned").symlink_to("test_it.py")
    make_repository(folder / "inner", {"old.txt": ""})
    lay(folder, {"out": "mine", "folder": "now a file", "file/below": "now a folder"})
    lay(folder, {"inner/new.txt": "of a repository inside"})
    done = ratchet("test", "--isolated", cwd=folder)
    assert (done.returncode, outside.read_text()) == (0, "precious"), done.stdout + done.stderr


def test_a_revision_is_tested_as_it_was(tmp_path: Path) -> None:
    folder = make_repository(tmp_path / "it", SHOP)
    lay(folder, {"shop.py": "def total(prices):\n    return 4\n"})
    git("commit", "-qam", "fixed", cwd=folder)
    before = fingerprint(folder)
    assert ratchet("test", "--ref", "HEAD", cwd=folder).returncode == 0
    assert ratchet("test", "--ref", "HEAD~1", cwd=folder).returncode == 1
    assert ratchet("test", "--ref", "nonsense", cwd=folder).returncode == 2
    assert fingerprint(folder) == before


def test_the_users_own_options_stay_in_force(tmp_path: Path) -> None:
    files = {
        "pytest.ini": "[pytest]\naddopts = -k one --tb=no -q\n",
        "test_it.py": GREEN + "\n\ndef test_two():\n    assert 0\n",
    }
    report = json.loads(ratchet("test", "--json", cwd=lay(tmp_path / "it", files)).stdout)
    assert [test["id"] for test in report["tests"]] == ["test_it.py::test_one"]
    assert report["status"] == "passed"


def test_the_packet_is_short_and_keeps_expected_and_actual(tmp_path: Path) -> None:
    body = "\n\n".join(
        f"def test_{n}():\n    print('noise ' * 200)\n    assert {{'n': {n}, 'x': 'y' * 40}} == {{'n': {n + 1}}}"
        for n in range(40)
    )
    folder = lay(tmp_path / "it", {"test_it.py": body + "\n"})
    output = ratchet("test", "--packet", cwd=folder).stdout
    assert len(output) < 4_100
    assert "40 failed" in output
    first = int(output.split("test_it.py::test_")[1].split()[0])
    assert f"expected: {{'n': {first + 1}}}" in output and f"actual:   {{'n': {first}, 'x': '{'y' * 40}'}}" in output
    assert "run one again:" in output


def test_a_repository_that_cannot_be_written_to_is_tested_and_remembered_elsewhere(tmp_path: Path) -> None:
    folder = make_repository(tmp_path / "it", SHOP)
    (folder / ".ratchet").write_text("not a folder: as little can be made in it as on a read-only disk")
    for args in ([], ["--failed"]):
        done = ratchet("test", *args, cwd=folder, XDG_STATE_HOME=str(tmp_path / "state"))
        assert done.returncode == 1, done.stderr
    assert done.stdout.splitlines()[-1].startswith("FAILED  1 failed in")


def test_results_are_printed_although_they_cannot_be_stored(tmp_path: Path) -> None:
    folder = make_repository(tmp_path / "it", SHOP)
    (folder / ".ratchet" / "tests" / "all" / "last.json" / "in the way").mkdir(parents=True)
    done = ratchet("test", cwd=folder)
    assert done.returncode == 1
    note, end = done.stdout.splitlines()[-2:]
    assert note == "! the results could not be stored for the next run: Is a directory"
    assert end.startswith("FAILED  1 failed, 1 passed")


def test_a_missing_git_is_no_hindrance(tmp_path: Path) -> None:
    folder = lay(tmp_path / "it", {"test_it.py": GREEN})
    bare = tmp_path / "bin"
    bare.mkdir()
    for name in ("sh", "env"):
        (bare / name).symlink_to(shutil.which(name) or os.devnull)
    assert ratchet("test", cwd=folder, PATH=str(bare)).returncode == 0


def test_a_terminal_shows_elapsed_time_and_last_output_and_then_only_the_results(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "go")
    waits = f"import sys\n\n\ndef test_it():\n    print('almost there')\n    open({str(tmp_path / 'go')!r}).read()\n"
    folder = lay(tmp_path / "it", {"test_it.py": waits, "pytest.ini": "[pytest]\naddopts = -s\n"})
    ours, theirs = os.openpty()
    command = [*RATCHET, "test"]
    with subprocess.Popen(command, cwd=folder, env=quick_environment(), stdout=subprocess.PIPE, stderr=theirs) as done:
        os.close(theirs)
        seen = b""
        while not re.search(rb"\d s  .*almost there", seen):
            seen += os.read(ours, 4096)
        (tmp_path / "go").write_text("on")
        out, _ = done.communicate()
        seen += os.read(ours, 4096)
    os.close(ours)
    assert seen.endswith(b"\r\x1b[1A\x1b[2K")  # nothing is left of it
    assert b"PASSED  1 passed" in out
