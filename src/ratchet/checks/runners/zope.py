"""Runner for zope.testrunner."""

from __future__ import annotations

import re
from pathlib import PurePosixPath

from ratchet.checks.runners.python_module import ModuleRunner


class Zope(ModuleRunner):
    name, module, host = "zope.testrunner", "zope.testrunner", "zope"
    called = re.compile(r"""(?m)^[^#\n]*(?:\bzope-testrunner|-m["', ]+zope\.testrunner)\b(?P<rest>[^\n;&|#]*)""")

    def selection(self, name: str) -> list[str]:
        """Select a test by its printed name: `test_it (module.Class)`, since Python 3.11 `(module.Class.test_it)`."""
        if name.endswith(".py"):
            return ["-t", rf"\b{re.escape(PurePosixPath(name).stem)}[.)]"]
        place, _, own = name.rpartition(".")
        return ["-t", rf"^{re.escape(own)} \({re.escape(place)}(\.{re.escape(own)})?\)"]
