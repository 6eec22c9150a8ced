"""Build the tree of a commit from a judged tree, without a look at the workspace.

The contents come from the tree store and are laid out in a private folder, where git applies the project's attributes
(line endings, encodings). So nothing that happens in the workspace meanwhile can reach the commit.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from ratchet.core.snapshot import EXECUTABLE, REGULAR, SUBMODULE
from ratchet.tree_files import temporary_folder
from ratchet.workspace.git.command import git
from ratchet.workspace.git.filters import clean, filter_programs, filtered_paths, without_programs
from ratchet.workspace.git.trees import AGENT_S, WHOLE_S, PathDifference, TreeStore
from ratchet.workspace.overlay_layers import apply_differences

_UPDATE = ("update-index", "--add", "--remove", "--replace", "-z", "--stdin")
_CHUNK = 500


def update_index(
    git_dir: Path, index: Path, rows: Sequence[PathDifference], trees: TreeStore, *, apart: Path | None = None
) -> None:
    """Apply the differences to an index as `git add` would. The new objects go to the repository, or to `objects` and
    `lfs` in a folder `apart`."""
    with temporary_folder("committing-", within=index.parent) as place:
        _Update(git_dir, index, trees, Path(place), apart).apply([row for row in rows if _is_content(row)])


def _is_content(row: PathDifference) -> bool:
    return row.gone or row.mode != SUBMODULE


class _Update:
    def __init__(self, git_dir: Path, index: Path, trees: TreeStore, place: Path, apart: Path | None) -> None:
        self.git_dir, self.trees, self.apart, self.folder = git_dir, trees, apart, place / "tree"
        self.timeout_s = AGENT_S if apart else WHOLE_S
        self.folder.mkdir()
        self.env = {"GIT_DIR": str(git_dir), "GIT_INDEX_FILE": str(index), "GIT_WORK_TREE": ".",
                    "GIT_LITERAL_PATHSPECS": "1"}  # fmt: skip
        if apart:
            self.env |= {"GIT_OBJECT_DIRECTORY": f"{apart}/objects"}
            self.env["GIT_ALTERNATE_OBJECT_DIRECTORIES"] = f"{git_dir}/objects"
        self.programs = filter_programs({"GIT_DIR": str(git_dir)})
        self.options = without_programs(self.programs)

    def apply(self, rows: Sequence[PathDifference]) -> None:
        first = [row for row in rows if row.gone or _decides(row.path)]
        self._add(first)  # attributes decide what happens to the others
        rest = [row for row in rows if not (row.gone or _decides(row.path))]
        paths = [row.path for row in rest if row.mode in (REGULAR, EXECUTABLE)]
        found = filtered_paths(paths, self.programs, env=self.env, cwd=self.folder, timeout_s=self.timeout_s)
        filtered = frozenset(found)
        self._add([row for row in rest if row.path not in filtered])
        self._add_filtered([row for row in rest if row.path in filtered])

    def _add(self, rows: Sequence[PathDifference]) -> None:
        for start in range(0, len(rows), _CHUNK):
            some = list(rows[start : start + _CHUNK])
            apply_differences(self.trees, self.folder, some)
            self._git(*_UPDATE, stdin=b"".join(row.path + b"\0" for row in some))

    def _add_filtered(self, rows: Sequence[PathDifference]) -> None:
        if not rows:
            return
        contents = list(self.trees.contents([row.oid.encode() for row in rows], b"blob"))
        pairs = [(row.path, content or b"") for row, content in zip(rows, contents, strict=True)]
        oids = clean(pairs, self.programs, git_dir=self.git_dir, folder=self.trees.folder, into=self.apart)
        entries = [f"{row.mode} {oids[row.path]}\t".encode() + row.path + b"\0" for row in rows]
        self._git("update-index", "-z", "--index-info", stdin=b"".join(entries))

    def _git(self, *args: str, stdin: bytes) -> bytes:
        return git(*self.options, *args, cwd=self.folder, env=self.env, stdin=stdin, timeout_s=self.timeout_s)


def _decides(path: bytes) -> bool:
    return os.path.basename(path) == b".gitattributes"
