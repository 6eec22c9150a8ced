"""Runner for Elixir: ExUnit, read from a formatter of ours that is loaded before mix."""

from __future__ import annotations

from collections.abc import Iterator

from ratchet.checks.detect.project import Project, join_root, parent_of
from ratchet.checks.formats import Parsed
from ratchet.checks.protocol import Confidence, LaunchStep, RunOutput, Session, Target
from ratchet.checks.runners import (
    REPORTERS,
    compiler,
    drop_unselected_skips,
    open_log_tail,
    parse_records,
    reporter_env,
)
from ratchet.checks.runners.base import BaseRunner
from ratchet.core.report import TestResult


class ExUnit(BaseRunner):
    name = family = "exunit"
    filter_results = staticmethod(drop_unselected_skips)

    def detect(self, project: Project) -> Iterator[Target]:
        for path in project.glob("**/mix.exs"):
            root = parent_of(path)
            # An umbrella project has no tests of its own and runs those of each app in its folder.
            if "apps_path:" in project.text(path) and any(project.glob(*join_root(root, "apps/*/mix.exs"))):
                continue
            yield Target(
                runner=self.name,
                command=["mix", "test"],
                root=root,
                language="elixir",
                tests=join_root(root, "test/**", "apps/*/test/**"),
                sources=join_root(root, "**/*.ex"),
                protected=[],
                setup=["mix deps.get"],
                why=f"there is a {path}",
                strength=Confidence.CONFIG,
            )

    def recognises(self, words: list[str]) -> bool:
        return words[:2] == ["mix", "test"]

    def launch(self, target: Target, session: Session) -> list[LaunchStep]:
        formatters = ["--formatter", "RatchetFormatter", "--formatter", "ExUnit.CLIFormatter"]
        # Select by name: after an edit the line of the last report may belong to another test.
        names = [word for test in session.only if (name := _name(test)) for word in ("--only", f"test:{name}")]
        places = [*names, *dict.fromkeys(test.file for test in session.only if test.file)]
        argv = ["elixir", "-r", str(REPORTERS / "_ratchet_exunit.ex"), "-S", *target.command, *formatters, *places]
        return [LaunchStep(argv=argv, env=reporter_env(session) | {"MIX_ENV": "test"})]

    def parse(self, results: RunOutput) -> Parsed:
        parsed = parse_records(results)
        if not parsed.ended and results.exit_code and not results.stopped and not parsed.running:
            with open_log_tail(results) as stream:
                parsed.compile_errors = compiler(stream).compile_errors
            parsed.ended = bool(parsed.compile_errors)
        return parsed

    def crash_output(self, output: str) -> str:
        """Return nothing: a halted VM prints no reason, and the stacks in the output belong to earlier failures."""
        return ""

    def rerun_command(self, target: Target, test: TestResult) -> list[str]:
        return [*target.command, f"{test.file}:{test.line}" if test.line else test.file]


def _name(test: TestResult) -> str:
    return test.name or test.id.partition(" > ")[2]
