"""Locks on paths: how a claim on paths is written, and when two claims touch the same file."""

from __future__ import annotations

from functools import lru_cache

import msgspec

PATHS_MAX = 1_000
NAME_MAX_CHARS = 255
DEPTH_MAX = 128  # two claims are compared part by part: time grows with the square


class Locked(msgspec.Struct, frozen=True, kw_only=True):
    """All that was asked for is held."""

    paths: list[str]


class Blocked(msgspec.Struct, frozen=True, kw_only=True):
    """Nothing was taken: `asked` touches `held`, which `worker` holds for `run`."""

    asked: str
    held: str
    run: str
    worker: str


def normalise(path: str) -> str:
    """One spelling for each claim: `./src//a.py` is `src/a.py`, `docs/` is `docs/**`. Raises ValueError."""
    if not path or "\\" in path or any(char < " " or char == "\x7f" for char in path):
        raise ValueError(f"{path!r} is no path in a repository")
    if path.startswith(("/", "~")) or path[1:2] == ":":
        raise ValueError(f"{path!r} is absolute: locks are on paths in the repository")
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if ".." in parts:
        raise ValueError(f"{path!r} leaves the repository")
    if any(len(part) > NAME_MAX_CHARS for part in parts):
        raise ValueError(f"{path[:40]!r}… has a name longer than any file's")
    if len(parts) > DEPTH_MAX:
        raise ValueError(f"{path[:40]!r}… is deeper than {DEPTH_MAX} folders")
    if not parts or path.endswith("/"):
        parts.append("**")
    return "/".join(parts)


def normalised(paths: list[str]) -> list[str]:
    """Sorted and each once, so that the order of asking is the same for everybody."""
    if len(paths) > PATHS_MAX:
        raise ValueError(f"{len(paths)} paths are too many for one claim: lock their directory")
    return sorted({normalise(path) for path in paths})


def overlap(one: str, other: str) -> bool:
    """Whether some file can belong to both. A path also claims what is below it. In doubt, yes."""
    return _parts_meet(tuple(one.split("/")), tuple(other.split("/")))


# Neither of these calls itself: a hostile path may be as deep as it likes, and an error here would stop every claim.


@lru_cache(maxsize=65_536)
def _parts_meet(one: tuple[str, ...], other: tuple[str, ...]) -> bool:
    """`exact` until a `**` was used: only then do we know that what is left lies below the other's path."""
    ways, seen = [(0, 0, True)], set[tuple[int, int, bool]]()
    while ways:
        way = n, m, exact = ways.pop()
        if way in seen:
            continue
        seen.add(way)
        if n == len(one) or m == len(other):
            if exact or all(part == "**" for part in one[n:] + other[m:]):
                return True
        elif "**" in (one[n], other[m]):
            ways += [(n + 1, m, False), (n, m + 1, False)]
        elif _names_meet(_atoms(one[n]), _atoms(other[m])):
            ways.append((n + 1, m + 1, exact))
    return False


def _atoms(name: str) -> tuple[str, ...]:
    """A name as single characters, `?` for any one and `*` for any number. A class `[…]` is taken for any one."""
    atoms: list[str] = []
    rest = name
    while rest:
        end = rest.find("]", 2) if rest[0] == "[" else -1
        atoms.append("?" if end > 0 else rest[0])
        rest = rest[end + 1 :] if end > 0 else rest[1:]
    return tuple(atoms)


@lru_cache(maxsize=65_536)
def _names_meet(one: tuple[str, ...], other: tuple[str, ...]) -> bool:
    ways, seen = [(0, 0)], set[tuple[int, int]]()
    while ways:
        way = n, m = ways.pop()
        if way in seen:
            continue
        seen.add(way)
        if n == len(one) or m == len(other):
            if all(atom == "*" for atom in one[n:] + other[m:]):
                return True
        elif "*" in (one[n], other[m]):
            ways += [(n + 1, m), (n, m + 1)]
        elif one[n] == other[m] or "?" in (one[n], other[m]):
            ways.append((n + 1, m + 1))
    return False
