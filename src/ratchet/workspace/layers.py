"""An overlay's writable layer as git trees: reading one and laying one out cost what changed, never what there is.

The layer says by itself what differs from the base: files in it are new or changed, a device 0/0 is a deletion, an
opaque folder hides the base's. So no stat cache can be fooled, and nothing unchanged is looked at.
"""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import stat
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from ratchet.core.snapshot import EXECUTABLE, REGULAR, SUBMODULE, SYMLINK
from ratchet.errors import NotFound
from ratchet.files import room_for
from ratchet.workspace.objects import FOLDER, Entries, parse_tree
from ratchet.workspace.trees import Difference, Trees, is_excluded, is_kept

_CHUNK = 1 << 20
_PAGE = 4096
_BLOBS_AT_ONCE = 200
_FEW = 8


class TooOdd(Exception):
    """A folder's name cannot be asked of git line by line: the slower way through an index is needed."""


class Changed(msgspec.Struct, kw_only=True):
    """One folder of the layer. `path` is relative, empty at the top."""

    path: bytes
    opaque: bool
    files: list[os.DirEntry[bytes]] = []
    folders: list[bytes] = []
    gone: list[bytes] = []


def read_layer(upper: Path, *, tracked_anyway: frozenset[str]) -> list[Changed]:
    """Every folder of the layer, top down. `tracked_anyway` are dependency folders that hold tracked files."""
    found: list[Changed] = []
    queue = [b""]
    while queue:
        folder = _read_folder(os.fsencode(upper), queue.pop(), tracked_anyway)
        found.append(folder)
        queue += [_join(folder.path, name) for name in folder.folders]
    return found


def _read_folder(upper: bytes, path: bytes, tracked_anyway: frozenset[str]) -> Changed:
    place = os.path.join(upper, path)
    folder = Changed(path=path, opaque=_is_opaque(place), files=[], folders=[], gone=[])
    with os.scandir(place) as entries:
        for entry in entries:
            name, mode = os.fsdecode(entry.name), entry.stat(follow_symlinks=False).st_mode
            if name == ".git":
                continue
            if stat.S_ISCHR(mode) and entry.stat(follow_symlinks=False).st_rdev == 0:
                folder.gone.append(entry.name)
            elif stat.S_ISDIR(mode):
                whole = os.fsdecode(_join(path, entry.name))
                if not is_excluded(os.fsdecode(path), name) or whole in tracked_anyway:
                    folder.folders.append(entry.name)
            elif stat.S_ISREG(mode) or stat.S_ISLNK(mode):
                folder.files.append(entry)
    return folder


def _is_opaque(place: bytes) -> bool:
    for name in ("trusted.overlay.opaque", "user.overlay.opaque"):
        with suppress(OSError):
            if os.getxattr(place, name) == b"y":
                return True
    return False


