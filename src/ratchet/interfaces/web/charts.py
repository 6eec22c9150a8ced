"""Charts as SVG, made on the server: columns over days. Colour comes from classes, texts are numbers and dates."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from markupsafe import Markup, escape

from ratchet.interfaces.web.ratchet_svg import n

WIDE, NARROW = ("wide", 568), ("narrow", 302)
LEFT, TOP, BOTTOM, HEIGHT = 48, 22, 184, 210


def nice(most: float) -> float:
    """Return the distance between grid lines, of which there are at most four: 1, 2 or 5 times a power of ten."""
    step = 0.01
    while True:
        for factor in (1, 2, 5):
            if most / (step * factor) <= 4:
                return step * factor
        step *= 10


def _scale(most: float) -> Callable[[float], float]:
    return lambda value: BOTTOM - (BOTTOM - TOP) * value / (most * 1.05)


def _frame(size: tuple[str, int], label: str, inside: str) -> Markup:
    name, width = size
    return Markup(
        f'<svg class="ch {name}" viewBox="0 0 {width} {HEIGHT}" role="img" aria-label="{escape(label)}">{inside}</svg>'
    )


def _grid(width: int, step: float, most: float, y: Callable[[float], float], text: Callable[[float], str]) -> str:
    drawn, value = "", 0.0
    while value <= most + 1e-9:
        kind = "axis" if value == 0 else "grid"
        drawn += (
            f'<path class="{kind}" d="M{LEFT} {n(y(value))}H{width - 4}"/>'
            f'<text x="{LEFT - 8}" y="{n(y(value) + 4)}" text-anchor="end">{text(value)}</text>'
        )
        value += step
    return drawn


def _days(width: int, days: Sequence[str]) -> str:
    each = (width - LEFT - 4) / max(1, len(days))
    every = max(1, round(38 / each + 0.49))
    return "".join(
        f'<text x="{n(LEFT + each * (index + 0.5))}" y="208" text-anchor="middle">{escape(day)}</text>'
        for index, day in enumerate(days)
        if (len(days) - 1 - index) % every == 0
    )


def stacked(
    size: tuple[str, int], label: str, days: Sequence[str], low: Sequence[float], high: Sequence[float]
) -> Markup:
    """Draw columns with a second, hatched value on top."""
    width = size[1]
    most = max([1.0, *(a + b for a, b in zip(low, high, strict=True))])
    step = max(1.0, nice(most))
    y = _scale(most)
    each = (width - LEFT - 4) / max(1, len(days))
    drawn = _grid(width, step, most, y, lambda value: str(int(value)))
    for index, (a, b) in enumerate(zip(low, high, strict=True)):
        left, wide = LEFT + each * (index + 0.19), each * 0.62
        if a:
            drawn += f'<rect class="g" x="{n(left)}" y="{n(y(a))}" width="{n(wide)}" height="{n(BOTTOM - y(a))}"/>'
        if b:
            tall = max(1.0, y(a) - y(a + b) - 2)
            drawn += f'<rect class="r" x="{n(left)}" y="{n(y(a + b))}" width="{n(wide)}" height="{n(tall)}"/>'
    return _frame(size, label, drawn + _days(width, days))


def mirrored(
    size: tuple[str, int], label: str, days: Sequence[str], up: Sequence[float], down: Sequence[float]
) -> Markup:
    """Draw teeth above the line and slips below it."""
    width = size[1]
    most_up, most_down = max([1.0, *up]), max([1.0, *down])
    scale = (BOTTOM - TOP) / ((most_up + most_down) * 1.05)
    zero = TOP + most_up * 1.05 * scale

    def y(value: float) -> float:
        return zero - value * scale

    step = max(1.0, nice(most_up))
    each = (width - LEFT - 4) / max(1, len(days))
    drawn = _grid(width, step, most_up, y, lambda value: str(int(value)))
    for index, (a, b) in enumerate(zip(up, down, strict=True)):
        left, right = LEFT + each * (index + 0.15), LEFT + each * (index + 0.85)
        if a:
            drawn += f'<path class="g" d="M{n(left)} {n(zero - 0.5)}L{n(right)} {n(y(a))}V{n(zero - 0.5)}Z"/>'
        if b:
            drawn += f'<path class="r" d="M{n(left)} {n(zero + 1)}L{n(right)} {n(y(-b))}V{n(zero + 1)}Z"/>'
    return _frame(size, label, drawn + _days(width, days))


def line(
    size: tuple[str, int], label: str, days: Sequence[str], values: Sequence[float | None], text: Callable[[float], str]
) -> Markup:
    """Draw one line; days without a value are left out."""
    width = size[1]
    known = [one for one in values if one is not None]
    most = max([0.01, *known])
    step = nice(most)
    y = _scale(most)
    each = (width - LEFT - 4) / max(1, len(days))
    points = [(LEFT + each * (i + 0.5), y(one)) for i, one in enumerate(values) if one is not None]
    drawn = _grid(width, step, most, y, text)
    if points:
        path = "L".join(f"{n(px)} {n(py)}" for px, py in points)
        x, at = points[-1]
        drawn += f'<path class="line l1" d="M{path}"/><circle class="pt" cx="{n(x)}" cy="{n(at)}" r="4"/>'
    return _frame(size, label, drawn + _days(width, days))
