"""Test cases read by searching and splitting instead of parsing: several times as fast as hearing each of them.

Only what cannot mean anything else is taken: attributes between double quotes, the elements every dialect has, text or
one CDATA section in them, references that every parser knows. Everything else, and the first case of every run, is left
to the real parser. Cases that are spelled alike and have nothing but output in them are cut at their quotes, all of a
run at once, and become columns.
"""

from __future__ import annotations

import re
from functools import lru_cache

import msgspec

from ratchet.checks.formats.xml import SPACES, unescape_strictly

_SHORTEST_BYTES = 200
_MISSES = 200
_MOST_IN_TAG = 16  # signs in the values of a tag that look like its end
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

_NAME = r"[A-Za-z_][\w.-]*+"
_KEY = re.compile(rf" {_NAME}=")
_FIRST_KEY = re.compile(rf"<testcase {_NAME}=")
_BETWEEN = re.compile(rf" ?(?:/>|>\s*</testcase>)\s*<testcase {_NAME}=")
_LAST = re.compile(r" ?(?:/>|>\s*</testcase>)\s*")
_MOST_KEYS = 16
_TAG_END = {"": False, " ": False, "/": True, " /": True}

_CHILDREN = (b"failure", b"error", b"skipped", b"system-out", b"system-err")
_CHILD = re.compile(rb"<(%b)(?=[ />])" % b"|".join(_CHILDREN))
_CLOSING = {name: re.compile(rb"</%b>\s*+" % name) for name in _CHILDREN}
_CLOSED = re.compile(rb"</testcase>\s*+")
_SPACE = re.compile(rb"\s*+")
_OPENING, _ENDING = b"<![CDATA[", b"]]>"

Attributes = dict[str, str]
Child = tuple[str, Attributes, str]


class Quiet(msgspec.Struct, frozen=True):
    """Cases with nothing but attributes: each attribute is a column."""

    columns: dict[str, list[str]]

    def rows(self) -> list[Attributes]:
        return [dict(zip(self.columns, row, strict=True)) for row in zip(*self.columns.values(), strict=True)]


class Told(msgspec.Struct, frozen=True):
    """Any other case: its attributes, and each element in it with its attributes and text."""

    attributes: Attributes
    children: list[Child]


class Run(msgspec.Struct, frozen=True):
    """Cases that follow each other: where they begin, where the second one does, where they end; all but the first."""

    begin: int
    second: int
    end: int
    cases: list[Quiet | Told]


class Chunk:
    """Finds the runs in a piece of a document, in order. How much is tried in vain is bounded, whatever it holds."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self._unlike = 0  # up to here cases are known to be spelled in several ways
        self._misses = 0

    def find(self, begin: int) -> Run | None:
        """The next run; what is torn at the end is not part of it."""
        data = self.data
        while self._misses < _MISSES and (begin := data.find(b"<testcase ", begin)) >= 0:
            # Whatever it is, the parser hears it and judges.
            first = _FIRST.match(data, begin)
            second = first.end() if first else _case(data, begin)[1]
            if second > begin and (run := self._together(begin, second) or _one_by_one(data, begin, second)):
                return run
            self._misses += 1
            begin = max(second, begin + 1)
        return None

    def _together(self, begin: int, second: int) -> Run | None:
        if begin < self._unlike:
            return None
        stretches: list[bytes] = []
        told: list[Told] = []
        end = second
        while True:
            quiet = _QUIET.match(self.data, end)
            stretches.append(_silent(quiet) if quiet else b"")
            end = quiet.end() if quiet else end
            case, after = _case(self.data, end)
            if case is None:
                break
            told.append(case)
            end = after
        columns = _columns(b"".join(stretches)) if end - second >= _SHORTEST_BYTES else None
        if columns is None:
            self._unlike = end
            return None
        return Run(begin, second, end, _in_turns(stretches, columns, told))


def _in_turns(stretches: list[bytes], columns: dict[str, list[str]], told: list[Told]) -> list[Quiet | Told]:
    """The quiet ones and the others in the order of the document."""
    if not told:
        return [Quiet(columns)]
    cases: list[Quiet | Told] = []
    begin = 0
    for index, stretch in enumerate(stretches):
        if stretch:
            end = begin + stretch.count(b'"') // (2 * len(columns))
            cases.append(Quiet({key: values[begin:end] for key, values in columns.items()}))
            begin = end
        cases += told[index : index + 1]
    return cases


def _one_by_one(data: bytes, begin: int, second: int) -> Run | None:
    """Cases that are spelled in several ways."""
    cases: list[Quiet | Told] = []
    case, end = _case(data, second)
    after = second
    while case:
        cases.append(case)
        after = end
        case, end = _case(data, end)
    return Run(begin, second, after, cases) if after - second > _SHORTEST_BYTES else None


# --- columns ---------------------------------------------------------------------------------------------------------


def _silent(quiet: re.Match[bytes]) -> bytes:
    """Without what the tests printed: nobody keeps that of a test that passed."""
    return _INSIDE.sub(b"/>", quiet[0]).replace(b'" />', b'"/>') if quiet["talk"] else quiet[0]


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
    return None if None in known.values() else {key: values for key, values in known.items() if values is not None}


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
    known: list[str] = []
    for value in values:
        if (read := _value(value)) is None:
            return None
        known.append(read)
    return known


def _value(value: str) -> str | None:
    """An attribute's value as every parser has to read it; nothing if it would have to refuse it."""
    if "\n" in value or "\t" in value or "\r" in value:
        value = value.replace("\r\n", " ").translate(SPACES)
    return unescape_strictly(value)


