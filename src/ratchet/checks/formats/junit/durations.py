"""Parses durations as tools write them."""

from __future__ import annotations


class _Seconds(dict[str, float]):
    """A cache of parsed durations: few values with three decimals are different."""

    def __missing__(self, text: str) -> float:
        if len(self) >= _MOST_SECONDS:
            self.clear()
        self[text] = read = seconds(text)
        return read


_MOST_SECONDS = 8192
_STRIDE = 16
_SECONDS = _Seconds()


def of(times: list[str]) -> list[float]:
    # Short values, judging by a sample: a lookup is faster than a conversion.
    if max(map(len, times[::_STRIDE]), default=0) <= len("12.345"):
        return list(map(_SECONDS.__getitem__, times))
    try:
        durations = list(map(float, times))
    except ValueError:
        return list(map(seconds, times))
    # The sum is NaN if any value is.
    fine = min(durations, default=0) >= 0 and sum(durations) < 1e9
    return durations if fine else list(map(seconds, times))


def seconds(text: str) -> float:
    try:
        value = float(text or 0)
    except ValueError:
        return seconds(text.replace(",", "")) if "," in text else 0.0
    return value if 0 <= value < 1e9 else 0.0
