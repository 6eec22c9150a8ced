"""Reads test cases by searching and splitting instead of XML parsing, which is several times as fast.

Reads only what is unambiguous: attributes in double quotes, the elements of every dialect with text or one CDATA
section, predefined and numeric references. Everything else, and the first case of every run, is left to the XML parser.
Consecutive cases with the same attributes that contain nothing but output are split at their quotes, all at once, and
become columns.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate
from typing import cast

import msgspec

from ratchet.checks.formats.junit.elements import Attributes, Child
from ratchet.checks.formats.text import clip
from ratchet.checks.formats.xml import SPACES, unescape_strictly

_SHORTEST_BYTES = 200
_MISSES = 200
# References that a parser accepts without a declaration.
_REFERENCE = rb"&(?:lt|gt|amp|quot|apos|#(?:9|10|13|3[2-9]|[4-9]\d|[1-9]\d{2,3}|[1-4]\d{4}|5[0-4]\d{3}));"
_WRONG = re.compile(rb"&(?!%b)" % _REFERENCE[1:])
# Text that a parser accepts: known entities only, and no `]]>` outside of a section.
_TEXT = rb"[^<&\]]++|\](?!\]>)|%b" % _REFERENCE
_SECTION = rb"<!\[CDATA\[(?:[^\]]++|\](?!\]>))*\]\]>"
_SAYING = rb"<system-(?:out>%b</system-out|err>%b</system-err)>\s*+"
_TALK = _SAYING % ((rb"(?:%b|%b)*" % (_SECTION, _TEXT),) * 2)
_PROPERTIES = rb'<properties(?: ?/>|>\s*+(?:<property name="%b[^"<&]*+" value="[^"<&]*+" ?/>\s*+)*</properties>)\s*+'
# Content without meaning for a passed test. Java's properties are excluded: they identify the tool.
_IDLE = rb"(?:%b|%b)*</testcase>(\s*+)" % (_TALK, _PROPERTIES % rb"(?!java\.)")
_IDLING = re.compile(_IDLE)
# The same for content of CDATA only, or of text only (which has yet to be checked): several times as fast.
_SECTIONS, _TEXTS = (
    re.compile(rb"(?:%b)+</testcase>(\s*+)" % (_SAYING % (content, content))) for content in (_SECTION, rb"[^<]*+")
)
# A case followed by another one or by the end of the suite is closed; any other is open or incomplete.
_FIRST = re.compile(rb"<testcase [^<]*+(?:(?=<testcase |</testsuite>)|%b)" % _IDLE)
# A tag that neither begins nor ends a case: searching for it takes a third of the time of matching every case.
_ODD = re.compile(rb"<(?!testc|/testc)")
_CLOSE = re.compile(rb'"( ?/>|>\s*+</testcase>)(\s*+)(?:<|\Z)')
_SPACED = re.compile(rb'" /(>\s*+(?:<|\Z))')
_EMPTY = re.compile(rb">\s*+</testcase>")

_NAME = r"[A-Za-z_][\w.-]*+"
_KEY = re.compile(rf" {_NAME}=")
_FIRST_KEY = re.compile(rf"<testcase {_NAME}=")
_BETWEEN = re.compile(rf" ?(?:/>|>\s*</testcase>)\s*<testcase {_NAME}=")
_LAST = re.compile(r" ?(?:/>|>\s*</testcase>)\s*")
_MOST_KEYS = 16

_CHILDREN = (b"failure", b"error", b"skipped", b"system-out", b"system-err")
_NAMES = {name: name.decode() for name in _CHILDREN}
_VALUES = rb'((?: [A-Za-z_][\w.-]*+="[^"<]*+")*) ?'
_CHILD = rb"<(%b)%b(?:(/)>(?:\s*+</testcase>(\s*+))?|>)" % (b"|".join(_CHILDREN), _VALUES)
_HEAD = re.compile(rb"<testcase%b(?:(?:/>|>\s*+</testcase>)(\s*+)|>)" % _VALUES)
# The end of the case with the space after it, or a child element; after an empty child possibly that end.
_NEXT = re.compile(rb"\s*+(?:</testcase>(\s*+)|%b)" % _CHILD)
_CLOSING = {name: re.compile(rb"</%b>%b" % (name, _NEXT.pattern)) for name in _CHILDREN}
# Most failures: the only child of their case.
_USUAL = re.compile(
    rb"<(failure|error)%b>(?:<!\[CDATA\[((?:[^\]]++|\](?!\]>))*)\]\]>|([^<]*+))</\1>\s*+</testcase>(\s*+)" % _VALUES
)
# Some suites end and one begins. At equal depth, the enclosing elements have the same names.
_SUITE = re.compile(
    rb"(?:%b|<system-(?:out|err) ?/>\s*+)*((?:</testsuite>\s*+)*)<testsuite%b>\s*+((?:%b)?)"
    % (_TALK, _VALUES, _PROPERTIES % b"")
)
_OPENING, _ENDING = b"<![CDATA[", b"]]>"

Inside = dict[int, list[Child]]  # by case; cases with equal content may share the list
_Raw = tuple[bytes, bytes, bytes, bytes]  # name, attributes, text and CDATA section of a child element
_Case = tuple[bytes, list[_Raw], bytes, int]  # attributes, children, the space after the case, and its end


class SuiteChange(msgspec.Struct, frozen=True):
    """Before this case `closed` suites end and one with these attributes begins; `is_java`: with Java's properties."""

    before: int
    closed: int
    attributes: Attributes
    is_java: bool


