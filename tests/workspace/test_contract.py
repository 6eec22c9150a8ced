"""What every kind of workspace promises. A kind this machine cannot make is skipped with doctor's reason."""

from __future__ import annotations

import os
import shutil
import zlib
from contextlib import suppress
from pathlib import Path

import pytest

from ratchet.errors import GitFailed, TreeBroken, WorkspaceChanged
from ratchet.workspace.base_cache import Recipe, paths_to_carry
from ratchet.workspace.git.trees import snapshot
from ratchet.workspace.git_workspace import GitWorkspace
from ratchet.workspace.registry import Workspaces
from tests.workspace.conftest import commit_all, inside, make, sh


@pytest.fixture
def one(spaces: Workspaces, repo: Path, kind: str) -> GitWorkspace:
    return make(spaces, repo, kind=kind)


def test_a_fresh_workspace_is_the_commit_with_every_odd_name_mode_and_link(one: GitWorkspace, repo: Path) -> None:
    theirs = snapshot(repo, store=repo.parent / "other.git")
    assert one.manifest(one.checkpoint()).snapshot_id == theirs.snapshot_id
    assert (one.path / "dangling").readlink() == Path("nowhere")
    assert os.access(one.path / "src" / "run", os.X_OK)
    assert (one.path / "sparse.bin").stat().st_size == 1 << 20


def test_git_in_a_fresh_workspace_finds_nothing_to_read_again(one: GitWorkspace, kind: str) -> None:
    if kind == "worktree":
        pytest.skip("git's own worktree: its index is as young as its files")
    assert inside(one, "git", "diff-files", "--raw") == ""  # tells by stat alone: it never looks into a file
    assert inside(one, "git", "status", "--porcelain") == ""


def test_a_file_with_a_line_feed_in_its_name_is_read_as_any_other(one: GitWorkspace, repo: Path) -> None:
    sh("git", "repack", "-adq", cwd=repo)  # what is packed is asked of git, by lines
    before = one.checkpoint()
    (one.path / "new\nname").write_text("new")
    after = one.checkpoint()
    wanted = {
        "new\nname": b"new",
        "folder\nnewline/file": b"inside\n",
        "missing\nfile": None,
        "src/app.py": b"VALUE = 1\n",
    }
    assert one.read_all(after, list(wanted)) == wanted
    assert one.read_all(before, ["new\nname", "src/app.py"]) == {"new\nname": None, "src/app.py": b"VALUE = 1\n"}


def test_a_link_in_place_of_a_dependency_folder_does_not_outlive_a_reset(one: GitWorkspace, tmp_path: Path) -> None:
    before = one.checkpoint()
    (one.path / "node_modules").symlink_to(tmp_path)
    one.reset(before)
    assert not (one.path / "node_modules").is_symlink()


def test_a_reset_undoes_every_change_whatever_it_was(one: GitWorkspace) -> None:
    before = one.checkpoint()
    (one.path / "src" / "app.py").write_text("VALUE = 2\n")
    (one.path / "src" / "run").chmod(0o644)
    (one.path / "link").unlink()
    (one.path / "with space.txt").rename(one.path / "renamed\n\xe9.txt")
    (one.path / "new" / "deep").mkdir(parents=True)
    (one.path / "new" / "deep" / "file").write_text("x")
    (one.path / "noise.log").write_text("ignored")
    inside(one, "rm", "-rf", "folder\nnewline")
    after = one.checkpoint()
    assert "src/run" in one.changes(before, after)
    assert "new/deep/file" in one.changes(before, after)
    assert "noise.log" not in one.changes(before, after)
    one.reset(before)
    assert one.manifest(one.checkpoint()) == one.manifest(before)
    assert not (one.path / "noise.log").exists()
    assert (one.path / "folder\nnewline" / "file").read_text() == "inside\n"


