"""Parses failures that differ only in their digits once: a part found in one text is at the same place in all.

Most failures of a document have few causes and differ only in ids, lines and amounts. A text whose digits are replaced
by 0 is its shape. A shape that occurs often gets a plan: which parts of the text are the message, the values, the
locations. The plan is made by parsing the shape with other digits, which shows where each of them ends up. It is used
only if it gives for all of these texts what parsing them gives.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import repeat
from operator import itemgetter
from typing import Any, cast

from ratchet.core.report import Failure, Frame

Texts = tuple[str, str, str]  # message, type and text of a failure
Read = Callable[[str, str, str], Failure]

_OFTEN = 32  # making a plan costs about as much as parsing thirty texts
_MOST_VAIN = 500
_MOST_SAME = 64  # each with a text of the maximum length
_BEGIN = 200
_MOST_SHAPES = 256
_LONGEST = 8 << 10
_SHAPE = bytes.maketrans(b"123456789", b"0" * 9)
_END, _NEXT = "\0", "\1"  # which no text contains


class FailureTemplates:
    """Parses the failures of one document, with the same results as `read`."""

    def __init__(self, read: Read) -> None:
        self._alone = read
        self._same: dict[tuple[int, str, str, str], tuple[str, Failure]] = {}
        self._known: dict[tuple[bytes, int], _Template] = {}
        self._in_vain = 0

    def read(self, message: str, kind: str, body: str) -> Failure:
        return self.read_all([(message, kind, body)])[0]

    def read_all(self, failures: Sequence[Texts]) -> list[Failure]:
        """Parse many failures: the common parts of a shape once, the others in columns."""
        if not failures or self._in_vain > _MOST_VAIN:
            return [self._read(*texts) for texts in failures]
        found: list[Failure | None] = [None] * len(failures)
        for key, places in _parse_similar(failures).items():
            self._in_vain += len(places)
            shape = self._known.get(key) or self._new(key)
            if plan := shape.plan_for(self._alone, [failures[at] for at in places]):
                self._in_vain = 0
                for at, failure in zip(places, plan.failures([_END.join(failures[at]) for at in places]), strict=True):
                    found[at] = failure
        return [failure or self._read(*texts) for failure, texts in zip(found, failures, strict=True)]

    def _read(self, message: str, kind: str, body: str) -> Failure:
        # Group by the beginning: comparing texts is much faster than hashing them.
        key = len(body), body[:_BEGIN], message, kind
        known = self._same.get(key)
        if known is None or known[0] != body:
            if len(self._same) >= _MOST_SAME:
                self._same.clear()
            self._same[key] = known = body, self._alone(message, kind, body)
        return known[1]

    def _new(self, key: tuple[bytes, int]) -> _Template:
        if len(self._known) >= _MOST_SHAPES:
            self._known.clear()
        self._known[key] = shape = _Template(key[1])
        return shape


def _parse_similar(failures: Sequence[Texts]) -> dict[tuple[bytes, int], list[int]]:
    """Group texts by shape, and by whether and where the text repeats the message."""
    alike: dict[tuple[bytes, int], list[int]] = {}
    shapes = _shapes(_NEXT.join([_END.join(texts) for texts in failures])).split(_NEXT.encode())
    for at, (shape, (message, _, body)) in enumerate(zip(shapes, failures, strict=True)):
        if len(shape) <= _LONGEST:
            alike.setdefault((shape, body.find(message)), []).append(at)
    return alike


_ADDRESS = re.compile("0x[0-9a-f]+")


def _shapes(text: str) -> bytes:
    if "0x" in text:
        text = _ADDRESS.sub(lambda found: "\2x" + "0" * (len(found.group()) - 2), text)
    return text.encode().translate(_SHAPE)


class _Template:
    """A shape: how often it was parsed, and its plan if there is one."""

    def __init__(self, repeated_at: int) -> None:
        self.repeated_at = repeated_at  # offset of the message in the text
        self.times = 0
        self.plan: _Plan | None = None

    def plan_for(self, read: Read, failures: list[Texts]) -> _Plan | None:
        # Only once: a shape without a plan must not cost more than without templates.
        if self.times < _OFTEN <= self.times + len(failures):
            self.plan = _plan(read, _END.join(failures[0]), self.repeated_at)
        self.times += len(failures)
        return self.plan


# --- plans -----------------------------------------------------------------------------------------------------------

_Leaf = str | int | None
_Take = Callable[[list[str]], Iterable[_Leaf]]  # a field of each failure, from the texts
_Taken = dict[str, _Take]

_DIGITS = re.compile("(?<=0x)[0-9a-f]+|[0-9]+(?!x[0-9a-f])")  # addresses contain letters
_MOST_DIGITS = 1000
_FAILURE = ("type", "message", "expected", "actual", "operator", "diff", "file", "line")
_FRAME = ("file", "line", "function", "code")
# Parsed by their digits: rows of a sanitizer, and repeated expressions.
_LOOKED_AT = re.compile("#[0-9]+ 0x|Check failed")


class _Plan:
    """A failure, and which of its fields and frames are copied from the texts."""

    def __init__(self, failure: Failure, taken: _Taken, frames: list[_Taken]) -> None:
        self.same = failure
        self.taken = taken
        self.frames = frames
        self.is_same_stack = not any(frames)

    def failures(self, texts: list[str]) -> list[Failure | None]:
        stacks: Iterable[list[Frame]] = (
            repeat(self.same.frames, len(texts)) if self.is_same_stack else self._stacks(texts)
        )
        parsed = list(map(Failure, *_columns(self.same, _FAILURE, self.taken, texts), stacks))
        if self.is_same_stack or len(self.frames) == 1:
            return cast(list[Failure | None], parsed)
        # Equal rows are one frame.
        return [failure if len(set(failure.frames)) == len(self.frames) else None for failure in parsed]

    def _stacks(self, texts: list[str]) -> Iterable[list[Frame]]:
        frames = [
            map(Frame, *_columns(same, _FRAME, taken, texts)) if taken else repeat(same, len(texts))
            for same, taken in zip(self.same.frames, self.frames, strict=True)
        ]
        return map(list, zip(*frames, strict=True))


def _columns(same: Failure | Frame, fields: tuple[str, ...], taken: _Taken, texts: list[str]) -> list[Iterable[Any]]:
    size = len(texts)
    return [taken[field](texts) if field in taken else repeat(getattr(same, field), size) for field in fields]


def _plan(read: Read, text: str, repeated_at: int) -> _Plan | None:
    """Return how to parse texts of this shape; None if it takes more than copying parts of them."""
    message, _, body = text.split(_END)
    own = len(message) if repeated_at >= 0 else 0  # the digits of the message that the text repeats
    spots = [at for found in _DIGITS.finditer(text, own) for at in range(*found.span())]
    is_folded = "  " in message and "\n" not in message  # then the message is searched in the text
    if is_folded or len(spots) > _MOST_DIGITS or _LOOKED_AT.search(text):
        return None
    begin = len(text) - len(body) + repeated_at
    texts = [text, *(_repeated(other, own, begin) for other in _others(text, spots))]
    failures = [read(*other.split(_END)) for other in texts]
    try:
        plan = _traced(_Texts(texts, spots), failures)
    except _UntraceableError:
        return None
    return plan if plan.failures(texts) == failures else None


def _others(text: str, spots: list[int]) -> Iterator[str]:
    """Return the shape with other digits: three texts that together number each position, and one that differs
    everywhere."""
    first, second, third = ([name[at] for name in _NAMES[: len(spots)]] for at in range(3))
    for digits in (first, second, third, [str(9 - int(digit)) for digit in first]):
        characters = list(text)
        for at, digit in zip(spots, digits, strict=True):
            characters[at] = digit
        yield "".join(characters)


# In an order without a pattern (powers modulo a prime), so that different rows remain different.
_NAMES = [f"{number:03}" for number in sorted(range(_MOST_DIGITS), key=lambda number: pow(number + 1, 5, 1009))]
_NUMBERS = {name: number for number, name in enumerate(_NAMES)}


def _repeated(text: str, size: int, begin: int) -> str:
    """Replace the message by its repetition in the text."""
    return text[begin : begin + size] + text[size:]


class _UntraceableError(Exception):
    """A field is not copied from the text."""


class _Texts:
    """Texts of one shape, whose digits number their positions."""

    def __init__(self, texts: list[str], spots: list[int]) -> None:
        self.all = texts
        self.spots = spots
        self.columns = list(zip(*texts, strict=True))

    def spot(self, column: tuple[str, ...]) -> int:
        number = _NUMBERS.get("".join(column[1:4]), len(self.spots))
        if number >= len(self.spots):
            raise _UntraceableError
        return self.spots[number]


def _traced(texts: _Texts, failures: list[Failure]) -> _Plan:
    if len({len(failure.frames) for failure in failures}) > 1:
        raise _UntraceableError
    stacks = zip(*(failure.frames for failure in failures), strict=True)
    return _Plan(
        failures[0],
        _taken(_FAILURE, failures, texts),
        [_taken(_FRAME, list(frames), texts) for frames in stacks],
    )


def _taken(fields: tuple[str, ...], parsed: list[Failure] | list[Frame], texts: _Texts) -> _Taken:
    leaves = {field: [getattr(each, field) for each in parsed] for field in fields}
    return {
        field: _number(values, texts) if isinstance(values[0], int) else _copied(values, texts)
        for field, values in leaves.items()
        if values.count(values[0]) < len(values)
    }


def _number(values: list[int], texts: _Texts) -> _Take:
    for found in _DIGITS.finditer(texts.all[0]):
        place = slice(*found.span())
        if texts.all[0][place].isdecimal() and [int(text[place]) for text in texts.all] == values:
            return lambda texts: map(int, map(itemgetter(place), texts))
    raise _UntraceableError


def _copied(values: list[str], texts: _Texts) -> _Take:
    """Return the copied parts of a text with the constant text between them, or the only part."""
    if {type(value) for value in values} != {str} or len({len(value) for value in values}) > 1:
        raise _UntraceableError
    pieces: list[str | slice] = []
    done = 0
    for begin, end, place in _parts(values, texts):
        pieces += values[0][done:begin], place
        done = end
    pieces.append(values[0][done:])
    copied = [piece for piece in pieces if piece]
    if len(copied) == 1:
        return lambda texts: _each(copied[0], texts)
    return lambda texts: map("".join, zip(*[_each(piece, texts) for piece in copied], strict=True))


def _each(piece: str | slice, texts: list[str]) -> Iterable[str]:
    return map(itemgetter(piece), texts) if isinstance(piece, slice) else repeat(piece, len(texts))


def _parts(values: list[str], texts: _Texts) -> Iterator[tuple[int, int, slice]]:
    """Return the copied ranges of a value and their positions in the texts."""
    columns = list(zip(*values, strict=True))
    end = 0
    for at, column in enumerate(columns):
        if at < end or column.count(column[0]) == len(column):
            continue
        shift = texts.spot(column) - at
        begin, end = _reach(columns, texts.columns, at, shift, end)
        yield begin, end, slice(begin + shift, end + shift)


def _reach(
    columns: list[tuple[str, ...]], there: list[tuple[str, ...]], at: int, shift: int, least: int
) -> tuple[int, int]:
    """Return how far the value equals the text before and after a position."""
    begin = end = at
    while begin > least and begin + shift > 0 and columns[begin - 1] == there[begin - 1 + shift]:
        begin -= 1
    while end < len(columns) and end + shift < len(there) and columns[end] == there[end + shift]:
        end += 1
    if end == at:
        raise _UntraceableError
    return begin, end
