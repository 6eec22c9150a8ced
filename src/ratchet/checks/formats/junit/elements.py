"""Child elements of a case: name, attributes, and the beginning and end of the text."""

from __future__ import annotations

import msgspec

from ratchet.checks.formats.text import TEXT_LIMIT, clip, strip_control_characters

Attributes = dict[str, str]


class Child(msgspec.Struct, gc=False):
    name: str
    attributes: Attributes
    text: str = ""

    def whole(self) -> str:
        return strip_control_characters(self.attributes.get("message", "") + "\n" + self.text)


class ChildBuilder:
    """A child element whose text is still being read, piece by piece."""

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
            # The same part is omitted however the text was split into pieces.
            held = "".join(self.pieces)
            self.pieces, self.held = [held[:TEXT_LIMIT], held[-TEXT_LIMIT:]], 2 * TEXT_LIMIT

    def build(self) -> Child:
        return Child(self.name, self.attributes, clip("".join(self.pieces), size=self.size))
