"""Files in a folder that other programs may write: the only module that opens, lists and deletes them.

Every path is walked by directory descriptors and no component is followed that is a link leading out of the folder:
another process may replace a folder by a link between a check and its use. A path is refused if it is absolute or has a
`..`: a hostile program may have named it. Only regular files are opened, and never in a way that waits: a pipe in place
of a file would block the reader for ever. What is read is bounded.
"""

from __future__ import annotations

import errno
import os
import secrets
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import partial
from pathlib import Path
from typing import BinaryIO

READ_MAX_BYTES = 16 << 20
_LINKS_MAX = 40
_HOLE_BYTES, _HOLES_MAX_BYTES = 1 << 20, 1 << 30
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_ANYWHERE = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC
_NOTHING = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)
# What is deeper, or has a longer path, git cannot store: it is removed from workspaces and never entered.
_DEPTH_MAX, _PATH_MAX = 256, 2_000
_NESTED_MAX = 32  # how many folders are open at a time while one is removed


class NotRegularFile(OSError):
    """The path names a folder, pipe, socket, device, or something outside of the folder."""


def _inner_parts(path: str) -> tuple[str, ...]:
    """Split a path that must stay below a folder. Raises NotRegularFile."""
    parts = Path(path).parts
    if not parts or path.startswith("/") or ".." in parts or "\0" in path:
        raise NotRegularFile(errno.EINVAL, "outside of the folder", path)
    return parts


# --- open, read, write -----------------------------------------------------------------------------------------------


@contextmanager
def open_inside(folder: Path, path: str, flags: int, *, make_folders: bool = False) -> Iterator[int]:
    """Open a regular file below a folder without following symlinks; yields its descriptor."""
    *folders, last = _inner_parts(path)
    with _opened_folder(folder, folders, make=make_folders) as at:
        file = os.open(last, flags | _FILE, 0o644, dir_fd=at)
    try:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            raise NotRegularFile(errno.EINVAL, "not a regular file", path)
        yield file
    finally:
        os.close(file)


@contextmanager
def _opened_folder(folder: Path, names: Sequence[str], *, make: bool = False) -> Iterator[int]:
    at = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for name in names:
            at = _open_subfolder(at, name, make=make)
        yield at
    finally:
        os.close(at)


def _open_subfolder(at: int, name: str, *, make: bool) -> int:
    """Open a subfolder and close its parent."""
    if make:
        with suppress(FileExistsError):
            os.mkdir(name, dir_fd=at)
    below = os.open(name, _FOLDER, dir_fd=at)
    os.close(at)
    return below


def write_inside(folder: Path, path: str, content: bytes) -> None:
    """Write a file below a folder without following symlinks, creating folders; an existing file keeps its mode."""
    with open_inside(folder, path, os.O_WRONLY | os.O_CREAT, make_folders=True) as file:
        os.ftruncate(file, 0)
        _write(file, content)


def replace_inside(folder: Path, path: str, content: bytes, mode: int = 0o644) -> None:
    """Put a new file in the place of whatever is there. A part of the path that is no folder is replaced by one."""
    with _replacement(folder, path, mode) as file:
        _write(file, content)


def copy_inside(folder: Path, path: str, source: Path) -> None:
    """Put a copy of a regular file, with its mode and times, in the place of whatever is there."""
    with os.fdopen(os.open(source, os.O_RDONLY | _FILE), "rb") as given:
        found = os.fstat(given.fileno())
        with _replacement(folder, path, 0o600) as file:
            with open(file, "wb", closefd=False) as copy:
                shutil.copyfileobj(given, copy, 1 << 20)
            os.fchmod(file, stat.S_IMODE(found.st_mode))
            os.utime(file, ns=(found.st_atime_ns, found.st_mtime_ns))


@contextmanager
def _replacement(folder: Path, path: str, mode: int) -> Iterator[int]:
    """Yield a new file, which then takes the place of whatever is at the path."""
    *names, last = _inner_parts(path)
    with _made_folder(folder, names) as at:
        made = f".{secrets.token_hex(6)}"
        file = os.open(made, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _FILE, mode, dir_fd=at)
        try:
            yield file
            _remove(at, last, folders_only=True)
            os.rename(made, last, src_dir_fd=at, dst_dir_fd=at)
        except BaseException:
            with suppress(OSError):
                os.unlink(made, dir_fd=at)
            raise
        finally:
            os.close(file)