def test_a_reset_goes_forward_and_back_between_checkpoints(one: GitWorkspace) -> None:
    first = one.checkpoint()
    (one.path / "src" / "app.py").unlink()
    (one.path / "src" / "app.py").mkdir()
    (one.path / "src" / "app.py" / "now-a-folder").write_text("x")
    (one.path / "dangling").unlink()
    (one.path / "dangling").write_text("a file now")
    second = one.checkpoint()
    one.reset(first)
    assert (one.path / "src" / "app.py").read_text() == "VALUE = 1\n"
    one.reset(second)
    assert one.checkpoint() == second
    assert (one.path / "src" / "app.py" / "now-a-folder").read_text() == "x"
    assert not (one.path / "dangling").is_symlink()


def test_a_reset_works_after_git_was_deleted_rights_taken_away_and_files_left_open(one: GitWorkspace) -> None:
    before = one.checkpoint()
    inside(one, "rm", "-rf", ".git")
    (one.path / "src" / "app.py").chmod(0o000)
    (one.path / "locked").mkdir()
    (one.path / "locked" / "in").write_text("x")
    (one.path / "locked").chmod(0o500)
    with (one.path / "still-open").open("w") as file:
        file.write("x")
        file.flush()
        one.reset(before)
    assert one.checkpoint() == before
    assert inside(one, "git", "status", "--porcelain") == ""
    theirs = {path.name for path in Path(one.record.repo).iterdir()} - {".ratchet"}
    assert {path.name for path in one.path.iterdir()} == theirs


@pytest.mark.parametrize("damage", [b"", zlib.compress(b"blob 11\0VALUE = 666"), None], ids=["empty", "other", "gone"])
def test_a_reset_to_a_tree_whose_content_is_lost_or_torn_says_so(
    one: GitWorkspace, spaces: Workspaces, damage: bytes | None
) -> None:
    (one.path / "new.py").write_text("VALUE = 777")
    tree = one.checkpoint()
    (one.path / "new.py").unlink()
    oid = sh("git", f"--git-dir={one.trees.store}", "rev-parse", f"{tree}:new.py", cwd=one.home)
    blob = one.trees.store / "objects" / oid[:2] / oid[2:]
    blob.unlink()
    if damage is not None:
        blob.write_bytes(damage)
    with pytest.raises((TreeBroken, GitFailed), match=r"new\.py|unable to|corrupt|damaged"):
        spaces.open("one").reset(tree)


def test_a_path_is_put_back_where_it_belongs_and_not_through_a_link_in_its_folders_place(
    one: GitWorkspace, tmp_path: Path
) -> None:
    before = one.checkpoint()
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "app.py").write_text("precious\n")
    inside(one, "rm", "-r", "src")
    inside(one, "ln", "-s", str(outside), "src")
    with suppress(GitFailed):  # git refuses to write through a link
        one.restore(["src/app.py"], before)
    assert (outside / "app.py").read_text() == "precious\n"
    one.reset(before)
    assert (one.path / "src" / "app.py").read_text() == "VALUE = 1\n" and not (one.path / "src").is_symlink()


def test_a_commit_is_looked_for_although_the_branch_was_deleted(one: GitWorkspace, repo: Path) -> None:
    head = one.tip()
    sh("git", "update-ref", "-d", "refs/heads/ratchet/one", cwd=repo)
    assert one.find_commit("ik:x", since=head) is None
    one.restore_branch(head)
    assert one.tip() == head


def test_single_paths_can_be_put_back(one: GitWorkspace) -> None:
    before = one.checkpoint()
    (one.path / "src" / "app.py").write_text("VALUE = 3\n")
    (one.path / "kept").write_text("stays")
    (one.path / "made").write_text("goes")
    one.restore(["src/app.py", "made"], before)
    assert one.changes(before, one.checkpoint()) == ["kept"]