# --- one by one ------------------------------------------------------------------------------------------------------


def _case(data: bytes, at: int) -> tuple[Told | None, int]:
    """The case that begins here and where it ends, if it is whole and plainly written."""
    if not data.startswith(b"<testcase", at):
        return None, at
    attributes, empty, end = _tag(data, at + len(b"<testcase"))
    if attributes is None:
        return None, at
    end = _behind_space(data, end)
    children: list[Child] = []
    closed = None if empty else _CLOSED.match(data, end)
    while not empty and not closed:
        child, end = _child(data, end)
        if child is None:
            return None, at
        children.append(child)
        closed = _CLOSED.match(data, end)
    return Told(attributes, children), closed.end() if closed else end


def _child(data: bytes, at: int) -> tuple[Child | None, int]:
    opened = _CHILD.match(data, at)
    if not opened:
        return None, at
    name = opened[1]
    attributes, empty, end = _tag(data, opened.end())
    if attributes is None:
        return None, at
    if empty:
        return (name.decode(), attributes, ""), _behind_space(data, end)
    text, end = _text(data, end)
    closed = _CLOSING[name].match(data, end) if text is not None else None
    return ((name.decode(), attributes, text), closed.end()) if text is not None and closed else (None, at)


def _behind_space(data: bytes, at: int) -> int:
    found = _SPACE.match(data, at)
    return found.end() if found else at


def _tag(data: bytes, begin: int) -> tuple[Attributes | None, bool, int]:
    """The attributes of a tag, whether it is its own end, and where what follows it begins."""
    end = data.find(b">", begin)
    for _ in range(_MOST_IN_TAG):
        if end < 0 or data.count(b'"', begin, end) % 2 == 0:
            break
        end = data.find(b">", end + 1)
    text = data[begin:end].decode() if end >= 0 else "<"
    pieces = text.split('"')
    spelling = _spelling(tuple(pieces[::2]))
    if spelling is None or "<" in text:
        return None, False, begin
    keys, empty = spelling
    values: list[str] | None = pieces[1::2]
    if "&" in text or "\n" in text or "\t" in text or "\r" in text:
        values = _read(pieces[1::2])
    attributes = None if values is None else dict(zip(keys, values, strict=True))
    return attributes, empty, end + 1


@lru_cache(maxsize=256)
def _spelling(pieces: tuple[str, ...]) -> tuple[list[str], bool] | None:
    """The keys of a tag and whether it is its own end, from what stands around its values."""
    keys = [piece[1:-1] for piece in pieces[:-1] if _KEY.fullmatch(piece)]
    if len(set(keys)) < len(pieces) - 1 or pieces[-1] not in _TAG_END:
        return None
    return keys, _TAG_END[pieces[-1]]


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
