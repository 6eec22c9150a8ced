"""Places the steps of a picture on a line: x is active time with a minimum width, gaps have a fixed width."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from ratchet.core.picture import TimeSpan


class Size(msgspec.Struct, frozen=True, kw_only=True):
    """One of the three widths in which a picture is drawn; the stylesheet shows one of them."""

    name: str
    width: int
    x0: int
    x1: int
    gap: float
    floor: float
    rise: float
    rise_max: float
    lanes: bool
    tick_px: int

    def tooth_height(self, kept: int) -> float:
        return max(12.0, min(self.rise / (kept + 1), self.rise_max))


BIG = Size(name="big", width=1200, x0=84, x1=1172, gap=44, floor=4, rise=190, rise_max=38, lanes=True, tick_px=105)
MID = Size(name="mid", width=720, x0=74, x1=692, gap=36, floor=2.5, rise=140, rise_max=28, lanes=True, tick_px=105)
SMALL = Size(name="small", width=328, x0=4, x1=314, gap=30, floor=1.5, rise=100, rise_max=20, lanes=False, tick_px=90)
SIZES = (BIG, MID, SMALL)

_TICKS_S = (1, 5, 15, 30, 60, 120, 300, 600, 1800, 3600, 7200, 18_000, 36_000, 86_400, 172_800, 604_800)


def widths(seconds: Sequence[float], room: float, floor: float) -> list[float]:
    """Share `room` by time, but give none less than the floor. The widths add up to the room."""
    if not seconds:
        return []
    floor = min(floor, room / len(seconds))
    floored = [False] * len(seconds)
    while True:
        free_s = sum(one for one, is_floored in zip(seconds, floored, strict=True) if not is_floored)
        scale = (room - floor * sum(floored)) / free_s if free_s > 0 else 0.0
        short = [index for index, one in enumerate(seconds) if not floored[index] and one * scale < floor - 1e-9]
        if not short:
            break
        for index in short:
            floored[index] = True
    if all(floored):
        return [room / len(seconds)] * len(seconds)
    return [floor if is_floored else one * scale for one, is_floored in zip(seconds, floored, strict=True)]


def horizon(active_s: float) -> float:
    """Return the time that a live picture has room for; it changes rarely, so that the picture rescales rarely."""
    at = 60.0
    while at < active_s * 1.05:
        at *= 1.25
    return at


class Axis:
    """The x of every span and step, for one size."""

    def __init__(self, spans: Sequence[TimeSpan], size: Size, *, live: bool = False) -> None:
        self.spans, self.size = spans, size
        gaps = sum(span.step is None for span in spans)
        gap_px = min(size.gap, (size.x1 - size.x0) / 2 / gaps) if gaps else 0.0
        seconds = [span.seconds for span in spans if span.step is not None]
        self.active_s = sum(seconds)
        room = size.x1 - size.x0 - gap_px * gaps
        if live:
            tail = max(0.0, horizon(self.active_s) - self.active_s)
            placed = widths([*seconds, tail], room, size.floor)[:-1]
        else:
            placed = widths(seconds, room, size.floor)
        self.edges: list[tuple[float, float]] = []
        self._steps: dict[int, tuple[float, float]] = {}
        self._place(iter(placed), gap_px)

    def _place(self, placed: object, gap_px: float) -> None:
        x, follows = float(self.size.x0), iter(placed)  # type: ignore[call-overload]  # floats
        for span in self.spans:
            began = x
            x += gap_px if span.step is None else next(follows)
            self.edges.append((began, x))
            if span.step is not None:
                first = self._steps.get(span.step, (began, x))[0]
                self._steps[span.step] = (first, x)
        self.end = x

    def step(self, index: int) -> tuple[float, float]:
        return self._steps.get(index, (self.end, self.end))

    def ticks(self) -> list[tuple[float, float]]:
        """Return (x, seconds) of round times, interpolated inside their steps and far enough apart."""
        room = self.size.x1 - self.size.x0
        share = (self.end - self.size.x0) / room if room else 1.0
        wanted = max(1.0, room * share / self.size.tick_px)
        unit = next((one for one in _TICKS_S if self.active_s / one <= wanted), _TICKS_S[-1])
        found: list[tuple[float, float]] = [(float(self.size.x0), 0.0)]
        passed, due = 0.0, float(unit)
        for span, (left, right) in zip(self.spans, self.edges, strict=True):
            if span.step is None or span.seconds <= 0:
                continue
            while due <= passed + span.seconds:
                x = left + (right - left) * (due - passed) / span.seconds
                if x - found[-1][0] >= self.size.tick_px * 0.75:
                    found.append((x, due))
                due += unit
            passed += span.seconds
        return found
