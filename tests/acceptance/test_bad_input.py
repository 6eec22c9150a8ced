"""Bad input: a clear error with a hint, a documented exit code, and nothing lost."""

from __future__ import annotations

import resource
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from ratchet.paths import user_state
from tests.support import RATCHET, SMALL, git, make_repository, quick_environment, ratchet, small_project, write_script


def run(place: Path, spec: str = "SPEC.md", agent: str = "", *more: str) -> subprocess.CompletedProcess[str]:
    agent = agent or f"scripted:{place.parent}/script.json"
    return ratchet("run", spec, "--agent", agent, "--set", f"workspace.root={place.parent}/ws", *more, cwd=place)


def refused(done: subprocess.CompletedProcess[str], *words: str, code: int = 2) -> None:
    assert done.returncode == code, done.stderr
    for word in words:
        assert word in done.stderr
    assert "hint:" in done.stderr and "Traceback" not in done.stderr


def test_outside_a_repository(tmp_path: Path) -> None:
    refused(run(tmp_path), "not in a git repository", "git init")


def test_a_repository_without_a_commit(tmp_path: Path) -> None:
    git("init", "-q", ".", cwd=tmp_path)
    refused(run(tmp_path), "no commit yet")


@pytest.mark.parametrize(
    "command", [["watch", "--once"], ["run", "-d", "x", "--agent", "x"], ["workspace", "create", "x"]]
)
@pytest.mark.parametrize("begun", [False, True])
def test_nothing_proposes_to_add_a_whole_home_folder_to_git(tmp_path: Path, command: list[str], begun: bool) -> None:
    if begun:
        git("init", "-q", ".", cwd=tmp_path)
    (tmp_path / "test_it.py").write_text("def test_it():\n    pass\n")
    done = ratchet(*command, cwd=tmp_path, HOME=str(tmp_path))
    refused(done, "cd into a project first")
    assert "git add" not in done.stderr


def test_a_folder_that_holds_several_repositories_is_not_tested_as_one_without_a_manifest(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name / ".git").mkdir(parents=True)
        (tmp_path / name / "pytest.ini").write_text("[pytest]\n")
        (tmp_path / name / "test_it.py").write_text("def test_it():\n    pass\n")
    refused(
        ratchet("test", cwd=tmp_path),
        "is not a project; 2 repositories below it have tests: one, two",
        "ratchet test -C one",
    )
    assert ratchet("test", "-C", "two", cwd=tmp_path).returncode == 0
    (tmp_path / "ratchet.toml").touch()
    assert "2 passed" in ratchet("test", cwd=tmp_path).stdout


def test_a_home_folder_is_not_tested_as_a_project_unless_it_is_one(tmp_path: Path) -> None:
    (tmp_path / "scratch").mkdir()
    (tmp_path / "scratch" / "test_it.py").write_text("def test_it():\n    pass\n")
    refused(ratchet("test", cwd=tmp_path, HOME=str(tmp_path)), "is not a project", "ratchet test -C")
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    assert "1 passed" in ratchet("test", cwd=tmp_path, HOME=str(tmp_path)).stdout


def test_a_dirty_tree_is_left_alone_and_the_commit_is_named(tmp_path: Path) -> None:
    place = small_project(tmp_path)
    (place / "calc.py").write_text("broken (")
    done = run(place)
    assert done.returncode == 0 and f"starts from commit {git('rev-parse', 'HEAD', cwd=place)[:10]}" in done.stderr
    assert (place / "calc.py").read_text() == "broken ("


def test_a_clean_tree_stays_clean_and_is_not_called_dirty(tmp_path: Path) -> None:
    place = small_project(tmp_path)
    done = ratchet("fix", "--agent", "scripted:missing.json", cwd=place)
    assert "no such script" in done.stderr and "uncommitted" not in done.stderr
    assert git("status", "--porcelain", cwd=place) == ""


def test_no_test_command(tmp_path: Path) -> None:
    place = make_repository(tmp_path / "p", {"SPEC.md": "# X\n", "main.c": "int main;\n"})
    write_script(place, {})
    refused(run(place), "no test command found", "[test] command")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "is empty"),
        (b"  \n", "is empty"),
        (b"\xff\xfe\x00bad", "not UTF-8"),
        (b"x" * 100_001, "100,001 characters"),
    ],
)
def test_a_spec_that_will_not_do(tmp_path: Path, content: bytes, words: str) -> None:
    place = small_project(tmp_path)
    (place / "SPEC.md").write_bytes(content)
    refused(run(place), words)


