"""`ratchet backtest` on a small generated history, with scripted agents of known skill."""

from __future__ import annotations

import asyncio
import subprocess
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ratchet.app.backtest.bench import Bench
from ratchet.app.backtest.mine import mine, mined_key
from ratchet.core.backtest.task import LeftOut, LeftOutReason, Mined, MinedTask
from ratchet.errors import EnvironmentCannot
from ratchet.interfaces.cli import main
from ratchet.workspace.git.repository import find_repository
from ratchet.workspace.git.task_repository import create_repository_at, last_commits
from ratchet.workspace.protocol import MOUNTS
from ratchet.workspace.sandbox import why_no_sandbox
from tests.app.backtest.history import FAKE, POWERS, SECRET, SUB, commit, commits, make_history, write, write_agent
from tests.support import APPROVED, git, install_editable, make_repository


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_history(tmp_path_factory.mktemp("history") / "calc")


@pytest.fixture(autouse=True)
def state(history: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep what is mined for all tests of this module."""
    monkeypatch.setenv("XDG_STATE_HOME", str(history.parent / "state"))


def mined(repo: Path) -> list[Mined]:
    bench = Bench(find_repository(repo), ["sandbox.mode=auto"])
    return asyncio.run(mine(bench, last=50, on_mined=lambda _found: None))


def test_tasks_are_found_by_running_their_tests_and_others_left_out_with_reasons(history: Path) -> None:
    found = {one.title.split(":")[0]: one for one in mined(history)}
    tasks = {title: one for title, one in found.items() if isinstance(one, MinedTask)}
    assert set(tasks) == {"Add subtraction", "Add powers"}
    assert tasks["Add powers"].fail_to_pass == ["tests/test_powers.py::test_cube", "tests/test_powers.py::test_square"]
    assert "tests/test_calc.py::test_add_one" in tasks["Add powers"].pass_to_pass
    assert {title: one.reason for title, one in found.items() if isinstance(one, LeftOut)} == {
        "Add the second number first": LeftOutReason.NOT_RED,
        "Test that zero can be added": LeftOutReason.NO_SOURCE,
        "Write more about the project": LeftOutReason.NO_TESTS,
        "start": LeftOutReason.MERGE,
    }


def test_the_spec_has_no_trace_of_the_answer(history: Path) -> None:
    spec = next(one.spec for one in mined(history) if isinstance(one, MinedTask) and "sub" in one.spec)
    assert spec.startswith("# Add subtraction: calc.sub(a, b) returns a minus b\n")
    assert "Fixes #3" in spec
    assert "return a - b" not in spec
    assert SECRET.split()[-1].rstrip(".") not in spec
    assert "(#7)" not in spec


def test_what_the_environment_is_to_blame_for_is_examined_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    broken = {"conftest.py": "raise RuntimeError('needs an older pytest')\n", "calc.py": "", "tests/test_calc.py": ""}
    repo = make_repository(tmp_path / "calc", broken)
    write(repo, "calc.py", "def add(a, b):\n    return a + b\n")
    write(repo, "tests/test_calc.py", "from calc import add\n\n\ndef test_add():\n    assert add(1, 2) == 3\n")
    commit(repo, "Add addition: calc.add(a, b) returns the sum")
    (found, _first) = mined(repo)
    assert isinstance(found, LeftOut)
    assert (found.reason, "needs an older pytest" in found.detail) == (LeftOutReason.SETUP, True)
    bench = Bench(find_repository(repo), ["sandbox.mode=auto"])
    assert not bench.read("tasks", mined_key(bench, last_commits(repo, 1)[0], []), LeftOut)


def test_a_second_backtest_of_the_same_repository_is_refused(history: Path) -> None:
    first, second = (Bench(find_repository(history), ["sandbox.mode=auto"]) for _ in range(2))
    with first.alone(), pytest.raises(EnvironmentCannot, match="another backtest"), second.alone():
        pass
    with second.alone():
        pass


def test_another_runner_is_another_result(history: Path) -> None:
    bench = Bench(find_repository(history), ["sandbox.mode=auto"])
    (first, *_) = last_commits(history, 1)
    key = mined_key(bench, first, [])
    assert bench.tools
    assert not any("byte code" in name for name in bench.tools)
    bench.tools = dict.fromkeys(bench.tools, "other")
    assert mined_key(bench, first, []) != key


def test_a_repository_of_a_task_holds_nothing_that_came_later(history: Path, tmp_path: Path) -> None:
    ids = commits(history)
    base = git("rev-parse", f"{ids['Add powers:']}^", cwd=history)
    place = tmp_path / "task"
    create_repository_at(history, base, place)
    wanted = set(git("rev-list", "--objects", "--no-object-names", base, cwd=history).split())
    later = set(git("rev-list", "--all", "--objects", "--no-object-names", cwd=history).split()) - wanted
    held = git("cat-file", "--batch-all-objects", "--batch-check=%(objectname)", cwd=place).split()
    assert later
    assert set(held) == wanted == set(git("rev-list", "--all", "--objects", "--no-object-names", cwd=place).split())
    assert not (place / ".git/objects/info/alternates").exists()
    assert git("for-each-ref", "--format=%(refname)", cwd=place).split() == ["refs/heads/main"]
    assert git("remote", cwd=place) == ""
    assert not (place / ".git/FETCH_HEAD").exists()
    assert set(git("log", "-g", "--format=%H", "--all", cwd=place).split()) <= {base}
    files = [path for path in (place / ".git").rglob("*") if path.is_file()]
    assert not [path for path in files if str(history).encode() in path.read_bytes()]
    assert subprocess.run(["git", "show", ids["Add powers:"]], cwd=place, capture_output=True, check=False).returncode


def test_an_installed_copy_of_the_project_is_refused(tmp_path: Path) -> None:
    repo = make_history(tmp_path / "calc")
    python = install_editable(repo, ".")
    Bench(find_repository(repo))
    (site,) = (python.parent.parent / "lib").glob("python*/site-packages")
    (site / "Calc-9.0.dist-info").mkdir()
    with pytest.raises(EnvironmentCannot, match="installed copy"):
        Bench(find_repository(repo))


def test_an_agent_beside_the_checkout_finds_neither_the_answer_nor_its_commit(
    history: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if why := why_no_sandbox():
        pytest.skip(why)
    home, out = tmp_path / "someone", tmp_path / "out"
    fetched = home / ".local/lib/python3.11/site-packages"
    for folder in (fetched / "calc", fetched / "calc-9.0.dist-info"):
        folder.mkdir(parents=True)
    (fetched / "calc" / "__init__.py").write_text(POWERS)
    (fetched / "other.py").write_text("other = 1\n")
    out.mkdir()
    monkeypatch.setenv("HOME", str(home))
    agent = history.parent / "agent.sh"
    agent.write_text(
        f"#!/bin/sh\nexec > {out}/found 2>&1\ncat; git log --all; git rev-parse --git-common-dir; git for-each-ref\n"
        f"cat /proc/*/cmdline /proc/self/mountinfo | tr '\\0' ' '; env; ls {fetched}\n"
        f"grep -rs 'a . a . a' {history.parent} {home} .git; echo end\n"
    )
    agent.chmod(0o755)
    command = ["backtest", "-C", str(history), "--workflow=build", "--tasks=1", "--budget=1", "--set=build.attempts=1"]
    assert main([*command, f"--agent=command:{agent}", f'--set=sandbox.share=["{out}"]']) == 0
    found = (out / "found").read_text(errors="replace")
    assert found.rstrip().endswith("end") and "other.py" in found and "Add powers" in found
    assert "a * a * a" not in found
    assert commits(history)["Add powers:"][:12] not in found
    left = (history.parent / "state/ratchet/workspaces").rglob("*")
    assert not [path for path in left if path.name != MOUNTS], "trials leave no workspaces"


def test_a_trial_that_the_budget_ended_is_not_counted_but_paid(
    history: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    task = commits(history)["Add powers:"][:12]
    script = {
        "implement": [{"append": {"calc.py": POWERS}, "usage": {"cost_usd": 0.1}}],
        "review": [{"say": APPROVED, "usage": {"cost_usd": 0.1}}],
        "update_spec": [{"say": "Nothing to update."}],
    }
    (tmp_path / f"{task}.json").write_bytes(msgspec.json.encode(script))
    command = ["backtest", "-C", str(history), "--workflow=build", "--tasks=1", "--json"]
    command.append(f"--agent=scripted:{tmp_path}/{{task}}.json")

    def shown(budget: str, code: int) -> dict[str, Any]:
        assert main([*command, f"--budget={budget}"]) == code
        found: dict[str, Any] = msgspec.json.decode(capsys.readouterr().out)
        return found

    (why,) = shown("0.1", 1)["open"].values()
    assert "the budget of all trials" in why
    (why,) = shown("0.1", 1)["open"].values()
    assert "0.1 USD is spent" in why, "what was paid for is counted"
    done = shown("1", 0)
    assert (done["open"], [trial["outcome"] for trial in done["trials"]]) == ({}, ["solved"])


def test_agents_of_known_skill_are_ranked_rightly(
    history: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ids = commits(history)
    sub, powers = ids["Add subtraction:"], ids["Add powers:"]
    square, nothing = POWERS.partition("\n\n\ndef cube")[0] + "\n", "\n\nNOTHING = 0\n"
    agents = [
        write_agent(tmp_path, "none", {sub: nothing, powers: nothing}),
        write_agent(tmp_path, "half", {sub: SUB, powers: square}),
        write_agent(tmp_path, "cheat", {sub: FAKE, powers: POWERS.replace("a * a", "a")}),
        write_agent(tmp_path, "all", {sub: SUB, powers: POWERS}),
    ]
    command = [
        "backtest",
        "-C",
        str(history),
        "--workflow",
        "build",
        "--json",
        *(f"--agent={agent}" for agent in agents),
    ]
    assert main(command) == 0
    shown = msgspec.json.decode(capsys.readouterr().out)
    ranked = [Path(arm["arm"]["agent"]).name.partition("-")[0] for arm in shown["arms"]]
    outcomes = {name: arm["outcomes"] for name, arm in zip(ranked, shown["arms"], strict=True)}
    assert ranked[:2] == ["all", "half"]
    assert (outcomes["all"]["solved"], outcomes["half"]["solved"], outcomes["half"]["partly"]) == (2, 1, 1)
    assert outcomes["none"]["failed"] == 2
    assert outcomes["cheat"]["cheated"] == 1
    assert shown["arms"][0]["usage"]["tokens_in"] == 200
    assert main(command) == 0
    again = capsys.readouterr()
    assert msgspec.json.decode(again.out) == shown
    assert " in " not in again.err, "finished trials are not repeated"
