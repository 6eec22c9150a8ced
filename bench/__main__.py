"""`python -m bench [NAME…]`: run the benchmarks, print a table, keep the numbers as JSON in bench/results."""

from __future__ import annotations

import importlib
import math
import pkgutil
import sys
from pathlib import Path

import msgspec

import bench


def main(wanted: list[str]) -> None:
    names = [name for _, name, _ in pkgutil.iter_modules(bench.__path__) if not name.startswith("_")]
    results = Path(__file__).parent / "results"
    results.mkdir(exist_ok=True)
    goals: list[bench.Goal] = []
    for name in names:
        if wanted and name not in wanted:
            continue
        module = importlib.import_module(f"bench.{name}")
        print(f"\n{(module.__doc__ or name).splitlines()[0]}")
        rows: list[bench.Row | bench.Goal] = module.main()
        for line in _table(rows):
            print(f"  {line}")
        (results / f"{name}.json").write_bytes(msgspec.json.encode(rows))
        goals += [row for row in rows if isinstance(row, bench.Goal)]
    if goals:
        print(f"\n{_summary(goals)}")


def _table(rows: list[bench.Row | bench.Goal]) -> list[str]:
    cells = [_cells(row) for row in rows]
    if any(isinstance(row, bench.Goal) for row in rows):
        cells.insert(0, ("measure", "ours", "peer or floor", "value", "goal", "", ""))
    widths = [max(len(row[n]) for row in cells) for n in range(7)] if cells else []
    pad = (str.ljust, str.rjust, str.rjust, str.rjust, str.ljust, str.ljust, str.ljust)
    return [
        "  ".join(put(cell, width) for put, cell, width in zip(pad, row, widths, strict=True)).rstrip() for row in cells
    ]


def _cells(row: bench.Row | bench.Goal) -> tuple[str, str, str, str, str, str, str]:
    if isinstance(row, bench.Goal):
        value = "-" if math.isnan(row.value) else f"{row.value:,.3f} {row.unit}"
        return row.measure, row.ours, row.other, value, row.wanted, _word(row), row.detail
    what, unit, much = row
    return what, f"{much:,.3f} {unit}", "", "", "", "", ""


def _word(goal: bench.Goal) -> str:
    return "not measured" if math.isnan(goal.value) else "reached" if goal.ok else "NOT REACHED"


def _summary(goals: list[bench.Goal]) -> str:
    lines = [f"{sum(goal.ok for goal in goals)} of {len(goals)} goals reached"]
    lines += [
        f"  {_word(goal)}: {goal.measure} ({goal.value:,.3f}, wanted {goal.wanted})" for goal in goals if not goal.ok
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    main(sys.argv[1:])
