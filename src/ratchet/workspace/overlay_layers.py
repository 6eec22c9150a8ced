"""Convert between an overlay's writable layer and git trees, at a cost that depends on the changes only.

The layer itself shows what differs from the base: files in it are new or changed, a device 0/0 is a deletion, an
opaque folder hides the base's. So there is no stat cache that could be fooled, and unchanged files are never read.
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
from typing import IO

import msgspec

from ratchet import tree_files
from ratchet.core.snapshot import EXECUTABLE, REGULAR, SUBMODULE, SYMLINK
from ratchet.errors import NotFound
from ratchet.files import disk_full_errors
from ratchet.workspace.git.objects import FOLDER, Entries, parse_tree
from ratchet.workspace.git.trees import PathDifference, TreeStore, broken_tree, is_excluded, is_kept

_CHUNK = 1 << 20
_PAGE = 4096
_BLOBS_AT_ONCE = 200
_FEW = 8
_READS = 5


class NeedsIndex(Exception):
    """A folder name contains a line feed, which git's batch mode cannot read: use the slower way through an index."""


class FileShrank(Exception):
    """A file became shorter while it was read: read it again."""


class LayerFolder(msgspec.Struct, kw_only=True):
    """One folder of the layer. `path` is relative, empty at the top."""

    path: bytes
    opaque: bool
    files: list[os.DirEntry[bytes]] = []
    folders: list[bytes] = []
    gone: list[bytes] = []


def read_layer(upper: Path, *, tracked_anyway: frozenset[str]) -> list[LayerFolder]:
    """Return every folder of the layer, top down. `tracked_anyway` are dependency folders with tracked files."""
    found: list[LayerFolder] = []
    queue = [b""]
    while queue:
        folder = _read_folder(os.fsencode(upper), queue.pop(), tracked_anyway)
        found.append(folder)
        queue += [_join(folder.path, name) for name in folder.folders]
    return found


def _read_folder(upper: bytes, path: bytes, tracked_anyway: frozenset[str]) -> LayerFolder:
    place = os.path.join(upper, path)
    folder = LayerFolder(path=path, opaque=_is_opaque(place), files=[], folders=[], gone=[])
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


class TreeComposer:
    """Builds the git tree of a workspace from its base's tree and its layer."""

    def __init__(self, trees: TreeStore, base: str) -> None:
        self.trees, self.base = trees, base
        self._new_hash = hashlib.sha256 if len(base) == 64 else hashlib.sha1  # git's own choice, not ours
        self._made: dict[str, str] = {}

    def compose(self, upper: Path, *, tracked_anyway: frozenset[str], before: str = "") -> str:
        """Write the tree and return its id. Paths of `before`, the last tree, stay tracked even if ignored now."""
        changed = read_layer(upper, tracked_anyway=tracked_anyway)
        if not any(folder.files or folder.gone or folder.opaque for folder in changed):
            return self.base
        if any(b"\n" in folder.path for folder in changed):
            raise NeedsIndex
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

    def _entries(self, tree: str, changed: list[LayerFolder]) -> dict[bytes, Entries]:
        names = [f"{tree}:".encode() + folder.path for folder in changed]
        width = len(self.base) // 2
        contents = list(self.trees.contents(names, b"tree"))
        if contents[0] is None:  # the root: without it all unchanged files would look deleted
            raise NotFound(
                f"the tree {tree} is gone from {self.trees.store}", hint="destroy the workspace and create it again"
            )
        rows = zip(changed, contents, strict=True)
        return {folder.path: parse_tree(content, width) if content else {} for folder, content in rows}

    def _write(self, changed: list[LayerFolder], below: dict[bytes, Entries], ignored: set[bytes]) -> str:
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
        with _open_regular(file.path) as content:
            for _ in range(_READS):
                with suppress(FileShrank):
                    return mode, self._stream(content)
            content.seek(0)
            return mode, self.write_object(b"blob", content.read())

    def _stream(self, content: IO[bytes]) -> str:
        """Store a file as long as it is now: a process may be appending to it. Raises FileShrank."""
        size = os.fstat(content.fileno()).st_size
        oid = self._name(b"blob", size, _chunks(content, size))
        return oid if self._is_stored(oid) else self._store(b"blob", size, _chunks(content, size))

    def write_object(self, kind: bytes, content: bytes) -> str:
        oid = self._name(kind, len(content), iter([content]))
        return oid if self._is_stored(oid) else self._store(kind, len(content), iter([content]))

    def _name(self, kind: bytes, size: int, chunks: Iterator[bytes]) -> str:
        """Return the object id before compressing: at most checkpoints nearly all objects are already stored."""
        whole = self._new_hash(b"%s %d\0" % (kind, size))
        for chunk in chunks:
            whole.update(chunk)
        return whole.hexdigest()

    def _place(self, oid: str) -> Path:
        return self.trees.store / "objects" / oid[:2] / oid[2:]

    def _is_stored(self, oid: str) -> bool:
        return oid in self._made or self._place(oid).exists()

    def _store(self, kind: bytes, size: int, chunks: Iterator[bytes]) -> str:
        """Write a loose object under a temporary name."""
        objects = self.trees.store / "objects"
        whole, packed = self._new_hash(), zlib.compressobj(1)
        with (
            disk_full_errors(objects),
            tempfile.NamedTemporaryFile(dir=objects, prefix="tmp_obj_", delete=False) as file,
        ):
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
        if oid in self._made:  # the file changed while it was read, to content that is stored
            Path(file.name).unlink(missing_ok=True)
        else:
            self._made[oid] = file.name
        return oid

    def _keep(self) -> None:
        """Sync all new objects, then rename them: an object is durable before it can be found."""
        with disk_full_errors(self.trees.store):
            _sync(list(self._made.values()))
            for oid, made in self._made.items():
                place = self._place(oid)
                place.parent.mkdir(exist_ok=True)
                os.chmod(made, 0o444)
                os.rename(made, place)


