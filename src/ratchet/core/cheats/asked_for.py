"""Weighs findings against the spec: what it requests is no cheat, what it mentions is a doubt."""

from __future__ import annotations

import re

import msgspec

from ratchet.core.cheats.findings import Cheat

_MACHINES = r"windows|win32|macos|darwin|linux|freebsd|jruby|pypy|musl|wasm|arm64|platform"
_SPOKEN_OF = {
    "test-disabled": rf"\b(?:skip\w*|xfail\w*|disabl\w*|flak\w*|ignor\w*|pending|quarantin\w*|expected to fail|{_MACHINES})\b",
    "test-removed": r"\b(?:remov\w*|drop\w*|delet\w*|deprecat\w*|obsolete|redundant|duplicat\w*|no longer|replac\w*|rewr\w*|mov\w*|split\w*"
    r"|merg\w*|consolidat\w*|clean\w*|simplif\w*|renam\w*|refactor\w*|revert\w*|unused|strip\w*|extract\w*|reorgani[sz]\w*|migrat\w*|convert\w*|turn\w*|instead)\b",
    "check-silenced": r"\b(?:suppress\w*|ignor\w*|allow\w*|lint\w*|noqa|warning\w*|clippy|mypy|eslint|rubocop|ruff|typ(?:es?|ing)|untyped|nolint|E\d{3})\b",
    "runner-configuration": r"\b(?:config\w*|coverage|thresholds?|ci|workflows?|actions?|jest|vitest|mocha|pytest|tox|nox|rspec|bump\w*"
    r"|upgrad\w*|updat\w*|timeouts?|mov\w*|make\w*|matrix|scripts?|exclud\w*|tag(?:s|ged)?)\b",
    "threshold-lowered": r"\b(?:coverage|thresholds?|fail_under)\b",
    "runner-sniffed": r"\b(?:tests?|testing|ci|environment|caller|called from|stack|frames?|trace\w*)\b",
    "error-swallowed": r"\b(?:swallow\w*|ignor\w*|suppress\w*|silenc\w*|silent\w*|best.effort|fall(?:s|ing)? ?back)\b",
    "runner-touched": r"\b(?:exit\w*|pytest|hooks?|plugins?|excepthook|trac\w*)\b",
    "always-equal": r"\b(?:equal\w*|wildcard|any)\b",
}  # fmt: skip
_REFACTORED = r"\b(?:refactor\w*|rewr\w*|migrat\w*|convert\w*|simplif\w*|revert\w*|remov\w*|drop\w*|no longer|chang\w*|updat\w*|replac\w*|clean\w*|deprecat\w*)\b"
_SPOKEN_OF |= dict.fromkeys(("assertion-removed", "assertion-weakened", "tolerance-loosened"), _REFACTORED)


def weigh(cheat: Cheat, spec: str) -> Cheat:
    """Turn a finding into a doubt if the spec mentions such a thing."""
    spoken = _SPOKEN_OF.get(cheat.rule)
    if cheat.doubt or not spec or not spoken or not re.search(spoken, spec, re.IGNORECASE):
        return cheat
    return msgspec.structs.replace(cheat, doubt=True)