def link_inside(folder: Path, path: str, target: bytes) -> None:
    """Put a symbolic link in the place of whatever is there."""
    *names, last = _inner_parts(path)
    with _made_folder(folder, names) as at:
        _remove(at, last)
        os.symlink(target, os.fsencode(last), dir_fd=at)


def make_folder_inside(folder: Path, path: str) -> None:
    with _made_folder(folder, _inner_parts(path) if path else ()):
        pass


@contextmanager
def _made_folder(folder: Path, names: Sequence[str]) -> Iterator[int]:
    at = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for name in names:
            with suppress(FileNotFoundError):
                if not stat.S_ISDIR(os.lstat(name, dir_fd=at).st_mode):
                    os.unlink(name, dir_fd=at)
            at = _open_subfolder(at, name, make=True)
        yield at
    finally:
        os.close(at)


def _write(file: int, content: bytes) -> None:
    left = memoryview(content)
    while left:
        left = left[os.write(file, left) :]


def read_inside(folder: Path, path: str, *, max_bytes: int = READ_MAX_BYTES) -> bytes | None:
    """Return the start of a regular file below the folder; None if there is none.

    Links are followed as long as they stay in the folder.
    """
    try:
        file = _open_beneath(folder, path)
    except OSError:
        return None
    try:
        return _read(file, max_bytes) if stat.S_ISREG(os.fstat(file).st_mode) else None
    finally:
        os.close(file)


def read_tail(folder: Path, path: str, *, max_bytes: int) -> bytes:
    """Return the end of a regular file; empty if there is none."""
    with suppress(OSError), open_inside(folder, path, os.O_RDONLY) as file:
        os.lseek(file, max(0, os.fstat(file).st_size - max_bytes), os.SEEK_SET)
        return _read(file, max_bytes)
    return b""


def _read(file: int, max_bytes: int) -> bytes:
    parts, left = [], max_bytes
    while left > 0 and (part := os.read(file, min(left, 1 << 20))):
        parts.append(part)
        left -= len(part)
    return b"".join(parts)


def read_link_inside(folder: Path, path: str) -> bytes | None:
    """Return the target of a symbolic link below a folder; None if there is no link."""
    *names, last = _inner_parts(path)
    try:
        target = _link_at(folder, names, last)
    except OSError:
        return None
    return None if target is None else os.fsencode(target)


def is_file_inside(folder: Path, path: str) -> bool:
    """Whether the path names a regular file below the folder, also by way of links that stay in it."""
    try:
        file = _open_beneath(folder, path)
    except OSError:
        return False
    try:
        return stat.S_ISREG(os.fstat(file).st_mode)
    finally:
        os.close(file)


# --- what a project names --------------------------------------------------------------------------------------------

_reach: ContextVar[Path | None] = ContextVar("reach", default=None)


@contextmanager
def links_may_lead(within: Path) -> Iterator[None]:
    """Let `read_source` follow links from a folder to what is around it: its whole tree, or `/` in a person's own.

    The outermost one counts.
    """
    token = _reach.set(_reach.get() or within)
    try:
        yield
    finally:
        _reach.reset(token)


@contextmanager
def open_source(folder: Path, path: str) -> Iterator[BinaryIO]:
    """Open a regular file that a project or its tests name, absolute or relative to a folder.

    Links are followed as long as they stay in the folder, or where `links_may_lead`. Raises OSError.
    """
    with os.fdopen(_regular(_open_source(folder, path), path), "rb") as stream:
        yield stream


def read_source(folder: Path, path: str, *, max_bytes: int = READ_MAX_BYTES) -> str:
    """Return the start of such a file as text; empty if it cannot be read."""
    try:
        return _content(_regular(_open_source(folder, path), path), max_bytes).decode(errors="replace")
    except (OSError, ValueError):
        return ""


def is_source(folder: Path, path: str) -> bool:
    """Whether `open_source` opens it."""
    try:
        os.close(_regular(_open_source(folder, path), path))
    except (OSError, ValueError):
        return False
    return True


def is_source_folder(folder: Path, path: str) -> bool:
    """Whether a path leads to a folder, and not by way of a link that `open_source` would not follow."""
    try:
        file = _open_source(folder, path)
    except (OSError, ValueError):
        return False
    try:
        return stat.S_ISDIR(os.fstat(file).st_mode)
    finally:
        os.close(file)


