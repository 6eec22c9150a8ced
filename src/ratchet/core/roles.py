"""Roles: who plays in a run, and which paths each may write."""

from __future__ import annotations

import re
from enum import StrEnum
from functools import lru_cache

import msgspec


class Role(StrEnum):
    AUDITOR = "auditor"
    IMPLEMENTER = "implementer"
    ARCHITECT = "architect"
    REVIEWER = "reviewer"
    SCRIBE = "scribe"
    FIXER = "fixer"


class Scope(msgspec.Struct, frozen=True, kw_only=True):
    """Which paths are tests, and which decide how tests are run and are therefore nobody's to change."""

    tests: tuple[str, ...]
    protected: tuple[str, ...] = ("ratchet.toml", ".ratchet/**", ".git", ".git/**")

    def is_test(self, path: str) -> bool:
        return any(matches(path, pattern) for pattern in self.tests)

    def is_protected(self, path: str) -> bool:
        return any(matches(path, pattern) for pattern in self.protected)

    def may_write(self, role: Role, path: str) -> bool:
        if self.is_protected(path) or role in (Role.REVIEWER, Role.SCRIBE):
            return False
        return self.is_test(path) == (role is Role.AUDITOR)


def matches(path: str, pattern: str) -> bool:
    """Whether a relative POSIX path matches a glob: `*` within a name, `**/` any folders, `dir/**` all below."""
    return _regex(pattern).fullmatch(path) is not None


_GLOB = {"**/": "(?:[^/]+/)*", "**": ".*", "*": "[^/]*", "?": "[^/]"}


@lru_cache(maxsize=1024)
def _regex(pattern: str) -> re.Pattern[str]:
    parts = re.split(r"(\*\*/|\*\*|\*|\?)", pattern)
    return re.compile("".join(_GLOB.get(part, re.escape(part)) for part in parts), re.DOTALL)
