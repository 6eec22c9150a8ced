"""The filter programs of a project (LFS, strippers): run them only in a sandbox, on content that an agent may write.

A filter is named by the user's settings, but what it runs may be a script in the tree. Git itself is always started
without the programs; the paths that have a filter are then cleaned or checked out by git inside a sandbox.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from ratchet import tree_files
from ratchet.errors import GitFailed
from ratchet.process.spawn import path_in_namespace
from ratchet.tree_files import temporary_folder
from ratchet.workspace.git.command import git
from ratchet.workspace.sandbox import run_contained

_PROGRAM = r"^filter\..*\.(clean|smudge|process|required)$"
_KINDS = ("clean", "smudge", "process", "required")
_CLEAN = 'for path; do git hash-object -w --path="$path" --stdin < "$CONTENT/$((i=i+1))" || exit; done'
_AT_ONCE = 200
_TIMEOUT_S = 600.0
_LFS_ID = re.compile(r"[0-9a-f]{64}")


def filter_programs(env: Mapping[str, str], cwd: Path | None = None) -> dict[str, str]:
    """Return the settings `filter.NAME.clean` and so on of a repository that is named by GIT_DIR or a folder."""
    rows = git("config", "-z", "--get-regexp", _PROGRAM, cwd=cwd, env=env, ok=(0, 1)).decode(errors="replace")
    return dict(row.partition("\n")[::2] for row in rows.split("\0") if row)


def without_programs(programs: Mapping[str, str]) -> list[str]:
    """Return the options that let git take content as it is."""
    names = dict.fromkeys(key.rpartition(".")[0] for key in programs)
    return [word for name in names for kind in _KINDS for word in ("-c", f"{name}.{kind}={_NOTHING.get(kind, '')}")]


_NOTHING = {"required": "false"}


def filtered_paths(
    paths: Sequence[bytes], programs: Mapping[str, str], *, env: Mapping[str, str], cwd: Path, timeout_s: float = 300.0
) -> list[bytes]:
    """Return those paths whose attributes name a filter with a program."""
    drivers = {key.split(".", 1)[1].rpartition(".")[0] for key in programs}
    if not (drivers and paths):
        return []
    out = git(*without_programs(programs), "check-attr", "-z", "--stdin", "filter", cwd=cwd, env=env,
              stdin=b"".join(path + b"\0" for path in paths), timeout_s=timeout_s).split(b"\0")  # fmt: skip
    return [path for path, value in zip(out[0::3], out[2::3], strict=False) if os.fsdecode(value) in drivers]


def clean(
    contents: Sequence[tuple[bytes, bytes]], programs: Mapping[str, str], *, git_dir: Path, folder: Path,
    into: Path | None = None,
) -> dict[bytes, str]:  # fmt: skip
    """Pass contents through the filters of their paths, as `git add` in `folder` would; returns the object ids.

    The objects, and what LFS stored, are then in the repository, or in a folder of `objects` and `lfs`.
    """
    done: dict[bytes, str] = {}
    for start in range(0, len(contents), _AT_ONCE):
        done |= _clean(contents[start : start + _AT_ONCE], programs, git_dir, folder, into)
    return done


def _clean(
    contents: Sequence[tuple[bytes, bytes]], programs: Mapping[str, str], git_dir: Path, folder: Path,
    into: Path | None,
) -> dict[bytes, str]:  # fmt: skip
    with temporary_folder("ratchet-filters-") as store:
        place = str(store)
        (store / "objects").mkdir()
        for number, (_, content) in enumerate(contents, 1):
            (store / str(number)).write_bytes(content)
        env = {
            "GIT_DIR": str(git_dir),
            "GIT_WORK_TREE": ".",
            "GIT_OBJECT_DIRECTORY": f"{place}/objects",
            "GIT_ALTERNATE_OBJECT_DIRECTORIES": f"{git_dir}/objects",
            "CONTENT": place,
        }
        names = [os.fsdecode(path) for path, _ in contents]
        argv = ["sh", "-c", _with_settings(_CLEAN, programs, place), "sh", *names]
        out = _run(argv, cwd=folder, env=env, writable=[place], visible=[str(git_dir)], programs=programs)
        oids = out.decode().split()
        tree_files.remove_special_files(store, outgoing_links=True)
        tree_files.remove_inside(store, "objects/info")  # it could name other repositories to read from
        _import(store, oids, git_dir, into or git_dir)
        return dict(zip((path for path, _ in contents), oids, strict=True))


def _with_settings(script: str, programs: Mapping[str, str], place: str) -> str:
    """Give git the user's filters by option: their own settings file is not visible in the sandbox."""
    settings = {**programs, "lfs.storage": f"{place}/lfs", "core.hooksPath": os.devnull, "core.fsmonitor": "false"}
    count = f"GIT_CONFIG_COUNT={len(settings)}"
    rows = [f"GIT_CONFIG_KEY_{n}={_quoted(key)} GIT_CONFIG_VALUE_{n}={_quoted(value)}"
            for n, (key, value) in enumerate(settings.items())]  # fmt: skip
    return f"export {count} {' '.join(rows)}; i=0; {script}"


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


