"""Roles: who plays in a run, and which paths each may write."""

from __future__ import annotations

import re
from enum import StrEnum
from functools import lru_cache

import msgspec


class Role(StrEnum):
    """The roles of the built-in workflows. A role is a name: a workflow of your own may bring its own."""

    AUDITOR = "auditor"
    IMPLEMENTER = "implementer"
    ARCHITECT = "architect"
    REVIEWER = "reviewer"
    SCRIBE = "scribe"
    FIXER = "fixer"


class Writes(StrEnum):
    """What a role may write. `additions` are source files and tests that are new; `spec` is the item's own spec file,
    and of it only the sections that are the scribe's; `paths` are those that the role names itself."""

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


class Scope(msgspec.Struct, frozen=True, kw_only=True):
    """Which paths are tests, which decide how tests are run and are therefore nobody's to change, and which is the
    spec's."""

    tests: tuple[str, ...]
    protected: tuple[str, ...] = ("ratchet.toml", ".ratchet/**", ".git", ".git/**")
    spec: str = ""

    def is_test(self, path: str) -> bool:
        return any(matches(path, pattern) for pattern in self.tests)

    def is_protected(self, path: str) -> bool:
        return any(matches(path, pattern) for pattern in self.protected)

    def may_write(
        self,
        role: str,
        path: str,
        *,
        writes: Writes | None = None,
        paths: tuple[str, ...] = (),
        exists: bool = True,
    ) -> bool:
        """By the role's name, or by what its workflow gives it; `exists`: the path was there when the run began."""
        if self.is_protected(path):
            return False
        match writes or writes_of(role):
            case Writes.TESTS:
                return self.is_test(path)
            case Writes.SOURCE:
                return not self.is_test(path) and path != self.spec
            case Writes.ADDITIONS:
                return path != self.spec and not (exists and self.is_test(path))
            case Writes.SPEC:
                return path == self.spec
            case Writes.PATHS:
                return not self.is_test(path) and any(matches(path, pattern) for pattern in paths)
            case _:
                return False


def writes_of(role: str) -> Writes:
    """A role nobody knows here may write nothing, unless its workflow says what."""
    return WRITES[Role(role)] if role in WRITES else Writes.NOTHING


def matches(path: str, pattern: str) -> bool:
    """Whether a relative POSIX path matches a glob: `*` within a name, `**/` any folders, `dir/**` all below."""
    return _regex(pattern).fullmatch(path) is not None


_GLOB = {"**/": "(?:[^/]+/)*", "**": ".*", "*": "[^/]*", "?": "[^/]"}


@lru_cache(maxsize=1024)
def _regex(pattern: str) -> re.Pattern[str]:
    parts = re.split(r"(\*\*/|\*\*|\*|\?)", pattern)
    return re.compile("".join(_GLOB.get(part, re.escape(part)) for part in parts), re.DOTALL)
