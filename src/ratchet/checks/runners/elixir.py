"""Elixir: ExUnit by a formatter of ours, loaded before mix."""

from __future__ import annotations

from collections.abc import Iterator

from ratchet.checks import Results, Session, Step, Strength, Target
from ratchet.checks.formats import Parsed
from ratchet.checks.project import Project, root_of, under
from ratchet.checks.runners import SHIMS, Usual, channel_env, compiler, end_of, read_records, unskipped
from ratchet.core.report import TestResult


class ExUnit(Usual):
    name = family = "exunit"
    asked = staticmethod(unskipped)

    def detect(self, project: Project) -> Iterator[Target]:
        for path in project.named("**/mix.exs"):
            root = root_of(path)
            # An umbrella has no tests of its own, and changes into each app to run its.
            if "apps_path:" in project.text(path) and any(project.named(*under(root, "apps/*/mix.exs"))):
                continue
            yield Target(
                runner=self.name,
                command=["mix", "test"],
                root=root,
                language="elixir",
                tests=under(root, "test/**", "apps/*/test/**"),
                sources=under(root, "**/*.ex"),
                protected=[],
                setup=["mix deps.get"],
                why=f"there is a {path}",
                strength=Strength.CONFIG,
            )

    def recognises(self, words: list[str]) -> bool:
        return words[:2] == ["mix", "test"]

    def launch(self, target: Target, session: Session) -> list[Step]:
        formatters = ["--formatter", "RatchetFormatter", "--formatter", "ExUnit.CLIFormatter"]
        # By name: a line that was true for the last report names another test after an edit above it.
        names = [word for test in session.only if (name := _name(test)) for word in ("--only", f"test:{name}")]
        places = [*names, *dict.fromkeys(test.file for test in session.only if test.file)]
        argv = ["elixir", "-r", str(SHIMS / "_ratchet_exunit.ex"), "-S", *target.command, *formatters, *places]
        return [Step(argv=argv, env=channel_env(session) | {"MIX_ENV": "test"})]

    def parse(self, results: Results) -> Parsed:
        parsed = read_records(results)
        if not parsed.ended and results.exit_code and not results.stopped and not parsed.running:
            with end_of(results) as stream:
                parsed.compile_errors = compiler(stream).compile_errors
            parsed.ended = bool(parsed.compile_errors)
        return parsed

    def last_words(self, said: str) -> str:
        """A machine that halts says nothing: the stacks on the console are those of others that failed before."""
        return ""

    def again(self, target: Target, test: TestResult) -> list[str]:
        return [*target.command, f"{test.file}:{test.line}" if test.line else test.file]


def _name(test: TestResult) -> str:
    return test.name or test.id.partition(" > ")[2]
