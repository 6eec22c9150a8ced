"""Runs of passing cases, all written alike, read by splitting instead of parsing: about as fast as expat alone.

Only what cannot mean anything else is taken: three plain attributes, the same spelling from case to case, no entity,
no line break in a value, and inside nothing but output, which nobody keeps of a test that passed. Everything else, and
the first case of every run, is left to the real parser.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import groupby

import msgspec

_SHORTEST_BYTES = 200
_WIDTH = 6  # a case cut at its quotes: three keys and three values
# Text as a parser takes it without complaint: known entities only, and no end of a section that never began.
_TEXT = rb"(?:[^<&\]]++|\](?!\]>)|&(?:lt|gt|amp|quot|apos|#[1-9]\d{1,4});)++"
_SECTION = rb"<!\[CDATA\[(?:[^\]]++|\](?!\]>))*+\]\]>"
_SAID = rb"(?:%b|%b)*+" % (_SECTION, _TEXT)
_TALK = rb"(?:<system-(?:out>%b</system-out|err>%b</system-err)>\s*+)" % (_SAID, _SAID)
# A case that another one or the suite's end follows is closed; any other is open or torn.
_CASE = rb"<testcase [^<]*+(?:%b*+</testcase>\s*+|(?=<testcase |</testsuite>))" % _TALK
_FIRST = re.compile(_CASE)
_CASES = re.compile(rb"(?:%b)++" % _CASE)
_INSIDE = re.compile(rb">\s*+%b*+</testcase>" % _TALK)
_KEYS = {f"{before} {key}=": key for before in ("<testcase", "") for key in ("name", "classname", "time")}
_BETWEEN = re.compile(r" ?(?:/>|>\s*</testcase>)\s*<testcase (?:name|classname|time)=")
_LAST = re.compile(r" ?(?:/>|>\s*</testcase>)\s*")


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """Where it lies, up to `second` for the parser too, and its cases in three columns."""

    begin: int
    second: int
    end: int
    names: list[str]
    groups: list[str]
    durations: list[float]

    def by_group(self) -> Iterator[tuple[str, list[str], list[float]]]:
        """The columns, cut where the class changes."""
        if self.groups.count(self.groups[0]) == len(self.groups):
            yield self.groups[0], self.names, self.durations
            return
        for group, same in groupby(range(len(self.groups)), self.groups.__getitem__):
            rows = list(same)
            begin, end = rows[0], rows[-1] + 1
            yield group, self.names[begin:end], self.durations[begin:end]


def find(data: bytes, begin: int) -> Run | None:
    """The next run in the data; what is torn at its end is not part of it."""
    while (begin := data.find(b"<testcase ", begin)) >= 0:
        matched = _CASES.match(data, begin)
        end = matched.end() if matched else begin + 1
        if end - begin > _SHORTEST_BYTES and (run := _run(data, begin, end)):
            return run
        begin = end
    return None


def _run(data: bytes, begin: int, end: int) -> Run | None:
    pieces = _pieces(data[begin:end])
    spelling = _spelling(pieces)
    first = _FIRST.match(data, begin)
    if not first or not spelling or not _is_alike(pieces):
        return None
    columns = {key: pieces[2 * at + 1 :: _WIDTH] for at, key in enumerate(spelling)}
    durations = _durations(columns["time"])
    if not durations or not _is_plain("".join(columns["name"])) or not _is_plain("".join(columns["classname"])):
        return None
    return Run(
        begin=begin,
        second=first.end(),
        end=end,
        names=columns["name"],
        groups=columns["classname"],
        durations=durations,
    )


def _pieces(cases: bytes) -> list[str]:
    """Cut at the quotes, once what the tests printed is gone: there may be quotes in it."""
    if b"<system-" in cases:
        cases = _INSIDE.sub(b"/>", cases).replace(b'" />', b'"/>')
    return cases.decode().split('"')


def _spelling(pieces: list[str]) -> list[str]:
    """In which order the first case has its three attributes; nothing if it is of another kind."""
    if len(pieces) % _WIDTH != 1 or len(pieces) < 2 * _WIDTH or not _BETWEEN.fullmatch(pieces[_WIDTH]):
        return []
    keys = [_KEYS.get(pieces[at]) for at in (0, 2, 4)]
    return [key for key in keys if key] if len({*keys, None}) == 4 else []


def _is_alike(pieces: list[str]) -> bool:
    """Whether every case is spelled as the first one is."""
    between, count = pieces[_WIDTH], len(pieces) // _WIDTH
    return (
        bool(_LAST.fullmatch(pieces[-1]))
        and between.endswith(pieces[0])
        and pieces[2::_WIDTH].count(pieces[2]) == pieces[4::_WIDTH].count(pieces[4]) == count
        and pieces[_WIDTH:-1:_WIDTH].count(between) == count - 1
    )


def _is_plain(values: str) -> bool:
    """Nothing a parser would have to replace or refuse."""
    return "&" not in values and "<" not in values and "\n" not in values and "\t" not in values and "\r" not in values


def _durations(times: list[str]) -> list[float]:
    try:
        durations = list(map(float, times))
    except ValueError:
        return []
    # A sum shows what is not a number, too.
    return durations if min(durations) >= 0 and sum(durations) < 1e9 else []
