"""Runner for nose2."""

from __future__ import annotations

import re

from ratchet.checks.runners.python_module import ModuleRunner


class Nose2(ModuleRunner):
    name = module = host = "nose2"
    called = re.compile(
        r"""(?m)^[^#\n]*(?:-m["', ]+nose2|(?:^\s*(?:commands\s*=\s*)?|run\s+)nose2(?=\s+-|\s*$))\b"""
        r"(?P<rest>[^\n;&|#]*)"
    )
    files = ("unittest.cfg", "nose2.cfg")

    def selection(self, name: str) -> list[str]:
        return [name.removesuffix(".py").replace("/", ".") if name.endswith(".py") else name]
