"""XML from strangers: expat while the document is well-formed, a tolerant reader from the first fault on.

Entities are never defined or fetched: a document that tries is read by the tolerant reader, which knows only the five.
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
_KEPT = 8 << 20  # how far back a fault may send us
_TOKEN_LIMIT = 4 << 20

# Control characters are illegal even as references; ESC becomes DEL, which is legal, so that colours can be removed.
_DELETED = bytes(c for c in range(32) if c not in (9, 10, 13, 27))
_LEGAL = bytes.maketrans(b"\x1b", b"\x7f")
_ODD = (*_DELETED, 27)
_UTF16 = (b"\xff\xfe", b"\xfe\xff")
_DECLARED = re.compile(rb"""^\s*<\?xml[^>]*encoding=["']([\w.-]+)["']""")


class Handler(Protocol):
    """Receives the document. Calls `reader.mark()` where everything before is final, `reader.listen()` for text."""

    reader: Reader

    def start(self, name: str, attributes: dict[str, str], /) -> None: ...
    def end(self, name: str, /) -> None: ...
    def text(self, data: str, /) -> None: ...
    def rewind(self) -> None:
        """Forget what came since the last mark: it comes again."""


class Lane(Protocol):
    """Reads by itself what would be heard again and again. Expat hears the first of it, to be sure of the place."""

    def find(self, data: bytes, begin: int, /) -> tuple[int, int, int] | None:
        """The next stretch: where it begins, where its first element ends, where it ends."""

    def enter(self) -> bool:
        """Its first element comes next. Always true."""

    def take(self) -> bool:
        """Take the rest, if that element came and nothing else did."""


class Refused(Exception):
    """The document declares entities."""


class Reader:
    """Feeds one document to a handler. Afterwards `fault` says what was wrong with it, if anything."""

    def __init__(self, handler: Handler, lane: Lane | None = None) -> None:
        self.fault = ""
        self._handler = handler
        self._lane = lane
        self._tolerant: Tolerant | None = None
        self._marked = 0
        self._unheard = 0  # bytes that went down the lane
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
        # We hold each other: without this the results would outlive their last user until the collector comes.
        del self._handler.reader

    def mark(self) -> None:
        if self._tolerant is None:
            self._marked = self._parser.CurrentByteIndex + self._unheard

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
        """Holds back what a fault may make us read again: from the last mark on, within bounds."""
        if self._tolerant is None:
            self._kept.append((position, chunk))
            while len(self._kept) > 1 and (self._kept[1][0] <= self._marked or self._oversized(position)):
                self._kept.popleft()

    def _oversized(self, position: int) -> bool:
        return position - self._kept[0][0] > _KEPT

    def _skim(self, chunk: bytes, position: int) -> int:
        """Reads the chunk up to the end of its last stretch in the lane, and says where that is."""
        done = 0
        while self._lane and self._tolerant is None and (found := self._lane.find(chunk, done)):
            begin, first, end = found
            if not (self._hears(chunk[done:begin]) and self._lane.enter() and self._hears(chunk[begin:first])):
                return len(chunk)
            if self._lane.take():
                self._unheard += end - first
                self._marked = position + end
            elif not self._hears(chunk[first:end]):
                return len(chunk)
            done = end
        return done

    def _hears(self, piece: bytes) -> bool:
        """Whether expat still reads. A fault has all that was kept read again, with the rest of this chunk."""
        self._feed(piece)
        return self._tolerant is None

    def _feed(self, chunk: bytes, *, final: bool = False) -> None:
        if self._tolerant is not None:
            self._tolerant.feed(chunk.decode("utf-8", "replace"), final=final)
            return
        try:
            self._parser.Parse(chunk, final)
        except (expat.ExpatError, Refused) as fault:
            self._fall_back(str(fault), final)

    def _fall_back(self, fault: str, final: bool) -> None:
        self.fault = fault
        base, data = self._kept[0][0] if self._kept else 0, b"".join(piece for _, piece in self._kept)
        self._kept.clear()
        self._tolerant = Tolerant(self._handler)
        # When the mark is out of reach, the record in hand stays as it is and reading goes on behind the fault.
        if again := self._marked >= base:
            self._handler.rewind()
        begin = self._marked if again else max(base, self._parser.ErrorByteIndex + self._unheard)
        self._tolerant.feed(data[begin - base :].decode("utf-8", "replace"), final=final)


def _refuse(*_: object) -> None:
    raise Refused("the document declares entities, which are not read")


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
SPACES = str.maketrans("\t\n\r", "   ")  # as every parser has to read attributes
_CDATA = "<![CDATA["
_SKIPPED = {"<!--": "-->", "<?": "?>"}


class Tolerant:
    """Reads what expat refuses: unescaped characters, broken nesting, noise around and between, a missing end."""

    def __init__(self, handler: Handler) -> None:
        self.listening = False
        self._handler = handler
        self._buffer = ""

    def feed(self, data: str, *, final: bool) -> None:
        self._buffer += data
        position = 0
        while (found := self._buffer.find("<", position)) >= 0:
            self._say(position, found)
            position = found
            step = self._token(found)
            if step is None and not final and len(self._buffer) - found < _TOKEN_LIMIT:
                break
            position = len(self._buffer) if step is None else step
        else:
            end = len(self._buffer) if final else self._said()
            self._say(position, end)
            position = max(position, end)
        self._buffer = self._buffer[position:]

    def _said(self) -> int:
        """Where the text in hand ends: before a reference that is torn between two chunks."""
        torn = _TORN_REFERENCE.search(self._buffer, max(0, len(self._buffer) - _LONGEST_REFERENCE))
        return torn.start() if torn else len(self._buffer)

    def _token(self, at: int) -> int | None:
        """Takes the token that begins here; the position behind it, or nothing if its end has not come yet."""
        if self._buffer.startswith(_CDATA, at):
            return self._cdata(at + len(_CDATA))
        begun = self._buffer[at : at + len(_CDATA)]
        # An opening may be torn between two chunks.
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
            self._say(at, at + 1)
            return at + 1
        self._open(found.group(1), found.group(2) or "", bool(found.group(3)))
        return found.end()

    def _open(self, name: str, attributes: str, empty: bool) -> None:
        found = _PAIR.findall(attributes)
        pairs = {key: unescape((double or single).translate(SPACES)) for key, double, single in found}
        self._handler.start(name, pairs)
        if empty:
            self._handler.end(name)

    def _say(self, begin: int, end: int) -> None:
        if self.listening and begin < end:
            self._handler.text(unescape(self._buffer[begin:end]))


def unescape(text: str) -> str:
    return _REFERENCE.sub(_character, text) if "&" in text else text


def unescape_strictly(text: str) -> str | None:
    """The same, but nothing where a parser would refuse the text."""
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


_SPARSE = 60  # to search for three usual references takes as long as to replace one in so many characters


def _without_usual(text: str) -> str:
    return text.replace("&lt;", "<").replace("&gt;", ">").replace("&#10;", "\n")


@lru_cache(maxsize=256)
def _referred(name: str) -> str | None:
    """What the reference of this name stands for; nothing if no parser takes it."""
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
    """The stream as clean UTF-8, whatever it declares to be."""
    # A blank line before the declaration is against the rules, and harmless.
    head = stream.read(CHUNK).lstrip(b"\r\n\t ")
    decoder = getincrementaldecoder(_encoding(head))("replace")
    simple = not head.startswith(_UTF16)
    while head:
        # Most documents are ASCII; decoding them twice is half of what reading them costs.
        known = simple and head.isascii() and not decoder.getstate()[0]
        clean = head if known else _encoded(decoder.decode(head))
        # To look for each of them takes half as long as to translate, and nearly no document has one.
        yield clean.translate(_LEGAL, _DELETED) if any(map(clean.__contains__, _ODD)) else clean
        head = stream.read(CHUNK)
    if rest := decoder.decode(b"", final=True):
        yield _encoded(rest)


def _encoded(text: str) -> bytes:
    """Without the two characters that no document may have, not even as they are."""
    return text.replace("\ufffe", "\ufffd").replace("\uffff", "\ufffd").encode("utf-8", "replace")


def _encoding(head: bytes) -> str:
    if head.startswith(_UTF16):
        return "utf-16"
    declared = _DECLARED.match(head)
    name = declared.group(1).decode().lower() if declared else "utf-8-sig"
    return (
        name if name in {"iso-8859-1", "latin-1", "windows-1252", "cp1252", "us-ascii", "iso-8859-15"} else "utf-8-sig"
    )
