"""A worker that lost its run writes nothing in the workspace; its processes are ended."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from ratchet.engine.run_owner import RunOwner, fence
from ratchet.errors import LeaseLost
from ratchet.files import write_whole
from ratchet.process.former_owner import end_former_owner
from ratchet.process.spawn import process_holder
from ratchet.workspace.git_workspace import GitWorkspace
from ratchet.workspace.registry import Workspaces
from tests.support import SMALL, git, make_repository

FORKING = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
for _ in range(3):
    if os.fork() == 0:
        os.setsid()
os.write(1, b"ready" + os.linesep.encode())
time.sleep(600)
"""


@pytest.fixture
def workspace(tmp_path: Path) -> GitWorkspace:
    repo = make_repository(tmp_path / "project", SMALL)
    made = Workspaces(tmp_path / "workspaces", bases=tmp_path / "bases").create(
        "one", repo=repo, commit=git("rev-parse", "HEAD", cwd=repo), kind="copy"
    )
    assert isinstance(made, GitWorkspace)
    return made


def test_a_late_worker_can_use_no_verb_of_its_workspace(workspace: GitWorkspace, tmp_path: Path) -> None:
    late, successor = (RunOwner(tmp_path / "owners", "run-1", epoch) for epoch in (1, 2))
    assert late.take()
    ours = fence(workspace, late)
    tree, head = ours.checkpoint(), ours.tip()
    assert successor.take()
    (workspace.path / "calc.py").write_text("the successor's change")
    for verb in (
        lambda: ours.reset(tree),
        lambda: ours.restore(["calc.py"], tree),
        lambda: ours.commit(tree=tree, message="late", parent=head, at="2026-01-01T00:00:00Z"),
        lambda: ours.restore_branch(head),
        late.take,
    ):
        with pytest.raises(LeaseLost, match="taken over"):
            verb()
    assert (workspace.path / "calc.py").read_text() == "the successor's change"
    late.leave()
    assert fence(workspace, successor).changes(tree, workspace.checkpoint()) == ["calc.py"]


def test_a_worker_that_is_stopped_while_it_takes_its_run_finds_itself_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    late, successor = (RunOwner(tmp_path / "owners", "run-1", epoch) for epoch in (1, 2))
    taken = list[bool]()

    def write_late(path: Path, content: bytes) -> None:
        if not taken:  # stopped just before this write, for longer than its lease
            taken.append(True)
            taken.append(successor.take())
        write_whole(path, content)

    monkeypatch.setattr("ratchet.engine.run_owner.write_whole", write_late)
    with pytest.raises(LeaseLost, match="taken over"):
        late.take()
    assert taken == [True, True]
    successor.check()
    with pytest.raises(LeaseLost):
        late.check()


def test_a_former_owner_is_ended_with_all_its_processes(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", FORKING], stdout=subprocess.PIPE) as process:
        assert process.stdout
        for _ in range(8):
            assert process.stdout.readline() == b"ready\n"
        holder = process_holder(process.pid)
        assert end_former_owner(holder)
        assert process.wait() == -9
        assert process.stdout.read() == b"", "a descendant still holds the pipe"


def test_an_ancestor_and_a_process_of_another_container_are_not_ended() -> None:
    code = """
import os
from ratchet.process.former_owner import end_former_owner, process_holder
raise SystemExit(end_former_owner(process_holder(os.getppid())))
"""
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
    elsewhere = process_holder(os.getpid())
    boot = elsewhere.machine.partition(":")[0]
    assert not end_former_owner(msgspec.structs.replace(elsewhere, machine=f"{boot}:0", pid=1))
