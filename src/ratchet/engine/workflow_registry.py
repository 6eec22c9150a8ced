"""Look up workflows by name. Built-in and plugin workflows register through the same entry points."""

from __future__ import annotations

from functools import lru_cache

from ratchet import plugins
from ratchet.core.workflows.workflow import Workflow
from ratchet.errors import UsageError


@lru_cache(maxsize=32)
def open_workflow(name: str) -> Workflow:
    known = plugins.entry_points("workflows")
    if name not in known:
        raise UsageError(f"there is no workflow {name!r}", hint=f"workflows: {', '.join(sorted(known))}")
    workflow: Workflow = known[name].load()
    return workflow


def workflow_names() -> list[str]:
    return sorted(plugins.entry_points("workflows"))
