"""Speed, as ratios within one run: absolute times differ from machine to machine, ratios hardly."""

from __future__ import annotations

import msgspec


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One measure: what came out, what must be reached, and the times behind it."""

    measure: str
    value: float
    unit: str
    wanted: str
    ok: bool
    detail: str = ""


def table(rows: list[Row]) -> str:
    width = max(len(row.measure) for row in rows)
    lines = [f"{'measure':<{width}}  {'value':>10}          {'wanted':<12}     detail"]
    for row in rows:
        mark = "ok" if row.ok else "NO"
        lines.append(f"{row.measure:<{width}}  {row.value:>10,.2f} {row.unit:<8} {row.wanted:<12} {mark}  {row.detail}")
    return "\n".join(lines)
