"""Runner for Haskell: `cabal test`, read from the output of hspec and tasty."""

from __future__ import annotations

from collections.abc import Iterator

from ratchet.checks.detect.project import Project, join_root, parent_of
from ratchet.checks.formats import Parsed
from ratchet.checks.protocol import Confidence, LaunchStep, RunOutput, Session, Target
from ratchet.checks.runners import parse_log, parser
from ratchet.checks.runners.base import BaseRunner
from ratchet.core.report import TestResult

_cabal = parser("cabal")


class Cabal(BaseRunner):
    name = family = "cabal"

    def detect(self, project: Project) -> Iterator[Target]:
        whole = [parent_of(path) for path in project.glob("**/cabal.project")]
        for path in project.glob("**/*.cabal"):
            root = next((top for top in whole if top == "." or path.startswith(f"{top}/")), parent_of(path))
            if "test-suite" in project.text(path).lower():
                yield Target(
                    runner=self.name,
                    command=["cabal", "test", "all"],
                    root=root,
                    language="haskell",
                    tests=join_root(root, "**/test/**", "**/tests/**", "**/*Spec.hs"),
                    sources=join_root(root, "**/*.hs"),
                    protected=join_root(root, "**/*.cabal", "cabal.project"),
                    setup=["cabal build --only-dependencies --enable-tests all"],
                    why=f"{path} has a test suite",
                    strength=Confidence.CONFIG,
                )

    def recognises(self, words: list[str]) -> bool:
        return [word.rpartition("/")[2] for word in words[:1]] == ["cabal"] and "test" in words

    def launch(self, target: Target, session: Session) -> list[LaunchStep]:
        shown = ["--test-show-details=direct", "--keep-going"]
        suites = dict.fromkeys(_suite(test) for test in session.only)
        if not suites:
            return [LaunchStep(argv=[*target.command, *shown])]
        # One command for each suite: the selection options of one are invalid for another.
        each = [[test for test in session.only if _suite(test) == suite] for suite in suites]
        return [LaunchStep(argv=[*_alone(target, tests), *shown]) for tests in each]

    def parse(self, results: RunOutput) -> Parsed:
        return parse_log(results, _cabal)

    def rerun_command(self, target: Target, test: TestResult) -> list[str]:
        return _alone(target, [test])


def _suite(test: TestResult) -> str:
    return test.id.partition(":")[0]


def _alone(target: Target, tests: list[TestResult]) -> list[str]:
    names = [name for test in tests if (name := test.id.partition(":")[2])]
    words = [word for word in target.command if word != "all"]
    return [*words, f"test:{_suite(tests[0])}", *(f"--test-option={option}" for option in _options(names))]


def _options(names: list[str]) -> list[str]:
    """Return selection options: hspec takes paths with slashes, tasty an awk pattern."""
    if all(name.startswith("/") for name in names):
        return [f"--match={name}" for name in names]
    return ["-p", " || ".join(f'$0 == "{name}"' for name in names)]
