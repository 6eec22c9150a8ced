"""What a newcomer meets in the first hour: refusals that cost nothing, honest words, and nothing left behind."""

from __future__ import annotations

import json
import os
import stat
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.support import (
    AUDIT,
    COMPLETE,
    IMPLEMENT,
    RATCHET,
    REVIEW,
    SMALL,
    git,
    make_repository,
    quick_environment,
    ratchet,
    small_project,
    write_script,
)


def settings(place: Path) -> list[str]:
    return ["--agent", f"scripted:{place.parent}/script.json", "--set", f"workspace.root={place.parent}/ws"]


def project(tmp_path: Path, script: dict[str, Any]) -> Path:
    return small_project(tmp_path, script)


def open_items(place: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = json.loads(ratchet("queue", "--json", cwd=place).stdout)["rows"]
    return rows


def program(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "agent"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


@pytest.mark.parametrize(
    "words",
    [
        ("run", "SPEC.md", "--agent", "telepathy:x"),
        ("run", "SPEC.md", "--agent", "scripted:nowhere.json"),
        ("run", "SPEC.md", "--agent", "command:true", "--set", "workspace.kind=cloud"),
        ("loop", "SPEC.md", "--agent", "telepathy:x"),
        ("fix", "--agent", "telepathy:x"),
        ("swarm", "--agent", "telepathy:x"),
        ("add", "SPEC.md", "--set", "agent=telepathy:x"),
        ("add", "SPEC.md", "--workflow", "dance"),
    ],
)
def test_a_refused_command_leaves_nothing_in_the_queue(tmp_path: Path, words: tuple[str, ...]) -> None:
    place = small_project(tmp_path)
    done = ratchet(*words, cwd=place)
    assert done.returncode == 2 and "hint:" in done.stderr, done.stderr
    assert open_items(place) == []


UNREADY = SMALL | {
    "pyproject.toml": '[project]\nname = "p"\nversion = "1"\ndependencies = ["nosuchthing"]\n'
    '[project.optional-dependencies]\ntest = ["pytest"]\n[tool.pytest.ini_options]\npythonpath = ["."]\n',
    "calc.py": "import nosuchthing\n\n\ndef add(a, b):\n    return a + b\n",
}


def test_a_project_that_is_not_set_up_is_refused_before_money_is_spent(tmp_path: Path) -> None:
    place = make_repository(tmp_path / "project", UNREADY)
    write_script(place, {})
    done = ratchet("run", "SPEC.md", *settings(place), "--json", cwd=place)
    result = json.loads(done.stdout)
    assert done.returncode == 1 and result["failure"] == "misconfigured" and result["usage"]["tokens_in"] == 0
    for words in ("do not load", "nosuchthing", ".venv/bin/python -m pip install -e '.[test]'", "Ratchet's own"):
        assert words in result["detail"]
    tested = ratchet("test", cwd=place)
    assert "Ratchet's own" in tested.stderr and "python3 -m venv .venv" in tested.stderr


def test_more_files_that_lack_a_package_than_tests_that_pass_are_refused_and_fewer_are_named(tmp_path: Path) -> None:
    lacking = {f"tests/test_{n}.py": "import nosuchthing\n" for n in range(3)}
    place = make_repository(tmp_path / "most", SMALL | lacking)
    write_script(place, {})
    done = ratchet("run", "SPEC.md", *settings(place), "--json", cwd=place)
    assert json.loads(done.stdout)["failure"] == "misconfigured"
    place = project(tmp_path / "few", {"audit": [COMPLETE], "review": [REVIEW]})
    (place / "tests" / "test_0.py").write_text("import nosuchthing\n")
    git("add", "-A", cwd=place)
    git("commit", "-q", "-m", "one", cwd=place)
    done = ratchet("run", "SPEC.md", *settings(place), cwd=place)
    assert "1 file not loaded: tests/test_0.py" in done.stdout


def test_init_writes_no_agent_that_a_run_would_refuse(tmp_path: Path) -> None:
    place = small_project(tmp_path)
    done = ratchet("init", "--agent", "goos", cwd=place)
    assert done.returncode == 2 and "did you mean 'goose'" in done.stderr and not (place / "ratchet.toml").exists()


def test_a_dry_run_names_one_limit_of_money_and_counts_only_what_is_counted(tmp_path: Path) -> None:
    place = small_project(tmp_path)
    done = ratchet("run", "SPEC.md", *settings(place), "--dry-run", "--set", "tdd.cents=700", cwd=place)
    assert "at most $7" in done.stdout and "cents" not in done.stdout and "True" not in done.stdout


def test_a_test_that_needs_a_package_is_not_rightly_red(tmp_path: Path) -> None:
    red = {
        "say": "s",
        "write": {"tests/test_sub.py": "import freezegun\nfrom calc import sub\n\n\ndef test(): sub(1, 2)\n"},
    }
    place = project(tmp_path, {"audit": [red, AUDIT, COMPLETE], "implement": [IMPLEMENT], "review": [REVIEW]})
    done = ratchet("run", "SPEC.md", *settings(place), cwd=place)
    assert done.returncode == 0 and "the package 'freezegun' cannot be imported" in done.stdout


def test_the_baseline_does_not_call_skipped_tests_passing(tmp_path: Path) -> None:
    skipped = "import pytest\n\n\n@pytest.mark.skip\ndef test_skipped():\n    pass\n"
    place = make_repository(tmp_path / "project", SMALL | {"tests/test_skipped.py": skipped})
    write_script(place, {"audit": [COMPLETE], "review": [REVIEW]})
    ran = ratchet("run", "SPEC.md", *settings(place), cwd=place)
    assert "2 tests, 1 skipped, all others passing" in ran.stdout, ran.stdout + ran.stderr


FLAKY = """import pathlib


def test_flaky():
    if not pathlib.Path("tests/test_sub.py").exists():
        return
    runs = pathlib.Path({place!r})
    runs.write_text(runs.read_text() + "." if runs.exists() else ".")
    assert {condition}
"""


@pytest.mark.parametrize(
    ("condition", "accepted"), [("len(runs.read_text()) != 1", True), ("False", False)], ids=["flaky", "broken"]
)
def test_a_flaky_test_of_the_project_does_not_refuse_the_auditors_test(
    tmp_path: Path, condition: str, accepted: bool
) -> None:
    """A test that really fails beside the new one still does."""
    flaky = FLAKY.format(place=str(tmp_path / "runs"), condition=condition)
    place = make_repository(tmp_path / "project", SMALL | {"tests/test_flaky.py": flaky})
    write_script(place, {"audit": [AUDIT, COMPLETE], "implement": [IMPLEMENT], "review": [REVIEW]})
    off = ["--set", "sandbox.mode=off", "--set", "tdd.audit_tries=1"]  # it counts its runs outside of the workspace
    ran = ratchet("run", "SPEC.md", *settings(place), *off, cwd=place)
    assert ("flaky, failed and then passed" in ran.stdout) == accepted, ran.stdout + ran.stderr
    assert ("new test fails as expected" in ran.stdout) == accepted
    assert ("test rejected: tests that passed before no longer do" in ran.stdout) == (not accepted)


def test_fix_takes_uncommitted_changes_along(tmp_path: Path) -> None:
    place = project(tmp_path, {"fix": [{"say": "Add", "write": {"calc.py": SMALL["calc.py"]}}]})
    (place / "calc.py").write_text("def add(a, b):\n    return a - b\n")
    (place / "notes.txt").write_text("mine\n")
    done = ratchet("fix", *settings(place), "--json", cwd=place)
    result = json.loads(done.stdout)
    assert done.returncode == 0 and result["commits"][0]["tests"] == ["tests/test_calc.py::test_add"], done.stderr
    assert "uncommitted changes are included" in done.stderr
    assert git("status", "--porcelain", cwd=place).split() == ["M", "calc.py", "??", "notes.txt"]
    assert git("show", f"{result['branch']}:notes.txt", cwd=place) == "mine"


def test_an_unknown_cost_is_unknown(tmp_path: Path) -> None:
    place = project(tmp_path, {})
    test = "from calc import sub\\n\\n\\ndef test_sub():\\n    assert sub(3, 2) == 1\\n"
    audit = f"printf '{test}' > tests/test_sub.py; echo sub"
    act = "printf '\\n\\ndef sub(a, b):\\n    return a - b\\n' >> calc.py; echo Subtract"
    audited = f"if [ -e tests/test_sub.py ]; then echo REQUIREMENTS_COMPLETE; else {audit}; fi"
    cases = f"auditor) {audited};; implementer) {act};; *) echo '{REVIEW['say']}';;"
    agent = program(tmp_path, f"case $RATCHET_ROLE in {cases} esac")
    ran = ratchet("run", "SPEC.md", "--agent", f"command:{agent}", "--set", f"workspace.root={tmp_path}/ws", cwd=place)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "Ratchet-Cost: unknown (" in git("log", "-1", "--format=%B", "--all", cwd=place)
    assert "Cost: unknown" in ratchet("show", cwd=place).stdout
    found = json.loads(ratchet("metrics", "--json", cwd=place).stdout)
    calls = found["figures"]["calls"]
    assert f"the cost of {calls} agent calls is not known" in ratchet("status", cwd=place).stdout
    counted = found["figures"]["iterations"], found["iterations_today"], found["today"]["spent"]["iterations"]
    assert counted == (2, 2, 2), "one number has one value everywhere"


def test_what_an_aborted_call_has_spent_is_in_the_figures_as_in_the_budget(tmp_path: Path) -> None:
    os.mkfifo(begun := tmp_path / "begun")
    place = project(tmp_path, {})
    agent = program(tmp_path, f"echo begun > {begun}; exec sleep 600")
    off = ["--set", f"workspace.root={tmp_path}/ws", "--set", "sandbox.mode=off"]
    words = [*RATCHET, "run", "SPEC.md", "--agent", f"command:{agent}", *off]
    with subprocess.Popen(words, cwd=place, env=quick_environment(), stdout=subprocess.PIPE) as run:
        assert begun.read_text() == "begun\n"
        assert ratchet("abort", cwd=place).returncode == 0
        assert b"aborted" in run.communicate(timeout=120)[0]
    found = json.loads(ratchet("metrics", "--json", cwd=place).stdout)
    spent, figures = found["today"]["spent"], found["figures"]
    assert figures["iterations"] == spent["iterations"] == 1
    assert figures["agent_s"] == pytest.approx(spent["seconds"], abs=0.01) and spent["seconds"] > 0


def test_the_last_words_of_an_agent_are_quoted_and_a_question_parks(tmp_path: Path) -> None:
    idle, asking = {"say": "The tool was refused."}, {"say": "I looked.\n\nShall I use floats?"}
    place = project(tmp_path, {"audit": [AUDIT], "implement": [idle, asking]})
    done = ratchet("run", "SPEC.md", *settings(place), "--json", cwd=place)
    parked = json.loads(done.stdout)["parked"]
    assert done.returncode == 1 and parked["reason"] == "question" and "Shall I use floats?" in parked["detail"]
    shown = ratchet("show", cwd=place).stdout
    assert "changed nothing; the last words of the agent: The tool was refused." in shown
    assert f"Answer with: ratchet resume {json.loads(done.stdout)['run']} --answer" in shown
    assert ratchet("resume", "--answer", "Integers.", cwd=place).returncode == 1
    assert "person      answered: Integers." in ratchet("show", cwd=place).stdout


def test_a_missing_login_parks_the_run_with_a_reason_of_its_own(tmp_path: Path) -> None:
    place = project(tmp_path, {"audit": [{"fail": "auth"}]})
    done = ratchet("run", "SPEC.md", *settings(place), "--json", cwd=place)
    parked = json.loads(done.stdout)["parked"]
    assert parked["reason"] == "login" and "log in" in parked["detail"]
    assert open_items(place)[0]["park_reason"] == "login"


def test_files_that_nothing_refers_to_are_left_out_of_the_commit(tmp_path: Path) -> None:
    more = {"build.log": "ok\n", "data.out": "1\n"}
    used = IMPLEMENT | {"write": more, "append": {"calc.py": f"{IMPLEMENT['append']['calc.py']}\nDATA = 'data.out'\n"}}  # type: ignore[index]
    place = project(tmp_path, {"audit": [AUDIT, COMPLETE], "implement": [used], "review": [REVIEW]})
    done = ratchet("run", "SPEC.md", *settings(place), "--json", cwd=place)
    branch = json.loads(done.stdout)["branch"]
    assert done.returncode == 0
    assert git("diff", "--name-only", f"main..{branch}", cwd=place).split() == [
        "calc.py",
        "data.out",
        "tests/test_sub.py",
    ]
    assert "left out: build.log" in ratchet("show", cwd=place).stdout


def test_the_history_lists_each_attempt_and_revert_as_it_goes(tmp_path: Path) -> None:
    wrong = {"say": "Guess", "append": {"calc.py": "\n\ndef sub(a, b):\n    return 0\n"}}
    place = project(tmp_path, {"audit": [AUDIT], "implement": [wrong, {"say": "Which sign?"}]})
    run = json.loads(ratchet("run", "SPEC.md", *settings(place), "--json", cwd=place).stdout)["run"]
    reported = (place / ".ratchet/runs" / run / "history.md").read_text()
    for words in ("# Subtract", "## Iteration 1, attempt 1: auditor", "sub subtracts", "**RED**",
                  "## Iteration 1, attempt 1: implementer", "**REVERTED** calc.py:", "attempt 2: implementer",
                  "**PARKED** question"):  # fmt: skip
        assert words in reported, reported


def test_agents_have_the_interpreter_of_the_tests(tmp_path: Path) -> None:
    from tests.support import install_editable  # noqa: PLC0415

    place = project(tmp_path, {})
    install_editable(place, ".")
    agent = program(tmp_path, 'echo "$VIRTUAL_ENV $(command -v python)"; exit 3')
    where = ["--set", f"workspace.root={tmp_path}/ws", "--set", "tdd.sealed=0"]  # logs of sealed tests are withheld
    ratchet("run", "SPEC.md", "--agent", f"command:{agent}", *where, cwd=place)
    logs = "".join(path.read_text() for path in (place / ".ratchet/runs").glob("*/logs/*auditor*"))
    assert f"{place}/.venv {place}/.venv/bin/python" in logs
