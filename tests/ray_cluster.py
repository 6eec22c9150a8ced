"""A Ray cluster of two nodes on this machine, as a process of its own: `python -m tests.ray_cluster FOLDER`.

Each node has a home of its own. Prints the address; for each line `kill` on its input it kills the second node.
"""

from __future__ import annotations

import os
import signal
import sys
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any


def main(folder: Path) -> None:
    cluster: Any = import_module("ray.cluster_utils").Cluster()
    nodes = [
        _add(cluster, folder / name, resources)
        for name, resources in (("one", {"arm64": 1}), ("two", {"arm64": 1, "fpga": 1}))
    ]
    print(cluster.address, flush=True)
    for line in sys.stdin:
        if line.strip() == "kill":
            _kill_all(folder / "two")
            cluster.remove_node(nodes[1], allow_graceful=False)
            print("killed", flush=True)
    cluster.shutdown()


def _kill_all(home: Path) -> None:
    """Kill all processes with this home at once, as a power cut does."""
    for place in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if f"HOME={home}".encode() in (place / "environ").read_bytes().split(b"\0"):
                os.kill(int(place.name), signal.SIGKILL)


def _add(cluster: Any, home: Path, resources: dict[str, int]) -> Any:
    home.mkdir(parents=True)
    os.environ |= {"HOME": str(home), "XDG_STATE_HOME": f"{home}/state", "XDG_CACHE_HOME": f"{home}/cache"}
    return cluster.add_node(
        num_cpus=2, resources=resources, object_store_memory=80 << 20, memory=4 << 30, include_dashboard=False
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]))
