"""`python -m bench [NAME…]`: run the benchmarks, print a table, keep the numbers as JSON in bench/results."""

from __future__ import annotations

import importlib
import json
import pkgutil
import sys
from pathlib import Path

import bench


def main(wanted: list[str]) -> None:
    names = [name for _, name, _ in pkgutil.iter_modules(bench.__path__) if not name.startswith("__")]
    results = Path(__file__).parent / "results"
    results.mkdir(exist_ok=True)
    for name in names:
        if wanted and name not in wanted:
            continue
        module = importlib.import_module(f"bench.{name}")
        print(f"\n{(module.__doc__ or name).splitlines()[0]}")
        rows: list[bench.Row] = module.main()
        for what, unit, value in rows:
            print(f"  {what:<64} {value:>12.3f} {unit}")
        (results / f"{name}.json").write_text(json.dumps([{"what": w, "unit": u, "value": v} for w, u, v in rows]))


if __name__ == "__main__":
    main(sys.argv[1:])
