"""Roles of a run, and the paths that each may write."""

from __future__ import annotations

import re
from enum import StrEnum
from functools import lru_cache

import msgspec


class Role(StrEnum):
    """The roles of the built-in workflows. Custom workflows may use other names."""

    AUDITOR = "auditor"
    IMPLEMENTER = "implementer"
    ARCHITECT = "architect"
    REVIEWER = "reviewer"
    SCRIBE = "scribe"
    FIXER = "fixer"


class Writes(StrEnum):
    """What a role may write. `additions` are source files and new tests; `spec` is the item's spec file, limited to the
    scribe's sections; `paths` are the patterns that the role itself names."""

    NOTHING = "nothing"
    TESTS = "tests"
    SOURCE = "source"
    ADDITIONS = "additions"
    SPEC = "spec"
    PATHS = "paths"


WRITES = {
    Role.AUDITOR: Writes.TESTS,
    Role.IMPLEMENTER: Writes.SOURCE,
    Role.ARCHITECT: Writes.SOURCE,
    Role.REVIEWER: Writes.NOTHING,
    Role.SCRIBE: Writes.SPEC,
    Role.FIXER: Writes.SOURCE,
}


class PathRules(msgspec.Struct, frozen=True, kw_only=True):
    """Patterns of test paths and of protected paths, which decide how tests run and which no role may change; and the
    spec's path."""

    tests: tuple[str, ...]
    protected: tuple[str, ...] = ("ratchet.toml", ".ratchet/**", ".git", ".git/**")
    spec: str = ""

    def is_test(self, path: str) -> bool:
        return any(matches_glob(path, pattern) for pattern in self.tests)

    def is_protected(self, path: str) -> bool:
        return any(matches_glob(path, pattern) for pattern in self.protected)

    def may_write(
        self,
        role: str,
        path: str,
        *,
        writes: Writes | None = None,
        paths: tuple[str, ...] = (),
        exists: bool = True,
    ) -> bool:
        """Whether the role may write the path; `exists` says whether it existed at the start of the run."""
        if self.is_protected(path):
            return False
        match writes or default_writes(role):
            case Writes.TESTS:
                return self.is_test(path)
            case Writes.SOURCE:
                return not self.is_test(path) and path != self.spec
            case Writes.ADDITIONS:
                return path != self.spec and not (exists and self.is_test(path))
            case Writes.SPEC:
                return path == self.spec
            case Writes.PATHS:
                return not self.is_test(path) and any(matches_glob(path, pattern) for pattern in paths)
            case _:
                return False


def default_writes(role: str) -> Writes:
    """Return what a role may write by default; an unknown role may write nothing."""
    return WRITES[Role(role)] if role in WRITES else Writes.NOTHING


def matches_glob(path: str, pattern: str) -> bool:
    """Whether a relative POSIX path matches a glob: `*` within a name, `**/` any folders, `dir/**` all below."""
    return _regex(pattern).fullmatch(path) is not None


_GLOB = {"**/": "(?:[^/]+/)*", "**": ".*", "*": "[^/]*", "?": "[^/]"}


@lru_cache(maxsize=1024)
def _regex(pattern: str) -> re.Pattern[str]:
    parts = re.split(r"(\*\*/|\*\*|\*|\?)", pattern)
    return re.compile("".join(_GLOB.get(part, re.escape(part)) for part in parts), re.DOTALL)


_CODE = re.compile(
    r"\.(?:pyi?|[cm]?[jt]sx?|go|rs|java|kts?|scala|cs|fs|rb|php|exs?|erl|swift|[ch]|cc|cpp|hpp|lua|pl|pm|jl|dart|sh)$"
)


def is_code(path: str) -> bool:
    """Whether a path is called like source in a language that has rules of its own."""
    return bool(_CODE.search(path))