def read_anywhere(path: Path, *, max_bytes: int = READ_MAX_BYTES) -> bytes:
    """Return the start of a regular file, wherever links lead: only for content that is never shown. Raises OSError."""
    return _content(_regular(os.open(path, _ANYWHERE), str(path)), max_bytes)


def _open_source(folder: Path, path: str) -> int:
    reach, named = _reach.get() or folder, folder / path
    if reach == Path("/"):
        return os.open(named, _ANYWHERE)
    top = reach if folder.is_relative_to(reach) else folder
    if not named.is_relative_to(top):
        raise NotRegularFile(errno.EXDEV, "outside of the folder", path)
    return _open_beneath(top, named.relative_to(top).as_posix())


def _regular(file: int, path: str) -> int:
    """Return the descriptor if it is that of a regular file; else close it."""
    if stat.S_ISREG(os.fstat(file).st_mode):
        return file
    os.close(file)
    raise NotRegularFile(errno.EINVAL, "not a regular file", path)


def _content(file: int, max_bytes: int) -> bytes:
    try:
        return _read(file, max_bytes)
    finally:
        os.close(file)


def _open_beneath(folder: Path, path: str) -> int:
    """Open for reading, resolving links ourselves: one that leads out of the folder is refused."""
    left, done = [part for part in path.split("/") if part not in ("", ".")], list[str]()
    links = 0
    while left:
        name = left.pop(0)
        if name == "..":
            if not done:
                raise NotRegularFile(errno.EXDEV, "outside of the folder", path)
            done.pop()
            continue
        target = _link_at(folder, done, name)
        if target is None:
            done.append(name)
            continue
        links += 1
        if target.startswith("/") or links > _LINKS_MAX:
            raise NotRegularFile(errno.EXDEV, "outside of the folder", path)
        left = [part for part in target.split("/") if part not in ("", ".")] + left
    with _opened_folder(folder, done[:-1]) as at:
        return os.open(done[-1] if done else ".", os.O_RDONLY | _FILE, dir_fd=at)


def _link_at(folder: Path, names: Sequence[str], name: str) -> str | None:
    with _opened_folder(folder, names) as at:
        try:
            return os.readlink(name, dir_fd=at)
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
            return None


# --- list ------------------------------------------------------------------------------------------------------------


class Listing:
    """The names in one folder, by what they are. `path` is relative and ends in a slash, or is empty at the top.

    Names taken out of `folders` are not visited, nor are those in `too_deep`.
    """

    def __init__(self, path: str, at: int) -> None:
        self.path, self.at = path, at
        self.folders, self.files, self.links, self.special = list[str](), list[str](), list[str](), list[str]()
        with os.scandir(at) as entries:
            for entry in entries:
                self._kind(entry).append(entry.name)
        deep = path.count("/") >= _DEPTH_MAX or len(os.fsencode(path)) > _PATH_MAX
        self.too_deep, self.folders = (self.folders, []) if deep else ([], self.folders)

    def _kind(self, entry: os.DirEntry[str]) -> list[str]:
        if entry.is_symlink():
            return self.links
        if entry.is_dir(follow_symlinks=False):
            return self.folders
        return self.files if entry.is_file(follow_symlinks=False) else self.special


class Holes:
    """Counts what sparse files below one folder seem to hold: no disk bounds it, and reading a terabyte takes hours."""

    def __init__(self) -> None:
        self._left = _HOLES_MAX_BYTES

    def too_large(self, listing: Listing) -> list[str]:
        """Return the files of a folder that are more than what may be read."""
        return [name for name in listing.files if self._exceeds(os.lstat(name, dir_fd=listing.at))]

    def _exceeds(self, file: os.stat_result) -> bool:
        empty = file.st_size - 512 * file.st_blocks
        self._left -= empty if (is_sparse := empty > _HOLE_BYTES) else 0
        return is_sparse and self._left < 0


def walk_inside(
    folder: Path, *, unlock: bool = False, locked: Callable[[str], None] | None = None
) -> Iterator[Listing]:
    """Yield every folder below one, top down, without following links. Unreadable ones are left out.

    `unlock` gives the owner access to folders that an agent has locked. `locked` is called with the path of each that
    cannot be entered, before it is.
    """
    if locked and not os.access(folder, os.R_OK | os.X_OK):
        locked("")
    at = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield from _walk(at, "", unlock=unlock, locked=locked)
    finally:
        os.close(at)


