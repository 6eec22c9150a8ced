"""Find or fetch the repository of a run."""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec

from ratchet.core import trailers
from ratchet.core.lines import split_lines
from ratchet.core.repo import RepoKind, canonical_name, clone_url, repo_kind
from ratchet.errors import DiskFull, EnvironmentCannot, GitFailed, UntrustedRepository, UsageError
from ratchet.files import FETCHED, STATE_DIR, make_private_dir, make_state_dir
from ratchet.process.spawn import check_stopped
from ratchet.tree_files import remove_folder
from ratchet.workspace.git.command import IDENTITY, git, git_read_only, git_text
from ratchet.workspace.git.filters import filter_programs, without_programs

# A server that sends nothing is given up. One that sends slowly may take longer than its caller can wait.
SILENCE_S, FETCH_S = 60.0, 1800.0
LISTING_MAX_BYTES = 256 << 20  # the names of a few million files
_LOOK_S = 0.1
# `ext::` addresses run commands: never allowed for an address from the queue.
_SAFE = ("-c", "protocol.allow=never", *(
    word for name in ("https", "http", "ssh", "git", "file") for word in ("-c", f"protocol.{name}.allow=always")
))  # fmt: skip


class Repository(msgspec.Struct, frozen=True, kw_only=True):
    root: Path
    head: str

    @property
    def dirty(self) -> bool:
        """Whether there are uncommitted changes. Slow: checks every file."""
        return bool(git_read_only("status", "--porcelain", "--untracked-files=normal", cwd=self.root).strip())

    @property
    def state(self) -> Path:
        return make_state_dir(self.root)


def find_repository(start: Path) -> Repository:
    """Return the repository that a folder is in. Raises UsageError, also if it brought our state folder along."""
    if not start.exists():
        raise UsageError(f"{start} does not exist", hint="name a folder in a git repository")
    if not os.access(start, os.R_OK | os.X_OK):
        raise UsageError(f"{start} is not readable", hint="check its permissions")
    found = _find(start)
    check_state_dir(found.root)
    return found


def check_state_dir(root: Path) -> None:
    """Raise UsageError if the `.ratchet` of a repository is a link, or has more in its commits than prompts.

    The folder is obeyed: its tree store has settings of git, which name programs, and a link would be written through.
    """
    folder = root / STATE_DIR
    if folder.is_symlink():
        raise UsageError(f"{folder} is a link: Ratchet keeps its state in it", hint=f"remove it: rm {folder}")
    if not folder.exists():
        return
    rows = git("ls-files", "-z", "--stage", "--", f":(top,icase){STATE_DIR}", cwd=root).decode(errors="replace")
    tracked = [(row[:6], row.partition("\t")[2]) for row in rows.split("\0") if row]
    wrong = [path for mode, path in tracked if mode not in _FILES or not _COMMITTED.fullmatch(path)]
    if wrong:
        raise UsageError(
            f"{wrong[0]} of {root} is part of its commits, where only {STATE_DIR}/prompts may be",
            hint=f"git rm -r --cached {STATE_DIR} && rm -r {STATE_DIR}, then commit; first see who added it",
        )


_FILES = ("100644", "100755")
_COMMITTED = re.compile(rf"{re.escape(STATE_DIR)}/(?:\.gitignore|prompts/.+)", re.DOTALL)


def _find(start: Path) -> Repository:
    with suppress(GitFailed, ValueError):
        root, head = split_lines(git_text("rev-parse", "--show-toplevel", "HEAD^{commit}", cwd=start))
        return Repository(root=Path(root), head=head)
    return _find_in_words(start)


def _find_in_words(start: Path) -> Repository:
    """Find the repository step by step, for a precise error message."""
    try:
        root = Path(git_text("rev-parse", "--show-toplevel", cwd=start))
    except UntrustedRepository:
        raise
    except GitFailed as error:
        raise UsageError(f"{start} is not in a git repository", hint=init_hint(start)) from error
    try:
        head = git_text("rev-parse", "--verify", "HEAD^{commit}", cwd=root)
    except GitFailed as error:
        raise UsageError(
            f"{root} has no commit yet, so there is nothing to start from",
            hint=init_hint(root, of="git add -A && git commit -m start"),
        ) from error
    return Repository(root=root, head=head)


def init_hint(folder: Path, *, of: str = "git init && git add -A && git commit -m start") -> str:
    """Return how to make a repository; never in a home folder or above, where `git add -A` would take everything."""
    home = Path(os.environ.get("HOME") or "/").absolute()
    if folder.absolute() in (home, *home.parents):
        return "cd into a project first, or name one with -C DIR"
    return f"if {folder} is a project: {of}"


