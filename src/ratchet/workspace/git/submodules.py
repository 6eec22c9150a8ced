"""Check out submodules from what the source repository already has; nothing is fetched.

In a workspace a submodule is an ordinary folder, part of every checkpoint, reset and diff. A commit keeps its entry
unchanged: changes in it belong to another repository.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from ratchet import tree_files
from ratchet.core.snapshot import SUBMODULE
from ratchet.errors import GitFailed
from ratchet.tree_files import temporary_folder
from ratchet.workspace.git.command import git, git_text


def submodule_commits(git_dir: Path, commit: str) -> dict[str, str]:
    """Return the path of each submodule of a commit, and its pinned commit."""
    found = {}
    for row in git("ls-tree", "-r", "-z", "--full-tree", commit, env={"GIT_DIR": str(git_dir)}).split(b"\0"):
        if row.startswith(SUBMODULE.encode()):
            head, path = row.split(b"\t", 1)
            found[os.fsdecode(path)] = head.split()[2].decode()
    return found


def check_out_submodules(folder: Path, commit: str, *, root: Path, git_dir: Path) -> list[str]:
    """Check out every submodule of which the source has the commit, those inside it too; returns their paths."""
    brought = []
    pinned = submodule_commits(git_dir, commit)
    names = _names(git_dir, commit) if pinned else {}
    for path, wanted in pinned.items():
        module = _module(git_dir / "modules", names.get(path, path), root, path)
        if module and _has(module, wanted):
            _check_out(module, wanted, folder / path)
            below = check_out_submodules(folder / path, wanted, root=root / path, git_dir=module)
            brought += [path, *(f"{path}/{deeper}" for deeper in below)]
    return brought


def is_inside(path: bytes, submodules: Sequence[str]) -> bool:
    return any(path.startswith(os.fsencode(submodule) + b"/") for submodule in submodules)


def files_of(repository: Path) -> Iterator[bytes]:
    """Every file of a repository and of those inside it that is tracked or not ignored, relative to its top."""
    for path in git("ls-files", "-z", "--cached", "--others", "--exclude-standard", cwd=repository).split(b"\0"):
        deeper = repository / os.fsdecode(path.rstrip(b"/"))
        if path and os.path.lexists(deeper / ".git"):
            yield from (path.rstrip(b"/") + b"/" + below for below in files_of(deeper))
        elif path and not deeper.is_dir():
            yield path


def _names(git_dir: Path, commit: str) -> dict[str, str]:
    """Where `.gitmodules` says a submodule is, and the name git keeps it by."""
    asked = ("config", "-z", "--blob", f"{commit}:.gitmodules", "--get-regexp", r"^submodule\..*\.path$")
    with suppress(GitFailed):
        rows = git(*asked, env={"GIT_DIR": str(git_dir)}).split(b"\0")
        pairs = [os.fsdecode(row).split("\n", 1) for row in rows if row]
        return {path: key.removeprefix("submodule.").removesuffix(".path") for key, path in pairs}
    return {}


def _module(kept: Path, name: str, root: Path, path: str) -> Path | None:
    """Return the submodule's repository. Only one that git itself made there: git obeys its settings, which may name
    programs, and an agent or the author of a commit chooses names in `.gitmodules` and links in the tree."""
    if _is_plain(name) and (kept / name / "HEAD").is_file():
        return kept / name
    with suppress(GitFailed, OSError):
        if tree_files.is_source_folder(root, path) and os.path.lexists(root / path / ".git"):
            return Path(git_text("rev-parse", "--absolute-git-dir", cwd=root / path))
    return None


def _is_plain(name: str) -> bool:
    """Whether a submodule's name leads to no other place; git refuses the same names."""
    return not name.startswith("/") and not {"", ".", ".."} & set(re.split(r"[/\\]", name))


def _has(module: Path, commit: str) -> bool:
    try:
        git("cat-file", "-e", f"{commit}^{{commit}}", env={"GIT_DIR": str(module)})
    except GitFailed:
        return False
    return True


def _check_out(module: Path, commit: str, folder: Path) -> None:
    # Imported here: filters run in sandboxes, which need the names that trees leave out.
    from ratchet.workspace.git.filters import (  # noqa: PLC0415
        filter_programs,
        filtered_paths,
        lay_over,
        without_programs,
    )

    folder.mkdir(parents=True, exist_ok=True)
    with temporary_folder(".index-", within=folder.parent) as place:
        env = {"GIT_DIR": str(module), "GIT_WORK_TREE": str(folder), "GIT_INDEX_FILE": f"{place}/index"}
        git("read-tree", commit, cwd=folder, env=env)
        # A filter of the user's may be a script in the tree: it runs in a sandbox, on the paths that have one.
        programs = filter_programs(env)
        git(*without_programs(programs), "checkout-index", "--all", "--quiet", cwd=folder, env=env)
        paths = git("ls-files", "-z", cwd=folder, env=env).split(b"\0")[:-1] if programs else []
        filtered = filtered_paths(paths, programs, env=env, cwd=folder)
    if filtered:
        lay_over(folder, module, commit, [os.fsdecode(path) for path in filtered])