def make_owners(at: int, name: str) -> None:
    """Give the owner of a file or folder (not a link) the right to read, write and enter it."""
    found = os.lstat(name, dir_fd=at)
    wanted = 0o700 if stat.S_ISDIR(found.st_mode) else 0o600
    if not stat.S_ISLNK(found.st_mode) and found.st_mode & wanted != wanted:
        _change_mode(at, name, stat.S_IMODE(found.st_mode) | wanted)


def _change_mode(at: int, name: str, mode: int) -> None:
    """Change the mode of a file or folder, never of what a link leads to that was put in its place meanwhile."""
    if not hasattr(os, "O_PATH"):
        os.chmod(name, mode, dir_fd=at, follow_symlinks=False)
        return
    place = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=at)
    try:
        Path(f"/proc/self/fd/{place}").chmod(mode)  # refused for a link
    finally:
        os.close(place)


def unlock_inside(folder: Path, path: str) -> None:
    """Give the owner the right to read, write and enter a folder, itself or below it, and those on the way."""
    if not os.access(folder, os.R_OK | os.X_OK):
        folder.chmod(stat.S_IMODE(folder.stat().st_mode) | 0o700)
    at = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for name in _inner_parts(path) if path else ():
            make_owners(at, name)
            at = _open_subfolder(at, name, make=False)
    finally:
        os.close(at)


def _walk(
    at: int, path: str, *, unlock: bool = False, locked: Callable[[str], None] | None = None
) -> Iterator[Listing]:
    listing = Listing(path, at)
    yield listing
    for name in listing.folders:
        if unlock:
            make_owners(at, name)
        elif locked and not os.access(name, os.R_OK | os.X_OK, dir_fd=at):
            locked(f"{path}{name}")
        try:
            below = os.open(name, _FOLDER, dir_fd=at)
        except OSError:
            continue
        try:
            yield from _walk(below, f"{path}{name}/", unlock=unlock, locked=locked)
        finally:
            os.close(below)


def lstat_inside(folder: Path, path: str) -> os.stat_result | None:
    """Return what is at a path, never by way of a link; None if there is nothing."""
    *names, last = _inner_parts(path)
    try:
        with _opened_folder(folder, names) as at:
            return os.lstat(last, dir_fd=at)
    except OSError as error:
        if error.errno not in _NOTHING:
            raise
        return None


def is_without_links(folder: Path, path: str) -> bool:
    """Whether a path is below the folder and exists, and neither it nor a folder on the way is a link."""
    try:
        found = lstat_inside(folder, path)
    except OSError:
        return False
    return found is not None and not stat.S_ISLNK(found.st_mode)


def names_inside(folder: Path, path: str) -> list[str]:
    """Return the names in a subfolder; empty if it is none."""
    try:
        with _opened_folder(folder, _inner_parts(path)) as at:
            return sorted(os.listdir(at))  # noqa: PTH208 — by its descriptor
    except OSError:
        return []


def find_inside(folder: Path, path: str = "") -> list[str]:
    """Return all regular files below a subfolder, relative to it; empty if it is none."""
    try:
        with _opened_folder(folder, _inner_parts(path) if path else ()) as at:
            return sorted(f"{one.path}{name}" for one in _walk(at, "") for name in one.files)
    except OSError:
        return []


# --- temporary folders -----------------------------------------------------------------------------------------------


@contextmanager
def temporary_folder(prefix: str, *, within: Path | None = None) -> Iterator[Path]:
    """Yield a new folder and remove it, whatever was put into it: Python's own fails for folders without end."""
    folder = make_temporary_folder(prefix, within=within)
    try:
        yield folder
    finally:
        remove_folder(folder)


def make_temporary_folder(prefix: str, *, within: Path | None = None) -> Path:
    return Path(tempfile.mkdtemp(prefix=prefix, dir=within))


def remove_folder(folder: Path) -> None:
    """Remove a folder. What cannot be removed stays: the work in it is done."""
    with suppress(OSError):
        remove_inside(folder.parent, folder.name)


# --- delete ----------------------------------------------------------------------------------------------------------


def remove_inside(folder: Path, path: str) -> None:
    """Remove a file, link or folder below the folder. Success if it does not exist, or lies behind a link."""
    *names, last = _inner_parts(path)
    try:
        with _opened_folder(folder, names) as at:
            _remove(at, last)
    except OSError as error:
        if error.errno not in _NOTHING:
            raise


def remove_links(folder: Path, path: str) -> None:
    """Remove a link in the place of any folder of a path: it may lead out of the folder."""
    parts = _inner_parts(path) if path else ()
    for end in range(1, len(parts) + 1):
        if folder.joinpath(*parts[:end]).is_symlink():
            remove_inside(folder, "/".join(parts[:end]))