def test_a_spec_that_is_not_there(tmp_path: Path) -> None:
    refused(run(small_project(tmp_path), "NOPE.md"), "NOPE.md", "No such file")


@pytest.mark.parametrize(
    ("toml", "words"),
    [
        ("[tdd]\natempts = 3\n", ("'tdd.atempts'", "did you mean 'tdd.attempts'")),
        ("[tdd]\nattempts = 0\n", ("tdd.attempts",)),
        ("[tdd]\nattempts = 'many'\n", ("tdd.attempts", "int")),
        ("[tdd\n", ("cannot read ratchet.toml",)),
        ("[[gates]]\nname = 'x'\ncomand = 'y'\n", ("gates",)),
    ],
)
def test_a_configuration_that_will_not_do(tmp_path: Path, toml: str, words: tuple[str, ...]) -> None:
    place = make_repository(tmp_path / "p", SMALL | {"ratchet.toml": toml})
    refused(ratchet("config", "validate", cwd=place), *words)


def test_an_unknown_variable_names_the_nearest(tmp_path: Path) -> None:
    place = make_repository(tmp_path / "p", SMALL)
    refused(ratchet("config", "show", cwd=place, RATCHET_TDD_ATEMPTS="3"), "RATCHET_TDD_ATTEMPTS")


def test_where_our_own_tests_keep_toolchains_is_no_setting(tmp_path: Path) -> None:
    place = make_repository(tmp_path / "p", SMALL)
    assert ratchet("config", "validate", cwd=place, RATCHET_TEST_CACHE=str(tmp_path)).returncode == 0


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "no such script"),
        ("{", "malformed"),
        ('{"dance": []}', "dance"),
        ('{"audit": [{"sya": "x"}]}', "sya"),
    ],
)
def test_a_script_that_will_not_do(tmp_path: Path, content: str | None, words: str) -> None:
    place = small_project(tmp_path)
    path = place.parent / "bad.json"
    if content is not None:
        path.write_text(content)
    refused(run(place, agent=f"scripted:{path}"), words)


@pytest.mark.parametrize(
    ("agent", "words"),
    [
        ("command:no-such-agent --x", "no-such-agent"),
        ("telepathy:x", "no such agent"),
        ("command:'", "quotes"),
        ("command:", "(empty)"),
    ],
)
def test_an_agent_that_is_not_there(tmp_path: Path, agent: str, words: str) -> None:
    refused(run(small_project(tmp_path), agent=agent), words)


def test_no_agent_at_all(tmp_path: Path) -> None:
    place = small_project(tmp_path)
    refused(ratchet("run", "SPEC.md", cwd=place), "no agent is configured")


def test_an_unknown_workflow_kind_or_run(tmp_path: Path) -> None:
    place = small_project(tmp_path)
    refused(run(place, "SPEC.md", "", "--workflow", "dance"), "no workflow 'dance'")
    refused(run(place, "SPEC.md", "", "--set", "workspace.kind=cloud"), "cloud")
    for command in ("show", "resume", "logs", "diff", "abort", "export", "verify"):
        refused(ratchet(command, "run-nope", cwd=place), "no such run", "ratchet runs")


def test_a_database_from_a_newer_version(tmp_path: Path) -> None:
    import sqlite3  # noqa: PLC0415

    place = small_project(tmp_path)
    assert run(place).returncode == 0
    db = sqlite3.connect(user_state() / "ratchet.db")
    db.execute("PRAGMA user_version = 999")
    db.close()
    refused(ratchet("runs", cwd=place), "newer Ratchet", "upgrade", code=3)


def test_a_full_disk_stops_the_run_with_a_reason_and_it_goes_on_when_there_is_room(tmp_path: Path) -> None:
    """A limit on file size stands in for the disk: the write fails half-way, as it would there."""
    place = small_project(tmp_path)
    limit: Callable[[], None] = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (60_000, 60_000))  # noqa: E731
    argv = [*RATCHET, "run", "SPEC.md", "--agent", f"scripted:{place.parent}/script.json", "--set", f"workspace.root={place.parent}/ws"]  # fmt: skip # noqa: E501
    cramped = subprocess.run(
        argv,
        cwd=place,
        env=quick_environment(),
        preexec_fn=limit,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert cramped.returncode == 3 and "hint:" in cramped.stderr and "Traceback" not in cramped.stderr, cramped.stderr
    assert run(place).returncode == 0
    assert ratchet("verify", "last", cwd=place).returncode == 0
