"""`python -m bench [NAME…]`: run the benchmarks, print a table, keep the numbers as JSON in bench/results."""

from __future__ import annotations

import importlib
import pkgutil
import sys
from pathlib import Path

import msgspec

import bench


def main(wanted: list[str]) -> None:
    names = [name for _, name, _ in pkgutil.iter_modules(bench.__path__) if not name.startswith("_")]
    results = Path(__file__).parent / "results"
    results.mkdir(exist_ok=True)
    for name in names:
        if wanted and name not in wanted:
            continue
        module = importlib.import_module(f"bench.{name}")
        print(f"\n{(module.__doc__ or name).splitlines()[0]}")
        rows: list[bench.Row | bench.Goal] = module.main()
        for row in rows:
            print(f"  {_line(row)}")
        (results / f"{name}.json").write_bytes(msgspec.json.encode(rows))


def _line(row: bench.Row | bench.Goal) -> str:
    if isinstance(row, bench.Goal):
        reached = f"{row.wanted:<14} {'reached' if row.ok else 'NOT REACHED'}  {row.detail}"
        return f"{row.measure:<64} {row.value:>12,.3f} {row.unit:<9} {reached}"
    what, unit, value = row
    return f"{what:<64} {value:>12,.3f} {unit}"


if __name__ == "__main__":
    main(sys.argv[1:])
