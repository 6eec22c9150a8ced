"""Launchers: where a pool's workers run. One that is added to the entry-point group `ratchet.launchers` can be chosen
with `ratchet serve --launcher NAME` and `ratchet worker --launcher NAME`.

Leases alone decide who owns a run: a launcher may lose or duplicate a worker, and no run is lost or done twice.
"""

from __future__ import annotations

from typing import Protocol

from ratchet import plugins
from ratchet.app.workers import WorkerSettings
from ratchet.errors import UsageError


class Launcher(Protocol):
    """Keeps a pool of workers running. Imported only when it is chosen."""

    def __call__(self, post: WorkerSettings, *, count: int) -> int:
        """Keep `count` workers running until they have nothing left to do (`post.until`) or a signal arrives; returns
        the exit code.

        After the first SIGTERM or SIGINT each worker finishes its step; the second stops them at once. Items come from
        `post.store`, a store's or server's address (with `post.token`); `post.settings` are to be passed on.
        """
        ...


def find_launcher(name: str) -> Launcher:
    """Return a launcher by name. Raises UsageError."""
    known = plugins.entry_points("launchers")
    if name not in known:
        raise UsageError(f"there is no launcher {name}", hint=f"launchers: {', '.join(sorted(known))}")
    found: Launcher = known[name].load()
    return found