def _run(
    argv: list[str], *, cwd: Path, env: Mapping[str, str], writable: list[str], visible: list[str],
    programs: Mapping[str, str], read_only: Sequence[str] = (), stdin: bytes = b"",
) -> bytes:  # fmt: skip
    kept = {name: os.environ[name] for name in ("PATH", "LANG", "LC_ALL") if name in os.environ}
    done = run_contained(
        argv, cwd=cwd, env=kept | dict(env), writable=writable, read_only=read_only, visible=visible, stdin=stdin,
        timeout_s=_TIMEOUT_S,
    )  # fmt: skip
    if done.exit_code:
        why = done.stderr.decode(errors="replace").strip()[-500:]
        named = ", ".join(sorted({key.rpartition(".")[0] for key in programs}))
        raise GitFailed(f"a filter of git ({named}) failed in the sandbox: {why}", exit_code=done.exit_code)
    return done.stdout


def _import(store: Path, oids: Sequence[str], git_dir: Path, into: Path) -> None:
    made = {"GIT_DIR": str(git_dir), "GIT_OBJECT_DIRECTORY": f"{store}/objects"}
    made["GIT_ALTERNATE_OBJECT_DIRECTORIES"] = f"{git_dir}/objects"
    for oid in oids:
        content = git("cat-file", "blob", oid, cwd=store, env=made)
        kept = {"GIT_DIR": str(git_dir), "GIT_OBJECT_DIRECTORY": f"{into}/objects"}
        git("hash-object", "-w", "--stdin", cwd=store, env=kept, stdin=content)
    for path in tree_files.find_inside(store, "lfs/objects"):
        name = path.rpartition("/")[2]
        if _LFS_ID.fullmatch(name) and _sha256(store / "lfs/objects" / path) == name:
            place = into / "lfs" / "objects" / name[:2] / name[2:4] / name
            place.parent.mkdir(parents=True, exist_ok=True)
            with suppress(FileExistsError):
                shutil.move(store / "lfs/objects" / path, place)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def check_out_filtered(tree: Path, root: Path, commit: str) -> None:
    """Check out the paths that have a filter again, through their filters. All others are there already."""
    programs = filter_programs({}, cwd=tree)
    drivers = sorted({key.split(".", 1)[1].rpartition(".")[0] for key in programs})
    plain = [name for name in drivers if re.fullmatch(r"[\w.-]+", name)]
    listed = [git("ls-files", "-z", "--", f":(attr:filter={name})", cwd=tree) for name in plain]
    if not (paths := b"".join(listed)):
        return
    if "lfs" in plain and shutil.which("git-lfs"):
        with suppress(GitFailed):  # what is not here and cannot be had is named by the checkout
            git("lfs", "fetch", "origin", commit, cwd=root, timeout_s=_TIMEOUT_S, silence_s=_TIMEOUT_S)
    git_dir = git("rev-parse", "--path-format=absolute", "--git-common-dir", cwd=tree).decode().strip()
    script = _with_settings("git checkout-index -f -q -z --stdin", programs, git_dir)
    # Git runs here again, outside: a filter must not change its settings.
    _run(["sh", "-c", script], cwd=tree, env={}, writable=[str(tree)], read_only=[f"{tree}/.git"], visible=[git_dir],
         programs=programs, stdin=paths)  # fmt: skip
    tree_files.remove_special_files(tree)