class Composer:
    """Makes the tree of a workspace from its base's tree and its layer."""

    def __init__(self, trees: Trees, base: str) -> None:
        self.trees, self.base = trees, base
        self._new_hash = hashlib.sha256 if len(base) == 64 else hashlib.sha1  # git's own choice, not ours
        self._made: dict[str, str] = {}

    def compose(self, upper: Path, *, tracked_anyway: frozenset[str], before: str = "") -> str:
        """The tree id. `before` is the tree last seen here: what it holds stays tracked, even if ignored now."""
        changed = read_layer(upper, tracked_anyway=tracked_anyway)
        if not any(folder.files or folder.gone or folder.opaque for folder in changed):
            return self.base
        if any(b"\n" in folder.path for folder in changed):
            raise TooOdd
        below = self._entries(self.base, changed)
        known = self._entries(before, changed) if before and before != self.base else below
        ignored = self.trees.ignored(_untracked(changed, below, known))
        try:
            tree = self._write(changed, below, ignored)
            self._keep()
        finally:
            for left in self._made.values():
                Path(left).unlink(missing_ok=True)
            self._made = {}
        return tree

    def _entries(self, tree: str, changed: list[Changed]) -> dict[bytes, Entries]:
        names = [f"{tree}:".encode() + folder.path for folder in changed]
        width = len(self.base) // 2
        contents = list(self.trees.contents(names, b"tree"))
        if contents[0] is None:  # the top: without it everything unchanged would look deleted
            raise NotFound(
                f"the tree {tree} is gone from {self.trees.store}", hint="destroy the workspace, make it anew"
            )
        rows = zip(changed, contents, strict=True)
        return {folder.path: parse_tree(content, width) if content else {} for folder, content in rows}

    def _write(self, changed: list[Changed], below: dict[bytes, Entries], ignored: set[bytes]) -> str:
        made: dict[bytes, str] = {}
        for folder in reversed(changed):
            entries: Entries = {} if folder.opaque else dict(below[folder.path])
            for name in folder.gone:
                entries.pop(name, None)
            for file in folder.files:
                if _join(folder.path, file.name) in ignored:
                    entries.pop(file.name, None)
                else:
                    entries[file.name] = self._blob(file)
            for name in folder.folders:
                _set_folder(entries, name, made[_join(folder.path, name)])
            made[folder.path] = self.write_object(b"tree", format_tree(entries)) if entries or not folder.path else ""
        return made[b""]

    def _blob(self, file: os.DirEntry[bytes]) -> tuple[str, str]:
        if file.is_symlink():
            return SYMLINK, self.write_object(b"blob", os.readlink(file.path))
        mode = EXECUTABLE if file.stat(follow_symlinks=False).st_mode & 0o100 else REGULAR
        with open(file.path, "rb") as content:
            size = os.fstat(content.fileno()).st_size
            oid = self._name(b"blob", size, iter(lambda: content.read(_CHUNK), b""))
            if not self._is_stored(oid):
                content.seek(0)
                oid = self._store(b"blob", size, iter(lambda: content.read(_CHUNK), b""))
        return mode, oid

    def write_object(self, kind: bytes, content: bytes) -> str:
        oid = self._name(kind, len(content), iter([content]))
        return oid if self._is_stored(oid) else self._store(kind, len(content), iter([content]))

    def _name(self, kind: bytes, size: int, chunks: Iterator[bytes]) -> str:
        """Told before anything is packed: at most checkpoints nearly all of a layer is stored already."""
        whole = self._new_hash(b"%s %d\0" % (kind, size))
        for chunk in chunks:
            whole.update(chunk)
        return whole.hexdigest()

    def _place(self, oid: str) -> Path:
        return self.trees.store / "objects" / oid[:2] / oid[2:]

    def _is_stored(self, oid: str) -> bool:
        return oid in self._made or self._place(oid).exists()

    def _store(self, kind: bytes, size: int, chunks: Iterator[bytes]) -> str:
        """One loose object, under a name that means nothing yet."""
        objects = self.trees.store / "objects"
        whole, packed = self._new_hash(), zlib.compressobj(1)
        with room_for(objects), tempfile.NamedTemporaryFile(dir=objects, prefix="tmp_obj_", delete=False) as file:
            try:
                head = b"%s %d\0" % (kind, size)
                whole.update(head)
                file.write(packed.compress(head))
                for chunk in chunks:
                    whole.update(chunk)
                    file.write(packed.compress(chunk))
                file.write(packed.flush())
                file.flush()
            except BaseException:
                Path(file.name).unlink(missing_ok=True)
                raise
        oid = whole.hexdigest()
        if oid in self._made:  # a file that changed while it was read, into one that is there
            Path(file.name).unlink(missing_ok=True)
        else:
            self._made[oid] = file.name
        return oid

    def _keep(self) -> None:
        """All of it is durable before any of it is told by its name."""
        with room_for(self.trees.store):
            _sync(list(self._made.values()))
            for oid, made in self._made.items():
                place = self._place(oid)
                place.parent.mkdir(exist_ok=True)
                os.chmod(made, 0o444)
                os.rename(made, place)


def _sync(paths: list[str]) -> None:
    """Many at once: a disk takes a dozen in the time of one."""
    if len(paths) < _FEW:
        for path in paths:
            _sync_one(path)
        return
    from concurrent.futures import ThreadPoolExecutor  # noqa: PLC0415 — seldom needed

    with ThreadPoolExecutor(16) as pool:
        list(pool.map(_sync_one, paths))


def _sync_one(path: str) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _set_folder(entries: Entries, name: bytes, oid: str) -> None:
    was = entries.get(name, ("", ""))[0]
    if was == SUBMODULE and not oid:
        return  # an empty folder is how a submodule looks that is not checked out
    if oid:
        entries[name] = (FOLDER, oid)
    else:
        entries.pop(name, None)


def _untracked(changed: list[Changed], *known: dict[bytes, Entries]) -> list[bytes]:
    return [
        _join(folder.path, file.name)
        for folder in changed
        for file in folder.files
        if not any(file.name in entries[folder.path] for entries in known)
    ]


