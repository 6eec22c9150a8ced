"""Names that git refuses in a tree, on this machine or on the Macs and Windows machines that check it out.

They are removed from workspaces: git would end with an error, or leave them out of a commit without a word.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

from ratchet import tree_files

# The file system of a Mac ignores these code points, and the case of letters; that of Windows ignores what follows a
# colon, spaces and dots at the end, and has short names such as `git~1`. A backslash separates names there.
_IGNORED = "[\u200c-\u200f\u202a-\u202e\u206a-\u206f\ufeff]*"


def _any_form(name: str, short: str) -> re.Pattern[str]:
    letters = _IGNORED.join(re.escape(letter) for letter in name)
    forms = rf"{_IGNORED}{letters}{_IGNORED}|(?:{re.escape(name)}|{short})[. ]*(?::.*)?"
    return re.compile(rf"(?:.*\\)?(?:{forms})(?:\\.*)?", re.IGNORECASE | re.DOTALL)


_GIT = _any_form(".git", "git~[0-9]+")
_MODULES = _any_form(".gitmodules", r"gi[a-z0-9]{0,4}~[0-9]+")


def is_refused_name(name: str, *, is_link: bool) -> bool:
    """Whether git refuses a file or folder with this name; as a link also one that is `.gitmodules` somewhere."""
    return bool(_GIT.fullmatch(name) or (is_link and _MODULES.fullmatch(name)))


def find_refused(folder: Path, *, enters: Callable[[str, str], bool], nested: bool = True) -> Iterator[str]:
    """Yield what git refuses below a folder, with `nested` also each `.git` but the top's: git would store a nested
    repository as one entry. `enters` says, by place and name, which folders are read."""
    for listing in tree_files.walk_inside(folder):
        refused = [name for name in (*listing.folders, *listing.files) if is_refused_name(name, is_link=False)]
        refused += [name for name in listing.links if is_refused_name(name, is_link=True)]
        at = listing.path.rstrip("/")
        listing.folders[:] = [name for name in listing.folders if name not in refused and enters(at, name)]
        yield from (f"{listing.path}{name}" for name in refused if name != ".git" or (nested and listing.path))
