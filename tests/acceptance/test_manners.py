"""How commands behave: specs from anywhere, dry runs, options of the runner, explanations, and what is cleaned up."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from ratchet.config import load
from tests.support import IMPLEMENT, RATCHET, git, make_repository, quick_environment, ratchet, small_project


def settings(place: Path) -> list[str]:
    return ["--agent", f"scripted:{place.parent}/script.json", "--set", f"workspace.root={place.parent}/ws"]


def test_a_spec_comes_from_a_file_from_words_or_from_stdin(tmp_path: Path) -> None:
    place = small_project(tmp_path)
    assert "# One" not in ratchet("add", "-d", "# One\n\nFirst.", cwd=place).stdout
    piped = subprocess.run([*RATCHET, "add", "-"], cwd=place, env=quick_environment(), input="# Two\n\nSecond.",
                           capture_output=True, text=True, check=False)  # fmt: skip
    assert piped.returncode == 0 and ": Two" in piped.stdout
    listed = ratchet("queue", cwd=place).stdout
    assert "One" in listed and "Two" in listed
    neither = ratchet("run", cwd=place)
    assert neither.returncode == 2 and "-d TEXT" in neither.stderr
    done = ratchet("run", "-d", "# Subtract\n\n`calc.sub(a, b)` subtracts.", *settings(place), cwd=place)
    assert done.returncode == 0 and "Subtract" in ratchet("runs", cwd=place).stdout


def test_a_dry_run_prints_agents_gates_and_costs_and_starts_nothing(tmp_path: Path) -> None:
    place = small_project(tmp_path)
    done = ratchet("run", "SPEC.md", "--dry-run", "--max-cost", "2.5", *settings(place), cwd=place)
    for words in (
        "implementer: scripted:",
        "cheats (revert)",
        "at most $2.5, 100,000,000 tokens",
        "Nothing was started",
    ):
        assert words in done.stdout, done.stdout
    assert json.loads(ratchet("queue", "--json", cwd=place).stdout)["rows"] == []
    assert json.loads(ratchet("runs", "--json", cwd=place).stdout) == []


def test_a_quiet_run_prints_only_how_it_ended(tmp_path: Path) -> None:
    place = small_project(tmp_path)
    done = ratchet("run", "SPEC.md", "-q", *settings(place), cwd=place)
    assert (done.returncode, done.stderr) == (0, "")
    (line,) = done.stdout.splitlines()
    assert "completed" in line and "1 commit kept" in line


def test_setting_one_limit_leaves_the_others(tmp_path: Path) -> None:
    budget = load(tmp_path, environ={}, flags=["budget.item.cost_usd=1"]).config.budget
    assert (budget.item.cost_usd, budget.item.tokens, budget.day.cost_usd) == (1.0, 100_000_000, 200.0)


def test_options_reach_the_runner_and_do_not_change_what_is_known(tmp_path: Path) -> None:
    two = "def test_one():\n    pass\n\n\ndef test_two():\n    assert False\n"
    place = make_repository(tmp_path / "p", {"test_a.py": two})
    assert ratchet("test", cwd=place).returncode == 1
    assert "1 passed" in ratchet("test", "-k", "one", cwd=place).stdout
    assert "1 passed" in ratchet("test", "--", "--deselect", "test_a.py::test_two", cwd=place).stdout
    assert ratchet("test", "--failed", cwd=place).returncode == 1  # the last whole run is still the one that counts


def test_a_key_is_explained_and_a_wrong_one_is_answered_with_the_nearest(tmp_path: Path) -> None:
    done = ratchet("config", "explain", "roles.auditor.idle_s", cwd=tmp_path)
    assert "number over 0 to 86400" in done.stdout and "RATCHET_ROLES_AUDITOR_IDLE_S" in done.stdout
    wrong = ratchet("config", "explain", "test.comand", cwd=tmp_path)
    assert wrong.returncode == 2 and "did you mean 'test.command'" in wrong.stderr
    section = ratchet("config", "explain", "budget.day", cwd=tmp_path)
    assert section.returncode == 2 and "budget.day.cost_usd" in section.stderr and "did you mean" not in section.stderr


def test_the_set_up_names_the_requirements_of_the_tests_and_the_environment_of_the_project(tmp_path: Path) -> None:
    place = make_repository(
        tmp_path / "p",
        {
            "setup.py": "",
            "pytest.ini": "[pytest]\n",
            "requirements.txt": "",
            "requirements_test.txt": "",
            ".venv/x": "",
        },
    )
    detected = ratchet("test", "--detect", cwd=place)
    set_up = next(line for line in detected.stdout.splitlines() if "set-up:" in line)
    pip = ".venv/bin/python -m pip install"
    assert set_up.split(maxsplit=1)[1] == (
        f"{pip} -r requirements.txt && {pip} -r requirements_test.txt && {pip} -e . pytest"
    )


def test_init_writes_the_agent_and_the_gates_that_it_found(tmp_path: Path) -> None:
    scripts = {"scripts": {"test": "xo && node --test"}, "devDependencies": {"xo": "1"}}
    place = make_repository(tmp_path / "js", {"package.json": json.dumps(scripts), "test/a.test.js": ""})
    done = ratchet("init", "--agent", "command:true", cwd=place)
    written = (place / "ratchet.toml").read_text()
    assert done.returncode == 0 and 'agent = "command:true"' in written
    assert "lint" in done.stdout and "ruff" not in written and "pytest" not in written


def test_what_runs_leave_is_shown_and_removed(tmp_path: Path) -> None:
    idle = {"say": "Nothing."}
    place = small_project(tmp_path, {"audit": [idle] * 3})
    assert ratchet("run", "SPEC.md", *settings(place), cwd=place).returncode == 1
    where = ["--set", f"workspace.root={tmp_path}/ws"]
    shown = ratchet("clean", "--dry-run", *where, cwd=place)
    assert (
        "would remove branch" in shown.stdout
        and "kept         workspace" in shown.stdout
        and "until 20" in shown.stdout
    )
    assert git("branch", "--list", "ratchet/*", cwd=place)
    cleaned = ratchet("clean", "--older-than", "0s", *where, cwd=place)
    assert cleaned.returncode == 0 and "failed" not in cleaned.stdout.split(), cleaned.stdout
    assert git("branch", "--list", "ratchet/*", cwd=place) == "" and git("worktree", "list", cwd=place).count("\n") == 0
    assert ratchet("clean", "--older-than", "soon", cwd=place).returncode == 2


def test_commits_that_are_not_merged_stay(tmp_path: Path) -> None:
    place = small_project(tmp_path)
    assert ratchet("run", "SPEC.md", *settings(place), cwd=place).returncode == 0
    done = ratchet("clean", "--older-than", "0s", "--set", f"workspace.root={tmp_path}/ws", cwd=place)
    assert "commits that are not merged" in done.stdout
    assert f"git -C {place} branch -D" in " ".join(done.stdout.split()), "it can be typed anywhere"
    assert git("branch", "--list", "ratchet/*", cwd=place)
    git("merge", "-q", git("branch", "--list", "ratchet/*", "--format=%(refname:short)", cwd=place), cwd=place)
    assert "removed" in ratchet("clean", cwd=place).stdout and not git("branch", "--list", "ratchet/*", cwd=place)
    assert IMPLEMENT["append"]["calc.py"] in (place / "calc.py").read_text()  # type: ignore[index]


def test_hints_are_safe_in_a_home_folder(tmp_path: Path) -> None:
    done = ratchet("run", "-d", "x", "--agent", "command:true", cwd=tmp_path, HOME=str(tmp_path))
    assert done.returncode == 2 and "git add -A" not in done.stderr and "-C DIR" in done.stderr
