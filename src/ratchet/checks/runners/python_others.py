"""nose2 and zope.testrunner, which run unittest's tests in ways of their own, with our reporter loaded from outside."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import PurePosixPath

from ratchet.checks import Session, Step, Strength, Target
from ratchet.checks.project import Project
from ratchet.checks.runners import discovery
from ratchet.checks.runners.python import Python, python_env, python_of
from ratchet.core.report import TestResult


class _Other(Python):
    module = ""  # what `-m` starts it with
    host = ""  # what our reporter calls it
    called: re.Pattern[str]
    files: tuple[str, ...] = ()

    def detect(self, project: Project) -> Iterator[Target]:
        command = [python_of(project.folder, self.module.partition(".")[0]), "-m", self.module]
        for path in discovery.CALLERS:
            for words in discovery.words(project.text(path), self.called):
                yield self.target(project, ".", [*command, *words], f"{path} runs {self.module}", Strength.SCRIPT)
        for path in filter(project.has, self.files):
            yield self.target(project, ".", command, f"there is a {path}", Strength.SCRIPT)

    def recognises(self, words: list[str]) -> bool:
        return self.module in words

    def launch(self, target: Target, session: Session) -> list[Step]:
        at = target.command.index(self.module)
        given = [word for test in session.only for word in self.chosen(test.id)]
        argv = [*target.command[:at], "_ratchet_others", self.host, *target.command[at + 1 :], *given]
        return [Step(argv=argv, env=python_env(session, target.command))]

    def chosen(self, name: str) -> list[str]:
        raise NotImplementedError

    def again(self, target: Target, test: TestResult) -> list[str]:
        return [*target.command, *self.chosen(test.id)]


class Nose2(_Other):
    name = module = host = "nose2"
    called = re.compile(
        r"""(?m)^[^#\n]*(?:-m["', ]+nose2|(?:^\s*(?:commands\s*=\s*)?|run\s+)nose2(?=\s+-|\s*$))\b"""
        r"(?P<rest>[^\n;&|#]*)"
    )
    files = ("unittest.cfg", "nose2.cfg")

    def chosen(self, name: str) -> list[str]:
        return [name.removesuffix(".py").replace("/", ".") if name.endswith(".py") else name]


class Zope(_Other):
    name, module, host = "zope.testrunner", "zope.testrunner", "zope"
    called = re.compile(r"""(?m)^[^#\n]*(?:\bzope-testrunner|-m["', ]+zope\.testrunner)\b(?P<rest>[^\n;&|#]*)""")

    def chosen(self, name: str) -> list[str]:
        """A test goes by what it prints: `test_it (module.Class)`, or with its whole name since Python 3.11."""
        if name.endswith(".py"):
            return ["-t", rf"\b{re.escape(PurePosixPath(name).stem)}[.)]"]
        place, _, own = name.rpartition(".")
        return ["-t", rf"^{re.escape(own)} \({re.escape(place)}(\.{re.escape(own)})?\)"]
