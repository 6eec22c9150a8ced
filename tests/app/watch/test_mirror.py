"""The mirror follows a tree: every way a path can change, and nothing that git ignores."""

from __future__ import annotations

import asyncio
import mmap
import os
import shutil
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from ratchet.workspace.capacity import CapacityLimits
from ratchet.workspace.file_watcher import BUSY_QUIET_S, QUIET_S, ChangeBatch, TreeWatcher, quiet_period
from ratchet.workspace.mirror import Mirror, MirrorSource, head_of
from ratchet.workspace.protocol import WorkspaceRefused
from ratchet.workspace.registry import Workspaces
from tests.support import git, make_repository

FILES = {"a.txt": "a\n", "d/b.txt": "b\n", "d/e/c.txt": "c\n", ".gitignore": "*.log\nbuild/\n", "kept.log": "x\n"}
Follow = Callable[[], Awaitable[list[str]]]


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    made = make_repository(tmp_path / "repo", FILES)
    git("add", "-f", "kept.log", cwd=made)
    git("commit", "-q", "-m", "an ignored file that is tracked", cwd=made)
    return made


@pytest.fixture
def mirror(repo: Path, tmp_path: Path) -> Iterator[Mirror]:
    workspaces = Workspaces(tmp_path / "ws", limits=CapacityLimits(min_free_ram_bytes=0, min_free_disk_bytes=0))
    made = workspaces.create("mirror", repo=repo, commit=head_of(repo))
    assert not isinstance(made, WorkspaceRefused)
    yield Mirror(made, repo, MirrorSource.SAVE)
    workspaces.destroy("mirror")


def following(mirror: Mirror, story: Callable[[Follow], Awaitable[None]]) -> None:
    """Run a story that changes the tree, and lets the mirror follow when it says so."""

    async def whole() -> None:
        changes = TreeWatcher(mirror.repo)
        assert not changes.polling

        async def follow() -> list[str]:
            async with asyncio.timeout(30):
                while not (paths := mirror.compare(await changes.next())):
                    pass
            mirror.copy(paths)
            return paths

        await story(follow)
        changes.close()

    asyncio.run(whole())


def content(folder: Path) -> dict[str, str]:
    found = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if not name.startswith((".git/", ".ratchet/")) and name not in (".git", ".ratchet") and not path.is_dir():
            found[name] = f"-> {path.readlink()}" if path.is_symlink() else path.read_text()
    return found


def test_every_way_to_change_a_path_reaches_the_mirror(repo: Path, mirror: Mirror) -> None:
    async def story(follow: Follow) -> None:
        (repo / "a.txt").write_text("changed\n")
        assert await follow() == ["a.txt"]
        (repo / ".a.txt.swp").write_text("by rename\n")
        (repo / ".a.txt.swp").rename(repo / "a.txt")
        assert await follow() == ["a.txt"]
        (repo / "new" / "deep").mkdir(parents=True)
        (repo / "new" / "deep" / "n.txt").write_text("n\n")
        assert await follow() == ["new/deep/n.txt"]
        (repo / "new" / "deep" / "m.txt").write_text("m\n")
        assert await follow() == ["new/deep/m.txt"], "a folder that is new is watched too"
        (repo / "d").rename(repo / "moved")
        await follow()
        (repo / "a.txt").unlink()
        (repo / "a.txt").mkdir()
        (repo / "a.txt" / "inner.txt").write_text("a folder where a file was\n")
        await follow()
        (repo / "link").symlink_to("kept.log")
        await follow()
        (repo / "moved" / "b.txt").chmod(0o755)
        assert await follow() == ["moved/b.txt"]
        assert os.access(mirror.path / "moved" / "b.txt", os.X_OK)
        assert content(mirror.path) == content(repo)

    following(mirror, story)


def test_what_git_ignores_stays_out_but_what_it_tracks_does_not(repo: Path, mirror: Mirror) -> None:
    async def story(follow: Follow) -> None:
        (repo / "build").mkdir()
        (repo / "build" / "out.txt").write_text("x\n")
        (repo / "some.log").write_text("x\n")
        (repo / "node_modules").mkdir()
        (repo / "node_modules" / "dependency.js").write_text("x\n")
        (repo / "kept.log").write_text("tracked although ignored\n")
        assert await follow() == ["kept.log"]
        assert not (mirror.path / "build").exists()

    following(mirror, story)


def test_a_save_without_a_change_is_no_change(repo: Path, mirror: Mirror) -> None:
    batch = ChangeBatch()
    batch.paths = {"a.txt"}
    (repo / "a.txt").write_text("a\n")
    assert mirror.compare(batch) == []


