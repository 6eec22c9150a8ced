"""Test cases read by searching and splitting instead of parsing: several times as fast as hearing each of them.

Only what cannot mean anything else is taken: attributes between double quotes, the elements every dialect has, text or
one CDATA section in them, references that every parser knows. Everything else, and the first case of every run, is left
to the real parser. Cases that are spelled alike and have nothing but output in them are cut at their quotes, all of a
run at once, and become columns.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import cast

import msgspec

from ratchet.checks.formats.xml import SPACES, unescape_strictly

_SHORTEST_BYTES = 200
_MISSES = 200
# Text as a parser takes it without complaint: known entities only, and no end of a section that never began.
_TEXT = rb"(?:[^<&\]]++|\](?!\]>)|&(?:lt|gt|amp|quot|apos|#[1-9]\d{1,4});)++"
_SECTION = rb"<!\[CDATA\[(?:[^\]]++|\](?!\]>))*+\]\]>"
_SAID = rb"(?:%b|%b)*+" % (_SECTION, _TEXT)
_TALK = rb"(?:<(?P<talk>system)-(?:out>%b</system-out|err>%b</system-err)>\s*+)" % (_SAID, _SAID)
# A case that another one or the suite's end follows is closed; any other is open or torn.
_QUIET_CASE = rb"<testcase [^<]*+(?:(?=<testcase |</testsuite>)|%b*+</testcase>\s*+)" % _TALK
_FIRST = re.compile(_QUIET_CASE)
_QUIET = re.compile(rb"(?:%b)++" % _QUIET_CASE)
_INSIDE = re.compile(rb">\s*+%b*+</testcase>" % _TALK)
_CLOSE = re.compile(rb'"( ?/>|>\s*+</testcase>)\s*+(?:<|\Z)')
_SPACED = re.compile(rb'" /(>\s*+(?:<|\Z))')

_NAME = r"[A-Za-z_][\w.-]*+"
_KEY = re.compile(rf" {_NAME}=")
_FIRST_KEY = re.compile(rf"<testcase {_NAME}=")
_BETWEEN = re.compile(rf" ?(?:/>|>\s*</testcase>)\s*<testcase {_NAME}=")
_LAST = re.compile(r" ?(?:/>|>\s*</testcase>)\s*")
_MOST_KEYS = 16

_CHILDREN = (b"failure", b"error", b"skipped", b"system-out", b"system-err")
_VALUES = rb'((?: [A-Za-z_][\w.-]*+="[^"<]*+")*+) ?'
_CHILD = rb"<(%b)%b(/?)>" % (b"|".join(_CHILDREN), _VALUES)
# What follows: the end of the case and the space behind it, or an element in it.
_CASE = re.compile(rb"<testcase%b(?:(?:/>|>\s*+</testcase>)(\s*+)|>\s*+%b)" % (_VALUES, _CHILD))
_NEXT = re.compile(rb"\s*+(?:</testcase>(\s*+)|%b)" % _CHILD)
_CLOSING = {name: re.compile(rb"</%b>%b" % (name, _NEXT.pattern)) for name in _CHILDREN}
# One suite ends and the next one begins: whoever stands in the one stands as deep in the other.
_EMPTY = rb"<system-%b(?: ?/|>(?:<!\[CDATA\[\]\]>)?+</system-%b)>"
_MUTE = rb"(?:(?:%b|%b)\s*+)*+" % (_EMPTY % (b"out", b"out"), _EMPTY % (b"err", b"err"))
_SUITE = re.compile(rb"%b</testsuite>\s*+<testsuite%b>\s*+(?:<properties ?/>\s*+)?+" % (_MUTE, _VALUES))
_OPENING, _ENDING = b"<![CDATA[", b"]]>"

Attributes = dict[str, str]
Child = tuple[str, Attributes, str]
_Case = tuple[bytes, list[Child], bytes, int]  # its attributes, what stands in it, the space behind it, where that ends


class Alike(msgspec.Struct, frozen=True):
    """Cases of one spelling: each attribute is a column; `told` is what stands in some of them, besides output."""

    columns: dict[str, list[str]]
    told: dict[int, list[Child]]

    def rows(self) -> list[Attributes]:
        return [dict(zip(self.columns, row, strict=True)) for row in zip(*self.columns.values(), strict=True)]


class Told(msgspec.Struct, frozen=True):
    """One case of any spelling: its attributes, and each element in it with its attributes and text."""

    attributes: Attributes
    children: list[Child]


class Suite(msgspec.Struct, frozen=True):
    """The suite ended, and one with these attributes began beside it."""

    attributes: Attributes


class Run(msgspec.Struct, frozen=True):
    """Cases that follow each other: where they begin, where the second one does, where they end; all but the first."""

    begin: int
    second: int
    end: int
    cases: list[Alike | Told | Suite]
    is_across: bool = False


class Chunk:
    """Finds the runs in a piece of a document, in order. How much is tried in vain is bounded, whatever it holds."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self._unlike = 0  # up to here cases are known to be spelled in several ways
        self._across = True  # whether all suites may be spelled alike
        self._misses = 0

    def find(self, begin: int) -> Run | None:
        """The next run; what is torn at the end is not part of it."""
        data = self.data
        while self._misses < _MISSES and (begin := data.find(b"<testcase ", begin)) >= 0:
            # Whatever it is, the parser hears it and judges.
            first = _FIRST.match(data, begin)
            second = first.end() if first else _end(_case(data, begin), begin)
            if second > begin and (run := self._together(begin, second) or _one_by_one(data, begin, second)):
                return run
            self._misses += 1
            begin = max(second, begin + 1)
        return None

    def _together(self, begin: int, second: int) -> Run | None:
        if begin < self._unlike:
            return None
        found = _Gathered(self.data, second, across=self._across)
        if (cases := found.cases()) is None and found.suites:
            self._across = False
            found = _Gathered(self.data, second, across=False)
            cases = found.cases()
        if cases is None:
            self._unlike = found.end
        return Run(begin, second, found.end, cases, bool(found.suites)) if cases else None