def _open_regular(path: bytes) -> IO[bytes]:
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    return os.fdopen(handle, "rb")


def _chunks(content: IO[bytes], size: int) -> Iterator[bytes]:
    """Yield the first `size` bytes of a file."""
    content.seek(0)
    while size:
        if not (chunk := content.read(min(_CHUNK, size))):
            raise FileShrank
        size -= len(chunk)
        yield chunk


def _sync(paths: list[str]) -> None:
    """Sync in parallel: a disk handles a dozen in the time of one."""
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
        return  # an empty folder is a submodule that is not checked out
    if oid:
        entries[name] = (FOLDER, oid)
    else:
        entries.pop(name, None)


def _untracked(changed: list[LayerFolder], *known: dict[bytes, Entries]) -> list[bytes]:
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


def apply_differences(trees: TreeStore, folder: Path, rows: list[PathDifference]) -> None:
    """Apply differences to a folder. Deletions come first: a folder may replace a file."""
    for row in rows:
        tree_files.remove_links(folder, os.path.dirname(os.fsdecode(row.path)))
        if row.gone or row.mode == SUBMODULE:
            tree_files.remove_inside(folder, os.fsdecode(row.path))
            _prune(folder, os.path.dirname(row.path))
    written = [row for row in rows if not row.gone]
    for start in range(0, len(written), _BLOBS_AT_ONCE):
        some = written[start : start + _BLOBS_AT_ONCE]
        for row, content in zip(some, _intact(trees, some), strict=True):
            _write_one(folder, os.fsdecode(row.path), row.mode, content)


def _intact(trees: TreeStore, rows: list[PathDifference]) -> Iterator[bytes | None]:
    """Yield the content of each row; None for a submodule. Raises TreeBroken for content that is lost or torn."""
    for row, content in zip(rows, trees.contents([row.oid.encode() for row in rows], b"blob"), strict=True):
        if row.mode != SUBMODULE and (content is None or blob_id(content, like=row.oid) != row.oid):
            raise broken_tree(trees.store, row.path)
        yield content


def blob_id(content: bytes, *, like: str) -> str:
    """Return git's id of the content, by the hash function of another id."""
    made = hashlib.sha256 if len(like) == 64 else hashlib.sha1  # git's own choice, not ours
    return made(b"blob %d\0" % len(content) + content).hexdigest()


def _write_one(folder: Path, path: str, mode: str, content: bytes | None) -> None:
    with disk_full_errors(folder / path):
        if mode == SUBMODULE or content is None:
            tree_files.make_folder_inside(folder, path if mode == SUBMODULE else os.path.dirname(path))
        elif mode == SYMLINK:
            tree_files.link_inside(folder, path, content)
        else:
            tree_files.replace_inside(folder, path, content, 0o777 if mode == EXECUTABLE else 0o666)


def _prune(folder: Path, path: bytes) -> None:
    while path and tree_files.remove_empty_folder(folder, os.fsdecode(path)):
        path = os.path.dirname(path)


def remove_tree(path: str | bytes | Path, *, empty: bool = False) -> None:
    """Remove a file or folder, even without write permission. Success if it does not exist.

    `empty` truncates files first to free space at once: a sandbox started before an unmount still holds the mount.
    """
    try:
        _remove(os.fspath(path), empty)
    except FileNotFoundError:
        pass
    except (OSError, RecursionError):  # locked by an agent, or too deep
        place = Path(os.fsdecode(path))
        tree_files.remove_inside(place.parent, place.name)


def _remove(path: str | bytes, empty: bool, at: int | None = None) -> None:
    """Remove recursively, by descriptors: a process that still runs in the tree may put links in place of folders."""
    try:
        os.rmdir(path, dir_fd=at)
    except NotADirectoryError:
        os.unlink(path, dir_fd=at)
    except OSError as error:
        if error.errno != errno.ENOTEMPTY:
            raise
        folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=at)
        try:
            with os.scandir(folder) as entries:
                inside: list[os.DirEntry[str]] = list(entries)
            for entry in inside:
                if entry.is_dir(follow_symlinks=False):
                    _remove(entry.name, empty, folder)
                    continue
                if empty:
                    _empty(entry.name, folder)
                os.unlink(entry.name, dir_fd=folder)
        finally:
            os.close(folder)
        os.rmdir(path, dir_fd=at)


def _empty(name: str, at: int) -> None:
    found = os.lstat(name, dir_fd=at)
    if stat.S_ISREG(found.st_mode) and found.st_nlink == 1 and found.st_size > _PAGE:
        file = os.open(name, os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=at)
        try:
            os.ftruncate(file, 0)
        finally:
            os.close(file)


def move_built_folders(old: Path, new: Path, base: Path) -> None:
    """Move dependency folders that tools built, and the base lacks, from the old layer to the new one. No links."""
    for listing in tree_files.walk_inside(old):
        inside = listing.path.rstrip("/")
        for name in [name for name in listing.folders if is_kept(inside, name)]:
            listing.folders.remove(name)
            if not (base / inside / name).exists() and (base / inside).is_dir():
                _same_folders(base, new, inside)
                (old / inside / name).rename(new / inside / name)
        listing.folders[:] = [name for name in listing.folders if name != ".git"]


def _same_folders(base: Path, new: Path, inside: str) -> None:
    """Create the folders down to `inside` with the base's modes, which a folder of the layer hides."""
    for part in [*reversed(Path(inside).parents), Path(inside)]:
        if not (new / part).is_dir():
            (new / part).mkdir()
            shutil.copystat(base / part, new / part)
