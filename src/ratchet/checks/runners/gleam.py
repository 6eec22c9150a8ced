"""Runner for Gleam: `gleam test`, read from its output."""

from __future__ import annotations

from ratchet.checks.formats import Parsed
from ratchet.checks.protocol import RunOutput
from ratchet.checks.runners import parser
from ratchet.checks.runners.manifest import TextRunner


class Gleam(TextRunner):
    """gleeunit prints only a dot for a passed test: the names of failed tests and the totals are known."""

    name = family = language = "gleam"
    manifests = ("gleam.toml",)
    command = ("gleam", "test")
    tests = ("test/**",)
    sources = ("src/**",)
    text = staticmethod(parser("gleam"))

    def parse(self, results: RunOutput) -> Parsed:
        parsed = super().parse(results)
        if parsed.tests and parsed.reported.get("failed") == len(parsed.tests):
            parsed.reported = {}
        return parsed
