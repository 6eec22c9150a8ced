"""Copy folders by reflink or byte for byte with holes preserved."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path

from ratchet.workspace.syscalls import clone_file

CopyFile = Callable[[str, str], None]
# Errors of FICLONE when files cannot be cloned: another file system, or one without reflinks.
NO_CLONES = frozenset({errno.EXDEV, errno.EOPNOTSUPP, errno.ENOTTY, errno.EINVAL, errno.ENOSYS})


def copy_tree(source: Path, target: Path, lay: CopyFile) -> None:
    """Copy a folder with modes, times and links; `lay` makes each regular file. `target` may exist."""
    target.mkdir(parents=True, exist_ok=True)
    with os.scandir(source) as entries:
        for entry in entries:
            place = target / entry.name
            if entry.is_dir(follow_symlinks=False):
                copy_tree(Path(entry.path), place, lay)
            elif entry.is_symlink():
                place.symlink_to(os.readlink(entry.path))
                shutil.copystat(entry.path, place, follow_symlinks=False)
            elif entry.is_file(follow_symlinks=False):
                lay(entry.path, str(place))
    shutil.copystat(source, target)


def clone(source: str, target: str) -> None:
    clone_file(source, target)
    shutil.copystat(source, target)


def copy_bytes(source: str, target: str) -> None:
    with open(source, "rb") as old, open(target, "xb") as new:
        _copy_data(old.fileno(), new.fileno())
    shutil.copystat(source, target)


def clone_or_copy(source: str, target: str) -> None:
    try:
        clone(source, target)
    except OSError as error:
        if error.errno not in NO_CLONES:
            raise
        Path(target).unlink(missing_ok=True)
        copy_bytes(source, target)


def _copy_data(old: int, new: int) -> None:
    """Copy data only: holes stay holes."""
    size, start = os.fstat(old).st_size, 0
    while start < size:
        try:
            start = os.lseek(old, start, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:  # nothing but a hole is left
                break
            raise
        end = os.lseek(old, start, os.SEEK_HOLE)
        os.lseek(old, start, os.SEEK_SET)
        os.lseek(new, start, os.SEEK_SET)
        while start < end:
            start += os.sendfile(new, old, start, end - start)
    os.ftruncate(new, size)


def size_of(folder: Path) -> int:
    """Return the disk usage of a folder in bytes."""
    total = 0
    for root, _folders, names in os.walk(folder):
        for name in names:
            try:
                total += os.lstat(f"{root}/{name}").st_blocks * 512
            except FileNotFoundError:
                continue
    return total
