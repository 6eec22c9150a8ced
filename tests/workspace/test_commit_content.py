"""What is tested is what lands: a checkout of a commit gives the judged tree, byte for byte, with nothing missing."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ratchet.errors import CommitDiffers, GitStalled
from ratchet.workspace.git import trees
from ratchet.workspace.git.refused_names import is_refused_name
from ratchet.workspace.git_workspace import GitWorkspace
from ratchet.workspace.registry import Workspaces
from tests.workspace.conftest import KINDS, make, sh

AT = "2026-01-01T00:00:00Z"
REFUSED = [".GIT", "git~1", ".git ", ".git.", ".git::$INDEX_ALLOCATION", ".g\u200cit", "a\\.git", "\ufeff.giT"]
HONEST = [".github", ".gitignore", ".gitmodules", "git", "legit", ".git-blame-ignore-revs", "git~", "a.git", ".gitkeep"]


@pytest.fixture(params=[kind for kind in KINDS if kind in ("overlay-disk", "overlay-userns", "copy", "worktree")])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def one(spaces: Workspaces, repo: Path, kind: str) -> GitWorkspace:
    return make(spaces, repo, kind=kind)


def commit_of(one: GitWorkspace, repo: Path) -> tuple[str, str]:
    tree = one.settle()
    return tree, one.commit(tree=tree, message="two\n", parent=sh("git", "rev-parse", "HEAD", cwd=repo), at=AT)


def cloned(repo: Path, commit: str, into: Path) -> Path:
    sh("git", "clone", "-q", "--no-local", "--no-checkout", str(repo), str(into), cwd=repo)
    sh("git", "fetch", "-q", "origin", commit, cwd=into)
    sh("git", "checkout", "-q", commit, cwd=into)
    return into


@pytest.mark.parametrize(
    ("attributes", "before"),
    [
        ("src/app.py text\n", b"VALUE = 2\r\n"),
        ("src/app.py text eol=crlf\n", b"VALUE = 2\n"),
        ("*.py ident\n", b"# $Id$\n"),
        ("*.py ident\n", b"# $Id: forged $\n"),
        ("*.py working-tree-encoding=UTF-16\n", b"\xfe\xff" + "# é\n".encode("utf-16-be")),
        ("*.py text=auto\n", b"VALUE = 2\r\n"),
        ("*.txt eol=crlf\n", b"VALUE = 2\n"),
        ("*.py -text export-ignore export-subst\n", b"# $Format:%H$\r\n"),
    ],
)
def test_what_is_settled_is_what_a_clone_has(
    one: GitWorkspace, repo: Path, tmp_path: Path, attributes: str, before: bytes
) -> None:
    (one.path / ".gitattributes").write_text(attributes)
    (one.path / "src" / "app.py").write_bytes(before)
    tree, commit = commit_of(one, repo)
    clone = cloned(repo, commit, tmp_path / "clone")
    for path in sh("git", "ls-files", "-z", cwd=clone).strip("\0").split("\0"):
        there = os.fsencode(path)
        if not (clone / path).is_symlink():
            assert one.read(tree, os.fsdecode(there)) == (clone / path).read_bytes(), path
    assert one.settle() == tree, "settled once"
    assert one.differing_paths(commit, tree) == []


def test_a_commit_that_a_checkout_would_change_is_refused(one: GitWorkspace, repo: Path) -> None:
    parent = sh("git", "rev-parse", "HEAD", cwd=repo)
    (one.path / ".gitattributes").write_text("src/app.py text\n")
    (one.path / "src" / "app.py").write_bytes(b"VALUE = 2\r\n")
    tree = one.checkpoint()
    with pytest.raises(CommitDiffers, match=r"src/app\.py"):
        one.commit(tree=tree, message="two\n", parent=parent, at=AT)
    assert one.tip() == parent


def test_new_attributes_are_applied_to_files_that_did_not_change(one: GitWorkspace, repo: Path) -> None:
    (one.path / ".gitattributes").write_text("crlf.txt text eol=crlf\nsrc/app.py text eol=crlf\n")
    tree, commit = commit_of(one, repo)
    assert one.read(tree, "src/app.py") == b"VALUE = 1\r\n"
    assert one.differing_paths(commit, tree) == []


@pytest.mark.parametrize("name", REFUSED)
def test_git_refuses_these_names_and_so_do_we(repo: Path, name: str) -> None:
    assert is_refused_name(name, is_link=False)
    index = f"GIT_INDEX_FILE={repo}/index"
    sh("env", index, "git", "-c", "core.protectHFS=true", "-c", "core.protectNTFS=true", "update-index", "--add",
       "--cacheinfo", f"100644,{sh('git', 'hash-object', '-w', 'link', cwd=repo)},ok", cwd=repo)  # fmt: skip
    with pytest.raises(AssertionError):
        sh("env", index, "git", "-c", "core.protectHFS=true", "-c", "core.protectNTFS=true", "update-index", "--add",
           "--cacheinfo", f"100644,{sh('git', 'hash-object', 'link', cwd=repo)},{name}/k", cwd=repo)  # fmt: skip


def test_honest_names_are_not_refused() -> None:
    assert [name for name in HONEST if is_refused_name(name, is_link=False)] == []
    assert is_refused_name(".gitmodules", is_link=True)


def test_names_that_git_refuses_are_removed_and_a_reset_works(one: GitWorkspace) -> None:
    before = one.checkpoint()
    for folder in ("", "src/", "new\nline/"):
        for name in REFUSED:
            (one.path / folder / name).mkdir(parents=True)
            (one.path / folder / name / "k.py").write_text("F = 1\n")
    removed = one.remove_refused()
    assert len(removed) == 3 * len(REFUSED)
    assert one.checkpoint() == before
    (one.path / ".GIT").mkdir()
    (one.path / ".GIT" / "config").write_text("[core]\n")
    assert one.checkpoint() == before
    (one.path / "src" / ".GIT").symlink_to("app.py")
    one.reset(before)
    assert not os.path.lexists(one.path / "src" / ".GIT")


@pytest.mark.parametrize("rules", [".gitignore", ".gitattributes"])
def test_patterns_that_stall_git_end_in_time_and_a_reset_does_not_need_them(
    one: GitWorkspace, monkeypatch: pytest.MonkeyPatch, rules: str
) -> None:
    before = one.checkpoint()
    monkeypatch.setattr(trees, "AGENT_S", 1.0)
    monkeypatch.setattr("ratchet.workspace.git.commit_content.AGENT_S", 1.0)
    monkeypatch.setattr("ratchet.workspace.git.commit_tree.AGENT_S", 1.0)
    (one.path / rules).write_text("d/" + "*a" * 16 + ("/b\n" if rules == ".gitignore" else "/b text\n"))
    deep = one.path / "d" / ("a" * 150)
    deep.mkdir(parents=True)
    (deep / "c").write_text("x")
    with pytest.raises(GitStalled):
        one.settle()
    one.reset(before)
    assert one.checkpoint() == before
    assert not (one.path / "d").exists()


def test_what_is_put_into_the_folder_of_a_submodule_does_not_outlive_a_reset(one: GitWorkspace, repo: Path) -> None:
    before = one.checkpoint()
    nested = one.path / "sub"
    nested.mkdir()
    sh("git", "init", "-q", ".", cwd=nested)
    (nested / "k.py").write_text("F = 1\n")
    tree, commit = commit_of(one, repo)
    assert one.changes(before, tree) == ["sub/k.py"]
    assert sh("git", "ls-tree", "-r", commit, "sub", cwd=repo).startswith("100644 blob"), "its files, and no entry"
    one.reset(before)
    assert not nested.exists()


def test_a_filter_that_strips_is_applied_before_the_tests(one: GitWorkspace, repo: Path) -> None:
    sh("git", "config", "filter.strip.clean", "sed s/secret//", cwd=repo)
    (one.path / ".gitattributes").write_text("crlf.txt text eol=crlf\n*.strip filter=strip\n")
    (one.path / "data.strip").write_text("a secret b\n")
    tree, commit = commit_of(one, repo)
    assert one.read(tree, "data.strip") == b"a  b\n"
    assert one.differing_paths(commit, tree) == []