def test_a_commit_lands_in_the_source_and_leaves_a_clean_status(one: GitWorkspace, repo: Path) -> None:
    parent = sh("git", "rev-parse", "HEAD", cwd=repo)
    (one.path / "src" / "app.py").write_text("VALUE = 2\n")
    (one.path / "with space.txt").unlink()
    (one.path / "crlf.txt").write_bytes(b"three\r\n")
    tree = one.checkpoint()
    commit = one.commit(tree=one.checkpoint(), message="two\n", parent=parent, at="2026-01-01T00:00:00Z")
    assert sh("git", "rev-parse", "ratchet/one", cwd=repo) == commit
    assert sh("git", "show", "--format=", "--name-only", commit, cwd=repo).split("\n") == [
        "crlf.txt",
        "src/app.py",
        "with space.txt",
    ]
    assert sh("git", "cat-file", "blob", f"{commit}:crlf.txt", cwd=repo) == "three", "the project's line ends apply"
    assert inside(one, "git", "status", "--porcelain") == ""
    one.reset(tree)
    assert inside(one, "git", "status", "--porcelain") == ""
    one.undo_commit(commit=commit, parent=parent)
    assert one.tip() == parent


def test_a_commit_is_refused_when_the_workspace_no_longer_holds_the_judged_tree(one: GitWorkspace, repo: Path) -> None:
    parent = sh("git", "rev-parse", "HEAD", cwd=repo)
    (one.path / "src" / "app.py").write_text("VALUE = 2\n")
    judged = one.checkpoint()
    (one.path / "untested.py").write_text("raise SystemExit\n")
    with pytest.raises(WorkspaceChanged, match=r"untested\.py"):
        one.commit(tree=judged, message="two\n", parent=parent, at="2026-01-01T00:00:00Z")
    assert one.tip() == parent
    one.reset(judged)
    commit = one.commit(tree=judged, message="two\n", parent=parent, at="2026-01-01T00:00:00Z")
    assert one.differing_paths(commit, judged) == []
    assert one.differing_paths(parent, judged) == ["src/app.py"]


def test_the_source_lists_the_workspace_locked_and_prunes_it_not(one: GitWorkspace, repo: Path) -> None:
    sh("git", "worktree", "prune", cwd=repo)
    listed = sh("git", "worktree", "list", "--porcelain", cwd=repo)
    assert "branch refs/heads/ratchet/one\nlocked" in listed


def test_a_fork_is_an_independent_copy_of_a_dirty_workspace(spaces: Workspaces, one: GitWorkspace) -> None:
    (one.path / "dirty").write_text("both")
    (one.path / "link").unlink()
    made = spaces.fork("one", "two")
    assert isinstance(made, GitWorkspace)
    assert made.checkpoint() == one.checkpoint()
    (made.path / "dirty").write_text("only the copy")
    assert (one.path / "dirty").read_text() == "both"
    spaces.destroy("one")
    assert (made.path / "dirty").read_text() == "only the copy"


def test_uncommitted_changes_of_the_developer_can_be_laid_on_top(spaces: Workspaces, repo: Path, kind: str) -> None:
    (repo / "with space.txt").rename(repo / "moved.txt")
    (repo / "link").unlink()
    (repo / "src" / "app.py").write_text("VALUE = 'mine'\n")
    sh("git", "add", "moved.txt", cwd=repo)
    one = make(spaces, repo, kind=kind)
    spaces.copy_uncommitted(one)
    assert (one.path / "moved.txt").read_text() == "space\n"
    assert not (one.path / "with space.txt").exists()
    assert not (one.path / "link").is_symlink()
    theirs = snapshot(repo, store=repo.parent / "other.git")
    assert one.manifest(one.checkpoint()).snapshot_id == theirs.snapshot_id


def test_a_repository_made_inside_the_tree_hides_nothing(one: GitWorkspace) -> None:
    before = one.checkpoint()
    inside(one, "git", "init", "-q", "vendored")
    (one.path / "vendored" / "code.py").write_text("x = 1\n")
    assert one.changes(before, one.checkpoint()) == ["vendored/code.py"]


