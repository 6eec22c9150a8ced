"""What names a repository: a path here, a git URL, or `owner/name`. Nothing else, and nothing that git would obey."""

from __future__ import annotations

import re
from enum import StrEnum

REPO_MAX_CHARS = 1_000
BRANCH_MAX_CHARS = 200
FORGE = "https://github.com"


class RepoKind(StrEnum):
    PATH = "path"
    URL = "url"
    FORGE = "forge"  # owner/name


def repo_kind(repo: str) -> RepoKind:
    """Raises ValueError with the reason: `ext::…` would run a command, `-u…` would be an option, a password in a URL
    would be seen by everybody who sees the queue."""
    if not repo or len(repo) > REPO_MAX_CHARS or _UNPRINTABLE.search(repo):
        raise ValueError(f"a repository is named by 1 to {REPO_MAX_CHARS} printable characters")
    if repo.startswith("/"):
        if ".." in repo.split("/"):
            raise ValueError(f"{repo} leads upwards: write the path out")
        return RepoKind.PATH
    if _SECRET.match(repo):
        raise ValueError("a password in the address would be seen by all: let git's credential helper hold it")
    if _URL.fullmatch(repo) or _SCP.fullmatch(repo):
        return RepoKind.URL
    if _OWNED.fullmatch(repo) and ".." not in repo:
        return RepoKind.FORGE
    raise ValueError(f"{repo} is no absolute path, no git URL (https, ssh, git, file) and no owner/name")


def spelt(repo: str) -> str:
    """One spelling for each repository that is elsewhere: locks, limits and budgets are kept by its name."""
    if repo_kind(repo) is RepoKind.PATH:
        return repo
    name = repo.rstrip("/")
    owned = name.removeprefix(f"{FORGE}/").removesuffix(".git")
    return owned if name.startswith(f"{FORGE}/") and _OWNED.fullmatch(owned) else name


def address_of(repo: str) -> str:
    """What git fetches from."""
    return f"{FORGE}/{repo}.git" if repo_kind(repo) is RepoKind.FORGE else repo


def check_branch(name: str) -> str:
    """The rules of `git check-ref-format`, and no leading dash. Raises ValueError."""
    parts = name.split("/")
    bad = (
        not _BRANCH.fullmatch(name)
        or ".." in name
        or any(not part or part.startswith(".") or part.endswith((".", ".lock")) for part in parts)
    )
    if bad:
        raise ValueError(f"{name!r} is no branch name: letters, digits, `.`, `_`, `-` and `/`, at most 200 of them")
    return name


_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f]")
_SECRET = re.compile(r"[a-z+]+://[^/@]*:[^/@]*@")
_URL = re.compile(r"(https|http|ssh|git|file)://[^\s]+")
_SCP = re.compile(r"[A-Za-z0-9_.-]+@[A-Za-z0-9.-]+:(?!/?-)[A-Za-z0-9_./~-]+")
_OWNED = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]{0,38}/[A-Za-z0-9_][A-Za-z0-9._-]{0,99}")
_BRANCH = re.compile(rf"[A-Za-z0-9_][A-Za-z0-9._/-]{{0,{BRANCH_MAX_CHARS - 1}}}")
