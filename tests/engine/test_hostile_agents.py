"""Agents that cheat, break things or hide things, on every plain kind of workspace and on the default one."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest

from ratchet.agents.protocol import TurnFailed, TurnResult
from ratchet.core import events as ev
from ratchet.core.failure import Reason
from ratchet.core.runner_settings import changes_runner_settings
from ratchet.core.state import RunState, RunStatus
from ratchet.engine.steps import agent_call
from tests.support import (
    AUDIT,
    COMPLETE,
    GOOD_SCRIPT,
    IMPLEMENT,
    RED_TEST,
    REVIEW,
    RIGHT,
    carry,
    carry_script,
    git,
    kinds,
    open_factory,
    small_project,
    write_script,
)

KINDS = ["auto", "worktree", "copy"]


def agent(tmp_path: Path, implement: str) -> str:
    """An agent that plays the good script, with Python code of the test's in place of the implementer."""
    path = tmp_path / "agent.py"
    path.write_text(f"""
import os, pathlib, subprocess, sys
action = os.environ["RATCHET_ACTION"]
if action == "audit" and not pathlib.Path("tests/test_sub.py").exists():
    pathlib.Path("tests/test_sub.py").write_text({RED_TEST!r})
elif action == "audit":
    print("REQUIREMENTS_COMPLETE")
elif action == "review":
    print('{{"verdict": "approved"}}')
else:
    RIGHT = {RIGHT!r}
    def right():
        with open("calc.py", "a") as file:
            file.write(RIGHT)
    def sh(line):
        subprocess.run(line, shell=True, check=False)
{implement}
""")
    return f"command:{sys.executable} {path}"


def run(tmp_path: Path, implement: str, *settings: str) -> tuple[RunState, Path]:
    place = small_project(tmp_path)
    body = "".join(f"    {line}\n" for line in implement.strip().splitlines())
    with open_factory(place, "tdd.attempts=1", "tdd.iterations=1", *settings, agent=agent(tmp_path, body)) as factory:
        return carry(factory, place / "SPEC.md"), place


@pytest.mark.parametrize("kind", KINDS)
def test_tracked_files_that_are_ignored_and_submodules_stay(tmp_path: Path, kind: str) -> None:
    place = small_project(tmp_path)
    (place / ".gitignore").write_text("data/\n")
    (place / "data").mkdir()
    (place / "data" / "important.txt").write_text("x")
    git("add", "-A", cwd=place)
    git("add", "-f", "data/important.txt", cwd=place)
    git("update-index", "--add", "--cacheinfo", f"160000,{git('rev-parse', 'HEAD', cwd=place)},lib", cwd=place)
    git("commit", "-qm", "more", cwd=place)
    with open_factory(place, f"workspace.kind={kind}") as factory:
        state = carry(factory, place / "SPEC.md")
    assert state.status is RunStatus.COMPLETED, state.detail
    changed = git("diff", "--name-only", f"main..{state.head}", cwd=place).split()
    assert changed == ["calc.py", "tests/test_sub.py"]


@pytest.mark.parametrize("kind", KINDS)
def test_an_agent_that_commits_switches_or_moves_branches_changes_nothing_outside(tmp_path: Path, kind: str) -> None:
    code = "right()\nsh('git add -A; git commit -qm mine; git switch -qc feature; git commit -q --allow-empty -m more')"
    state, place = run(tmp_path, code, f"workspace.kind={kind}", "sandbox.mode=off")
    assert state.status is RunStatus.COMPLETED, state.detail
    assert git("log", "--format=%s%n%b", f"main..{state.head}", cwd=place).count("Ratchet-Key") == 1
    assert git("rev-parse", "main", cwd=place) == state.started.base_commit  # type: ignore[union-attr]


@pytest.mark.parametrize("kind", KINDS)
def test_an_ignored_conftest_takes_no_part_in_judging(tmp_path: Path, kind: str) -> None:
    code = """
pathlib.Path("calc.py").write_text("def add(a, b):\\n    return a + b\\ndef sub(a, b):\\n    return 999\\n")
pathlib.Path(".gitignore").write_text("conftest.py\\n")
pathlib.Path("conftest.py").write_text("def pytest_pyfunc_call(pyfuncitem):\\n    return True\\n")
"""
    state, _ = run(tmp_path, code, f"workspace.kind={kind}", "sandbox.mode=off")
    assert state.status is RunStatus.FAILED and state.commits == []