def test_a_submodule_survives_a_commit(spaces: Workspaces, repo: Path, kind: str) -> None:
    sh("git", "update-index", "--add", "--cacheinfo", f"160000,{'1' * 40},sub", cwd=repo)
    sh("git", "-c", "user.name=t", "-c", "user.email=t@localhost", "commit", "-q", "-m", "sub", cwd=repo)
    one = make(spaces, repo, kind=kind)
    parent = sh("git", "rev-parse", "HEAD", cwd=repo)
    (one.path / "src" / "app.py").write_text("VALUE = 5\n")
    commit = one.commit(tree=one.checkpoint(), message="change\n", parent=parent, at="2026-01-01T00:00:00Z")
    assert sh("git", "ls-tree", commit, "sub", cwd=repo).startswith("160000 commit")
    assert sh("git", "show", "--format=", "--name-only", commit, cwd=repo) == "src/app.py"


@pytest.fixture
def with_submodule(repo: Path, tmp_path: Path) -> Path:
    """A repository with an initialised submodule, and another submodule inside that."""
    for name in ("inner", "outer"):
        (tmp_path / name).mkdir()
        sh("git", "init", "-q", "-b", "main", cwd=tmp_path / name)
        (tmp_path / name / f"{name}.c").write_text(f"{name}\n")
        (tmp_path / name / ".gitignore").write_text("*.o\n")
    commit_all(tmp_path / "inner")
    local = ("-c", "protocol.file.allow=always", "submodule", "--quiet", "add")
    sh("git", *local, str(tmp_path / "inner"), "in side", cwd=tmp_path / "outer")
    commit_all(tmp_path / "outer")
    sh("git", *local, "--name", "other-name", str(tmp_path / "outer"), "vendor/sub", cwd=repo)
    sh("git", "-c", "protocol.file.allow=always", "submodule", "--quiet", "update", "--init", "--recursive", cwd=repo)
    commit_all(repo)
    for name in ("inner", "outer"):
        shutil.rmtree(tmp_path / name)  # whoever fetched would notice
    return repo


def test_an_initialised_submodule_comes_along_with_its_content(
    spaces: Workspaces, with_submodule: Path, kind: str
) -> None:
    one = make(spaces, with_submodule, kind=kind)
    before = one.checkpoint()
    assert (one.path / "vendor/sub" / "outer.c").read_text() == "outer\n"
    assert (one.path / "vendor/sub" / "in side" / "inner.c").read_text() == "inner\n"
    assert inside(one, "git", "status", "--porcelain") == ""
    (one.path / "vendor/sub" / "outer.c").write_text("changed\n")
    (one.path / "vendor/sub" / "in side" / "inner.c").unlink()
    (one.path / "vendor/sub" / "new.c").write_text("new\n")
    (one.path / "vendor/sub" / "out.o").write_text("built")
    after = one.checkpoint()
    assert one.changes(before, after) == ["vendor/sub/in side/inner.c", "vendor/sub/new.c", "vendor/sub/outer.c"]
    assert "+changed" in one.diff(before, after)
    one.reset(before)
    assert one.checkpoint() == before
    assert (one.path / "vendor/sub" / "outer.c").read_text() == "outer\n"
    assert not (one.path / "vendor/sub" / "new.c").exists()


def test_a_commit_leaves_a_submodule_where_it_was(spaces: Workspaces, with_submodule: Path, kind: str) -> None:
    one = make(spaces, with_submodule, kind=kind)
    parent = sh("git", "rev-parse", "HEAD", cwd=with_submodule)
    (one.path / "vendor" / "sub" / "outer.c").write_text("changed\n")
    (one.path / "src" / "app.py").write_text("VALUE = 5\n")
    commit = one.commit(tree=one.checkpoint(), message="change\n", parent=parent, at="2026-01-01T00:00:00Z")
    assert sh("git", "show", "--format=", "--name-only", commit, cwd=with_submodule) == "src/app.py"
    assert sh("git", "ls-tree", commit, "vendor/", cwd=with_submodule).startswith("160000 commit")


