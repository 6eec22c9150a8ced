"""Content that may not be committed: secrets, and links that lead out of the tree."""

from __future__ import annotations

import os

from ratchet.core.roles import matches_glob
from ratchet.engine.steps.context import RunContext
from ratchet.tree_files import leaves_tree

_SCANNED_BYTES = 32 << 20
_OVERLAP = 64 << 10  # a value may begin before the end of what is scanned


def refused_content(context: RunContext, before: str, after: str, paths: list[str]) -> dict[str, str]:
    """Return the changed paths that may not be committed, and why."""
    workspace = context.workspace
    links = workspace.links(before, after)
    news, olds = workspace.read_all(after, paths), workspace.read_all(before, paths)
    refused = {}
    for path, content in news.items():
        if content is None:
            continue
        if path in links and leaves_tree(path, os.fsdecode(content)):
            refused[path] = "is a link that leads out of the repository"
        elif kinds := _secrets(context, path, content, olds.get(path) or b""):
            refused[path] = f"holds {' and '.join(kinds)}: read it from the environment instead"
        elif olds.get(path) is None and (kinds := context.redact.new_secrets(os.fsencode(path))):
            refused[path] = f"has {' and '.join(kinds)} in its name"
    return refused


def _secrets(context: RunContext, path: str, content: bytes, before: bytes) -> list[str]:
    examples = any(matches_glob(path, pattern) for pattern in context.config.example_keys)
    kinds = context.redact.new_secrets(content[:_SCANNED_BYTES], before[:_SCANNED_BYTES], examples=examples)
    if kinds or len(content) <= _SCANNED_BYTES or not context.redact.holds_value(content[_SCANNED_BYTES - _OVERLAP :]):
        return kinds
    return ["the value of a secret variable"]


def reasons(refused: dict[str, str]) -> str:
    return "; ".join(f"{path} {why}" for path, why in list(refused.items())[:3])
