"""Path locks: normalising patterns and detecting overlaps."""

from __future__ import annotations

from functools import lru_cache

import msgspec

PATHS_MAX = 1_000
NAME_MAX_CHARS = 255
DEPTH_MAX = 128  # two claims are compared part by part: time grows with the square


class Locked(msgspec.Struct, frozen=True, kw_only=True):
    """All requested paths are locked."""

    paths: list[str]


class Blocked(msgspec.Struct, frozen=True, kw_only=True):
    """Nothing was locked: `asked` overlaps `held`, which `worker` has locked for `run`."""

    asked: str
    held: str
    run: str
    worker: str


class HeldLock(msgspec.Struct, frozen=True, kw_only=True):
    """A locked path, and the worker and run that hold it."""

    repo: str
    path: str
    run: str
    worker: str


def normalise(path: str) -> str:
    """Return the canonical pattern: `src/a.py` for `./src/../src//a.py`, `docs/**` for `docs/`. Raises ValueError."""
    if not path or "\\" in path or any(char < " " or char == "\x7f" for char in path):
        raise ValueError(f"invalid path {path!r}")
    if path.startswith(("/", "~")) or path[1:2] == ":":
        raise ValueError(f"the path {path!r} is absolute: give one relative to the repository")
    parts: list[str] = []
    for part in path.split("/"):
        if part == ".." and not parts:
            raise ValueError(f"the path {path!r} is outside the repository")
        if part == "..":
            parts.pop()
        elif part not in ("", "."):
            parts.append(part)
    if any(len(part) > NAME_MAX_CHARS for part in parts):
        raise ValueError(f"a name in the path {path[:40]!r}… has more than {NAME_MAX_CHARS} characters")
    if len(parts) > DEPTH_MAX:
        raise ValueError(f"the path {path[:40]!r}… is more than {DEPTH_MAX} folders deep")
    if not parts or path.endswith("/"):
        parts.append("**")
    return "/".join(parts)


def normalise_all(paths: list[str]) -> list[str]:
    """Normalise, sort and deduplicate patterns, so that all callers lock in the same order. Raises ValueError."""
    if len(paths) > PATHS_MAX:
        raise ValueError(f"{len(paths)} paths exceed the limit of {PATHS_MAX}: lock their folder instead")
    return sorted({normalise(path) for path in paths})


def overlaps(one: str, other: str) -> bool:
    """Whether a file can match both patterns. A path includes everything below it. Errs towards True."""
    return _parts_meet(tuple(one.split("/")), tuple(other.split("/")))


# Both are iterative: a deeply nested path must not cause a recursion error, which would fail every claim.


@lru_cache(maxsize=65_536)
def _parts_meet(one: tuple[str, ...], other: tuple[str, ...]) -> bool:
    """Match part by part. While `exact` (no `**` used yet), a remaining rest lies below the other path."""
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
    """Split a name into characters, with `?` for any one and `*` for any number; a class `[…]` becomes `?`."""
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
