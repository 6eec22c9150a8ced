"""Run every benchmark, or the named ones."""

from __future__ import annotations

import importlib
import pkgutil
import sys

import bench


def main(names: list[str]) -> None:
    found = [module.name for module in pkgutil.iter_modules(bench.__path__) if not module.name.startswith("_")]
    for name in names or found:
        module = importlib.import_module(f"bench.{name}")
        if hasattr(module, "main"):
            print(f"--- {name}")
            module.main()


if __name__ == "__main__":
    main(sys.argv[1:])
