"""Draws the ratchet: teeth are kept commits, slips reverted changes, lanes show the roles. Colour comes from classes.

The geometry is explained in `docs/decisions`; every text is escaped here, since subjects and reasons are hostile.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
from markupsafe import Markup, escape

from ratchet.core.picture import (
    AttemptEnd,
    Lane,
    Picture,
    PictureAttempt,
    PictureStep,
    StepOutcome,
    TimeSpan,
)
from ratchet.interfaces.terminal.narrative import event_line
from ratchet.interfaces.web import words
from ratchet.interfaces.web.plot import Axis, Size

TIP = 0.4
SLIP = 0.62
CLIMB = 0.66
FOOT = 14
LANE_PX = 18
LABELS_PX = 120
NUMBERS_PX = 14
_CHAR_PX = 6.6  # of the widest of the fonts: a label may not leave the picture


def n(value: float) -> str:
    """Return a coordinate with at most one decimal."""
    return f"{value:.1f}".removesuffix(".0")


class Scene(msgspec.Struct, kw_only=True):
    """The part of a picture that is drawn: its steps, attempts and spans, in order."""

    picture: Picture
    attempts: list[PictureAttempt]
    spans: list[TimeSpan]
    first_number: int = 1
    base: int = 0
    selected: int | None = None
    label: str = ""

    @property
    def live(self) -> bool:
        picture = self.picture
        at_end = not self.spans or not picture.spans or self.spans[-1] is picture.spans[-1]
        return picture.ended is None and at_end

    @property
    def levels(self) -> int:
        return sum(one.end is AttemptEnd.KEPT for one in self.attempts)


def whole(picture: Picture, *, selected: int | None = None) -> Scene:
    return Scene(
        picture=picture,
        attempts=picture.attempts,
        spans=picture.spans,
        selected=selected,
        label=sentence(picture),
    )


def window(picture: Picture, first: int, last: int, *, selected: int | None = None) -> Scene:
    """Return the scene of the parts with these indexes."""
    inside = {step for part in picture.parts[first : last + 1] for step in part.steps}
    low, high = min(inside, default=0), max(inside, default=-1)
    spans: list[TimeSpan] = []
    for span in picture.spans:
        if span.step is None:
            if spans and spans[-1].step is not None and spans[-1].step < high:
                spans.append(span)
        elif low <= span.step <= high:
            spans.append(span)
    attempts = [one for one in picture.attempts if one.change in inside]
    before = [one for one in picture.attempts if one.change < low]
    base = sum(one.end is AttemptEnd.KEPT for one in before)
    return Scene(
        picture=picture,
        attempts=attempts,
        spans=spans,
        base=base,
        first_number=base + 1,
        selected=selected,
        label=f"Part of the run: {words.count(len(attempts), 'attempt')}. The steps are listed below.",
    )


def sentence(picture: Picture) -> str:
    """Describe the picture in words, for screen readers."""
    parts = [f"{words.count(picture.kept, 'commit')} kept", f"{words.count(picture.slips, 'change')} reverted"]
    if picture.sealed:
        parts.append(f"{picture.sealed} of them caught by a sealed test")
    refused = sum(step.outcome is StepOutcome.REFUSED for step in picture.steps)
    undone = sum(bool(step.undone) for step in picture.steps)
    parts += [f"{words.count(refused, 'test')} refused"] if refused else []
    parts += [f"{words.count(undone, 'write')} undone"] if undone else []
    parts += [f"{words.duration(picture.waited_s)} waited for a person"] if picture.waited_s else []
    now = f" Now: {words.phase(picture.running.action)}." if picture.running else ""
    return f"The run so far: {', '.join(parts)}.{now} The steps are listed below."


class Drawing:
    """One scene in one size. `svg()` returns the whole element."""

    def __init__(self, scene: Scene, size: Size) -> None:
        self.scene, self.size, self.picture = scene, size, scene.picture
        self.axis = Axis(scene.spans, size, live=scene.live)
        self.h = size.tooth_height(scene.levels)
        self.top = 1.4 * self.h + (25 if size.lanes else 22)
        self.y0 = self.top + scene.levels * self.h
        self.foot = self.y0 + FOOT
        self.lanes = _used_lanes(scene) if size.lanes else []
        self.height = self.foot + (27 + len(self.lanes) * LANE_PX + 3 if self.lanes else 26)
        self.pitch = (size.x1 - size.x0) / max(1, len(scene.attempts))

    def y(self, level: float) -> float:
        return self.y0 - (level - self.scene.base) * self.h

    def svg(self) -> Markup:
        size = self.size
        parts = [
            *self._gaps(),
            *self._profile(),
            *self._selection(),
            *(self._attempt(one) for one in self.scene.attempts),
            *self._held(),
            *self._small_marks(),
            *self._numbers(),
            *self._now(),
            *self._ticks(),
            *self._lanes(),
            *self._flags(),
        ]
        return Markup(
            f'<svg class="rp {size.name}" viewBox="0 0 {size.width} {n(self.height)}" width="{size.width}"'
            f' height="{n(self.height)}" role="group" aria-label="{escape(self.scene.label)}">\n'
            + "\n".join(parts)
            + "\n</svg>"
        )

    # --- the rack ------------------------------------------------------------------------------------------

    def _outline(self) -> list[str]:
        points, level = [f"M{self.size.x0} {n(self.y(self.scene.base))}"], self.scene.base
        for one in self.scene.attempts:
            if one.end is not AttemptEnd.KEPT:
                continue
            left, right = self._reach(one)
            points.append(f"L{n(left)} {n(self.y(level))}")
            points.append(f"L{n(right)} {n(self.y(level + 1 + TIP))}")
            level += 1
            points.append(f"L{n(right)} {n(self.y(level))}")
        points.append(f"L{n(self._right())} {n(self.y(level))}")
        return points

    def _right(self) -> float:
        return float(self.size.x1)

    def _profile(self) -> Iterator[str]:
        edge = "".join(self._outline())
        yield f'<path class="rack" d="{edge}V{n(self.foot)}H{self.size.x0}Z"/><path class="edge" d="{edge}"/>'

    def _reach(self, one: PictureAttempt) -> tuple[float, float]:
        last = one.gate if one.gate is not None and one.end is not AttemptEnd.KEPT else one.judge
        left = self.axis.step(one.change)[0]
        return left, self.axis.step(one.change if last is None else last)[1]

    def _level_of(self, one: PictureAttempt) -> int:
        """The level at which an attempt is drawn: commits that a gate undid later do not count."""
        kept = 0
        for other in self.scene.attempts:
            if other is one:
                break
            kept += other.end is AttemptEnd.KEPT
        return self.scene.base + kept

    def _attempt(self, one: PictureAttempt) -> str:
        if one.end is AttemptEnd.NOW:
            return ""
        left, right = self._reach(one)
        low = self.y(self._level_of(one))
        shown = one.gate if one.end is not AttemptEnd.KEPT and one.gate is not None else one.judge
        step = self.picture.steps[one.change if shown is None else shown]
        if one.end is AttemptEnd.KEPT:
            tip, seat = low - (1 + TIP) * self.h, low - self.h
            drawn = f'<path class="tooth" d="M{n(left)} {n(low)}L{n(right)} {n(tip)}V{n(seat)}H{n(right)}V{n(low)}Z"/>'
            return self._link(step, drawn, f"kept {one.commit[:10]} {one.subject}")
        sealed = " sealed" if one.end is AttemptEnd.SEALED else ""
        peak = low - (1.0 if one.gate is not None else SLIP) * self.h
        drawn = (
            f'<path class="slip{sealed}" d="M{n(left)} {n(low)}L{n(right)} {n(peak)}V{n(low)}Z"/>'
            f'<path class="fall{sealed}" d="M{n(right)} {n(peak)}V{n(low - 1)}"/>'
        )
        return self._link(step, drawn, f"reverted: {step_result(step)}") + self._cross(right, peak, sealed)

    def _cross(self, x: float, peak: float, sealed: str) -> str:
        if self.pitch < NUMBERS_PX:
            return ""
        if sealed:
            y = peak - 10.5
            hexagon = f"M{n(x)} {n(y - 7.5)}l6.5 3.75v7.5l-6.5 3.75l-6.5 -3.75v-7.5z"
            cross = f"M{n(x - 2.6)} {n(y - 2.6)}l5.2 5.2m0 -5.2l-5.2 5.2"
            drawn = f'<path class="mark sealed" d="{hexagon}"/><path class="mark-x sealed" d="{cross}"/>'
        else:
            y = peak - 9
            drawn = f'<path class="mark-x" d="M{n(x - 4)} {n(y - 4)}l8 8m0 -8l-8 8"/>'
        if self.size.name != "big" or self.pitch < LABELS_PX:
            return drawn
        word, tone = ("overfitted", "violet") if sealed else ("reverted", "red")
        return f'{drawn}<text class="t-{tone}" x="{n(x - 11)}" y="{n(y + 4)}" text-anchor="end">{word}</text>'

    def _link(self, step: PictureStep, drawn: str, title: str) -> str:
        named = escape(f"Step {step.number}: {title}")
        return (
            f'<a href="?step={step.number}#step-{step.number}" tabindex="-1" aria-label="{named}">{drawn}'
            f"<title>{escape(title)}</title></a>"
        )

    # --- marks ---------------------------------------------------------------------------------------------

    def _small_marks(self) -> Iterator[str]:
        if self.pitch < NUMBERS_PX:
            return
        drawn = {span.step for span in self.scene.spans}
        for index, step in enumerate(self.picture.steps):
            if index not in drawn:
                continue
            x = sum(self.axis.step(index)) / 2
            if step.outcome is StepOutcome.REFUSED:
                low = self.y(self._level_at(index))
                y = low - 9 if self.size.name == "big" else low + 11
                mark = f'<path class="mark" d="M{n(x)} {n(y - 6)}l6 6l-6 6l-6 -6zM{n(x - 2.5)} {n(y + 2.5)}l5 -5"/>'
                yield self._link(step, mark, f"refused: {step_result(step)}")
            if step.undone:
                yield self._undone(index, x)

    def _level_at(self, index: int) -> int:
        kept = sum(one.end is AttemptEnd.KEPT and (one.judge or 0) < index for one in self.scene.attempts)
        return self.scene.base + kept

    def _undone(self, index: int, x: float) -> str:
        low = self.y(self._level_at(index))
        y = low - 0.7 * self.h - 9 if self.size.name == "big" else low + 10.5
        left, top = x - 5.5, y - 5.5
        arrow = f"M{n(left + 3)} {n(top + 8)}h3.2a2 2 0 0 0 0 -4h-3.6m1.6 -1.6l-1.6 1.6l1.6 1.6"
        return (
            f'<g><rect class="mark" x="{n(left)}" y="{n(top)}" width="11" height="11" rx="2"/>'
            f'<path class="mark-x" d="{arrow}"/><title>write undone</title></g>'
        )

    def _numbers(self) -> Iterator[str]:
        if self.pitch < NUMBERS_PX:
            return
        kept = [one for one in self.scene.attempts if one.end is AttemptEnd.KEPT]
        free = float("inf")
        for number, one in reversed(list(enumerate(kept, self.scene.first_number))):
            right = self._reach(one)[1]
            if free - right < 17 + NUMBERS_PX:
                continue
            free = right
            tip = self.y(self._level_of(one)) - (1 + TIP) * self.h
            wide = 17 if number < 100 else 23
            yield (
                f'<rect class="nr-bg" x="{n(right - wide / 2)}" y="{n(tip - 20)}" width="{wide}" height="17" rx="8.5"/>'
                f'<text class="nr" x="{n(right)}" y="{n(tip - 7)}" text-anchor="middle">{number}</text>'
            )
            yield self._subject(one, right, tip - 7)

    def _subject(self, one: PictureAttempt, right: float, y: float) -> str:
        """The subject left of the tip: the sky there is free, since teeth only rise."""
        chars = int((right - 14 - 52 - 8) / _CHAR_PX)
        if self.size.name != "big" or self.pitch < LABELS_PX or chars < 10:
            return ""
        return (
            f'<text x="{n(right - 14)}" y="{n(y)}" text-anchor="end">'
            f'<tspan class="lab">{escape(words.cut(one.subject, chars))}</tspan>'
            f' <tspan class="hash" dx="3">{escape(one.commit[:7])}</tspan></text>'
        )

    # --- now and held --------------------------------------------------------------------------------------

    def _held(self) -> Iterator[str]:
        kept = [one for one in self.scene.attempts if one.end is AttemptEnd.KEPT]
        if not kept or not self.scene.live:
            return
        y = self.y(self.scene.base + len(kept))
        yield f'<path class="held" d="M{n(self._reach(kept[-1])[1])} {n(y)}H{self.size.x1}"/>'
        if self.size.name == "big":
            yield (
                f'<text class="t-held" x="{self.size.x1 - 8}" y="{n(y + 17)}" text-anchor="end">held at'
                f' <tspan class="hash">{escape(kept[-1].commit[:7])}</tspan></text>'
            )

    def _now(self) -> Iterator[str]:
        step = self.picture.running
        if step is None or not self.scene.live or not self.scene.spans:
            return
        level = self.y(self.scene.base + self.scene.levels)
        x, y = self.axis.end, level
        if (last := self.scene.attempts[-1:]) and last[0].end is AttemptEnd.NOW:
            y = level - CLIMB * self.h
            yield f'<path class="climb" d="M{n(self._reach(last[0])[0])} {n(level)}L{n(x)} {n(y)}V{n(level)}"/>'
        yield f'<circle class="ring" cx="{n(x)}" cy="{n(y)}" r="9"/>'
        pawl = f"M{n(x - 6)} {n(y - 5)}L{n(x + 6)} {n(y)}L{n(x - 6)} {n(y + 5)}L{n(x - 3)} {n(y)}z"
        yield f'<path class="pawl" d="{pawl}"/>'
        named = " · ".join(
            filter(None, [words.phase(step.action), words.agent_name(step.agent), words.duration(step.active_s)])
        )
        chars = len(named) * 6
        at, anchor = (x + 8, "end") if x - chars > self.size.x0 else (max(self.size.x0, x - 8), "start")
        yield f'<text class="t-blue" x="{n(at)}" y="{n(max(12, y - 15))}" text-anchor="{anchor}">{escape(named)}</text>'

    # --- axis, lanes, gaps -----------------------------------------------------------------------------------

    def _ticks(self) -> Iterator[str]:
        for x, seconds in self.axis.ticks():
            anchor = "start" if x <= self.size.x0 and not self.size.lanes else "middle"
            yield (
                f'<path class="grid" d="M{n(x)} {n(self.foot)}v4"/>'
                f'<text x="{n(x)}" y="{n(self.foot + 15)}" text-anchor="{anchor}">{words.tick(seconds)}</text>'
            )

    def _lanes(self) -> Iterator[str]:
        for row, lane in enumerate(self.lanes):
            y = self.foot + 41.5 + row * LANE_PX
            yield (
                f'<path class="lane" d="M{self.size.x0} {n(y)}H{self.size.x1}"/>'
                f'<text x="{self.size.x0 - 10}" y="{n(y - 4.5)}" text-anchor="end">'
                f"{_lane_name(lane, self.picture)}</text>"
            )
        for span, (left, right) in zip(self.scene.spans, self.axis.edges, strict=True):
            if span.step is not None and self.lanes:
                yield self._bar(self.picture.steps[span.step], left, right)

    def _bar(self, step: PictureStep, left: float, right: float) -> str:
        y = self.foot + 27 + self.lanes.index(step.lane) * LANE_PX
        width = max(0.8, right - left - 1)
        who = words.agent_name(step.agent)
        name = ""
        if who and width > len(who) * 6.4 + 10:
            name = f'<text class="who" x="{n(left + 5)}" y="{n(y + 10)}">{escape(who)}</text>'
        drawn = (
            f'<rect class="bar{_bar_class(step, self.picture)}" x="{n(left)}" y="{n(y)}" width="{n(width)}"'
            f' height="12" rx="2"/>{name}'
        )
        parts = [words.phase(step.action), who, words.duration(step.active_s)]
        return self._link(step, drawn, " · ".join(filter(None, parts)))

    def _gaps(self) -> Iterator[str]:
        for span, (left, right) in zip(self.scene.spans, self.axis.edges, strict=True):
            if span.step is None:
                tone = "" if span.waits_for_person else " quiet"
                height = self.height - self.top + 12
                yield (
                    f'<rect class="gap{tone}" x="{n(left)}" y="{n(self.top - 12)}" width="{n(right - left)}"'
                    f' height="{n(height)}"/>'
                )

    def _flags(self) -> Iterator[str]:
        for span, (left, right) in zip(self.scene.spans, self.axis.edges, strict=True):
            if span.step is not None:
                continue
            person, text = span.waits_for_person, words.duration(span.seconds)
            text, tone = (f"? {text}", "") if person else (text, " quiet")
            wide, middle = len(text) * 6.4 + 12, (left + right) / 2
            middle = min(max(middle, wide / 2), self.size.width - wide / 2)
            yield (
                f'<rect class="flag{tone}" x="{n(middle - wide / 2)}" y="{n(self.foot - 2)}" width="{n(wide)}"'
                f' height="20" rx="3"/><text class="flag-t{tone}" x="{n(middle)}" y="{n(self.foot + 12)}"'
                f' text-anchor="middle">{text}</text>'
            )

    def _selection(self) -> Iterator[str]:
        chosen = self.scene.selected
        index = next((i for i, step in enumerate(self.picture.steps) if step.number == chosen), None)
        if index is None or all(span.step != index for span in self.scene.spans):
            return
        left, right = self.axis.step(index)
        y = self.y(self._level_at(index)) - 4
        yield (
            f'<rect class="sel" x="{n(left - 2)}" y="{n(y)}" width="{n(right - left + 4)}"'
            f' height="{n(self.height - y - 1)}" rx="3"/>'
        )


def step_result(step: PictureStep) -> str:
    """Return the result of a step, in the words of the timeline in the terminal."""
    line = event_line(step.result) if step.result else None
    return line.text if line else ""


def _used_lanes(scene: Scene) -> list[Lane]:
    used = {scene.picture.steps[span.step].lane for span in scene.spans if span.step is not None}
    tdd = scene.picture.started is None or scene.picture.started.workflow == "tdd"
    return [lane for lane in Lane if tdd or lane in used]


def _lane_name(lane: Lane, picture: Picture) -> str:
    analyses = picture.started is not None and picture.started.workflow in ("fix", "swarm")
    return "Analyse" if lane is Lane.TEST and analyses else str(lane)


def _bar_class(step: PictureStep, picture: Picture) -> str:
    if step is picture.running:
        return " now"
    if step.sealed:
        return " sealed"
    if step.is_bad:
        return " bad"
    if step.outcome is StepOutcome.KEPT:
        return " good"
    return " agent" if step.role else ""


# --- the whole of a long run ------------------------------------------------------------------------------------------


def needs_overview(picture: Picture, size: Size) -> bool:
    return (size.x1 - size.x0) / max(1, len(picture.attempts)) < NUMBERS_PX


def overview(picture: Picture, size: Size, shown: tuple[int, int]) -> Markup:
    """Draw a long run in columns of 3 px: its size is bounded by the width. `shown` are the parts of the window."""
    axis = Axis(picture.spans, size)
    low, high, foot = 20.0, 70.0, 78.0
    rise = (high - low) / max(1, picture.kept)
    columns = [0] * ((size.x1 - size.x0) // 3 + 1)
    slips: list[list[AttemptEnd]] = [[] for _ in columns]
    for one in picture.attempts:
        last = one.change if one.judge is None else one.judge
        column = min(len(columns) - 1, int((axis.step(last)[1] - size.x0) / 3))
        if one.end is AttemptEnd.KEPT:
            columns[column] += 1
        elif one.end is not AttemptEnd.NOW:
            slips[column].append(one.end)
    rack, ticks, level = [f"M{size.x0} {n(high)}"], {"": "", " sealed": ""}, 0
    for index, kept in enumerate(columns):
        level += kept
        x, y = size.x0 + index * 3, high - level * rise
        rack.append(f"L{x} {n(y)}" if kept else "")
        if slips[index]:
            tone = " sealed" if AttemptEnd.SEALED in slips[index] else ""
            ticks[tone] += f"M{x} {n(y - 2)}v-{4 * min(3, len(slips[index]))}"
    edge = "".join(rack) + f"L{size.x1} {n(high - level * rise)}"
    left, right = _framed(picture, axis, shown)
    times = "".join(
        f'<text x="{n(x)}" y="{n(foot + 12)}" text-anchor="middle">{words.tick(at)}</text>' for x, at in axis.ticks()
    )
    return Markup(
        f'<svg class="rp {size.name}" viewBox="0 0 {size.width} 92" width="{size.width}" height="92" role="img"'
        f' aria-label="{escape(sentence(picture))}"><path class="rack" d="{edge}V{n(foot)}H{size.x0}Z"/>'
        f'<path class="edge" d="{edge}"/>'
        + "".join(f'<path class="tick{tone}" d="{path}"/>' for tone, path in ticks.items() if path)
        + f'{times}<rect class="win" x="{n(left)}" y="2" width="{n(max(6, right - left))}" height="80" rx="3"/></svg>'
    )


def _framed(picture: Picture, axis: Axis, shown: tuple[int, int]) -> tuple[float, float]:
    inside = [step for part in picture.parts[shown[0] : shown[1] + 1] for step in part.steps]
    if not inside:
        return float(axis.size.x0), float(axis.size.x0)
    return axis.step(min(inside))[0], axis.step(max(inside))[1]


# --- on a card --------------------------------------------------------------------------------------------------------


def card(shape: str) -> Markup:
    """Draw the shape of a run (`kkrk`) on a card of 212 by 38."""
    if not shape:
        return Markup("")
    width, base, foot = 212.0, 33.0, 37
    each = min(27.0, (width - 6) / len(shape))
    kept = shape.count("k")
    rise = min(8.0, 20.0 / max(1, kept))
    edge, drawn, level = [f"M2 {n(base)}"], [], 0
    for index, end in enumerate(shape):
        left, right = 2 + index * each + each * 0.25, 2 + (index + 1) * each
        low = base - level * rise
        if end == AttemptEnd.KEPT:
            tip = low - rise * 1 - min(4.4, rise * 0.56)
            edge += [f"L{n(left)} {n(low)}", f"L{n(right)} {n(tip)}", f"L{n(right)} {n(low - rise)}"]
            drawn.append(f'<path class="tooth" d="M{n(left)} {n(low)}L{n(right)} {n(tip)}V{n(low)}Z"/>')
            level += 1
        elif end == AttemptEnd.NOW:
            drawn.append(f'<path class="pawl" d="M{n(left)} {n(low - 14)}l13 6l-13 6l3.5 -6z"/>')
        else:
            sealed = " sealed" if end == AttemptEnd.SEALED else ""
            drawn.append(f'<path class="slip{sealed}" d="M{n(left)} {n(low)}L{n(right)} {n(low - 7)}V{n(low)}Z"/>')
    edge.append(f"L{n(2 + len(shape) * each)} {n(base - level * rise)}")
    line, slips = "".join(edge), shape.count("r") + shape.count("s")
    return Markup(
        f'<svg class="rp mini" viewBox="0 0 212 38" preserveAspectRatio="xMinYMax meet" role="img"'
        f' aria-label="{kept} kept, {slips} reverted"><path class="rack" d="{line}V{foot}H2Z"/>'
        f'<path class="edge" d="{line}"/>{"".join(drawn)}</svg>'
    )
