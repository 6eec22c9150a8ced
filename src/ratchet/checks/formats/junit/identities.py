"""Whether all tests of a document have different identities."""

from __future__ import annotations


class Identities:
    """All that were given, also to tests that were forgotten again."""

    def __init__(self) -> None:
        self.are_distinct_so_far = True
        self.all: list[str] = []

    def add(self, ids: list[str]) -> None:
        # A string remembers its hash. Made now, while it is in the caches, a set of all takes a third of the time.
        self.are_distinct_so_far = self.are_distinct_so_far and len(set(ids)) == len(ids)
        self.all += ids

    def are_distinct(self) -> bool:
        return self.are_distinct_so_far and len(set(self.all)) == len(self.all)
