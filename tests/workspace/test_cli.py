"""`ratchet workspace` as a user types it."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture
def ratchet(repo: Path, tmp_path: Path) -> Any:
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "RATCHET_WORKSPACE_MIN_FREE_RAM_MB": "1"}

    def call(*words: str, code: int = 0) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "ratchet", *words], cwd=repo, env=env, capture_output=True, text=True, check=False
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout or done.stderr

    yield call
    for row in json.loads(call("workspace", "list", "--json")):
        call("workspace", "destroy", row["slug"])


def test_the_verbs_in_a_row(ratchet: Any, repo: Path) -> None:
    (repo / "uncommitted").write_text("mine")
    made = json.loads(ratchet("workspace", "create", "one", "--with-changes", "--json"))
    assert {"id", "slug", "path", "kind", "owner_pid", "boot_id", "base_commit", "created_at"} <= made.keys()
    ran = json.loads(ratchet("workspace", "exec", "one", "--json", "--", "sh", "-c", "cat uncommitted; echo x > new"))
    assert ran == {"exit_code": 0, "output": "mine"}
    assert json.loads(ratchet("workspace", "diff", "one", "--json"))["paths"] == ["new", "uncommitted"]
    ratchet("workspace", "fork", "one", "two")
    assert "mine" in ratchet("workspace", "exec", "two", "--", "cat", "uncommitted")
    rows = json.loads(ratchet("workspace", "list", "--json"))
    assert [row["slug"] for row in rows] == ["one", "two"]
    assert all(row["size_bytes"] > 0 for row in rows)
    ratchet("workspace", "destroy", "one", "two", "two")
    assert json.loads(ratchet("workspace", "list", "--json")) == []


def test_a_workspace_leaves_the_developers_status_as_it_was(ratchet: Any, repo: Path) -> None:
    ratchet("workspace", "create", "one")
    status = subprocess.run(["git", "status", "--porcelain"], cwd=repo, capture_output=True, check=True)
    assert status.stdout == b""


def test_errors_end_in_a_hint_and_the_exit_code_says_whose_fault(ratchet: Any) -> None:
    ratchet("workspace", "create", "one")
    assert "hint: ratchet workspace destroy one" in ratchet("workspace", "create", "one", code=2)
    assert "there is no workspace nine" in ratchet("workspace", "exec", "nine", "--", "true", code=2)
    assert "no such folder: /not/there" in ratchet("workspace", "create", "x", "--repo", "/not/there", code=2)
    assert "would work" in ratchet("workspace", "create", "x", "--kind", "btrfs", code=3)
    assert "cannot create a workspace: there are 1 workspaces" in ratchet(
        "workspace", "create", "x", "--set", "workspace.max_count=1", code=3
    )
    ratchet("workspace", "exec", "one", "--", "sh", "-c", "exit 7", code=7)


def test_what_belongs_to_a_process_goes_with_it(ratchet: Any) -> None:
    child = subprocess.Popen(["sleep", "600"])
    ratchet("workspace", "create", "its", "--owner", str(child.pid))
    assert json.loads(ratchet("workspace", "gc", "--json"))["removed"] == []
    child.kill()
    child.wait()
    assert json.loads(ratchet("workspace", "gc", "--json"))["removed"] == ["its"]


def test_what_exec_started_dies_with_it(ratchet: Any, repo: Path, tmp_path: Path) -> None:
    made = json.loads(ratchet("workspace", "create", "one", "--json"))
    if made["kind"] != "overlay":
        pytest.skip("only root's mount can be looked into from here")
    os.mkfifo(Path(made["path"]) / "begun")
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "RATCHET_WORKSPACE_MIN_FREE_RAM_MB": "1"}
    words = [
        "workspace",
        "exec",
        "one",
        "--",
        "sh",
        "-c",
        "setsid sh -c 'echo > begun; sleep 600' marker-7654321 & wait",
    ]
    owner = subprocess.Popen([sys.executable, "-m", "ratchet", *words], cwd=repo, env=env)
    (Path(made["path"]) / "begun").read_text()
    started = [os.pidfd_open(pid) for pid in _running(b"marker-7654321")]
    assert started
    owner.kill()
    owner.wait()
    for handle in started:
        assert select.select([handle], [], [], 20)[0], "it outlived its owner"
        os.close(handle)


def _running(word: bytes) -> list[int]:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if word in path.read_bytes():
                found.append(int(path.parent.name))
        except OSError:
            continue
    return found


def test_destroying_a_workspace_ends_the_command_that_runs_in_it(ratchet: Any, repo: Path, tmp_path: Path) -> None:
    ratchet("workspace", "create", "one", "--ttl", "0")
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
    command = [sys.executable, "-m", "ratchet", "workspace", "exec", "one", "--", "sh", "-c", "echo here; sleep 1000"]
    with subprocess.Popen(command, cwd=repo, env=env, stdout=subprocess.PIPE, text=True) as running:
        try:
            assert running.stdout and running.stdout.readline() == "here\n"
            ratchet("workspace", "gc")
            assert [row["slug"] for row in json.loads(ratchet("workspace", "list", "--json"))] == ["one"]
            ratchet("workspace", "destroy", "one")
            assert running.wait(20) != 0 and running.stdout.read() == ""  # its end comes when `sleep` has died
        finally:
            running.kill()
    assert json.loads(ratchet("workspace", "list", "--json")) == []


def test_doctor_prints_the_ladder_with_the_reasons(ratchet: Any) -> None:
    found = {row["what"]: row for row in json.loads(ratchet("doctor", "--json"))}
    kinds = [what.split()[1] for what in found if what.startswith("workspace ")]
    assert kinds == ["overlay", "overlay-userns", "btrfs", "reflink", "worktree", "copy"]
    assert all(row["detail"] for row in found.values())
    assert found["workspace copy"]["ok"]