class SimilarCases(msgspec.Struct, frozen=True):
    """Cases with the same attributes, one column for each attribute. `children_by_case` are the children of some cases,
    without output."""

    columns: dict[str, list[str]]
    children_by_case: Inside
    suites: list[SuiteChange]

    def levels(self) -> tuple[int, int]:
        """Return the lowest and the highest depth of suites, relative to the beginning."""
        levels = list(accumulate((1 - suite.closed for suite in self.suites), initial=0))
        return min(level - suite.closed for level, suite in zip(levels, self.suites, strict=False)), max(levels)


class Run(msgspec.Struct, frozen=True):
    """Consecutive cases: the offsets where they begin, where the second one begins and where they end; then all but the
    first.

    `single` are cases with differing attributes, each with its children.
    """

    begin: int
    second: int
    end: int
    alike: SimilarCases | None = None
    single: list[tuple[Attributes, list[Child]]] = []


class SeenBodies(dict[bytes, list[_Raw]]):
    """A cache of parsed case content: tests are skipped for few reasons, and many often fail for the same one."""

    def __init__(self) -> None:
        self.in_vain = {b"s": 0, b"f": 0, b"e": 0}  # by the first letter of the element: misses since the last hit

    def inside(self, data: bytes, at: int) -> tuple[list[_Raw], bytes, int]:
        """Like `_inside`, but cached."""
        kind = data[at + 1 : at + 2]
        close = data.find(_END, at, at + _MOST_KNOWN_BYTES) if self.in_vain.get(kind, _MOST_VAIN) < _MOST_VAIN else -1
        if close < 0:
            return _inside(data, at)
        body, behind = data[at:close], close + len(_END)
        if children := self.get(body):
            self.in_vain[kind] = 0
            return children, *_space(data, behind)
        self.in_vain[kind] += 1
        children, space, end = _inside(data, at)
        # Otherwise the end tag that was found is part of a text.
        if end - len(space) == behind:
            if len(self) >= _MOST_KNOWN:
                self.clear()
            self[body] = children
        return children, space, end


def _space(data: bytes, at: int) -> tuple[bytes, int]:
    end = data.find(b"<", at)
    space = data[at:end]
    return (space, end) if end >= 0 and not space.strip() else (b"", at)


_END = b"</testcase>"
_MOST_KNOWN = 256
_MOST_KNOWN_BYTES = 4 << 10
_MOST_VAIN = 100


class Chunk:
    """Finds the runs in a piece of a document, in order. The number of failed attempts is bounded for any input."""

    def __init__(self, data: bytes, known: SeenBodies | None = None) -> None:
        self.data = data
        self.known = SeenBodies() if known is None else known
        self._unlike = 0  # the offset up to which cases are known to differ in their attributes
        self._across = True  # whether cases of all suites may have the same attributes
        self._misses = 0

    def find(self, begin: int) -> Run | None:
        """Return the next run, without an incomplete case at the end."""
        data = self.data
        while self._misses < _MISSES and (begin := data.find(b"<testcase ", begin)) >= 0:
            # The first case always goes through the parser.
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
        found = _Gathered(self.data, second, self.known, across=self._across)
        if (alike := found.alike()) is None and found.suites:
            self._across = False
            found = _Gathered(self.data, second, self.known, across=False)
            alike = found.alike()
        if alike is None:
            self._unlike = found.end
        return Run(begin, second, found.end, alike) if alike else None


