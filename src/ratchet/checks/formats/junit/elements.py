"""The elements inside a case: what they are called, what their tags say, and both ends of their text."""

from __future__ import annotations

import msgspec

from ratchet.checks.formats.text import TEXT_LIMIT, clip, plain

Attributes = dict[str, str]


class Child(msgspec.Struct, gc=False):
    name: str
    attributes: Attributes
    text: str = ""

    def whole(self) -> str:
        return plain(self.attributes.get("message", "") + "\n" + self.text)


class Hearing:
    """A child whose text is still being heard, piece by piece."""

    __slots__ = ("attributes", "held", "name", "pieces", "size")

    def __init__(self, name: str, attributes: Attributes) -> None:
        self.name = name
        self.attributes = attributes
        self.pieces: list[str] = []
        self.size = self.held = 0

    def add(self, data: str) -> None:
        self.pieces.append(data)
        self.size += len(data)
        self.held += len(data)
        if self.held > 4 * TEXT_LIMIT:
            # Wherever the text was torn, the same is cut out of it.
            held = "".join(self.pieces)
            self.pieces, self.held = [held[:TEXT_LIMIT], held[-TEXT_LIMIT:]], 2 * TEXT_LIMIT

    def heard(self) -> Child:
        return Child(self.name, self.attributes, clip("".join(self.pieces), size=self.size))