class _Gathered:
    """All cases from here on, each without what stands in it, as long as they are plainly written."""

    def __init__(self, data: bytes, begin: int, *, across: bool) -> None:
        self.begin = self.end = begin
        self.pieces: list[bytes] = []
        self.close = b"/>"  # as the first of them do
        self.told: dict[int, list[Child]] = {}  # by piece
        self.suites: dict[int, Attributes] = {}
        while self._quiet(data) or self._one(data) or (across and self._suite(data)):
            pass

    def _quiet(self, data: bytes) -> bool:
        found = _QUIET.match(data, self.end)
        if found:
            piece = _silent(found[0]) if found["talk"] else found[0]
            if not self.pieces and (closed := _CLOSE.search(piece)):
                self.close = closed[1]
            self.pieces.append(piece)
            self.end = found.end()
        return found is not None

    def _one(self, data: bytes) -> bool:
        found = _case(data, self.end)
        if found:
            values, children, space, self.end = found
            self.told[len(self.pieces)] = children
            self.pieces.append(b"<testcase%b%b%b" % (values, self.close, space))
        return found is not None

    def _suite(self, data: bytes) -> bool:
        found = _SUITE.match(data, self.end)
        attributes = _attributes(found[1]) if found else None
        if not found or attributes is None:
            return False
        self.suites[len(self.pieces)] = attributes
        self.pieces.append(b"")
        self.end = found.end()
        return True

    def cases(self) -> list[Alike | Told | Suite] | None:
        """In the order of the document; nothing if they are few or not spelled alike."""
        if self.end - self.begin < _SHORTEST_BYTES:
            return None
        columns = _columns(b"".join(self.pieces))
        if columns is None and self.told:
            self.pieces = [_silent(piece) for piece in self.pieces]
            columns = _columns(b"".join(self.pieces))
        return None if columns is None else self._cut(columns)

    def _cut(self, columns: dict[str, list[str]]) -> list[Alike | Told | Suite]:
        """One part for each suite."""
        cases: list[Alike | Told | Suite] = []
        told: dict[int, list[Child]] = {}
        begin = end = 0
        for index, piece in enumerate(self.pieces):
            if index in self.told:
                told[end - begin] = self.told[index]
                end += 1
            elif piece:
                end += piece.count(b'"') // (2 * len(columns))
            else:
                cases += [Alike(_part(columns, begin, end), told), Suite(self.suites[index])]
                begin, told = end, {}
        return [*cases, Alike(_part(columns, begin, end), told)]


def _part(columns: dict[str, list[str]], begin: int, end: int) -> dict[str, list[str]]:
    return {key: values[begin:end] for key, values in columns.items()}


def _one_by_one(data: bytes, begin: int, second: int) -> Run | None:
    """Cases that are spelled in several ways."""
    cases: list[Alike | Told | Suite] = []
    end = second
    while (found := _case(data, end)) and (attributes := _attributes(found[0])) is not None:
        cases.append(Told(attributes, found[1]))
        end = found[3]
    return Run(begin, second, end, cases) if end - second > _SHORTEST_BYTES else None


# --- columns ---------------------------------------------------------------------------------------------------------


def _silent(cases: bytes) -> bytes:
    """Without what the tests printed: nobody keeps that of a test that passed. All end in the same way."""
    return _SPACED.sub(rb'"/\1', _INSIDE.sub(b"/>", cases))


