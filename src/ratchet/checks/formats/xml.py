"""Reads untrusted XML: with expat while the document is well-formed, with a lenient parser from the first error on.

Entities are never defined or fetched: a document that declares some is read by the lenient parser, which knows only the
five predefined ones.
"""

from __future__ import annotations

import re
from codecs import getincrementaldecoder
from collections import deque
from collections.abc import Iterator
from functools import lru_cache
from typing import BinaryIO, Protocol
from xml.parsers import expat

CHUNK = 256 << 10
_KEPT = 8 << 20  # how far an error may rewind
_TOKEN_LIMIT = 4 << 20

# Control characters are illegal even as references; ESC becomes DEL, which is legal, so that colours can be removed.
_DELETED = bytes(c for c in range(32) if c not in (9, 10, 13, 27))
_LEGAL = bytes.maketrans(b"\x1b", b"\x7f")
_ODD = (*_DELETED, 27)
_UTF16 = (b"\xff\xfe", b"\xfe\xff")
_DECLARED = re.compile(rb"""^\s*<\?xml[^>]*encoding=["']([\w.-]+)["']""")


class XmlHandler(Protocol):
    """Receives the document. Calls `reader.mark()` where everything before is final, `reader.listen()` for text."""

    reader: XmlReader

    def start(self, name: str, attributes: dict[str, str], /) -> None: ...
    def end(self, name: str, /) -> None: ...
    def text(self, data: str, /) -> None: ...
    def rewind(self) -> None:
        """Forget everything since the last mark: it comes again."""


class FastPath(Protocol):
    """Reads repetitive stretches without expat. Expat reads the first element, to confirm the position."""

    def find(self, data: bytes, begin: int, /) -> tuple[int, int, int] | None:
        """Return the next stretch: its start, the end of its first element, its end."""

    def enter(self) -> bool:
        """Prepare for the first element of the stretch. Always true."""

    def take(self) -> bool:
        """Read the rest of the stretch, if that element came and nothing else did."""


class UnsafeXml(Exception):
    """The document declares entities."""


class XmlReader:
    """Feeds one document to a handler. Afterwards `fault` describes the first error, if any."""

    def __init__(self, handler: XmlHandler, lane: FastPath | None = None) -> None:
        self.fault = ""
        self._handler = handler
        self._lane = lane
        self._tolerant: LenientParser | None = None
        self._marked = 0
        self._skipped = 0  # bytes read by the fast path
        self._kept: deque[tuple[int, bytes]] = deque()
        self._parser = self._expat()
        handler.reader = self

    def read(self, stream: BinaryIO) -> None:
        position = 0
        for chunk in chunks(stream):
            self._keep(position, chunk)
            self._feed(chunk[self._skim(chunk, position) :])
            position += len(chunk)
        self._feed(b"", final=True)
        # Break the reference cycle: otherwise results would live until the garbage collector runs.
        del self._handler.reader

    def mark(self) -> None:
        if self._tolerant is None:
            self._marked = self._parser.CurrentByteIndex + self._skipped

    def listen(self, wanted: bool = True) -> None:
        if self._tolerant is None:
            self._parser.CharacterDataHandler = self._handler.text if wanted else None
        else:
            self._tolerant.listening = wanted

    def _expat(self) -> expat.XMLParserType:
        parser = expat.ParserCreate("utf-8")
        parser.buffer_text = True
        parser.buffer_size = 64 << 10
        parser.StartElementHandler = self._handler.start
        parser.EndElementHandler = self._handler.end
        parser.EntityDeclHandler = _refuse
        return parser

    def _keep(self, position: int, chunk: bytes) -> None:
        """Keep what an error may force us to read again: from the last mark on, within limits."""
        if self._tolerant is None:
            self._kept.append((position, chunk))
            while len(self._kept) > 1 and (self._kept[1][0] <= self._marked or self._oversized(position)):
                self._kept.popleft()

    def _oversized(self, position: int) -> bool:
        return position - self._kept[0][0] > _KEPT

    def _skim(self, chunk: bytes, position: int) -> int:
        """Read the chunk up to the end of its last fast stretch, and return that position."""
        done = 0
        while self._lane and self._tolerant is None and (found := self._lane.find(chunk, done)):
            begin, first, end = found
            if not (self._parses(chunk[done:begin]) and self._lane.enter() and self._parses(chunk[begin:first])):
                return len(chunk)
            if self._lane.take():
                self._skipped += end - first
                self._marked = position + end
            elif not self._parses(chunk[first:end]):
                return len(chunk)
            done = end
        return done

    def _parses(self, piece: bytes) -> bool:
        """Return whether expat is still reading. After an error all kept data and the rest of this chunk are read
        again."""
        self._feed(piece)
        return self._tolerant is None

    def _feed(self, chunk: bytes, *, final: bool = False) -> None:
        if self._tolerant is not None:
            self._tolerant.feed(chunk.decode("utf-8", "replace"), final=final)
            return
        try:
            self._parser.Parse(chunk, final)
        except (expat.ExpatError, UnsafeXml) as fault:
            self._fall_back(str(fault), final)

    def _fall_back(self, fault: str, final: bool) -> None:
        self.fault = fault
        base, data = self._kept[0][0] if self._kept else 0, b"".join(piece for _, piece in self._kept)
        self._kept.clear()
        self._tolerant = LenientParser(self._handler)
        # If the mark is out of reach, the open record stays as it is and reading continues after the error.
        if again := self._marked >= base:
            self._handler.rewind()
        begin = self._marked if again else max(base, self._parser.ErrorByteIndex + self._skipped)
        self._tolerant.feed(data[begin - base :].decode("utf-8", "replace"), final=final)


