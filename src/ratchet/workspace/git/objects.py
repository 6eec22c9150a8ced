"""Read loose git objects without starting git, which costs milliseconds. New objects of a run are loose.

Raises NotLoose for packed, unusual or missing objects: git has to be asked for those.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path

from ratchet.core.lines import split_lines

Entries = dict[bytes, tuple[str, str]]
MANY = 1_000
_PARSED_MAX = 64
FOLDER, GONE = "40000", "000000"
_ID = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")


def is_id(text: str) -> bool:
    return bool(_ID.fullmatch(text))


class NotLoose(Exception):
    """The object is not loose; it may exist: ask git."""


class LooseObjects:
    """The loose objects of a repository and of those it borrows from."""

    def __init__(self, store: Path) -> None:
        self._parsed: dict[str, Entries] = {}  # reading all files of a folder parses it once per file
        self._folders = [str(store / "objects")]
        with suppress(FileNotFoundError):
            self._folders += split_lines((store / "objects" / "info" / "alternates").read_text())

    def content(self, name: bytes, kind: bytes) -> bytes | None:
        """Of `OID` or `TREE:path`; None when that is certainly not there, or of another kind. Raises NotLoose."""
        oid, colon, path = name.partition(b":")
        if not is_id(oid.decode(errors="replace")):
            raise NotLoose
        found = self._walked(oid, path) if colon else oid
        if found is None:
            return None
        is_kind, content = self._read(found)
        return content if is_kind == kind else None

    def differing(self, before: str, after: str) -> list[tuple[bytes, str, str]]:
        """The paths in which two trees differ, each with the mode and object it has afterwards. Raises NotLoose, also
        when they are very many: git is quicker then."""
        rows = list(islice(self._differing(before, after, b""), MANY + 1))
        if len(rows) > MANY:
            raise NotLoose
        return rows

    def _differing(self, before: str, after: str, below: bytes) -> Iterator[tuple[bytes, str, str]]:
        old, new = self._entries(before), self._entries(after)
        for name in old.keys() | new.keys() if before != after else ():
            was, now = old.get(name, (GONE, "")), new.get(name, (GONE, ""))
            if was == now:
                continue
            path = below + name
            if now[0] not in (FOLDER, GONE):
                yield path, *now
            elif was[0] not in (FOLDER, GONE):
                yield path, GONE, "0" * len(was[1])
            if FOLDER in (was[0], now[0]):
                left, right = (oid if mode == FOLDER else "" for mode, oid in (was, now))
                yield from self._differing(left, right, path + b"/")

    def _entries(self, tree: str) -> Entries:
        if not tree:
            return {}
        if (known := self._parsed.get(tree)) is not None:
            return known
        kind, content = self._read(tree.encode())
        if kind != b"tree":
            raise NotLoose
        if len(self._parsed) >= _PARSED_MAX:
            self._parsed = {}
        entries = self._parsed[tree] = parse_tree(content, len(tree) // 2)
        return entries

    def _walked(self, tree: bytes, path: bytes) -> bytes | None:
        """The object at a path below a tree."""
        for part in path.split(b"/") if path else ():
            entry = self._entries(tree.decode()).get(part)
            if entry is None:
                return None
            tree = entry[1].encode()
        return tree

    def _read(self, oid: bytes) -> tuple[bytes, bytes]:
        name = oid.decode()
        for folder in self._folders:
            try:
                with open(f"{folder}/{name[:2]}/{name[2:]}", "rb") as file:
                    head, _, content = zlib.decompress(file.read()).partition(b"\0")
            except (OSError, zlib.error):
                continue
            kind, _, size = head.partition(b" ")
            if size == b"%d" % len(content):
                return kind, content
        raise NotLoose


def parse_tree(content: bytes, width: int) -> Entries:
    """A git tree object's rows; a blob, which a path may have become, has none."""
    entries: Entries = {}
    start = 0
    while start < len(content):
        space, end = content.index(b" ", start), content.index(b"\0", start)
        oid = content[end + 1 : end + 1 + width].hex()
        entries[content[space + 1 : end]] = (content[start:space].decode(), oid)
        start = end + 1 + width
    return entries
