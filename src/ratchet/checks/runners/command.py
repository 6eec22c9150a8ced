"""Any command: our reporters go in by the environment, should it start one of their runners; else its text is read."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ratchet.checks import Results, Session, Step, Strength, Target
from ratchet.checks.formats import Parsed
from ratchet.checks.project import Project, root_of, under
from ratchet.checks.runners import Usual, parser, read_log, read_records
from ratchet.checks.runners.python import pytest_env

_unknown = parser("unknown")

TESTS = ["test/**", "tests/**", "spec/**", "**/test_*", "**/*_test.*", "**/*.test.*", "**/*.spec.*"]


class AnyCommand(Usual):
    name = family = "command"

    def detect(self, project: Project) -> Iterator[Target]:
        for names, command, pattern in (
            (("GNUmakefile", "makefile", "Makefile"), ["make", "test"], r"(?m)^test\s*:"),
            (("GNUmakefile", "makefile", "Makefile"), ["make", "check"], r"(?m)^check\s*:"),
            (("justfile", "Justfile", ".justfile"), ["just", "test"], r"(?m)^test\b.*:"),
            (("Rakefile", "rakefile"), ["rake", "test"], r"(?m)^\s*(?:task :test|Rake::TestTask)"),
        ):
            path = next(filter(project.has, names), "")
            if path and re.search(pattern, project.text(path)):
                yield self._target(root_of(path), command, f"{path} has a target called {command[1]}")
        for path in project.named("**/package.json"):
            scripts = project.json(path).get("scripts")
            script = scripts.get("test", "") if isinstance(scripts, dict) else ""
            if script and "no test specified" not in script:
                yield self._target(root_of(path), ["npm", "test", "--silent"], f"{path} has a test script")

    def _target(self, root: str, command: list[str], why: str) -> Target:
        return Target(
            runner=self.name,
            command=command,
            root=root,
            tests=under(root, *TESTS),
            sources=under(root, "**"),
            protected=[],
            why=why,
            strength=Strength.PATTERN,
        )

    def recognises(self, _words: list[str]) -> bool:
        return False

    def launch(self, target: Target, session: Session) -> list[Step]:
        return [Step(argv=target.command, env=pytest_env(session, target.command) | {"CI": "1"})]

    def parse(self, results: Results) -> Parsed:
        """Records, if a runner we have a reporter in wrote some; of mere text only what is sure."""
        parsed = read_records(results)
        if parsed.tests or parsed.ended or parsed.collection_errors:
            return parsed
        return read_log(results, _unknown)
