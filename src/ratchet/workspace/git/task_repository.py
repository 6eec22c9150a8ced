"""Repositories for the tasks of a backtest: the history up to one commit, and nothing of what came later."""

from __future__ import annotations

from pathlib import Path

import msgspec

from ratchet.tree_files import remove_folder
from ratchet.workspace.git.command import git, git_text
from ratchet.workspace.git.filters import filter_programs, without_programs

_UPLOAD = "git -c uploadpack.allowAnySHA1InWant=true upload-pack"


class Commit(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    parents: list[str]
    created_at: str
    message: str


def create_repository_at(source: Path, commit: str, place: Path) -> None:
    """Create a repository that holds a commit and its history, under a temporary name first.

    Only that commit is fetched, as from a server: no later object, ref, tag, reflog, alternate or address of the source
    comes with it.
    """
    half = place.with_name(f".{place.name}.half")
    remove_folder(half)
    git("init", "--quiet", "--initial-branch=main", str(half))
    address = f"file://{source.resolve()}"
    git("fetch", "--quiet", "--no-tags", "--no-write-fetch-head", f"--upload-pack={_UPLOAD}", address, commit, cwd=half)
    git("update-ref", "refs/heads/main", commit, cwd=half)
    git(*without_programs(filter_programs({}, cwd=half)), "reset", "--quiet", "--hard", cwd=half)
    half.rename(place)


def last_commits(repo: Path, count: int) -> list[Commit]:
    """Return the last commits of the current branch, newest first."""
    out = git("log", "-z", f"--max-count={count}", "--format=%H%n%P%n%cI%n%B", "HEAD", "--", cwd=repo)
    rows = (row.split("\n", 3) for row in out.decode(errors="replace").split("\0") if row.strip())
    return [Commit(id=row[0], parents=row[1].split(), created_at=row[2], message=row[3]) for row in rows]


def content_at(repo: Path, commit: str, path: str) -> bytes | None:
    """Return a file of a commit; None where it does not exist or is no file."""
    entry = git("ls-tree", "-z", commit, "--", f":(top,literal){path}", cwd=repo)
    mode, _, rest = entry.decode(errors="surrogateescape").partition(" ")
    if mode not in ("100644", "100755"):
        return None
    return git("cat-file", "blob", rest.split()[1], cwd=repo)


def patch_between(repo: Path, before: str, after: str, paths: list[str]) -> str:
    """Return the difference of two commits in these paths, as `git apply` takes it."""
    if not paths:
        return ""
    named = [f":(top,literal){path}" for path in paths]
    out = git(
        "diff", "--no-ext-diff", "--no-textconv", "--no-renames", "--binary", "--full-index", before, after,
        "--", *named, cwd=repo,
    )  # fmt: skip
    return out.decode(errors="replace")


def changed_between(repo: Path, before: str, after: str) -> list[str]:
    out = git("diff", "--name-only", "--no-renames", "-z", before, after, cwd=repo)
    return [path.decode(errors="surrogateescape") for path in out.split(b"\0") if path]


def origin_name(repo: Path) -> str:
    """Return `owner/name` from the address of the origin, else the folder's name."""
    address = git_text("config", "--default=", "--get", "remote.origin.url", cwd=repo).removesuffix(".git").rstrip("/")
    words = [word for word in address.replace(":", "/").split("/") if word]
    is_remote = "://" in address or "@" in address
    return "/".join(words[-2:]) if is_remote and len(words) > 1 else repo.resolve().name
