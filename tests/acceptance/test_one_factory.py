"""One factory per user: every command, typed anywhere, means the same queue and the same runs."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from ratchet.paths import user_state
from tests.support import RATCHET, make_repository, quick_environment, ratchet, small_project

UNSERVED = "no workers are running"


def agent_of(place: Path) -> list[str]:
    return ["--set", f"agent=scripted:{place.parent}/script.json", "--set", f"workspace.root={place.parent}/ws"]


def other_repository(tmp_path: Path) -> Path:
    return make_repository(tmp_path / "other", {"README.md": "another\n"})


def test_an_item_added_in_a_repository_is_worked_on_and_shown_from_anywhere(tmp_path: Path) -> None:
    place, elsewhere = small_project(tmp_path), tmp_path / "elsewhere"
    elsewhere.mkdir()
    added = ratchet("add", "SPEC.md", *agent_of(place), cwd=place)
    assert added.returncode == 0 and UNSERVED in added.stderr and "ratchet serve" in added.stderr
    queued = ratchet("queue", cwd=elsewhere)
    assert "Subtract" in queued.stdout and UNSERVED in queued.stderr
    worked = ratchet("worker", "--once", cwd=elsewhere)
    assert worked.returncode == 0 and "claimed: Subtract" in worked.stderr and "completed" in worked.stderr
    run = json.loads(ratchet("runs", "--json", cwd=elsewhere).stdout)[0]["run"]
    for command in ("show", "logs", "diff", "verify", "export"):
        assert ratchet(command, cwd=elsewhere).returncode == 0, command
        assert ratchet(command, run, cwd=other_repository(tmp_path / command)).returncode == 0, command
    assert (user_state() / "ratchet.db").is_file() and not (place / ".ratchet" / "ratchet.db").exists()


def test_inside_a_repository_its_own_runs_are_meant(tmp_path: Path) -> None:
    place, other = small_project(tmp_path), other_repository(tmp_path)
    assert ratchet("run", "SPEC.md", *agent_of(place), cwd=place).returncode == 0
    assert "No runs yet in this repository" in ratchet("runs", cwd=other).stdout
    assert "Subtract" in ratchet("runs", cwd=place).stdout and "Subtract" in ratchet("runs", "--all", cwd=other).stdout
    assert ratchet("show", cwd=other).returncode == 2


def test_a_store_in_the_repository_is_its_own(tmp_path: Path) -> None:
    place = small_project(tmp_path)
    done = ratchet("add", "SPEC.md", cwd=place, RATCHET_STORE=".ratchet/ratchet.db")
    assert done.returncode == 0 and (place / ".ratchet" / ".gitignore").is_file()
    assert "empty" in ratchet("queue", cwd=place).stdout
    assert "Subtract" in ratchet("queue", cwd=place, RATCHET_STORE=".ratchet/ratchet.db").stdout


def test_a_server_is_noticed_as_long_as_it_lives_and_logs_what_it_does(tmp_path: Path) -> None:
    place, elsewhere = small_project(tmp_path), tmp_path / "elsewhere"
    elsewhere.mkdir()
    argv = [*RATCHET, "serve", "--port", "0", "--workers", "1"]
    with subprocess.Popen(argv, cwd=elsewhere, env=quick_environment(), stderr=subprocess.PIPE, text=True) as server:
        try:
            assert server.stderr
            assert "serving http://" in server.stderr.readline() and "ratchet.db" in server.stderr.readline()
            assert ratchet("add", "SPEC.md", *agent_of(place), cwd=place).returncode == 0
            lines = iter(server.stderr.readline, "")
            assert any("claimed: Subtract" in line for line in lines) and "completed" in next(lines)
            assert UNSERVED not in ratchet("status", cwd=place).stderr
            opened = ratchet("open", "--json", cwd=elsewhere)
            assert opened.returncode == 0 and "/sign-in?key=" in opened.stdout, "whatever its port is"
        finally:
            server.terminate()
            server.wait(60)
    opened = ratchet("open", cwd=elsewhere)
    assert opened.returncode == 2 and "ratchet serve" in opened.stderr
    assert UNSERVED in ratchet("status", cwd=place).stderr


def test_an_idle_worker_does_not_take_the_run_of_a_command(tmp_path: Path) -> None:
    place = small_project(tmp_path)
    argv = [*RATCHET, "serve", "--port", "0", "--workers", "1"]
    with subprocess.Popen(argv, cwd=tmp_path, env=quick_environment(), stderr=subprocess.PIPE, text=True) as server:
        try:
            assert server.stderr and "serving http://" in server.stderr.readline()
            while ratchet("status", "--json", cwd=place).stderr:
                pass  # until its worker waits
            for number in range(3):
                (place / "SPEC.md").write_text(f"# Subtract, take {number}\n\n`sub(a, b)` in calc.py.\n")
                run = ratchet("run", "SPEC.md", *agent_of(place), cwd=place)
                assert run.returncode == 0 and "landed" in run.stdout, run.stderr
        finally:
            server.terminate()
            server.wait(60)


def test_what_only_a_person_can_mend_is_not_tried_again(tmp_path: Path) -> None:
    place = small_project(tmp_path)
    assert ratchet("add", "SPEC.md", *agent_of(place), cwd=place).returncode == 0
    (tmp_path / "script.json").unlink()
    worked = ratchet("worker", "--once", cwd=place)
    assert "no such script" in worked.stderr and "not retried" in worked.stderr
    assert json.loads(ratchet("queue", "--all", "--json", cwd=place).stdout)["rows"][0]["status"] == "failed"
