"""Whether all tests of a document have different identities, if possible without a set of all, which no cache holds."""

from __future__ import annotations

_MOST = 16 << 10


class Identities:
    """Compares the tests of each class, as long as those of a class come together and its name tells them apart."""

    def __init__(self) -> None:
        self.all: list[str] = []  # that were given, also to tests that were forgotten again
        self.is_sure = True  # that all are different, if no class begins as another one does
        self.heads: dict[str, str] = {}  # how the identities of each class begin
        self.last = ""  # the class that came last
        self.ids: set[str] = set()  # of its tests, maybe with others

    def add(self, ids: list[str], groups: list[str], heads: dict[str, str]) -> None:
        """Tests, their classes, and how the identities of each class begin, if that is known."""
        # A string remembers its hash: made while it is in the caches, a set of all would take a third of the time.
        are_distinct = len(set(ids)) == len(ids)
        self.is_sure = self.is_sure and are_distinct and bool(heads) and self._goes_on(ids, groups, heads)
        self.all += ids

    def _goes_on(self, ids: list[str], groups: list[str], heads: dict[str, str]) -> bool:
        """Whether no class came before, but for the last one, which may go on."""
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
        # Where no head begins with another one, tests of different classes have different identities.
        is_sure = self.is_sure and not any(map(str.startswith, heads[1:], heads))
        return is_sure or len(set(self.all)) == len(self.all)
