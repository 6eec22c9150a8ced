"""Names that another user of the machine has taken, and links in the way of what is removed."""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path

import pytest

from ratchet.app.backtest.bench import lay_files
from ratchet.workspace import directories, overlay_layers


@pytest.mark.parametrize("mode", [0o777, 0o000])
def test_a_folder_of_another_user_on_the_ram_disk_is_never_a_home(tmp_path: Path, mode: int) -> None:
    if os.geteuid() != 0:
        pytest.skip("giving a folder away needs root")
    taken = tmp_path / "ram" / "ratchet-x"
    taken.mkdir(parents=True)
    taken.chmod(mode)
    os.chown(taken, 12345, 12345)
    name = str(tmp_path / "x")
    home = directories.claim(name, str(tmp_path / "ram"))
    assert home != str(taken) and Path(home).stat().st_uid == os.geteuid()
    assert str(Path(name).readlink()) == home and not list(taken.iterdir())


def test_a_link_of_another_user_on_the_ram_disk_is_never_a_home(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("giving a link away needs root")
    (tmp_path / "ram").mkdir()
    (tmp_path / "theirs").mkdir()
    taken = tmp_path / "ram" / "ratchet-x"
    taken.symlink_to(tmp_path / "theirs")
    os.lchown(taken, 12345, 12345)
    assert directories.claim(str(tmp_path / "x"), str(tmp_path / "ram")) != str(taken)


def test_a_name_on_the_ram_disk_cannot_be_foreseen(tmp_path: Path) -> None:
    (tmp_path / "ram").mkdir()
    homes = set()
    for _ in range(2):
        homes.add(directories.claim(str(tmp_path / "x"), str(tmp_path / "ram")))
        (tmp_path / "x").unlink()
    assert len(homes) == 2


def test_the_lock_of_another_users_folder_is_not_waited_for(tmp_path: Path) -> None:
    """It may come in the place of an own one after the check of its owner, and be locked for ever."""
    if os.geteuid() != 0:
        pytest.skip("giving a folder away needs root")
    home, name = tmp_path / "ratchet-x", tmp_path / "x"
    home.mkdir()
    name.symlink_to(home)
    os.chown(home, 12345, 12345)
    holder = os.open(home, os.O_RDONLY)
    try:
        fcntl.flock(holder, fcntl.LOCK_EX)
        with directories.locked(str(home), str(name), wait=True) as ours:
            assert not ours
    finally:
        os.close(holder)


def test_what_becomes_a_link_while_a_tree_is_removed_leads_nowhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = tmp_path / "outside" / "kept"
    kept.parent.mkdir()
    kept.write_text("kept")
    inside = tmp_path / "tree" / "folder"
    inside.mkdir(parents=True)
    (inside / "kept").write_text("inside")
    rmdir = os.rmdir

    def swap_first(path: str, *, dir_fd: int | None = None) -> None:
        try:
            rmdir(path, dir_fd=dir_fd)
        except OSError as error:
            if error.errno == errno.ENOTEMPTY and str(path).endswith("folder") and not inside.is_symlink():
                inside.rename(tmp_path / "moved")
                inside.symlink_to(kept.parent)
            raise

    monkeypatch.setattr(os, "rmdir", swap_first)
    overlay_layers.remove_tree(tmp_path / "tree", empty=True)
    assert kept.read_text() == "kept" and not (tmp_path / "tree").exists()


def test_a_file_that_a_commit_deletes_is_not_looked_for_behind_a_link(tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "test_a.py").write_text("kept")
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "tests").symlink_to(tmp_path / "outside")
    lay_files(tmp_path / "work", {"tests/test_a.py": None})
    assert (tmp_path / "outside" / "test_a.py").exists()