def _refuse(*_: object) -> None:
    raise UnsafeXml("the document declares entities, which are not read")


_NAME = r"[A-Za-z_][\w:.-]*+"
_ATTRIBUTE = rf"""\s++{_NAME}\s*+=\s*+(?:"[^"]*+"|'[^']*+')"""
_TAG = re.compile(rf"<({_NAME})((?:{_ATTRIBUTE})*)\s*+(/?)>")
_UNFINISHED = re.compile(rf"""<(?:/?{_NAME})?(?:{_ATTRIBUTE})*\s*+(?:{_NAME}\s*+(?:=\s*+(?:"[^"]*+|'[^']*+)?)?)?/?\Z""")
_BROKEN_TAG = re.compile(rf"<({_NAME})(\s[^<>]*+)?(/?)>")
_CLOSE = re.compile(rf"</\s*+({_NAME})\s*+>")
_PAIR = re.compile(rf"""({_NAME})\s*+=\s*+(?:"([^"]*+)"|'([^']*+)')""")
_REFERENCE = re.compile(r"&(#x[0-9a-fA-F]{1,6}|#[0-9]{1,7}|lt|gt|amp|quot|apos);")
_TORN_REFERENCE = re.compile(r"&#?\w*+\Z")
_LONGEST_REFERENCE = len("&#x10ffff")
_NAMED = {"lt": "<", "gt": ">", "amp": "&", "quot": '"', "apos": "'"}
SPACES = str.maketrans("\t\n\r", "   ")  # attribute normalisation, as in every parser
_CDATA = "<![CDATA["
_SKIPPED = {"<!--": "-->", "<?": "?>"}


class LenientParser:
    """Reads what expat rejects: unescaped characters, broken nesting, noise around and between, a missing end."""

    def __init__(self, handler: XmlHandler) -> None:
        self.listening = False
        self._handler = handler
        self._buffer = ""

    def feed(self, data: str, *, final: bool) -> None:
        self._buffer += data
        position = 0
        while (found := self._buffer.find("<", position)) >= 0:
            self._emit_text(position, found)
            position = found
            step = self._token(found)
            if step is None and not final and len(self._buffer) - found < _TOKEN_LIMIT:
                break
            position = len(self._buffer) if step is None else step
        else:
            end = len(self._buffer) if final else self._text_end()
            self._emit_text(position, end)
            position = max(position, end)
        self._buffer = self._buffer[position:]

    def _text_end(self) -> int:
        """Return where the current text ends: before a reference that is split between two chunks."""
        torn = _TORN_REFERENCE.search(self._buffer, max(0, len(self._buffer) - _LONGEST_REFERENCE))
        return torn.start() if torn else len(self._buffer)

    def _token(self, at: int) -> int | None:
        """Handle the token that begins here; return the position after it, or None if its end has not arrived."""
        if self._buffer.startswith(_CDATA, at):
            return self._cdata(at + len(_CDATA))
        begun = self._buffer[at : at + len(_CDATA)]
        # An opening may be split between two chunks.
        if any(len(begun) < len(opening) and opening.startswith(begun) for opening in (_CDATA, *_SKIPPED)):
            return None
        for begin, end in _SKIPPED.items():
            if self._buffer.startswith(begin, at):
                closed = self._buffer.find(end, at)
                return closed + len(end) if closed >= 0 else None
        return self._tag(at)

    def _cdata(self, begin: int) -> int | None:
        end = self._buffer.find("]]>", begin)
        if end < 0:
            return None
        if self.listening:
            self._handler.text(self._buffer[begin:end])
        return end + 3

    def _tag(self, at: int) -> int | None:
        if found := _CLOSE.match(self._buffer, at):
            self._handler.end(found.group(1))
            return found.end()
        found = _TAG.match(self._buffer, at)
        if not found and _UNFINISHED.match(self._buffer, at):
            return None
        found = found or _BROKEN_TAG.match(self._buffer, at)
        if not found:
            self._emit_text(at, at + 1)
            return at + 1
        self._open(found.group(1), found.group(2) or "", bool(found.group(3)))
        return found.end()

    def _open(self, name: str, attributes: str, empty: bool) -> None:
        found = _PAIR.findall(attributes)
        pairs = {key: unescape((double or single).translate(SPACES)) for key, double, single in found}
        self._handler.start(name, pairs)
        if empty:
            self._handler.end(name)

    def _emit_text(self, begin: int, end: int) -> None:
        if self.listening and begin < end:
            self._handler.text(unescape(self._buffer[begin:end]))


