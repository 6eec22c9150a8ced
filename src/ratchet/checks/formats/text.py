"""Reads bounded, clean text from any bytes: lines of a stream, the tail of an output, snippets without colours."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator
from typing import BinaryIO

LINE_LIMIT = 4 << 20  # one JSON event with the whole output of a test is one line
PROSE_LIMIT = 2 << 10  # of lines that people read, for patterns whose time grows with the square of the length
TEXT_LIMIT = 32 << 10
TAIL_LIMIT = 8 << 10

# DEL replaces ESC in formats that forbid ESC (XML).
_CODES = r"(?:\[[0-?]*[ -/]*[@-~]|[\]_P^][^\x07\x1b\n]{0,4096}(?:\x07|\x1b\\)|[@-Z\\-_])"
_ANSI = re.compile(rf"[\x1b\x7f]{_CODES}")
_ANSI_BYTES = re.compile(rf"\x1b{_CODES}".encode())
_UTF16 = {b"\xff\xfe": "utf-16-le", b"\xfe\xff": "utf-16-be"}
_SURROGATE = re.compile("[\ud800-\udfff]")


def lines(stream: BinaryIO, *, overwritten: bool = True, limit: int = LINE_LIMIT) -> Iterator[str]:
    """Yield the lines of a stream as a terminal would show them. The part of a line beyond the limit is dropped."""
    while raw := stream.readline(limit):
        # A progress line is overwritten; only its last state counts.
        line = strip_control_characters(raw.decode("utf-8", "replace")).rstrip("\r\n")
        yield line.rpartition("\r")[2] if overwritten else line
        while raw and not raw.endswith(b"\n"):
            raw = stream.readline(LINE_LIMIT)


def strip_control_characters(text: str) -> str:
    """Remove terminal codes and carriage returns, and make the text encodable."""
    if "\x1b" in text or "\x7f" in text:
        text = _ANSI.sub("", text)
    if "\r" in text:
        text = text.replace("\r\n", "\n")
    return text if text.isascii() else _SURROGATE.sub("\ufffd", text)


def strip_colours(content: bytes) -> bytes:
    """Remove terminal codes from the whole content, which is faster than line by line if it is parsed several times."""
    return _ANSI_BYTES.sub(b"", content) if b"\x1b" in content else content


def as_utf8(content: bytes) -> bytes:
    """Convert UTF-16 to UTF-8: PowerShell's `>` writes UTF-16."""
    encoding = _UTF16.get(content[:2])
    return content[2:].decode(encoding, "replace").encode("utf-8", "replace") if encoding else content


def clip(text: str, limit: int = TEXT_LIMIT, *, size: int = 0) -> str:
    """Keep both ends of a long text: the middle is mostly noise. `size` is the original length, if a part is gone
    already."""
    if len(text) <= limit:
        return text
    head, tail = limit * 2 // 3, limit // 3
    return f"{text[:head]}\n… {(size or len(text)) - head - tail} characters cut …\n{text[-tail:]}"


def first_line(text: str) -> str:
    begun = text.lstrip().split("\n", 1)[0]
    return begun.splitlines()[0].strip() if begun else ""


class Tail:
    """Keeps the end of a text that arrives in pieces."""

    def __init__(self, limit: int = TAIL_LIMIT) -> None:
        self._pieces: deque[str] = deque()
        self._size = 0
        self._limit = limit

    def add(self, text: str) -> None:
        text = text[-self._limit :]
        self._pieces.append(text)
        self._size += len(text)
        while self._size - len(self._pieces[0]) >= self._limit:
            self._size -= len(self._pieces.popleft())

    def text(self) -> str:
        return "".join(self._pieces)[-self._limit :]


class HeadAndTail:
    """Keeps the beginning and the end of a text that arrives in pieces."""

    def __init__(self, limit: int = TEXT_LIMIT) -> None:
        self._head = ""
        self._room = limit // 2
        self._tail = Tail(limit // 2)

    def add(self, text: str) -> None:
        if self._room > 0:
            self._head += text[: self._room]
            text, self._room = text[self._room :], self._room - len(text)
        if text:
            self._tail.add(text)

    def text(self) -> str:
        return self._head + self._tail.text()
