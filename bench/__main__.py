"""`python -m bench [NAME…]`: run the benchmarks, print a table, then the same as JSON."""

from __future__ import annotations

import importlib
import pkgutil
import sys

import msgspec

import bench


def main(names: list[str]) -> int:
    found = [module.name for module in pkgutil.iter_modules(bench.__path__) if not module.name.startswith("_")]
    rows = [
        row for name in found if not names or name in names for row in importlib.import_module(f"bench.{name}").run()
    ]
    print(bench.table(rows))
    print(msgspec.json.encode(rows).decode())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