@pytest.mark.parametrize("kind", KINDS)
def test_byte_code_of_the_agents_takes_no_part_in_judging(tmp_path: Path, kind: str) -> None:
    code = """
import py_compile
pathlib.Path("calc.py").write_text("def add(a, b):\\n    return a + b\\n" + RIGHT)
py_compile.compile("calc.py", invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH)
pathlib.Path("calc.py").write_text("def add(a, b):\\n    return a + b\\ndef sub(a, b):\\n    return 999\\n")
"""
    state, _ = run(tmp_path, code, f"workspace.kind={kind}", "sandbox.mode=off")
    assert state.status is RunStatus.FAILED and state.commits == []


def test_settings_of_the_runner_are_not_the_implementers(tmp_path: Path) -> None:
    cheat = IMPLEMENT | {
        "write": {
            "pyproject.toml": '[tool.pytest.ini_options]\npythonpath = ["."]\naddopts = "-p evil"\n',
            "evil.py": "def pytest_pyfunc_call(pyfuncitem):\n    return True\n",
        }
    }
    state, events, place = carry_script(tmp_path, GOOD_SCRIPT | {"implement": [cheat]})
    undone = next(event for event in events if isinstance(event, ev.WritesUndone))
    assert undone.paths == ["pyproject.toml"] and not state.commits
    assert "evil" not in git("show", f"{state.head}:pyproject.toml", cwd=place)


def test_other_parts_of_those_files_are() -> None:
    before = b'[project]\nname = "a"\n[tool.pytest.ini_options]\naddopts = "-q"\n'
    assert not changes_runner_settings("pyproject.toml", before, before.replace(b'"a"', b'"b"'))
    assert changes_runner_settings("pyproject.toml", before, before.replace(b"-q", b"-x"))
    assert changes_runner_settings("pyproject.toml", before, None) and changes_runner_settings(
        "pyproject.toml", before, b"["
    )
    assert changes_runner_settings(
        "sub/package.json", b'{"scripts": {"test": "jest"}}', b'{"scripts": {"test": "true"}}'
    )
    assert not changes_runner_settings("package.json", b'{"version": "1"}', b'{"version": "2"}')


@pytest.mark.parametrize("kind", ["auto", *(pytest.param(kind, marks=pytest.mark.certify) for kind in KINDS[1:])])
@pytest.mark.parametrize(
    "mess",
    [
        "sh('rm -rf .git')",
        "sh('rm -rf .git; git init -q; git add -A; git -c user.name=x -c user.email=x@x commit -qm x')",
        "sh('mkdir -p hidden && git init -q --separate-git-dir=/tmp/sep-$$ hidden && touch hidden/x.py')",
        "sh('mkdir h && ln -s /nonexistent h/.git && touch h/y.py')",
        "open(b'not-utf8-\\xff', 'w').write('x')",
        "[open(f'{n:04d}-' + 'x' * 150, 'w').close() for n in range(2500)]",
        "sh('chmod -R a-w .')",
        "print('a\\0b')",
    ],
)
def test_a_mess_in_the_workspace_is_a_change_like_any_other(tmp_path: Path, kind: str, mess: str) -> None:
    state, place = run(tmp_path, f"right()\n{mess}", f"workspace.kind={kind}", "sandbox.mode=off")
    assert state.status is RunStatus.COMPLETED, state.detail
    assert "def sub" in git("show", f"{state.head}:calc.py", cwd=place)
    assert git("status", "--porcelain", cwd=place) == ""


def test_an_agent_that_removes_everything_has_failed_an_attempt(tmp_path: Path) -> None:
    state, place = run(tmp_path, "sh('rm -rf $PWD')", "sandbox.mode=off")
    assert state.status is RunStatus.FAILED and git("status", "--porcelain", cwd=place) == ""


def test_ignored_folders_of_a_reverted_attempt_are_in_no_commit(tmp_path: Path) -> None:
    junk: dict[str, Any] = {"say": "x", "write": {"deps/junk.py": "x", "target/x.py": "x"}}
    state, _, place = carry_script(tmp_path, GOOD_SCRIPT | {"implement": [junk, IMPLEMENT]})
    assert state.status is RunStatus.COMPLETED
    names = git("ls-tree", "-r", "--name-only", state.head, cwd=place)
    assert "junk" not in names and "target" not in names


def test_the_projects_own_excludes_do_not_take_files_out_of_a_commit(tmp_path: Path) -> None:
    place = small_project(tmp_path)
    (place / ".git" / "info").mkdir(exist_ok=True)
    (place / ".git" / "info" / "exclude").write_text("test_sub.py\n")
    with open_factory(place) as factory:
        state = carry(factory, place / "SPEC.md")
    assert "tests/test_sub.py" in git("ls-tree", "-r", "--name-only", state.head, cwd=place)


