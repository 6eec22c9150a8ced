"""kill -9 before every single thing a verb does: whatever is left blocks nobody, and nothing stays for ever.

Python announces each file operation to its audit hooks; the child forked here dies at the n-th of them.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from ratchet.errors import BranchMoved
from ratchet.process.spawn import this_process
from ratchet.workspace.git.branches import branch_tip, create_branch, delete_branch
from ratchet.workspace.registry import Workspaces
from tests.workspace.conftest import commit_all, make, sh

DIES = """
import os, subprocess, sys
from pathlib import Path
from ratchet.process.spawn import this_process
from ratchet.workspace.protocol import WorkspaceRefused
from ratchet.workspace.registry import Workspaces
from ratchet.workspace.capacity import CapacityLimits

repo, root, bases, commit, verb, kind = sys.argv[1:]
spaces = Workspaces(Path(root), bases=Path(bases), limits=CapacityLimits(min_free_ram_bytes=1, min_free_disk_bytes=1))
NAMES = ("open", "os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.symlink", "os.scandir", "os.posix_spawn",
         "subprocess.Popen", "os.chmod", "os.utime", "ctypes.dlsym", "os.truncate", "os.link")

def create():
    return spaces.create("one", repo=Path(repo), commit=commit, kind=kind, owner=this_process())

def dirty(one):
    (one.path / "dirty").write_text("x")
    (one.path / "src" / "app.py").write_text("y")

def act():
    if verb == "create":
        create()
    elif verb == "fork":
        spaces.fork("one", "two", owner=this_process())
    elif verb == "destroy":
        spaces.destroy("one")
    elif verb == "reset":
        one = spaces.open("one"); one.reset(one.record.base_tree)
    elif verb == "checkpoint":
        spaces.open("one").checkpoint()
    elif verb == "diff":
        one = spaces.open("one"); one.diff(one.record.base_tree, one.checkpoint())
    elif verb == "commit":
        one = spaces.open("one")
        one.commit(tree=one.checkpoint(), message="m\\n", parent=commit, at="2026-01-01T00:00:00Z")
    elif verb == "copy_uncommitted":
        spaces.copy_uncommitted(spaces.open("one"))

def child(n):
    if verb != "create":
        dirty(create())
    left = [n]
    def hook(event, args):
        if event in NAMES:
            left[0] -= 1
            if left[0] == 0:
                os.kill(os.getpid(), 9)
    sys.addaudithook(hook)
    act()

spaces.choose(kind, str(spaces.ram)), spaces.choose(kind, str(spaces.root))
base = create().checkpoint(); spaces.destroy("one")
n = 0
while True:
    n += 1 if n < 30 else 4  # the first thirty one by one, then every fourth
    pid = os.fork()
    if not pid:
        child(n)
        os._exit(0)
    finished = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    if verb == "fork" and "two" in [record.slug for record in spaces.records()]:
        assert (spaces.open("two").path / "dirty").read_text() == "x", "a copy that was made half-way counts as made"
    # Whatever is left: it can be cleared by name, or taken away as the orphan it is, and then made anew and whole.
    spaces.gc() if n % 2 else [spaces.destroy(slug) for slug in ("one", "two")]
    subprocess.run(["git", "-C", repo, "update-ref", "refs/heads/ratchet/one", commit], check=True)
    again = create()
    assert not isinstance(again, WorkspaceRefused), again
    assert again.checkpoint() == base, n
    spaces.destroy("one"), spaces.destroy("two")
    assert spaces.records() == [], n
    if finished:
        break
