"""`ratchet fix`, `swarm` and `loop`: the real command line, real logs, a real kill."""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path

from tests.engine.workflows.scenes import FIX_ADD, FIX_BOTH, FIX_NEG, SCENES, WORSE, Script, lay_out
from tests.support import RATCHET, git, quick_environment, ratchet

CI = """2026-11-16T01:02:03.1234567Z tests/test_calc.py FF                                  [100%]
2026-11-16T01:02:04.1234567Z FAILED tests/test_calc.py::test_add - assert -1 == 3
2026-11-16T01:02:04.1234567Z FAILED tests/test_calc.py::test_neg - assert 1 == -1
2026-11-16T01:02:04.1234567Z ========================= 2 failed in 0.03s =========================
"""


def command(place: Path, *words: str) -> list[str]:
    return [*words, "--agent", f"scripted:{place.parent}/script.json", "--set", f"workspace.root={place.parent}/ws"]


def red_project(tmp_path: Path, script: Script) -> Path:
    return lay_out(tmp_path, SCENES["fix"], script)


def test_a_failing_log_becomes_a_green_branch_and_is_in_the_fixers_prompt(tmp_path: Path) -> None:
    place = red_project(tmp_path, {"fix": [FIX_ADD, FIX_NEG]})
    (tmp_path / "ci.log").write_text(CI)
    done = ratchet(*command(place, "fix", "--log", f"{tmp_path}/ci.log", "--json", str(place)), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert [kept["tests"] for kept in result["commits"]] == [
        ["tests/test_calc.py::test_add"],
        ["tests/test_calc.py::test_neg"],
    ]
    prompt = (place / ".ratchet/runs" / result["run"] / "prompts").glob("*.md")
    assert all("assert 1 == -1" in path.read_text() for path in prompt)
    reported = ratchet("show", "last", cwd=place)
    assert "no failing tests" in reported.stdout and "fixer" in reported.stdout
    assert ratchet("verify", "last", cwd=place).returncode == 0


def test_a_fix_in_vain_says_what_was_tried(tmp_path: Path) -> None:
    place = red_project(tmp_path, {"fix": [WORSE] * 3})
    done = ratchet(*command(place, "fix"), cwd=place)
    assert done.returncode == 1 and "still red: tests/test_calc.py::test_add" in done.stdout
    assert "attempt 1, 2, 3: still red" in done.stdout and "The proof" not in done.stdout
    assert "Reverted (3)" in ratchet("show", "last", cwd=place).stdout


def test_failures_of_a_log_that_are_not_seen_here_are_not_called_fixed(tmp_path: Path) -> None:
    green = {"calc.py": "def add(a, b):\n    return a + b\n\n\ndef neg(a):\n    return -a\n"}
    place = red_project(tmp_path, {})
    (place / "calc.py").write_text(green["calc.py"])
    git("commit", "-qam", "green", cwd=place)
    (tmp_path / "ci.log").write_text(CI)
    done = ratchet(*command(place, "fix", "--log", f"{tmp_path}/ci.log"), cwd=place)
    assert done.returncode == 1 and "cannot be reproduced" in done.stdout and "test_calc.py::test_add" in done.stdout


def test_a_log_without_failures_and_a_folder_without_tests_are_mistakes(tmp_path: Path) -> None:
    place = red_project(tmp_path, {})
    (tmp_path / "ok.log").write_text("ok 1 - fine\n1..1\n")
    (place / "docs").mkdir()
    green = ratchet(*command(place, "fix", "--log", f"{tmp_path}/ok.log"), cwd=place)
    assert green.returncode == 2 and "contains no failures" in green.stderr
    (tmp_path / "allure").mkdir()
    for n in range(2):
        result = {"uuid": str(n), "name": f"test_{n}", "status": "passed"}
        (tmp_path / "allure" / f"{n}-result.json").write_text(json.dumps(result))
    folder = ratchet(*command(place, "fix", "--log", f"{tmp_path}/allure"), cwd=place)
    assert folder.returncode == 2 and "contains no failures" in folder.stderr
    empty = ratchet(*command(place, "fix", "docs"), cwd=place)
    assert empty.returncode == 2 and "docs has no tests of its own" in empty.stderr
    file = ratchet(*command(place, "fix", "calc.py"), cwd=place)
    assert file.returncode == 2 and "calc.py is not a folder" in file.stderr


def test_a_swarm_that_is_killed_goes_on_and_leaves_nothing_behind(tmp_path: Path) -> None:
    slow = {"say": "slow", "delay_s": 30.0}
    place = red_project(tmp_path, {"fix": [slow, slow, slow, FIX_BOTH, slow, slow]})
    argv = command(place, "swarm", "-n", "3")
    running = subprocess.Popen(
        [*RATCHET, *argv],
        cwd=place,
        env=quick_environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert running.stdout
    line = next(line for line in running.stdout if "analysis" in line)
    assert "2 failing tests" in line
    forks = place.parent / "ws"
    while len(list(forks.glob("*-3/workspace.json"))) == 0:  # the last of them is made
        assert running.poll() is None
    running.send_signal(signal.SIGKILL)
    running.wait()
    running.stdout.close()
    assert "interrupted" in ratchet("runs", cwd=place).stdout
    assert "Continue with: ratchet resume run-" in ratchet("show", "last", cwd=place).stdout
    # Asked again, the attempts are made again: this time the script has one that is quick.
    (place.parent / "script.json").write_text(json.dumps({"fix": [slow, FIX_BOTH, slow]}))
    again = ratchet(*argv, cwd=place)
    assert again.returncode == 0, again.stdout + again.stderr
    assert "was interrupted; repeating it" in again.stdout and "attempt 2   won" in again.stdout
    assert len(git("branch", "--list", "ratchet/*", cwd=place).splitlines()) == 1
    assert list(forks.glob("fix-*")) == []


def test_a_loop_works_through_a_checklist(tmp_path: Path) -> None:
    place = lay_out(tmp_path, SCENES["loop"])
    done = ratchet(*command(place, "loop", "SPEC.md"), cwd=place)
    assert done.returncode == 0, done.stderr
    assert "task-2 finished (verified: python3 -c" in done.stdout and "all 2 tasks are finished" in done.stdout
