"""Repository names: a local path, a git URL or `owner/name`. Rejects anything that git would interpret as a command."""

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
    """Classify a repository name. Raises ValueError with the reason: `ext::…` would run a command, `-u…` would be an
    option, and a password in a URL would be visible in the queue."""
    if not repo or len(repo) > REPO_MAX_CHARS or _UNPRINTABLE.search(repo):
        raise ValueError(f"a repository name must have 1 to {REPO_MAX_CHARS} printable characters")
    if repo.startswith("/"):
        if ".." in repo.split("/"):
            raise ValueError(f"the path {repo} contains `..`: write it without")
        return RepoKind.PATH
    if _SECRET.match(repo):
        raise ValueError("the address contains a password, which everyone could see: use a git credential helper")
    if _URL.fullmatch(repo) or _SCP.fullmatch(repo):
        return RepoKind.URL
    if _OWNED.fullmatch(repo) and ".." not in repo:
        return RepoKind.FORGE
    raise ValueError(f"{repo} is not an absolute path, a git URL (https, ssh, git, file) or owner/name")


def canonical_name(repo: str) -> str:
    """Return one canonical name per remote repository: locks, limits and budgets are keyed by it."""
    if repo_kind(repo) is RepoKind.PATH:
        return repo
    name = repo.rstrip("/")
    owned = name.removeprefix(f"{FORGE}/").removesuffix(".git")
    return owned if name.startswith(f"{FORGE}/") and _OWNED.fullmatch(owned) else name


def clone_url(repo: str) -> str:
    """Return the URL or path that git fetches from."""
    return f"{FORGE}/{repo}.git" if repo_kind(repo) is RepoKind.FORGE else repo


def server_of(repo: str) -> str:
    """Return the server and port of a repository's address; empty for one on this machine."""
    address = clone_url(repo)
    path = address.partition("://")[2] if "://" in address else address.replace(":", "/", 1)
    return path.partition("/")[0].rpartition("@")[2].lower()


def check_branch(name: str) -> str:
    """Check a branch name by the rules of `git check-ref-format`, without a leading dash. Raises ValueError."""
    parts = name.split("/")
    bad = (
        not _BRANCH.fullmatch(name)
        or ".." in name
        or any(not part or part.startswith(".") or part.endswith((".", ".lock")) for part in parts)
    )
    if bad:
        raise ValueError(f"invalid branch name {name!r}: use up to 200 letters, digits, `.`, `_`, `-` and `/`")
    return name


_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f]")
_SECRET = re.compile(r"[a-z+]+://[^/@]*:[^/@]*@")
_URL = re.compile(r"(https|http|ssh|git|file)://[^\s]+")
_SCP = re.compile(r"[A-Za-z0-9_.-]+@[A-Za-z0-9.-]+:(?!/?-)[A-Za-z0-9_./~-]+")
_OWNED = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]{0,38}/[A-Za-z0-9_][A-Za-z0-9._-]{0,99}")
_BRANCH = re.compile(rf"[A-Za-z0-9_][A-Za-z0-9._/-]{{0,{BRANCH_MAX_CHARS - 1}}}")