def clone_path(repo: str, *, clones: Path) -> Path:
    """Where a repository is, or will be once `resolve` has fetched it. Raises UsageError."""
    try:
        kind = repo_kind(repo)
    except ValueError as error:
        raise UsageError(str(error), hint="an absolute path, a git URL or owner/name") from error
    if kind is RepoKind.PATH:
        return Path(repo)
    name = repo.rstrip("/").removesuffix(".git").rpartition("/")[2].rpartition(":")[2]
    return clones / f"{name}-{hashlib.sha256(clone_url(repo).encode()).hexdigest()[:12]}"


def fetch_repository(repo: str, *, clones: Path, timeout_s: float = FETCH_S) -> Path:
    """The repository on this machine: a path as it is, anything else cloned once and fetched from then on.

    A clone follows its origin: its branch stands where the origin's does. Many processes may ask at once.
    """
    place = clone_path(repo, clones=clones)
    if repo_kind(repo) is RepoKind.PATH:
        return find_repository(place).root
    try:
        with _alone(place):
            if (place / ".git").is_dir():
                _mark_fetched(place)
                _fetch(place, timeout_s)
            else:
                _clone(clone_url(repo), place, timeout_s)
        check_state_dir(place)
    except DiskFull:
        raise
    except EnvironmentCannot as error:
        raise EnvironmentCannot(
            f"{repo} cannot be fetched: {error.message}", hint=f"try it by hand: git ls-remote {clone_url(repo)}"
        ) from error
    return place


def available_repository(repo: str, *, clones: Path, commit: str = "") -> Path:
    """Return where a repository is on this machine. One of elsewhere is fetched if it, or the commit, is not here."""
    place = clone_path(repo, clones=clones)
    is_here = (place / ".git").is_dir() and (not commit or commit_of(place, commit) is not None)
    if repo_kind(repo) is RepoKind.PATH:
        return place
    if not is_here:
        return fetch_repository(repo, clones=clones)
    _mark_fetched(place)
    return place


def _mark_fetched(place: Path) -> None:
    """Note that a clone is not a person's checkout: its settings decide nothing about this machine."""
    (place / ".git" / FETCHED).touch()


@contextmanager
def _alone(place: Path) -> Iterator[None]:
    handle = os.open(
        make_private_dir(place.parent) / f".{place.name}.lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600
    )
    try:
        while not _is_locked(handle):
            check_stopped()
            time.sleep(_LOOK_S)
        yield
    finally:
        os.close(handle)


def _is_locked(handle: int) -> bool:
    with suppress(BlockingIOError):
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    return False


def _ask_server(*args: str, cwd: Path | None = None, address: str = "", timeout_s: float = FETCH_S) -> bytes:
    """Run a git command that talks to the server of an address, or of a clone's origin."""
    address = address or git_text("config", "--get", "remote.origin.url", cwd=cwd)
    # Git starts the programs of `file:` here, with the settings and hooks of a repository that may be anybody's.
    ends = [("uploadpack", "upload-pack"), ("receivepack", "receive-pack")] if address.startswith("file:") else []
    local = [word for key, verb in ends for word in ("-c", f"remote.origin.{key}={_LOCAL} {verb}")]
    return git(*_SAFE, *local, *args, cwd=cwd, timeout_s=timeout_s, silence_s=SILENCE_S)


_LOCAL = "GIT_NO_LAZY_FETCH=1 git " + " ".join(
    f"-c {setting}"
    for setting in ("core.hooksPath=/dev/null", "core.fsmonitor=false", "core.alternateRefsCommand=true",
                    "receive.autogc=false", "receive.denyCurrentBranch=refuse", "receive.denyDeleteCurrent=refuse")
)  # fmt: skip


def _clone(address: str, place: Path, timeout_s: float) -> None:
    """Clone under a temporary name, then rename: an interrupted clone is never taken for a repository."""
    how = ("--quiet", "--progress", "--no-hardlinks", "--no-checkout", "--template=")
    half = place.with_name(f".{place.name}.half")
    remove_folder(half)
    _ask_server("clone", *how, "--", address, str(half), address=address, timeout_s=timeout_s)
    _mark_fetched(half)
    if commit_of(half, "HEAD"):
        _check_out(half, "HEAD")
    half.rename(place)


def _fetch(place: Path, timeout_s: float) -> None:
    everything = ("--quiet", "--progress", "--prune", "--tags", "--force")
    _ask_server("fetch", *everything, "origin", cwd=place, timeout_s=timeout_s)
    _ask_server("remote", "set-head", "origin", "--auto", cwd=place, timeout_s=timeout_s)
    _check_out(place, "refs/remotes/origin/HEAD")


def _check_out(place: Path, commit: str) -> None:
    """Put a commit's files into a clone as they were committed: filters run when a base is made, in a sandbox.

    A filter may be a script of the repository, or wait for a server that its author named.
    """
    _check_size(place, commit)
    git(*without_programs(filter_programs({}, cwd=place)), "reset", "--quiet", "--hard", commit, cwd=place)


