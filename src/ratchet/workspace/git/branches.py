"""Read, create and delete branches without starting git, which takes ten times as long."""

from __future__ import annotations

import os
import time
from contextlib import suppress

from ratchet.errors import UsageError
from ratchet.workspace.git.command import git

LOCKED_S = 1.0


def branch_tip(git_dir: str, ref: str) -> str:
    """Return the commit of a branch; empty when there is none."""
    if os.path.isdir(f"{git_dir}/reftable"):
        return git("for-each-ref", "--format=%(objectname)", ref, env={"GIT_DIR": git_dir}).decode().strip()
    try:
        with open(f"{git_dir}/{ref}") as file:
            return file.read().strip()
    except (FileNotFoundError, NotADirectoryError):
        return _packed_tip(git_dir, ref)


def _packed_tip(git_dir: str, ref: str) -> str:
    try:
        with open(f"{git_dir}/packed-refs", "rb") as file:
            packed = file.read()
    except FileNotFoundError:
        return ""
    end = packed.find(f" {ref}\n".encode())
    return packed[packed.rfind(b"\n", 0, end) + 1 : end].decode() if end >= 0 else ""


def create_branch(git_dir: str, ref: str, commit: str) -> None:
    """Create a branch as git does: write a lock file and rename it."""
    if os.path.isdir(f"{git_dir}/reftable"):
        git("update-ref", ref, commit, "", env={"GIT_DIR": git_dir})
        return
    path = f"{git_dir}/{ref}"
    try:
        handle = _open_lock(f"{path}.lock")
    except FileExistsError:  # a stale lock, or git is writing: git can wait
        remove_stale_lock(git_dir, ref)
        git("update-ref", ref, commit, env={"GIT_DIR": git_dir, "GIT_TRACE2": "0"})
        return
    except NotADirectoryError as error:
        raise UsageError(
            f"a branch named {ref.split('/')[2]} is in the way of {ref}", hint="git branch -m ratchet another-name"
        ) from error
    try:
        os.write(handle, f"{commit}\n".encode())
        os.rename(f"{path}.lock", path)
    except BaseException:
        os.unlink(f"{path}.lock")
        raise
    finally:
        os.close(handle)


def _open_lock(path: str) -> int:
    how = os.O_WRONLY | os.O_CREAT | os.O_EXCL
    try:
        return os.open(path, how, 0o644)
    except FileNotFoundError:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        return os.open(path, how, 0o644)


def delete_branch(git_dir: str, ref: str) -> None:
    """Delete a branch; success if there is none. A killed git could leave packed-refs locked, so git is avoided."""
    if not branch_tip(git_dir, ref):
        return
    remove_stale_lock(git_dir, ref)
    if os.path.isdir(f"{git_dir}/reftable") or _packed_tip(git_dir, ref):
        git("update-ref", "-d", ref, env={"GIT_DIR": git_dir})
        return
    for path in (f"{git_dir}/{ref}", f"{git_dir}/logs/{ref}"):
        with suppress(FileNotFoundError):
            os.unlink(path)


def remove_stale_lock(git_dir: str, ref: str) -> None:
    """Remove the lock that a killed git left on a branch of ours.

    Git holds a lock for milliseconds, and only we move this branch: a lock unchanged for a second has no owner.
    """
    lock = f"{git_dir}/{ref}.lock"
    deadline, first = time.monotonic() + LOCKED_S, _made(lock)
    while first and time.monotonic() < deadline and time.time() - first[1] < LOCKED_S and _made(lock) == first:
        time.sleep(0.02)
    if first and _made(lock) == first:
        with suppress(FileNotFoundError):
            os.unlink(lock)


def _made(path: str) -> tuple[int, float] | None:
    try:
        found = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return found.st_ino, found.st_mtime
