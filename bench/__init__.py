"""Speed, claimed only here: ratios to a peer and to the physical floor, interleaved in one run, medians."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import msgspec

Row = tuple[str, str, float]  # what was measured, in which unit, how much


class Goal(msgspec.Struct, frozen=True, kw_only=True):
    """A measure that has to reach something, with what it was made from: ours, and a peer's or the floor's.

    A value that is no number was not measured: something it needs is missing, and `detail` says what.
    """

    measure: str
    value: float
    unit: str
    wanted: str
    ok: bool
    detail: str = ""
    ours: str = ""
    other: str = ""


def medians(rounds: int, **subjects: Callable[[], object]) -> dict[str, float]:
    """Median seconds of each subject, taken in turns so that a noisy moment hits all of them alike."""
    times: dict[str, list[float]] = {name: [] for name in subjects}
    for _ in range(rounds):
        for name, subject in subjects.items():
            began = time.perf_counter()
            subject()
            times[name].append(time.perf_counter() - began)
    return {name: statistics.median(taken) for name, taken in times.items()}