def _columns(cases: bytes) -> dict[str, list[str]] | None:
    """The values under each key, if every case is spelled as the first one is."""
    if not cases:
        return {}
    text = cases.decode()
    pieces = text.split('"')
    keys = _keys(pieces)
    if not keys or not _is_alike(pieces, 2 * len(keys)):
        return None
    columns = {key: pieces[2 * at + 1 :: 2 * len(keys)] for at, key in enumerate(keys)}
    if _is_plain(text, pieces, 2 * len(keys)):
        return columns
    known = {key: _read(values) for key, values in columns.items()}
    return None if None in known.values() else cast(dict[str, list[str]], known)


def _keys(pieces: list[str]) -> list[str]:
    """The attributes of the first case in their order."""
    keys: list[str] = []
    for piece in pieces[: 2 * _MOST_KEYS : 2]:
        if not (_KEY if keys else _FIRST_KEY).fullmatch(piece):
            break
        keys.append(piece[:-1].rpartition(" ")[2])
    return keys if keys and len(set(keys)) == len(keys) and len(pieces) % (2 * len(keys)) == 1 else []


def _is_alike(pieces: list[str], width: int) -> bool:
    count = len(pieces) // width
    between = pieces[width] if count > 1 else ""
    return (
        bool(_LAST.fullmatch(pieces[-1]))
        and (count == 1 or (bool(_BETWEEN.fullmatch(between)) and between.endswith(pieces[0])))
        and all(pieces[at::width].count(pieces[at]) == count for at in range(2, width, 2))
        and pieces[width:-1:width].count(between) == count - 1
    )


def _is_plain(text: str, pieces: list[str], width: int) -> bool:
    """Nothing in a value that a parser would have to replace or refuse: all white space stands between the cases."""
    between, count = (pieces[width], len(pieces) // width) if len(pieces) > width + 1 else ("", 1)
    return "&" not in text and all(
        space not in text or text.count(space) == between.count(space) * (count - 1) + pieces[-1].count(space)
        for space in "\n\t\r"
    )


def _read(values: list[str]) -> list[str] | None:
    known = [_value(value) for value in values]
    return None if None in known else cast(list[str], known)


def _value(value: str) -> str | None:
    """An attribute's value as every parser has to read it; nothing if it would have to refuse it."""
    if "\n" in value or "\t" in value or "\r" in value:
        value = value.replace("\r\n", " ").translate(SPACES)
    return unescape_strictly(value) if "&" in value else value


# --- one by one ------------------------------------------------------------------------------------------------------


def _case(data: bytes, at: int) -> _Case | None:
    """The case that begins here, if it is whole and plainly written."""
    step = _CASE.match(data, at)
    if not step:
        return None
    head, space, name, values, empty = step.groups()
    children: list[Child] = []
    while space is None:
        attributes = _attributes(values)
        text, end = ("", step.end()) if empty else _text(data, step.end())
        if attributes is None or text is None:
            return None
        children.append((name.decode(), attributes, text))
        step = (_NEXT if empty else _CLOSING[name]).match(data, end)
        if not step:
            return None
        space, name, values, empty = step.groups()
    return head, children, space, step.end()


def _end(case: _Case | None, begin: int) -> int:
    return case[3] if case else begin


def _attributes(values: bytes) -> Attributes | None:
    """What a tag says, if nothing is said twice and every parser reads it in the same way."""
    text = values.decode()
    pieces = text.split('"')
    keys = _spelling(tuple(pieces[::2]))
    known: list[str] | None = pieces[1::2]
    if "&" in text or "\n" in text or "\t" in text or "\r" in text:
        known = _read(pieces[1::2])
    return None if keys is None or known is None else dict(zip(keys, known, strict=True))


@lru_cache(maxsize=256)
def _spelling(pieces: tuple[str, ...]) -> list[str] | None:
    """The keys of a tag, from what stands around its values."""
    keys = [piece[1:-1] for piece in pieces[:-1]]
    return keys if len(set(keys)) == len(keys) else None


def _text(data: bytes, begin: int) -> tuple[str | None, int]:
    """What stands between two tags, text or one section, and where it ends."""
    end = data.find(b"<", begin)
    raw = data[begin:end] if end >= 0 else b""
    if not data.startswith(_OPENING, end):
        return (None if b"]" in raw and _ENDING in raw else unescape_strictly(_lines(raw))), end
    inside = end + len(_OPENING)
    end = data.find(_ENDING, inside)
    after = data.find(b"<", end)
    whole = raw + data[inside:end] + data[end + len(_ENDING) : after]
    spaces = raw + data[end + len(_ENDING) : after]
    return (_lines(whole) if end >= 0 and after >= 0 and not spaces.strip() else None), after


def _lines(raw: bytes) -> str:
    text = raw.decode()
    return text.replace("\r\n", "\n").replace("\r", "\n") if "\r" in text else text
