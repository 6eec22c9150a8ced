"""Learnings: lessons with their provenance, found again by the words in them."""

from __future__ import annotations

import re
from typing import Annotated

import msgspec

CONTENT_MAX_CHARS = 10_000
WORDS_MAX = 40


class Learning(msgspec.Struct, frozen=True, kw_only=True):
    """`run` and `seq` name the ledger row it was drawn from. A retired one is kept, and found no more."""

    id: str
    repo: str
    content: Annotated[str, msgspec.Meta(min_length=1, max_length=CONTENT_MAX_CHARS)]
    spec: str = ""
    tags: list[str] = []
    run: str = ""
    seq: int = 0
    created_at: str
    retired_at: str = ""


def words_of(query: str) -> list[str]:
    """What of a question can be looked up: its words, each once. No index's own syntax gets through."""
    return list(dict.fromkeys(re.findall(r"[^\W_]+", query.lower())))[:WORDS_MAX]