def remove_empty_folder(folder: Path, path: str) -> bool:
    *names, last = _inner_parts(path)
    try:
        with _opened_folder(folder, names) as at:
            os.rmdir(last, dir_fd=at)
    except OSError:
        return False
    return True


def _remove(at: int, name: str, *, folders_only: bool = False) -> None:
    """Remove a file or folder, also from a folder in which an agent took the right to write from its owner."""
    try:
        _remove_from(at, name, folders_only=folders_only)
    except PermissionError:
        os.fchmod(at, stat.S_IMODE(os.fstat(at).st_mode) | 0o700)
        _remove_from(at, name, folders_only=folders_only)


def _remove_from(at: int, name: str, *, folders_only: bool) -> None:
    try:
        found = os.lstat(name, dir_fd=at)
    except FileNotFoundError:
        return
    if stat.S_ISDIR(found.st_mode):
        deep = [name]
        while deep:
            _remove_folder(at, deep.pop(), 0, at, deep)
    elif not folders_only:
        os.unlink(name, dir_fd=at)


def _remove_folder(at: int, name: str, depth: int, top: int, deep: list[str]) -> None:
    """Remove a folder with what is in it. What is very deep is moved to the `top` first and added to `deep`."""
    with suppress(OSError):
        _change_mode(at, name, 0o700)
    if depth and depth % _NESTED_MAX == 0 and _moved(name, at, top, deep):
        return
    below = os.open(name, _FOLDER, dir_fd=at)
    try:
        for inside in os.listdir(below):  # noqa: PTH208 — by its descriptor
            if stat.S_ISDIR(os.lstat(inside, dir_fd=below).st_mode):
                _remove_folder(below, inside, depth + 1, top, deep)
            else:
                os.unlink(inside, dir_fd=below)
    finally:
        os.close(below)
    os.rmdir(name, dir_fd=at)


def _moved(name: str, at: int, top: int, deep: list[str]) -> bool:
    """Move a folder to the top: each level below would need one more descriptor."""
    moved = f".{secrets.token_hex(6)}"
    try:
        os.rename(name, moved, src_dir_fd=at, dst_dir_fd=top)
    except OSError as error:  # a folder of an overlay's base cannot be moved; those of git are not that deep
        if error.errno != errno.EXDEV:
            raise
        return False
    deep.append(moved)
    return True


def remove_special_files(folder: Path, *, outgoing_links: bool = False) -> list[str]:
    """Remove pipes, sockets, devices and what is too deep below a folder, and links that leave it; returns their paths.

    Only for a folder in which no process works any more.
    """
    removed = []
    for listing in walk_inside(folder, locked=partial(unlock_inside, folder)):
        doomed = [name for name in listing.special if not is_whiteout(listing.at, name)]
        if outgoing_links:
            doomed += [name for name in listing.links if _leaves(listing.path, os.readlink(name, dir_fd=listing.at))]
        for name in (*doomed, *listing.too_deep):
            _remove(listing.at, name)
            removed.append(f"{listing.path}{name}")
    return removed


def remove_huge_files(folder: Path, *, enters: Callable[[str, str], bool]) -> None:
    """Remove sparse files that are larger than a disk could hold. `enters` says, by place and name, which folders are
    read. Only for a folder in which no process works any more."""
    holes = Holes()
    for listing in walk_inside(folder):
        for name in holes.too_large(listing):
            _remove(listing.at, name)
        listing.folders[:] = [name for name in listing.folders if enters(listing.path.rstrip("/"), name)]


def is_whiteout(at: int, name: str) -> bool:
    """Whether it is the mark of an overlay's layer for a deleted file."""
    found = os.lstat(name, dir_fd=at)
    return stat.S_ISCHR(found.st_mode) and found.st_rdev == 0


def _leaves(folder: str, target: str) -> bool:
    return target.startswith("/") or leaves_tree(f"{folder}x", target)


def leaves_tree(path: str, target: str) -> bool:
    """Whether a link at `path` with this target may lead out of the tree, whatever else is in it.

    After a name, `..` may: the name may be a link to a folder further up.
    """
    parts = [part for part in target.split("/") if part not in ("", ".")]
    up = next((number for number, part in enumerate(parts) if part != ".."), len(parts))
    return target.startswith("/") or up > path.count("/") or ".." in parts[up:]