def check_out_paths(
    folder: Path, git_dir: Path, paths: Sequence[bytes], *, env: Mapping[str, str], at: Path | None, timeout_s: float
) -> None:
    """Lay out paths of an index, which `env` names, in an empty folder, through their filters. Missing ones are left
    out. `at` is a folder that holds the tree, for scripts of the filters; without it all of the index is laid out."""
    programs = filter_programs({"GIT_DIR": str(git_dir)})
    env = {**env, "GIT_WORK_TREE": "."}
    filtered = filtered_paths(paths, programs, env=env, cwd=folder, timeout_s=timeout_s)
    plain = [*without_programs(programs), "checkout-index", "-f", "-q"]
    if filtered and at is None:
        git(*plain, "--all", cwd=folder, env=env, timeout_s=timeout_s)
    else:
        listed = b"".join(path + b"\0" for path in paths)
        git(*plain, "-z", "--stdin", cwd=folder, env=env, stdin=listed, ok=(0, 1), timeout_s=timeout_s)
    if filtered:
        objects = Path(env.get("GIT_OBJECT_DIRECTORY", f"{git_dir}/objects")).parent
        script = _with_settings(f"git checkout-index -f -q -z --stdin --prefix={_quoted(f'{folder}/')}", programs,
                                str(objects))  # fmt: skip
        index = os.path.dirname(env["GIT_INDEX_FILE"])
        _run(["sh", "-c", script], cwd=at or folder, env=env, writable=[str(folder)], visible=[str(git_dir), index],
             programs=programs, stdin=b"".join(path + b"\0" for path in filtered))  # fmt: skip
        tree_files.remove_special_files(folder)


# With an index of its own, also where there is no sandbox with a temporary folder of its own.
_LAY_OVER = (
    """made=$(mktemp -d) && trap 'rm -rf "$made"' EXIT && export GIT_INDEX_FILE="$made/index" && """
    'git read-tree "$1" && git checkout-index -f -q -z --stdin'
)


def lay_over(folder: Path, git_dir: Path, commit: str, paths: Sequence[str]) -> None:
    """Put files of a commit into a folder, through their filters, or remove those that the commit does not have."""
    listed = git("ls-tree", "-r", "-z", "--name-only", "--full-tree", commit, env={"GIT_DIR": str(git_dir)}).split(
        b"\0"
    )
    there = set(listed)
    for path in paths:
        if os.fsencode(path) not in there:
            tree_files.remove_inside(folder, path)
    if not (wanted := [os.fsencode(path) for path in paths if os.fsencode(path) in there]):
        return
    programs, inside = filter_programs({"GIT_DIR": str(git_dir)}), path_in_namespace(str(folder))
    _run(["sh", "-c", _with_settings(_LAY_OVER, programs, str(git_dir)), "sh", commit], cwd=folder,
         env={"GIT_DIR": str(git_dir), "GIT_WORK_TREE": "."}, writable=[inside],
         read_only=[f"{inside}/.git"] if os.path.lexists(folder / ".git") else [],  # a submodule has none
         visible=[str(git_dir)], programs=programs, stdin=b"".join(path + b"\0" for path in wanted))  # fmt: skip
    tree_files.remove_special_files(folder)