def test_the_same_content_has_the_same_name_and_another_has_another(repo: Path, mirror: Mirror) -> None:
    batch, first = ChangeBatch(), mirror.tree()
    batch.paths = {"a.txt"}
    (repo / "a.txt").write_text("other\n")
    mirror.copy(mirror.compare(batch))
    assert mirror.tree() != first
    (repo / "a.txt").write_text("a\n")
    mirror.copy(mirror.compare(batch))
    assert mirror.tree() == first


def test_a_link_that_a_test_left_does_not_lead_out_of_the_mirror(repo: Path, mirror: Mirror, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    for path in sorted((mirror.path / "d").rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    (mirror.path / "d").rmdir()
    (mirror.path / "d").symlink_to(outside)
    batch = ChangeBatch()
    batch.paths = {"d/b.txt"}
    (repo / "d" / "b.txt").write_text("mine\n")
    mirror.copy(mirror.compare(batch))
    assert not list(outside.iterdir())
    assert (mirror.path / "d" / "b.txt").read_text() == "mine\n"


def test_a_folder_that_a_test_replaced_by_a_link_is_restored(mirror: Mirror, tmp_path: Path) -> None:
    (outside := tmp_path / "outside").mkdir()
    shutil.rmtree(mirror.path / "d")
    (mirror.path / "d").symlink_to(outside)
    mirror.clean()
    assert (mirror.path / "d/e/c.txt").read_text() == "c\n"
    assert not list(outside.iterdir())


SWAP = """
import os, shutil, sys
os.chdir(sys.argv[1])
shutil.rmtree("d")  # an overlay does not rename a folder of its base
os.mkdir("d")
print("begun", flush=True)
def tried(what, *names):
    try:
        what(*names)
    except OSError:
        pass
while True:
    tried(os.symlink, sys.argv[2], "link")
    tried(os.rename, "d", "old")
    tried(os.rename, "link", "d")
    tried(os.unlink, "d")
    tried(os.rename, "old", "d")
    shutil.rmtree("old", ignore_errors=True)
"""


def test_a_folder_that_becomes_a_link_at_any_time_leads_nothing_out(repo: Path, mirror: Mirror, tmp_path: Path) -> None:
    """A process of the project swaps a folder and a link while the mirror copies and removes."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "gone.txt").write_text("precious")
    with subprocess.Popen([sys.executable, "-c", SWAP, mirror.path, outside], stdout=subprocess.PIPE) as swapping:
        assert swapping.stdout and swapping.stdout.readline() == b"begun\n"
        try:
            for number in range(2_000):
                (repo / "d/new.txt").write_text(str(number))
                mirror.copy(["d/new.txt", "d/gone.txt"])
        finally:
            swapping.kill()
    assert [(path.name, path.read_text()) for path in outside.iterdir()] == [("gone.txt", "precious")]


def test_a_single_save_is_reported_at_once_and_a_tools_batch_after_a_wait() -> None:
    one, many = ChangeBatch(), ChangeBatch()
    one.paths, many.paths = {"a.py"}, {f"{number}.py" for number in range(20)}
    assert quiet_period(one, since_s=5.0) == QUIET_S
    assert quiet_period(one, since_s=0.1) == BUSY_QUIET_S
    assert quiet_period(many, since_s=5.0) == BUSY_QUIET_S


def test_a_file_that_is_written_through_memory_is_a_change(repo: Path, mirror: Mirror) -> None:
    async def story(follow: Follow) -> None:
        (repo / "a.txt").write_bytes(b"x" * 4096)
        await follow()
        with (repo / "a.txt").open("r+b") as file, mmap.mmap(file.fileno(), 4096) as memory:
            memory[:3] = b"abc"
        await follow()
        assert (mirror.path / "a.txt").read_bytes()[:3] == b"abc"

    following(mirror, story)


def test_changes_that_are_lost_because_too_many_came_at_once_are_looked_for(repo: Path, mirror: Mirror) -> None:
    async def story(follow: Follow) -> None:
        queue_length = int(Path("/proc/sys/fs/inotify/max_queued_events").read_text())
        for number in range(queue_length + 2):  # one event each: this thread does not read them meanwhile
            (repo / f"n{number % 20}.txt").touch()
        (repo / "last.txt").write_text("last\n")
        await follow()
        assert (mirror.path / "last.txt").read_text() == "last\n"

    following(mirror, story)
