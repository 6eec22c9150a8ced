"""Failures that differ only in their digits are read once: where something stands in one of them, it stands in all.

Of a document's many failures most have few causes, and say the same but for ids, lines and amounts. A text whose digits
are all made 0 is its shape. What is read of a shape that comes often becomes a plan: which parts of the text are the
message, the values, the places. A plan is made by reading the shape with other digits, which shows where each of them
goes, and is taken only if it says of all of these texts what reading them says.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import repeat
from operator import itemgetter
from typing import Any, cast

from ratchet.core.report import Failure, Frame

Texts = tuple[str, str, str]  # what a channel has of a failure: message, type, body
Read = Callable[[str, str, str], Failure]

_OFTEN = 32  # a plan costs as much as some thirty readings
_MOST_VAIN = 500
_MOST_SAME = 64  # each with a text as long as may be kept
_BEGIN = 200
_MOST_SHAPES = 256
_LONGEST = 8 << 10
_SHAPE = bytes.maketrans(b"123456789", b"0" * 9)
_END, _NEXT = "\0", "\1"  # which no text has


class Shapes:
    """Reads the failures of one document, as `read` would."""

    def __init__(self, read: Read) -> None:
        self._alone = read
        self._same: dict[tuple[int, str, str, str], tuple[str, Failure]] = {}
        self._known: dict[tuple[bytes, int], _Shape] = {}
        self._in_vain = 0

    def read(self, message: str, kind: str, body: str) -> Failure:
        return self.read_all([(message, kind, body)])[0]

    def read_all(self, told: Sequence[Texts]) -> list[Failure]:
        """Many at once, for what all of a shape have in common is then worked out once, and the rest in columns."""
        if not told or self._in_vain > _MOST_VAIN:
            return [self._read(*texts) for texts in told]
        found: list[Failure | None] = [None] * len(told)
        for key, places in _alike(told).items():
            self._in_vain += len(places)
            shape = self._known.get(key) or self._new(key)
            if plan := shape.plan_for(self._alone, [told[at] for at in places]):
                self._in_vain = 0
                for at, failure in zip(places, plan.failures([_END.join(told[at]) for at in places]), strict=True):
                    found[at] = failure
        return [failure or self._read(*texts) for failure, texts in zip(found, told, strict=True)]

    def _read(self, message: str, kind: str, body: str) -> Failure:
        # By how it begins and not by all of it: to compare a text is much faster than to hash it.
        key = len(body), body[:_BEGIN], message, kind
        known = self._same.get(key)
        if known is None or known[0] != body:
            if len(self._same) >= _MOST_SAME:
                self._same.clear()
            self._same[key] = known = body, self._alone(message, kind, body)
        return known[1]

    def _new(self, key: tuple[bytes, int]) -> _Shape:
        if len(self._known) >= _MOST_SHAPES:
            self._known.clear()
        self._known[key] = shape = _Shape(key[1])
        return shape


def _alike(told: Sequence[Texts]) -> dict[tuple[bytes, int], list[int]]:
    """Which of them have the same shape. Whether the body repeats the message makes a difference, and where it does."""
    alike: dict[tuple[bytes, int], list[int]] = {}
    shapes = _shapes(_NEXT.join([_END.join(texts) for texts in told])).split(_NEXT.encode())
    for at, (shape, (message, _, body)) in enumerate(zip(shapes, told, strict=True)):
        if len(shape) <= _LONGEST:
            alike.setdefault((shape, body.find(message)), []).append(at)
    return alike


_ADDRESS = re.compile("0x[0-9a-f]+")


def _shapes(text: str) -> bytes:
    if "0x" in text:
        text = _ADDRESS.sub(lambda found: "\2x" + "0" * (len(found.group()) - 2), text)
    return text.encode().translate(_SHAPE)


class _Shape:
    """What is known of one shape: how often it was read, and its plan if there is one."""

    def __init__(self, repeated_at: int) -> None:
        self.repeated_at = repeated_at  # where the body has the message
        self.times = 0
        self.plan: _Plan | None = None

    def plan_for(self, read: Read, told: list[Texts]) -> _Plan | None:
        # Once: what has no plan shall not cost more than it did.
        if self.times < _OFTEN <= self.times + len(told):
            self.plan = _plan(read, _END.join(told[0]), self.repeated_at)
        self.times += len(told)
        return self.plan


# --- plans -----------------------------------------------------------------------------------------------------------

_Leaf = str | int | None
_Take = Callable[[list[str]], Iterable[_Leaf]]  # a leaf of each, from the texts
_Taken = dict[str, _Take]

_DIGITS = re.compile("(?<=0x)[0-9a-f]+|[0-9]+(?!x[0-9a-f])")  # an address has letters, too
_MOST_DIGITS = 1000
_FAILURE = ("type", "message", "expected", "actual", "operator", "diff", "file", "line")
_FRAME = ("file", "line", "function", "code")
# What is read with a look at the digits: the rows of a sanitizer, and an expression that is told a second time.
_LOOKED_AT = re.compile("#[0-9]+ 0x|Check failed")


class _Plan:
    """A failure, and what of it and of its frames is taken from the texts."""

    def __init__(self, failure: Failure, taken: _Taken, frames: list[_Taken]) -> None:
        self.same = failure
        self.taken = taken
        self.frames = frames
        self.is_same_stack = not any(frames)

    def failures(self, texts: list[str]) -> list[Failure | None]:
        stacks: Iterable[list[Frame]] = (
            repeat(self.same.frames, len(texts)) if self.is_same_stack else self._stacks(texts)
        )
        told = list(map(Failure, *_columns(self.same, _FAILURE, self.taken, texts), stacks))
        if self.is_same_stack or len(self.frames) == 1:
            return cast(list[Failure | None], told)
        # Rows that are the same are one frame.
        return [failure if len(set(failure.frames)) == len(self.frames) else None for failure in told]

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
    """How texts of this shape are read; nothing if that takes more than to copy parts of them."""
    message, _, body = text.split(_END)
    own = len(message) if repeated_at >= 0 else 0  # of the digits, those that the body has too
    spots = [at for found in _DIGITS.finditer(text, own) for at in range(*found.span())]
    is_folded = "  " in message and "\n" not in message  # then its words are looked for in the body
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
    """With other digits: those of the first three texts name each spot, and in the last one none is as in the first."""
    first, second, third = ([name[at] for name in _NAMES[: len(spots)]] for at in range(3))
    for digits in (first, second, third, [str(9 - int(digit)) for digit in first]):
        characters = list(text)
        for at, digit in zip(spots, digits, strict=True):
            characters[at] = digit
        yield "".join(characters)


# In an order without any pattern (powers modulo a prime): rows that differ should go on differing.
_NAMES = [f"{number:03}" for number in sorted(range(_MOST_DIGITS), key=lambda number: pow(number + 1, 5, 1009))]
_NUMBERS = {name: number for number, name in enumerate(_NAMES)}


def _repeated(text: str, size: int, begin: int) -> str:
    """With the message that the body has."""
    return text[begin : begin + size] + text[size:]


class _UntraceableError(Exception):
    """A leaf is not copied from the text."""


class _Texts:
    """Texts of one shape. Their digits name the spots that they stand at."""

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


def _taken(fields: tuple[str, ...], told: list[Failure] | list[Frame], texts: _Texts) -> _Taken:
    leaves = {field: [getattr(each, field) for each in told] for field in fields}
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
    """Parts of the text and what is always the same between them, or one part alone."""
    if {type(value) for value in values} != {str} or len({len(value) for value in values}) > 1:
        raise _UntraceableError
    pieces: list[str | slice] = []
    done = 0
    for begin, end, place in _parts(values, texts):
        pieces += values[0][done:begin], place
        done = end
    pieces.append(values[0][done:])
    told = [piece for piece in pieces if piece]
    if len(told) == 1:
        return lambda texts: _each(told[0], texts)
    return lambda texts: map("".join, zip(*[_each(piece, texts) for piece in told], strict=True))


def _each(piece: str | slice, texts: list[str]) -> Iterable[str]:
    return map(itemgetter(piece), texts) if isinstance(piece, slice) else repeat(piece, len(texts))


def _parts(values: list[str], texts: _Texts) -> Iterator[tuple[int, int, slice]]:
    """What of the values is copied, from where to where, and from which place of the texts."""
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
    """How far before and behind a character of the values the same is said at its place in the texts."""
    begin = end = at
    while begin > least and begin + shift > 0 and columns[begin - 1] == there[begin - 1 + shift]:
        begin -= 1
    while end < len(columns) and end + shift < len(there) and columns[end] == there[end + shift]:
        end += 1
    if end == at:
        raise _UntraceableError
    return begin, end