def unescape(text: str) -> str:
    return _REFERENCE.sub(_character, text) if "&" in text else text


def unescape_strictly(text: str) -> str | None:
    """Unescape, but return None where a parser would reject the text."""
    if "&" not in text:
        return text
    if text.count("&") * _SPARSE > len(text):
        text = _without_usual(text)
    first, *rest = text.split("&")
    pieces = [first]
    for part in rest:
        name, end, after = part.partition(";")
        character = _referred(name) if end else None
        if character is None:
            return None
        pieces += character, after
    return "".join(pieces)


_SPARSE = 60  # searching for three usual references takes as long as replacing one in the same number of characters


def _without_usual(text: str) -> str:
    return text.replace("&lt;", "<").replace("&gt;", ">").replace("&#10;", "\n")


@lru_cache(maxsize=256)
def _referred(name: str) -> str | None:
    """Return the text for the reference of this name; None if it is invalid."""
    found = _REFERENCE.fullmatch(f"&{name};")
    return _character(found) if found and _is_legal(name) else None


def _character(found: re.Match[str]) -> str:
    name = found.group(1)
    if not _is_legal(name):
        return "\ufffd"
    return chr(_code(name)) if name.startswith("#") else _NAMED[name]


def _is_legal(name: str) -> bool:
    if not name.startswith("#"):
        return name in _NAMED
    code = _code(name)
    return 32 <= code < 0xD800 or code in (9, 10, 13) or 0xE000 <= code < 0xFFFE or 0x10000 <= code < 0x110000


def _code(name: str) -> int:
    return int(name[2:], 16) if name[1] == "x" else int(name[1:])


def chunks(stream: BinaryIO) -> Iterator[bytes]:
    """Yield the stream as clean UTF-8, whatever its declaration says."""
    # A blank line before the declaration is invalid but harmless.
    head = stream.read(CHUNK).lstrip(b"\r\n\t ")
    decoder = getincrementaldecoder(_encoding(head))("replace")
    simple = not head.startswith(_UTF16)
    while head:
        # Most documents are ASCII; decoding them twice would be half of the cost of reading.
        known = simple and head.isascii() and not decoder.getstate()[0]
        clean = head if known else _encoded(decoder.decode(head))
        # Searching for each of them takes half as long as translating, and almost no document has one.
        yield clean.translate(_LEGAL, _DELETED) if any(map(clean.__contains__, _ODD)) else clean
        head = stream.read(CHUNK)
    if rest := decoder.decode(b"", final=True):
        yield _encoded(rest)


def _encoded(text: str) -> bytes:
    """Encode without the two characters that no document may contain."""
    return text.replace("\ufffe", "\ufffd").replace("\uffff", "\ufffd").encode("utf-8", "replace")


def _encoding(head: bytes) -> str:
    if head.startswith(_UTF16):
        return "utf-16"
    declared = _DECLARED.match(head)
    name = declared.group(1).decode().lower() if declared else "utf-8-sig"
    return (
        name if name in {"iso-8859-1", "latin-1", "windows-1252", "cp1252", "us-ascii", "iso-8859-15"} else "utf-8-sig"
    )