print(n)
"""


@pytest.mark.parametrize(
    "verb", ["create", "checkpoint", "reset", "fork", "destroy", "diff", "commit", "copy_uncommitted"]
)
def test_a_verb_killed_at_any_point_blocks_nothing(plain: Workspaces, repo: Path, verb: str) -> None:
    kind = plain.choose("auto")
    commit = sh("git", "rev-parse", "HEAD", cwd=repo)
    words = [str(repo), str(plain.root), str(plain.bases.root), commit, verb, kind]
    done = subprocess.run([sys.executable, "-c", DIES, *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 5, "the hook never fired"
    assert make(plain, repo).checkpoint()
    plain.destroy("one")
    assert sh("git", "worktree", "list", cwd=repo).count("\n") == 0
    assert [layer for layer in plain.ram.glob("ratchet-*/home") if layer.readlink().is_relative_to(plain.root)] == []


def test_a_lock_that_a_killed_git_left_on_the_branch_is_in_nobodys_way(plain: Workspaces, repo: Path) -> None:
    workspace = make(plain, repo)
    parent, lock = workspace.tip(), repo / ".git" / f"{workspace.ref}.lock"
    (workspace.path / "new").write_text("new")
    lock.touch()
    again = plain.adopt("one", owner=this_process())
    assert (
        again.commit(tree=again.checkpoint(), message="m\n", parent=parent, at="2026-01-01T00:00:00Z")
        == again.tip()
        != parent
    )
    plain.destroy("one")
    lock.touch()
    again = make(plain, repo)
    (again.path / "newer").write_text("newer")
    assert (
        again.commit(tree=again.checkpoint(), message="m\n", parent=again.tip(), at="2026-01-01T00:00:00Z")
        == again.tip()
    )
    lock.touch()
    delete_branch(str(repo / ".git"), workspace.ref)
    assert not lock.exists() and workspace.ref not in sh("git", "for-each-ref", cwd=repo)
    lock.touch()
    create_branch(str(repo / ".git"), workspace.ref, parent)
    assert branch_tip(str(repo / ".git"), workspace.ref) == parent
    plain.destroy("one")


def test_a_lock_that_a_killed_git_left_in_a_base_is_in_nobodys_way(plain: Workspaces, repo: Path) -> None:
    """It was keeping the base's tree in the project's own store, which a user may delete."""
    base = Path(make(plain, repo).record.base)
    plain.destroy("one")
    shutil.rmtree(repo / ".ratchet")
    (base / "keeping-dead").mkdir()
    for left in ("keeping.index.lock", "trees.index.lock", "keeping-dead/index.lock"):
        (base / left).touch()
    assert make(plain, repo).checkpoint()
    plain.destroy("one")


@pytest.mark.parametrize("packed", [False, True])
def test_a_branch_is_dropped_wherever_git_keeps_it(plain: Workspaces, repo: Path, *, packed: bool) -> None:
    ref = make(plain, repo).ref
    if packed:
        sh("git", "pack-refs", "--all", cwd=repo)
    plain.destroy("one")
    delete_branch(str(repo / ".git"), ref)
    delete_branch(str(repo / ".git"), ref)
    assert ref not in sh("git", "for-each-ref", cwd=repo)


def test_a_branch_that_was_deleted_is_put_back_and_one_that_was_moved_is_never_overwritten(
    plain: Workspaces, repo: Path
) -> None:
    workspace = make(plain, repo)
    head = workspace.tip()
    (repo / "astray").write_text("x")
    astray = commit_all(repo, "astray")
    sh("git", "update-ref", "-d", workspace.ref, cwd=repo)
    workspace.restore_branch(head)
    assert workspace.tip() == head
    sh("git", "update-ref", workspace.ref, astray, cwd=repo)
    with pytest.raises(BranchMoved):
        workspace.restore_branch(head)
    assert workspace.tip() == astray
    plain.destroy("one")


def test_the_commit_of_a_worker_that_died_while_landing_is_made_again(plain: Workspaces, repo: Path) -> None:
    workspace = make(plain, repo)
    head, at = workspace.tip(), "2026-01-01T00:00:00Z"
    (workspace.path / "sealed.py").write_text("x")
    tree, message = workspace.checkpoint(), "Add the sealed tests that this passed\n\nRatchet-Run: run-1\n"
    made = workspace.commit(tree=tree, message=message, parent=head, at=at)
    workspace.restore_branch(head)
    assert workspace.tip() == head
    assert workspace.commit(tree=tree, message=message, parent=head, at=at) == made
    plain.destroy("one")
