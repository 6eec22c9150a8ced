"""Adapters: one module per coding agent, each a command line and a reader of its output."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ratchet.agents.drivers.cli_stream import CliProgram

_MODULES = {"mini": "mini_swe_agent"}


def load_program(name: str) -> CliProgram:
    """Import the adapter of an agent and return its program."""
    program: CliProgram = import_module(f"{__name__}.{_MODULES.get(name, name)}").PROGRAM
    return program