def _check_size(place: Path, commit: str) -> None:
    """Refuse a commit that a checkout would not end for: few objects can name billions of files."""
    rows = git("ls-tree", "-r", "-z", "-l", commit, cwd=place, output_max_bytes=LISTING_MAX_BYTES).split(b"\0")
    size = sum(int(found) for row in rows if (found := row[:80].split(b"\t")[0].rpartition(b" ")[2]).isdigit())
    if size > (free := shutil.disk_usage(place).free):
        raise DiskFull(f"its files have {size >> 20} MiB, and {free >> 20} MiB are free at {place}")


def origin_of(root: Path) -> str:
    """Return the name by which items name the origin of a checkout; empty if it has none."""
    try:
        return canonical_name(git_text("config", "--get", "remote.origin.url", cwd=root).strip())
    except (GitFailed, ValueError):
        return ""


def remote_branch(root: Path, branch: str) -> str:
    """Return the commit that a branch of the origin has now; empty if there is no such branch."""
    return _ask_server("ls-remote", "--refs", "origin", f"refs/heads/{branch}", cwd=root).decode().partition("\t")[0]


def publish_branch(root: Path, branch: str, commit: str, *, instead_of: str) -> bool:
    """Push a commit to a branch of the origin that still has the commit seen there; returns whether it had."""
    ref = f"refs/heads/{branch}"
    lease = f"--force-with-lease={ref}:{instead_of}"
    try:
        _ask_server("push", "--quiet", "--progress", lease, "origin", f"{commit}:{ref}", cwd=root)
    except GitFailed:
        if remote_branch(root, branch) == instead_of:
            raise
        return False
    return True


def is_made_by_ratchet(commit: str, git_dir: Path) -> bool:
    """Whether a worker of ours has made a commit of a run, and not a person."""
    shown = git("show", "-s", "--format=%ce%n%B", commit, env={"GIT_DIR": str(git_dir)})
    email, _, body = shown.decode(errors="replace").partition("\n")
    return email == IDENTITY["EMAIL"] and bool(trailers.run_of(body))


def fetch_branch(root: Path, branch: str) -> None:
    """Fetch a branch of the origin, without a reference to it."""
    how = ("--quiet", "--progress", "--no-tags", "--no-write-fetch-head")
    _ask_server("fetch", *how, "origin", f"refs/heads/{branch}", cwd=root)


def commit_of(repo: Path, name: str) -> str | None:
    try:
        return git_text("rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}", cwd=repo)
    except GitFailed:
        return None


def message_of(repo: Path, commit: str) -> str:
    return git("show", "-s", "--format=%B", commit, cwd=repo).decode(errors="replace")


def messages_with(repo: Path, line: str, *, since: str) -> dict[str, str]:
    """Return the messages of commits on branches that contain a line, by commit; not of `since` and earlier.

    Branches of remotes count: a run of another host is on its origin's branch only.
    """
    branches = ["--branches", "--remotes"]
    how = [*branches, "--not", since, "--"] if since and commit_of(repo, since) else [*branches, "--"]
    out = git("log", "-z", "--format=%H%n%B", "--fixed-strings", f"--grep={line}", *how, cwd=repo)
    rows = (row.partition("\n") for row in out.decode(errors="replace").split("\0") if row)
    return {commit: message for commit, _, message in rows}


def git_dir_of(repo: Path) -> Path:
    """Return the directory with the repository's objects and branches."""
    return Path(git_text("rev-parse", "--path-format=absolute", "--git-common-dir", cwd=repo))


def parent_of(repo: Path, commit: str) -> str | None:
    return commit_of(repo, f"{commit}^")


def changed_paths(repo: Path, commit: str) -> list[str]:
    out = git("diff-tree", "-r", "-z", "--name-only", "--no-renames", "--no-commit-id", commit, cwd=repo)
    return [path.decode(errors="surrogateescape") for path in out.split(b"\0") if path]


def changes_of(repo: Path, commit: str) -> bytes:
    """Return the changed paths of a commit, each with its modes and contents before and after."""
    return git("diff-tree", "-r", "-z", "--full-index", "--no-renames", "--no-commit-id", commit, cwd=repo)


def branches(repo: Path, *, holding: str = "") -> list[str]:
    """Return all branches, or those that hold a commit, also of remotes, by their full names."""
    only = [f"--contains={holding}"] if holding else []
    names = ["refs/heads", "refs/remotes"]
    return git_text("for-each-ref", "--format=%(refname)", *only, *names, cwd=repo).split()


def mentions(repo: Path, commit: str, words: str) -> bool:
    """Whether a tracked text file of the commit contains the words."""
    return bool(git("grep", "-I", "-l", "-F", "--max-count=1", "-e", words, commit, cwd=repo, ok=(0, 1)))


def diff(repo: Path, before: str, after: str) -> str:
    return git("diff", "--no-ext-diff", "--no-textconv", f"{before}..{after}", cwd=repo).decode(errors="replace")
