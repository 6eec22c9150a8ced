"""Disks that are full, for real: the error says which, nothing half-made stays, and with room again work goes on."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from ratchet.errors import DiskFull
from ratchet.workspace.capacity import CapacityLimits
from ratchet.workspace.git_workspace import GitWorkspace
from ratchet.workspace.registry import Workspaces
from tests.workspace.conftest import SMALL, commit_all, inside, make, sh

Disk = Callable[..., Path]
ROOMY = CapacityLimits(min_free_ram_bytes=0, min_free_disk_bytes=0)


@pytest.mark.parametrize("inodes", range(2, 9))
def test_a_ram_disk_that_fills_up_in_a_create_leaves_nothing_half_made(
    repo: Path, tmp_path: Path, disk: Disk, inodes: int
) -> None:
    ram = disk("ram", f"size=1m,nr_inodes={inodes}")
    spaces = Workspaces(tmp_path / "ws", bases=tmp_path / "bases", limits=CapacityLimits(min_free_ram_bytes=0), ram=ram)
    spaces._chosen["overlay", str(ram)] = "overlay"  # looking whether it works needs room too
    with pytest.raises(DiskFull, match=str(ram)):
        make(spaces, repo, kind="overlay-ram")
    assert spaces.records() == []
    assert list(ram.iterdir()) == []
    assert not (spaces.root / "one").exists()


def test_a_disk_that_fills_up_while_a_base_is_made_leaves_no_base(repo: Path, tmp_path: Path, disk: Disk) -> None:
    small = disk("small", "size=200k")
    spaces = Workspaces(tmp_path / "ws", bases=small / "bases", limits=SMALL)
    (repo / "big.bin").write_bytes(os.urandom(1 << 20))
    commit_all(repo)
    with pytest.raises(DiskFull):
        make(spaces, repo)
    assert spaces.bases.list() == []
    assert [path for path in spaces.bases.root.iterdir() if path.is_dir()] == []


# --- in the middle of a step ---------------------------------------------------------------------------------------


def fill(folder: Path) -> None:
    """What an agent does that writes until it cannot."""
    for n, size in enumerate((1 << 20, 1 << 14, 1)):
        with suppress(OSError), (folder / f"filling-{n}").open("wb", buffering=0) as file:
            while file.write(b"x" * size):
                pass
    with suppress(OSError):
        for n in range(100_000):
            (folder / f"inode-{n}").touch()


@pytest.fixture
def on_small_ram(repo: Path, tmp_path: Path, disk: Disk) -> Iterator[GitWorkspace]:
    spaces = Workspaces(
        tmp_path / "ws", bases=tmp_path / "bases", limits=ROOMY, ram=disk("ram", "size=1m,nr_inodes=200")
    )
    yield make(spaces, repo, kind="overlay-ram")
    spaces.destroy("one")
    assert list(spaces.ram.iterdir()) == []


def test_a_reset_empties_a_ram_disk_that_a_step_has_filled(on_small_ram: GitWorkspace) -> None:
    one, before = on_small_ram, on_small_ram.checkpoint()
    (one.path / "target").mkdir()
    fill(one.path / "target")  # what tools built is kept if it can be, and here it cannot
    fill(one.path)
    one.reset(before)
    assert one.checkpoint() == before
    assert inside(one, "git", "status", "--porcelain") == ""
    (one.path / "new").write_text("there is room again")


def test_what_was_written_before_the_ram_disk_was_full_can_still_be_kept(on_small_ram: GitWorkspace) -> None:
    one, before = on_small_ram, on_small_ram.checkpoint()
    (one.path / "work").write_text("dear")
    fill(one.path)
    after = one.checkpoint()
    assert one.read(after, "work") == b"dear"
    one.restore([path for path in one.changes(before, after) if path != "work"], before)
    assert one.changes(before, one.checkpoint()) == ["work"]


def test_a_checkpoint_too_large_for_the_ram_disk_says_what_is_full_and_the_next_reset_mends_it(
    on_small_ram: GitWorkspace,
) -> None:
    one, before = on_small_ram, on_small_ram.checkpoint()
    (one.path / "half").write_bytes(os.urandom(600 << 10))
    half = one.checkpoint()
    one.reset(before)
    ballast = Path(one.record.layer).parent / "another-workspace"
    ballast.write_bytes(bytes(600 << 10))
    with pytest.raises(DiskFull, match=one.record.path):
        one.reset(half)
    one.reset(before)
    assert one.checkpoint() == before
    ballast.unlink()
    one.reset(half)
    assert one.checkpoint() == half


@pytest.mark.parametrize("kind", ["overlay", "copy"])
def test_a_disk_that_fills_up_in_a_checkpoint_or_a_commit_keeps_what_was_there(
    tmp_path: Path, repo: Path, disk: Disk, kind: str
) -> None:
    small = disk("source", mib=16)
    home = small / "repo"
    shutil.copytree(repo, home, symlinks=True)
    spaces = Workspaces(tmp_path / "ws", bases=tmp_path / "bases", limits=SMALL)
    one = make(spaces, home, kind=kind)
    before, tip = one.checkpoint(), one.tip()
    (one.path / "big").write_bytes(os.urandom(1 << 20))
    ballast = small / "ballast"
    ballast.mkdir()
    fill(ballast)
    for act in (
        one.checkpoint,
        lambda: one.commit(tree=one.checkpoint(), message="m\n", parent=tip, at="2026-01-01T00:00:00Z"),
    ):
        with pytest.raises(DiskFull) as reported:
            act()
        assert str(small) in reported.value.message
    shutil.rmtree(ballast)
    assert one.tip() == tip
    assert list(home.rglob("*.lock")) == []
    if kind == "overlay":  # git itself leaves some, and prunes them in its time
        assert list((home / ".ratchet").rglob("tmp_obj_*")) == []
    after = one.checkpoint()
    assert one.changes(before, after) == ["big"]
    assert one.commit(tree=one.checkpoint(), message="m\n", parent=tip, at="2026-01-01T00:00:00Z") == one.tip()
    sh("git", "fsck", "--strict", cwd=home)
    spaces.destroy("one")