def test_changes_in_the_developers_submodule_are_laid_on_top_and_it_stays_a_repository(
    spaces: Workspaces, with_submodule: Path, kind: str
) -> None:
    (with_submodule / "vendor" / "sub" / "outer.c").write_text("mine\n")
    one = make(spaces, with_submodule, kind=kind)
    spaces.copy_uncommitted(one)
    assert (one.path / "vendor" / "sub" / "outer.c").read_text() == "mine\n"
    assert (one.path / "vendor" / "sub" / "in side" / "inner.c").read_text() == "inner\n"
    assert sh("git", "status", "--porcelain", cwd=with_submodule / "vendor" / "sub") == "M outer.c"


def test_destroying_leaves_the_branch_and_nothing_else(spaces: Workspaces, one: GitWorkspace, repo: Path) -> None:
    parts = [Path(part) for part in (one.record.path, one.record.layer) if part]
    (one.path / "src" / "locked").mkdir(mode=0o500)
    assert spaces.destroy("one")
    assert not spaces.destroy("one"), "what is gone stays gone, and that is success"
    assert not any(part.exists() for part in parts)
    assert sh("git", "worktree", "list", cwd=repo).count("\n") == 0
    assert sh("git", "branch", "--list", "ratchet/one", cwd=repo)
    assert spaces.records() == []


def test_made_again_it_stands_where_its_branch_stands(
    spaces: Workspaces, one: GitWorkspace, repo: Path, kind: str
) -> None:
    parent = sh("git", "rev-parse", "HEAD", cwd=repo)
    (one.path / "src" / "app.py").write_text("VALUE = 9\n")
    commit = one.commit(tree=one.checkpoint(), message="nine\n", parent=parent, at="2026-01-01T00:00:00Z")
    spaces.destroy("one")
    again = make(spaces, repo, kind=kind)
    assert again.tip() == commit
    assert (again.path / "src" / "app.py").read_text() == "VALUE = 9\n"


def test_what_is_opened_later_is_the_same_workspace(spaces: Workspaces, one: GitWorkspace) -> None:
    (one.path / "left").write_text("here")
    opened = Workspaces(spaces.root, bases=spaces.bases.root).open("one")
    assert opened.checkpoint() == one.checkpoint()
    record = opened.record
    assert record.id.startswith("ws-")
    assert record.boot_id
    assert [row.record for row in spaces.list()] == [record]
    assert spaces.list()[0].size_bytes > 0


def test_dependencies_of_the_developer_come_along_and_are_not_part_of_the_tree(
    spaces: Workspaces, repo: Path, kind: str
) -> None:
    (repo / "node_modules" / "left-pad").mkdir(parents=True)
    (repo / "node_modules" / "left-pad" / "index.js").write_text("pad")
    (repo / ".git" / "info" / "exclude").write_text(".env\n")
    (repo / ".env").write_text("KEY=1\n")
    one = make(spaces, repo, kind=kind, recipe=Recipe(carry=("node_modules", ".env")))
    before = one.checkpoint()
    one.reset(before)
    assert (one.path / ".env").read_text() == "KEY=1\n"
    assert (one.path / "node_modules" / "left-pad" / "index.js").read_text() == "pad"
    (one.path / "node_modules" / "left-pad" / "index.js").write_text("changed here only")
    assert one.checkpoint() == before
    assert (repo / "node_modules" / "left-pad" / "index.js").read_text() == "pad"


def test_a_version_that_was_written_when_the_project_was_installed_comes_along(
    spaces: Workspaces, repo: Path, kind: str
) -> None:
    (repo / "pyproject.toml").write_text('[tool.setuptools_scm]\nversion_file = "src/shop/_version.py"\n')
    (repo / ".gitignore").write_text("_version.py\n")
    commit_all(repo)
    (repo / "src" / "shop").mkdir(parents=True)
    (repo / "src" / "shop" / "_version.py").write_text("version = '1'\n")
    one = make(spaces, repo, kind=kind, recipe=Recipe(carry=tuple(paths_to_carry(repo, ()))))
    one.reset(one.checkpoint())
    assert (one.path / "src" / "shop" / "_version.py").read_text() == "version = '1'\n"
