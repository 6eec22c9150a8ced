"""Runner for Zig: `zig build test`, read from its output."""

from __future__ import annotations

from ratchet.checks.runners import parser
from ratchet.checks.runners.manifest import TextRunner


class Zig(TextRunner):
    """Zig prints one line for each test when its output is not a terminal."""

    name = family = language = "zig"
    manifests = ("build.zig",)
    command = ("zig", "build", "test")
    tests = ("**/*.zig",)
    sources = ("**/*.zig",)
    text = staticmethod(parser("zig"))
