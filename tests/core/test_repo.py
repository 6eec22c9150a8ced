"""Repository and branch names: how they are classified, and which are rejected."""

from __future__ import annotations

import pytest

from ratchet.core.repo import BRANCH_MAX_CHARS, RepoKind, canonical_name, check_branch, clone_url, repo_kind


@pytest.mark.parametrize(
    ("repo", "kind"),
    [
        ("/srv/project", RepoKind.PATH),
        ("https://host/owner/r.git", RepoKind.URL),
        ("ssh://git@host/r", RepoKind.URL),
        ("file:///srv/r", RepoKind.URL),
        ("git@host:owner/r.git", RepoKind.URL),
        ("owner/name", RepoKind.FORGE),
    ],
)
def test_a_repository_is_a_path_a_url_or_an_owner_and_a_name(repo: str, kind: RepoKind) -> None:
    assert repo_kind(repo) is kind


@pytest.mark.parametrize(
    "repo",
    ["", "name", "./here", "a/b/c", "-u/x", "--upload-pack=x", "ext::sh -c x", "https://u:p@host/r", "/a/../b",
     "owner/..", "a\nb/c", "git@host:-oProxy", "x" * 1_001],
)  # fmt: skip
def test_any_other_name_is_rejected(repo: str) -> None:
    with pytest.raises(ValueError):
        repo_kind(repo)


@pytest.mark.parametrize("name", ["", "-x", "a..b", "a/", "/a", "a//b", "a.lock", "a/.b", "a b", "a~1", "a:b", "a@{1}"])
def test_branches_are_named_as_git_names_them(name: str) -> None:
    assert check_branch("feature/a-1") == "feature/a-1"
    with pytest.raises(ValueError):
        check_branch(name)


def test_an_owner_and_a_name_are_cloned_from_the_forge() -> None:
    assert clone_url("owner/name") == "https://github.com/owner/name.git"


def test_the_longest_names_are_accepted() -> None:
    assert repo_kind("/" + "x" * 999) is RepoKind.PATH
    assert check_branch("x" * BRANCH_MAX_CHARS)
    with pytest.raises(ValueError, match="up to 200"):
        check_branch("x" * (BRANCH_MAX_CHARS + 1))


@pytest.mark.parametrize(
    ("repo", "name"),
    [
        ("/srv/project/", "/srv/project/"),
        ("owner/name", "owner/name"),
        ("https://github.com/owner/name.git", "owner/name"),
        ("https://github.com/owner/name/", "owner/name"),
        ("https://github.com/owner/name/extra", "https://github.com/owner/name/extra"),
        ("https://host/owner/name.git/", "https://host/owner/name.git"),
        ("git@github.com:owner/name.git", "git@github.com:owner/name.git"),
    ],
)
def test_a_repository_of_the_forge_has_one_canonical_name(repo: str, name: str) -> None:
    assert canonical_name(repo) == name
