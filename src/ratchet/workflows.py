"""Workflows by name. Built-in ones register through the same entry points as anybody's."""

from __future__ import annotations

from functools import lru_cache

from ratchet import plugins
from ratchet.core.workflow import Workflow
from ratchet.errors import UsageError


@lru_cache(maxsize=32)
def open_workflow(name: str) -> Workflow:
    known = plugins.found("workflows")
    if name not in known:
        raise UsageError(f"there is no workflow {name!r}", hint=f"workflows: {', '.join(sorted(known))}")
    workflow: Workflow = known[name].load()
    return workflow


def workflow_names() -> list[str]:
    return sorted(plugins.found("workflows"))