class _Gathered:
    """Collects cases from an offset on, each without its content, as long as they are regularly written."""

    def __init__(self, data: bytes, begin: int, known: SeenBodies, *, across: bool) -> None:
        self.begin = self.end = begin
        self.known = known
        self.pieces: list[bytes] = []
        self.close, self.space = b"/>", b""  # end tag and space of the first cases
        self.is_cut = False  # whether content was removed from a case
        self.children_by_case: list[tuple[int, list[_Raw]]] = []  # children, by the piece whose last case has them
        self.suites: list[tuple[int, int, bytes, bool]] = []  # by piece: ended suites, next one
        self.level = 0  # depth of suites, relative to the beginning
        self.level_end = (0, 0, 0, begin)  # lengths of the lists when the depth last changed
        while self._more(data, across):
            pass
        if self.level:
            pieces, children_by_case, suites, self.end = self.level_end
            del self.pieces[pieces:], self.children_by_case[children_by_case:], self.suites[suites:]

    def _more(self, data: bytes, across: bool) -> bool:
        """Collect the cases up to the next tag of another kind, and what that tag belongs to."""
        odd = _ODD.search(data, self.end)
        at = odd.start() if odd else _last(data, self.end)
        cases = data[self.end : at]
        # Anything that is incomplete or no case ends the run.
        if at < 0 or not (cases.startswith(b"<testcase ") or not cases):
            return False
        head = cases.rstrip()
        if head.endswith(b">") and not head.endswith((b"/>", b"</testcase>")):
            return self._one(data, head[:-1].rstrip(), at)
        self._take(cases, at)
        return odd is not None and across and self._suite(data)

    def _take(self, cases: bytes, end: int) -> None:
        if not self.pieces and (closed := _CLOSE.search(cases)):
            self.close, self.space = closed.groups()
        if cases:
            self.pieces.append(cases)
        self.end = end

    def _one(self, data: bytes, cases: bytes, at: int) -> bool:
        """Collect the cases up to the one that contains the element at this offset, and that one."""
        children: list[_Raw] = []
        if idle := _idle(data, at):
            space, end = idle[1], idle.end()
        else:
            children, space, end = self.known.inside(data, at)
        if end < 0:
            begin = cases.rfind(b"<testcase ")
            self._take(cases[:begin], self.end + begin)
            return False
        if children:
            self.children_by_case.append((len(self.pieces), children))
        if not self.pieces:
            closed = _CLOSE.search(cases)
            self.close, self.space = closed.groups() if closed else (self.close, space)
        self._take(cases + self.close + space, end)
        self.is_cut = True
        return True

    def _suite(self, data: bytes) -> bool:
        found = _SUITE.match(data, self.end)
        if found:
            closings, values, properties = found.groups()
            if not self.level:
                self.level_end = len(self.pieces), len(self.children_by_case), len(self.suites), self.end
            closed = closings.count(b"<")
            # There is less space after the last case of a suite than between two cases.
            if self.pieces and not self.pieces[-1].endswith(b">" + self.space):
                self.pieces[-1] = self.pieces[-1].rstrip() + self.space
            self.suites.append((len(self.pieces), closed, values, b'name="java.' in properties))
            self.level += 1 - closed
            self.end = found.end()
        return found is not None

    def alike(self) -> SimilarCases | None:
        """Return the cases in columns; None if they are few, have different attributes or cannot be read in the same
        way."""
        if self.end - self.begin < _SHORTEST_BYTES:
            return None
        children = _each({id(raws): raws for _, raws in self.children_by_case})
        suites = _tags([values for _, _, values, _ in self.suites])
        if children is None or suites is None:
            return None
        columns = _columns(b"".join(self.pieces))
        if columns is None and self.is_cut:
            self.pieces = [_short(piece) for piece in self.pieces]
            columns = _columns(b"".join(self.pieces))
        return None if columns is None else self._placed(columns, children, suites)

    def _placed(
        self, columns: dict[str, list[str]], children: dict[int, list[Child]], suites: list[Attributes]
    ) -> SimilarCases:
        """Replace the numbers of pieces by numbers of cases."""
        tags = [piece.count(b"<") for piece in self.pieces]
        # Every case has the same number of tags, because all have the same attributes.
        each = sum(tags) // len(next(iter(columns.values()))) if columns else 1
        before = [0, *accumulate([count // each for count in tags])]
        return SimilarCases(
            columns,
            {before[at + 1] - 1: children[id(raws)] for at, raws in self.children_by_case},
            [
                SuiteChange(before[at], closed, attributes, is_java)
                for (at, closed, _, is_java), attributes in zip(self.suites, suites, strict=True)
            ],
        )


def _one_by_one(data: bytes, begin: int, second: int) -> Run | None:
    """Read cases with differing attributes."""
    single: list[tuple[Attributes, list[Child]]] = []
    end = second
    while found := _case(data, end):
        attributes, children = _tags([found[0]]), _children(found[1])
        if attributes is None or children is None:
            break
        single.append((attributes[0], children))
        end = found[3]
    return Run(begin, second, end, None, single) if end - second > _SHORTEST_BYTES else None


# --- columns ---------------------------------------------------------------------------------------------------------


def _short(cases: bytes) -> bytes:
    """Give all cases the same end."""
    return _SPACED.sub(rb'"/\1', _EMPTY.sub(b"/>", cases))


def _columns(cases: bytes) -> dict[str, list[str]] | None:
    """Return the values by attribute, if every case has the attributes of the first one."""
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
    known = {key: _values(values) for key, values in columns.items()}
    return None if None in known.values() else cast(dict[str, list[str]], known)


def _keys(pieces: list[str]) -> list[str]:
    """Return the attributes of the first case in their order."""
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
    """Return whether no value contains anything that a parser would replace or reject: white space is only between
    cases."""
    between, count = (pieces[width], len(pieces) // width) if len(pieces) > width + 1 else ("", 1)
    return "&" not in text and all(
        space not in text or text.count(space) == between.count(space) * (count - 1) + pieces[-1].count(space)
        for space in "\n\t\r"
    )


# --- one by one ------------------------------------------------------------------------------------------------------


def _case(data: bytes, at: int) -> _Case | None:
    """Return the case that begins here, if it is complete and regularly written."""
    head = _HEAD.match(data, at)
    if not head:
        return None
    values, space = head.groups()
    if space is not None:
        return values, [], space, head.end()
    children, space, end = _inside(data, head.end())
    return (values, children, space, end) if end >= 0 else None


def _inside(data: bytes, at: int) -> tuple[list[_Raw], bytes, int]:
    """Return the children from here to the end of the case, the space after it, and its end; -1 if it is incomplete."""
    if usual := _USUAL.match(data, at):
        name, values, section, text, space = usual.groups(b"")
        return [(name, values, text, section)], space, usual.end()
    children: list[_Raw] = []
    step = _NEXT.match(data, at)
    while step:
        space, name, values, empty, space_behind = step.groups()
        if space is not None:
            return children, space, step.end()
        if empty:
            children.append((name, values, b"", b""))
            if space_behind is not None:
                return children, space_behind, step.end()
            step = _NEXT.match(data, step.end())
        else:
            text, section, end = _text_of(data, step.end())
            children.append((name, values, text, section))
            step = _CLOSING[name].match(data, end) if end >= 0 else None
    return children, b"", -1


def _idle(data: bytes, at: int) -> re.Match[bytes] | None:
    """Match content without meaning for a passed test, if the case has nothing else and a parser accepts it."""
    if not data.startswith((b"<system-", b"<properties"), at):
        return None
    if found := _SECTIONS.match(data, at):
        return found
    found = _TEXTS.match(data, at)
    if found and not _WRONG.search(data, at, found.end()) and data.find(_ENDING, at, found.end()) < 0:
        return found
    return _IDLING.match(data, at)


def _text_of(data: bytes, begin: int) -> tuple[bytes, bytes, int]:
    """Return the text or the only CDATA section between two tags, and its end; -1 if there is anything else."""
    end = data.find(b"<", begin)
    if not data.startswith(_OPENING, end):
        return data[begin:end], b"", end
    inside = end + len(_OPENING)
    closed = data.find(_ENDING, inside)
    after = data.find(b"<", closed) if closed >= 0 else -1
    before, behind = data[begin:end], data[closed + len(_ENDING) : after]
    is_plain = after >= 0 and not (before + behind).strip()
    return b"", before + data[inside:closed] + behind, after if is_plain else -1


def _last(data: bytes, begin: int) -> int:
    """Return the end of the last case, or its beginning if it is incomplete."""
    at = data.rfind(b"<testcase ", begin)
    found = _HEAD.match(data, at) if at >= 0 else None
    return found.end() if found and found[2] is not None else at


def _end(case: _Case | None, begin: int) -> int:
    return case[3] if case else begin


# --- decode many elements at once
# --------------------------------------------------------------------------------------

_BETWEEN_TEXTS = "\0"  # which no document can contain


def _each(insides: dict[int, list[_Raw]]) -> dict[int, list[Child]] | None:
    """Return the children of each case."""
    children = _children([raw for raws in insides.values() for raw in raws])
    if children is None:
        return None
    ends = list(accumulate(map(len, insides.values())))
    return {key: children[begin:end] for key, begin, end in zip(insides, [0, *ends], ends, strict=False)}


def _children(raws: list[_Raw]) -> list[Child] | None:
    """Return the decoded children; None if a parser would reject any of them."""
    if not raws:
        return []
    names, values, bodies, sections = zip(*raws, strict=True)
    attributes, texts = _tags(values), _texts(bodies)
    if attributes is None or texts is None:
        return None
    if any(sections):
        texts = [text or section for text, section in zip(texts, _apart(_lines(sections)), strict=True)]
    return list(map(Child, map(_NAMES.__getitem__, names), attributes, map(clip, texts)))


def _tags(values: Sequence[bytes]) -> list[Attributes] | None:
    """Return the attributes of each tag; None if one has an attribute twice."""
    if not values:
        return []
    text = _joined(values)
    pieces = text.split('"')
    known = _values(pieces[1::2])
    if known is None:
        return None
    # Usually all tags have the same attributes.
    keys = _spelling(tuple(_apart(text[: len(values[0])])[0].split('"')[:-1:2]))
    return None if keys is None else _alike_tags(pieces, known, keys, len(values)) or _each_tag(text, known)


def _alike_tags(pieces: list[str], values: list[str], keys: list[str], count: int) -> list[Attributes]:
    width = len(keys)
    if not width or len(values) != width * count:
        return []
    spelled = [f" {key}=" for key in keys]
    around = [_BETWEEN_TEXTS + spelled[0], *spelled[1:]]
    if pieces[0] != spelled[0] or pieces[2:-1:2] != (around * count)[1:]:
        return []
    rows = zip(*(values[at::width] for at in range(width)), strict=True)
    return [dict(zip(keys, row, strict=True)) for row in rows]


def _each_tag(text: str, values: list[str]) -> list[Attributes] | None:
    tags: list[Attributes] = []
    at = 0
    for tag in _apart(text):
        keys = _spelling(tuple(tag.split('"')[:-1:2]))
        if keys is None:
            return None
        tags.append(dict(zip(keys, values[at : at + len(keys)], strict=True)))
        at += len(keys)
    return tags


@lru_cache(maxsize=256)
def _spelling(pieces: tuple[str, ...]) -> list[str] | None:
    """Return the attribute names of a tag, from the parts before its values."""
    keys = [piece[1:-1] for piece in pieces]
    return keys if len(set(keys)) == len(keys) else None


def _values(values: list[str]) -> list[str] | None:
    """Decode attribute values as a parser does; None if it would reject one."""
    text = _BETWEEN_TEXTS.join(values)
    is_folded = "\n" in text or "\t" in text or "\r" in text
    if not is_folded and "&" not in text:
        return values
    known = unescape_strictly(text.replace("\r\n", " ").translate(SPACES) if is_folded else text)
    return None if known is None else _apart(known)


def _texts(bodies: Sequence[bytes]) -> list[str] | None:
    text = _lines(bodies)
    known = None if "]" in text and "]]>" in text else unescape_strictly(text)
    return None if known is None else _apart(known)


def _lines(texts: Sequence[bytes]) -> str:
    text = _joined(texts)
    return text.replace("\r\n", "\n").replace("\r", "\n") if "\r" in text else text


def _joined(texts: Sequence[bytes]) -> str:
    return b"\0".join(texts).decode()


def _apart(text: str) -> list[str]:
    return text.split(_BETWEEN_TEXTS)
