"""What may be anywhere in a folder that others write: links out, endless folders, files larger than a disk."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from ratchet import tree_files
from ratchet.tree_files import leaves_tree
from ratchet.workspace.git.trees import make_readable


@pytest.mark.parametrize(
    ("path", "target"),
    [("link", "/etc/passwd"), ("link", ".."), ("a/link", "../../x"), ("link", "a/b/c/top/../../../../etc/passwd")],
)
def test_a_link_that_can_lead_out_of_the_tree_is_known_by_its_words(path: str, target: str) -> None:
    assert leaves_tree(path, target)


@pytest.mark.parametrize(("path", "target"), [("link", "a/b"), ("a/b/link", "../../x/./y"), ("a/link", "..")])
def test_a_link_within_the_tree_is_kept(path: str, target: str) -> None:
    assert not leaves_tree(path, target)


def nest(folder: Path, depth: int) -> None:
    """Make folders deeper than any path can name, with a pipe at the end."""
    at = os.open(folder, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir("deep", dir_fd=at)
        below = os.open("deep", os.O_RDONLY, dir_fd=at)
        os.close(at)
        at = below
    os.mkfifo(".gitignore", dir_fd=at)
    os.close(at)


def test_folders_that_no_path_can_name_are_removed_from_a_workspace(tmp_path: Path) -> None:
    nest(tmp_path, 1_500)
    (tmp_path / "kept").touch()
    tree_files.remove_special_files(tmp_path)
    deepest = max(listing.path.count("/") for listing in tree_files.walk_inside(tmp_path))
    assert deepest <= 256
    assert (tmp_path / "kept").exists()


def test_folders_of_any_depth_can_be_deleted(tmp_path: Path) -> None:
    nest(tmp_path, 1_500)
    tree_files.remove_inside(tmp_path, "deep")
    assert os.listdir(tmp_path) == []  # noqa: PTH208


def test_sparse_files_are_removed_when_together_they_are_larger_than_what_may_be_read(tmp_path: Path) -> None:
    for name in ("a", "b", "c", "dependency/d"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
        os.truncate(tmp_path / name, 400 << 20)
    tree_files.remove_huge_files(tmp_path, enters=lambda _at, name: name != "dependency")
    assert len(tree_files.find_inside(tmp_path)) == 3
    assert (tmp_path / "dependency/d").exists()


def test_rights_are_given_back_to_files_and_not_through_links(tmp_path: Path) -> None:
    (victim := tmp_path / "victim").write_text("x")
    (folder := tmp_path / "workspace" / "locked").mkdir(parents=True)
    (folder / "link").symlink_to(victim)
    (own := folder / "own").write_text("y")
    for path, mode in ((victim, 0o400), (own, 0o000), (folder, 0o500)):
        path.chmod(mode)
    make_readable(folder.parent)
    assert [path.stat().st_mode & 0o777 for path in (victim, own, folder)] == [0o400, 0o600, 0o700]
    tree_files.remove_inside(tmp_path, "workspace")
    assert not folder.exists() and victim.read_text() == "x" and victim.stat().st_mode & 0o777 == 0o400


def as_ordinary_user(top: Path, code: str) -> None:
    """Run code without the capabilities by which root may do all that modes forbid."""
    known = f"import os\nfrom pathlib import Path\nfrom ratchet.process.spawn import tidy\ntop = Path({str(top)!r})\n"
    dropped = "-dac_override,-dac_read_search,-fowner"
    drop = ["setpriv", f"--bounding-set={dropped}", f"--inh-caps={dropped}"] if os.geteuid() == 0 else []
    if drop and not shutil.which("setpriv"):
        pytest.skip("dropping capabilities needs setpriv")
    subprocess.run([*drop, sys.executable, "-c", known + code], check=True, timeout=60)


@pytest.mark.parametrize("mode", ["0o000", "0o444", "0o555", "0o111"])
def test_a_pipe_in_a_folder_that_its_owner_may_not_write_is_removed(tmp_path: Path, mode: str) -> None:
    as_ordinary_user(
        tmp_path,
        f"""
for name in ("a", "b", "."):
    (top / name).mkdir(exist_ok=True)
    os.mkfifo(top / name / ".gitignore")
    (top / name / "deeper").mkdir()
    os.mkfifo(top / name / "deeper" / "pipe")
    (top / name / "deeper").chmod({mode})
    (top / name).chmod({mode})
tidy(top)
assert not [path for path in top.rglob("*") if path.is_fifo()], sorted(top.rglob("*"))
""",
    )


def test_a_sparse_file_in_a_folder_that_its_owner_may_not_write_is_removed(tmp_path: Path) -> None:
    as_ordinary_user(
        tmp_path,
        """
(top / "a").mkdir()
(top / "a/huge").touch()
os.truncate(top / "a/huge", 1 << 40)
(top / "a").chmod(0o555)
tidy(top)
assert not (top / "a/huge").exists()
""",
    )


def test_a_folder_of_mode_555_stays_as_it_is(tmp_path: Path) -> None:
    as_ordinary_user(
        tmp_path,
        """
(top / "modules").mkdir(mode=0o555)
tidy(top)
assert (top / "modules").stat().st_mode & 0o777 == 0o555
""",
    )


def test_a_mode_is_not_changed_through_a_link_that_took_a_folders_place(tmp_path: Path) -> None:
    (tmp_path / "victim").mkdir(mode=0o500)
    (tmp_path / "link").symlink_to("victim")
    at = os.open(tmp_path, os.O_RDONLY)
    with pytest.raises(OSError, match="supported"):
        tree_files._change_mode(at, "link", 0o777)
    os.close(at)
    assert (tmp_path / "victim").stat().st_mode & 0o777 == 0o500


def test_a_temporary_folder_is_removed_with_whatever_was_put_into_it(tmp_path: Path) -> None:
    with tree_files.temporary_folder("some-", within=tmp_path) as folder:
        nest(folder, 1_500)
        (folder / "locked").mkdir(mode=0o000)
    assert not list(tmp_path.iterdir())


def test_a_deep_folder_is_removed_with_few_descriptors(tmp_path: Path) -> None:
    nest(tmp_path, 1_500)
    code = f"""
import resource, sys
from pathlib import Path
from ratchet import tree_files
resource.setrlimit(resource.RLIMIT_NOFILE, (100, 100))
tree_files.remove_inside(Path({str(tmp_path)!r}), "deep")
"""
    subprocess.run([sys.executable, "-c", code], check=True)
    assert not list(tmp_path.iterdir())