def format_tree(entries: Entries) -> bytes:
    # Git sorts a folder as if its name ended in a slash.
    ordered = sorted(entries.items(), key=lambda row: row[0] + b"/" if row[1][0] == FOLDER else row[0])
    return b"".join(b"%s %s\0%s" % (mode.encode(), name, bytes.fromhex(oid)) for name, (mode, oid) in ordered)


def _join(folder: bytes, name: bytes) -> bytes:
    return folder + b"/" + name if folder else name


# --- laying out ----------------------------------------------------------------------------------------------------


def lay_out(trees: Trees, folder: Path, rows: list[Difference]) -> None:
    """Make the named paths what the rows say; deletions come first, for a file may give way to a folder."""
    top = os.fsencode(folder)
    for row in rows:
        if row.gone or row.mode == SUBMODULE:
            remove(os.path.join(top, row.path))
            _prune(top, os.path.dirname(row.path))
    written = [row for row in rows if not row.gone]
    for start in range(0, len(written), _BLOBS_AT_ONCE):
        some = written[start : start + _BLOBS_AT_ONCE]
        for row, content in zip(some, trees.contents([row.oid.encode() for row in some], b"blob"), strict=True):
            _lay_one(os.path.join(top, row.path), row.mode, content)


def _lay_one(path: bytes, mode: str, content: bytes | None) -> None:
    with room_for(Path(os.fsdecode(path))):
        os.makedirs(path if mode == SUBMODULE else os.path.dirname(path), exist_ok=True)
        if mode == SUBMODULE or content is None:
            return
        remove(path)
        if mode == SYMLINK:
            os.symlink(content, path)
            return
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o777 if mode == EXECUTABLE else 0o666)
        with os.fdopen(handle, "wb") as file:
            file.write(content)


def _prune(top: bytes, folder: bytes) -> None:
    while folder:
        try:
            os.rmdir(os.path.join(top, folder))
        except OSError:
            return
        folder = os.path.dirname(folder)


def remove(path: str | bytes | Path, *, empty: bool = False) -> None:
    """Whatever is there, also when its owner took away the right to. Removing what is gone is success.

    `empty` gives back the room at once: a sandbox that began before an unmount sees the mount still, and keeps files.
    """
    try:
        _remove(os.fspath(path), empty)
    except FileNotFoundError:
        pass
    except PermissionError:
        shutil.rmtree(path, onerror=_insist)


def _remove(path: str | bytes, empty: bool) -> None:
    """A fifth of what shutil.rmtree takes: nobody races us for what no process uses any more."""
    try:
        os.rmdir(path)
    except NotADirectoryError:
        os.unlink(path)
    except OSError as error:
        if error.errno != errno.ENOTEMPTY:
            raise
        with os.scandir(path) as entries:
            inside: list[os.DirEntry[Any]] = list(entries)
        for entry in inside:
            if entry.is_dir(follow_symlinks=False):
                _remove(entry.path, empty)
                continue
            if empty:
                _empty(entry)
            os.unlink(entry.path)
        os.rmdir(path)


def _empty(entry: os.DirEntry[Any]) -> None:
    found = entry.stat(follow_symlinks=False)
    if stat.S_ISREG(found.st_mode) and found.st_nlink == 1 and found.st_size > _PAGE:
        os.truncate(entry.path, 0)


def _insist(function: object, path: str, _error: object) -> None:
    """Give the owner back the folder's rights and try once more."""
    assert callable(function)
    for place in (os.path.dirname(path), path):
        with suppress(OSError):
            os.chmod(place, 0o700)
    if function in (os.open, os.scandir, os.lstat):
        shutil.rmtree(path, ignore_errors=True)
        return
    with suppress(FileNotFoundError):
        function(path)


def carry_built(old: Path, new: Path, base: Path) -> None:
    """Move what tools built here (dependency folders the base has not) from one layer to the next."""
    for root, folders, _files in os.walk(old):
        relative = os.path.relpath(root, old)
        inside = "" if relative == "." else relative
        for name in list(folders):
            if is_kept(inside, name):
                folders.remove(name)
                if not (base / inside / name).exists() and (base / inside).is_dir():
                    _same_folders(base, new, inside)
                    (Path(root) / name).rename(new / inside / name)
        folders[:] = [name for name in folders if name != ".git"]


def _same_folders(base: Path, new: Path, inside: str) -> None:
    """The folders down to `inside`, with the base's modes: a layer's folder hides those of the one below."""
    for part in [*reversed(Path(inside).parents), Path(inside)]:
        if not (new / part).is_dir():
            (new / part).mkdir()
            shutil.copystat(base / part, new / part)
