"""What is installed for a kind of part, ours and anybody's alike: the entry points of `ratchet.*`, looked for once.

Looking reads a file of every installed package, ten milliseconds and more: too dear for each agent of each item.
"""

from __future__ import annotations

from contextlib import suppress
from functools import cache
from importlib.metadata import EntryPoint, entry_points

GROUPS = ("agents", "workflows", "steps", "gates", "runners", "prompts")


@cache
def found(kind: str) -> dict[str, EntryPoint]:
    """By name; of two of the same name the later one."""
    return {entry.name: entry for entry in entry_points(group=f"ratchet.{kind}")}


def load_all() -> None:
    """Import them now, for those who are forked from us: each would else do it again. What cannot be imported is told
    to whoever asks for it by name."""
    for kind in GROUPS:
        for entry in found(kind).values():
            with suppress(Exception):
                entry.load()
