"""Bases of runners that are detected by a manifest file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ratchet.checks.detect.project import Project, join_root, parent_of
from ratchet.checks.formats import Parsed
from ratchet.checks.protocol import Confidence, LaunchStep, RunOutput, Session, Target
from ratchet.checks.runners import (
    Parser,
    compiler,
    open_log_tail,
    parse_log,
)
from ratchet.checks.runners.base import BaseRunner


class ManifestRunner(BaseRunner):
    """Base of runners that are detected by a manifest file and started by a fixed command."""

    language = ""
    manifests: tuple[str, ...] = ()
    marker = ""
    command: tuple[str, ...] = ()
    tests: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    setup: tuple[str, ...] = ()

    def detect(self, project: Project) -> Iterator[Target]:
        for path in project.glob(*(f"**/{name}" for name in self.manifests)):
            if self.marker in project.text(path):
                root = parent_of(path)
                yield Target(
                    runner=self.name,
                    command=list(self.command),
                    root=root,
                    language=self.language,
                    tests=join_root(root, *self.tests),
                    sources=join_root(root, *self.sources),
                    protected=[],
                    setup=list(self.setup),
                    why=f"there is a {path}",
                    strength=Confidence.CONFIG,
                )

    def recognises(self, words: list[str]) -> bool:
        return [Path(word).name for word in words[: len(self.command)]] == list(self.command)

    def with_compile_errors(self, parsed: Parsed, results: RunOutput) -> Parsed:
        """Add the compiler errors from the log if no test ran."""
        if results.exit_code and not parsed.tests and not results.stopped:
            with open_log_tail(results) as stream:
                parsed.compile_errors = compiler(stream).compile_errors
            parsed.ended = parsed.ended or bool(parsed.compile_errors)
        return parsed


class TextRunner(ManifestRunner):
    """Base of runners whose results are read from what they print."""

    text: Parser

    def launch(self, target: Target, session: Session) -> list[LaunchStep]:
        return [LaunchStep(argv=target.command)]

    def parse(self, results: RunOutput) -> Parsed:
        return self.with_compile_errors(parse_log(results, self.text), results)
