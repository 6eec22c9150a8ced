"""Real power cuts of a disk: a file system is shut down without writing its log, and mounted again.

The ledger is elsewhere (another disk, PostgreSQL), so no write of its own makes anything on this disk durable.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from ratchet.store.run_directory import RunDirectory
from ratchet.workspace.git_workspace import GitWorkspace
from ratchet.workspace.protocol import WorkspaceRefused
from ratchet.workspace.registry import Workspaces
from tests.support import git, make_repository

FS_IOC_SHUTDOWN, NO_LOG_FLUSH = 0x8004587D, 2
ROUNDS = 4


class Disk:
    """A file system in a file, whose power can be cut."""

    def __init__(self, folder: Path, kind: str) -> None:
        self._image, self.path = folder / "image", folder / "disk"
        self._options = "loop" if kind == "ext4" else "loop,nouuid"  # a copy has the UUID of the first
        self.path.mkdir()
        with self._image.open("wb") as file:
            file.truncate((64 if kind == "ext4" else 320) << 20)
        force = "-F" if kind == "ext4" else "-f"
        subprocess.run([f"mkfs.{kind}", "-q", force, str(self._image)], check=True, capture_output=True)
        self._mount()

    def cut(self) -> None:
        handle = os.open(self.path, os.O_RDONLY)
        fcntl.ioctl(handle, FS_IOC_SHUTDOWN, struct.pack("I", NO_LOG_FLUSH))
        os.close(handle)
        # A copy of what reached the disk: other mount namespaces may hold the old mount, which stays shut down.
        copy = self._image.with_name(f"{self._image.name}+")
        subprocess.run(["cp", "--sparse=always", str(self._image), str(copy)], check=True)
        self.unmount()
        self._image = copy
        self._mount()

    def unmount(self) -> None:
        subprocess.run(["umount", "-l", str(self.path)], check=True, capture_output=True, timeout=60)

    def _mount(self) -> None:
        argv = ["mount", "-o", self._options, str(self._image), str(self.path)]
        subprocess.run(argv, check=True, capture_output=True)


@pytest.fixture(params=["ext4", "xfs"])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Disk]:
    if os.geteuid() != 0 or not shutil.which(f"mkfs.{request.param}"):
        pytest.skip(f"needs root and mkfs.{request.param}")
    try:
        made = Disk(tmp_path, request.param)
    except subprocess.CalledProcessError as error:
        pytest.skip(f"no {request.param} in a file can be mounted here: {error.stderr.decode().strip()}")
    yield made
    made.unmount()


@pytest.fixture
def workspace(disk: Disk, tmp_path: Path) -> Iterator[GitWorkspace]:
    """A workspace of a repository on that disk; its own files are elsewhere."""
    repo = make_repository(disk.path / "repo", {"a.py": "1\n", "deep/er/b.py": "2\n"})
    spaces = Workspaces(tmp_path / "workspaces", bases=tmp_path / "bases")
    made = spaces.create("one", repo=repo, commit=git("rev-parse", "HEAD", cwd=repo).strip(), kind="auto", on="disk")
    assert not isinstance(made, WorkspaceRefused)
    os.sync()
    yield made
    spaces.destroy("one")


def _write_and_checkpoint(workspace: GitWorkspace, number: int) -> str:
    (workspace.path / "deep" / "er" / f"c{number}.py").write_text(f"{number} of {os.urandom(8).hex()}\n")
    return workspace.checkpoint()


def _commit(workspace: GitWorkspace, number: int) -> str:
    tree, parent = _write_and_checkpoint(workspace, number), workspace.tip()
    return workspace.commit(tree=tree, message="x\n", parent=parent, at="2026-01-01T00:00:00Z")


def test_a_tree_is_whole_after_a_cut_as_soon_as_it_can_be_announced(disk: Disk, workspace: GitWorkspace) -> None:
    store = str(workspace.trees.store)
    for number in range(ROUNDS):
        tree = _write_and_checkpoint(workspace, number)
        disk.cut()
        assert f"c{number}.py" in git("--git-dir", store, "ls-tree", "-r", "--name-only", tree, cwd=disk.path)


def test_a_commit_and_its_branch_are_there_after_a_cut(disk: Disk, workspace: GitWorkspace) -> None:
    for number in range(ROUNDS):
        commit = _commit(workspace, number)
        disk.cut()
        assert git("rev-parse", workspace.ref, cwd=disk.path / "repo").strip() == commit
        git("cat-file", "-e", f"{commit}^{{tree}}", cwd=disk.path / "repo")


def test_an_artifact_in_new_folders_is_there_after_a_cut(disk: Disk) -> None:
    os.sync()
    directory = RunDirectory(disk.path / "repo" / ".ratchet", "run-1")
    directory.mirror_entries([])
    artifact = directory.put("reports/one/step-1.json", b"x" * 100)
    disk.cut()
    assert directory.get(artifact) == b"x" * 100
