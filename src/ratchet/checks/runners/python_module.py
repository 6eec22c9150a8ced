"""Base of Python runners that are started by `python -m`."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ratchet.checks.detect.project import Project
from ratchet.checks.protocol import Confidence, LaunchStep, Session, Target
from ratchet.checks.runners import unittest_discovery
from ratchet.checks.runners.python import PythonRunner, find_python, python_env
from ratchet.core.report import TestResult


class ModuleRunner(PythonRunner):
    """Base of runners that run unittest tests in their own way and load our reporter by `-m`."""

    module = ""  # the argument of `-m`
    host = ""  # its name in our reporter
    called: re.Pattern[str]
    files: tuple[str, ...] = ()

    def detect(self, project: Project) -> Iterator[Target]:
        command = [find_python(project.folder, self.module.partition(".")[0]), "-m", self.module]
        for path in unittest_discovery.CALLERS:
            for words in unittest_discovery.command_words(project.text(path), self.called):
                yield self.target(project, ".", [*command, *words], f"{path} runs {self.module}", Confidence.SCRIPT)
        for path in filter(project.has, self.files):
            yield self.target(project, ".", command, f"there is a {path}", Confidence.SCRIPT)

    def recognises(self, words: list[str]) -> bool:
        return self.module in words

    def launch(self, target: Target, session: Session) -> list[LaunchStep]:
        at = target.command.index(self.module)
        given = [word for test in session.only for word in self.selection(test.id)]
        argv = [*target.command[:at], "_ratchet_others", self.host, *target.command[at + 1 :], *given]
        return [LaunchStep(argv=argv, env=python_env(session, target.command))]

    def selection(self, name: str) -> list[str]:
        raise NotImplementedError

    def rerun_command(self, target: Target, test: TestResult) -> list[str]:
        return [*target.command, *self.selection(test.id)]
