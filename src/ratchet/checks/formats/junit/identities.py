"""Checks whether all test ids of a document are different, if possible without a set of all ids, which would exceed the
CPU caches."""

from __future__ import annotations

_MOST = 16 << 10


class Identities:
    """Compares the ids within each class, as long as the tests of a class are adjacent and classes have different
    prefixes."""

    def __init__(self) -> None:
        self.all: list[str] = []  # all ids, including those of results dropped later
        self.is_sure = True  # whether all are different, provided that no class prefix begins with another one
        self.heads: dict[str, str] = {}  # the common prefix of the ids of each class
        self.last = ""  # the last class
        self.ids: set[str] = set()  # its ids, possibly with others

    def add(self, ids: list[str], groups: list[str], heads: dict[str, str]) -> None:
        """Add ids with their classes, and the common prefix of each class if known."""
        # Strings cache their hash: computed here, while the strings are in the CPU caches, they make a later set three
        # times as fast.
        are_distinct = len(set(ids)) == len(ids)
        self.is_sure = self.is_sure and are_distinct and bool(heads) and self._goes_on(ids, groups, heads)
        self.all += ids

    def _goes_on(self, ids: list[str], groups: list[str], heads: dict[str, str]) -> bool:
        """Return whether no class appeared before, except for the last one, which may continue."""
        last, more = self.last, 0
        if again := heads.keys() & self.heads.keys():
            more = groups.count(last)
            is_last = again == {last} and heads[last] == self.heads[last] and groups[:more].count(last) == more
            if not is_last or not self.ids.isdisjoint(ids[:more]):
                return False
        self.heads |= heads
        if more == len(ids):
            self.ids.update(ids)
        else:
            self.last = groups[-1]
            self.ids = set(ids[groups.index(self.last) :])
        return len(self.ids) < _MOST

    def are_distinct(self) -> bool:
        heads = sorted(self.heads.values())
        # If no prefix begins with another one, tests of different classes have different ids.
        is_sure = self.is_sure and not any(map(str.startswith, heads[1:], heads))
        return is_sure or len(set(self.all)) == len(self.all)