def test_a_rate_limit_met_again_and_again_never_fails_the_run_and_its_cost_is_counted(tmp_path: Path) -> None:
    limited = {"fail": "rate_limit", "usage": {"cost_usd": 0.5}}
    place = small_project(tmp_path, GOOD_SCRIPT | {"implement": [limited]})
    for _ in range(4):
        with open_factory(place, "tdd.resumes=2") as factory:
            state = carry(factory, place / "SPEC.md")
        assert state.parked
    assert state.usage.cost_usd == 2.0


@pytest.mark.parametrize("kind", KINDS)
def test_locks_and_torn_indexes_that_a_killed_git_left_do_not_stop_the_next_worker(tmp_path: Path, kind: str) -> None:
    place = small_project(tmp_path, GOOD_SCRIPT | {"implement": [{"fail": "rate_limit"}]})
    with open_factory(place, f"workspace.kind={kind}") as factory:
        parked = carry(factory, place / "SPEC.md")
        assert parked.started
        workspace = factory.workspaces.open(parked.started.slug)
    homes = [workspace.home, Path(workspace.record.layer or workspace.home), workspace.path / ".git"]
    for home in [home for home in homes if home.is_dir()]:
        for name in ("trees.index.lock", "commit.index.lock", "index.lock"):
            (home / name).write_text("")
    (workspace.home / "trees.index").write_bytes(b"torn")
    write_script(place, GOOD_SCRIPT)
    with open_factory(place, f"workspace.kind={kind}") as factory:
        state = carry(factory, place / "SPEC.md")
    assert state.run == parked.run and state.status is RunStatus.COMPLETED, state.detail


def test_a_reviewer_without_a_verdict_hears_why_it_did_not_count(tmp_path: Path) -> None:
    state, events, place = carry_script(tmp_path, GOOD_SCRIPT | {"review": [{"say": "LGTM"}, REVIEW]})
    assert state.status is RunStatus.COMPLETED and "review_failed" in kinds(events)
    prompts = [path.read_text() for path in (place / ".ratchet/runs" / state.run / "prompts").iterdir()]
    assert any("You are the reviewer" in text and "no JSON verdict" in text for text in prompts)


def test_a_receipt_that_was_removed_or_edited_is_named(tmp_path: Path) -> None:
    state, _, place = carry_script(tmp_path, {"audit": [AUDIT, COMPLETE], "implement": [IMPLEMENT], "review": [REVIEW]})
    with open_factory(place) as factory:
        db = factory.store._db  # type: ignore[attr-defined]
        db.execute("DELETE FROM receipts WHERE step = 3")
        db.execute(
            "UPDATE receipts SET body = CAST(replace(CAST(body AS TEXT), 'audit', 'odit') AS BLOB) WHERE step = 2"
        )
        checked = factory._verify_ledger(factory.find_run(state.run))
    assert not checked.holds and "steps [2, 3]" in next(claim.detail for claim in checked.claims if not claim.holds)


def test_a_secret_is_in_no_content_and_no_name_of_a_commit(tmp_path: Path) -> None:
    key = "AKIA" + "Q7" * 8
    leaks = f"right()\npathlib.Path('{key}').write_text('named')\npathlib.Path('note.txt').write_text('{key}')"
    state, place = run(tmp_path, leaks)
    branches = git("for-each-ref", "--format=%(refname)", cwd=place).split()
    assert key not in "".join(git("ls-tree", "-r", "--name-only", branch, cwd=place) for branch in branches)
    assert "note.txt" not in "".join(git("ls-tree", "-r", "--name-only", branch, cwd=place) for branch in branches)
    assert state.status is RunStatus.COMPLETED


def test_a_test_that_prints_what_a_sandbox_would_say_is_a_failing_test(tmp_path: Path) -> None:
    place = small_project(tmp_path)
    (place / "check.sh").write_text("echo 'bwrap: no permission to mount'; exit 1\n")
    git("add", "-A", cwd=place)
    git("commit", "-q", "-m", "a check", cwd=place)
    with open_factory(place, "test.command=sh check.sh", "test.runner=command", agent="command:true") as factory:
        state = carry(factory, place / "SPEC.md")
    assert state.failure and "sandbox" not in str(state.failure).lower()


@pytest.mark.parametrize("error", [OverflowError("date value out of range"), KeyError("usage"), RecursionError()])
def test_output_that_cannot_be_read_fails_the_turn_and_not_the_run(error: Exception) -> None:
    async def turn() -> TurnResult:
        raise error

    failed = asyncio.run(agent_call._as_fault_of_agent(turn()))
    assert isinstance(failed, TurnFailed) and failed.reason is Reason.AGENT_CRASHED
