"""Haskell: `cabal test`, by what hspec and tasty print."""

from __future__ import annotations

from collections.abc import Iterator

from ratchet.checks import Results, Session, Step, Strength, Target
from ratchet.checks.formats import Parsed
from ratchet.checks.project import Project, root_of, under
from ratchet.checks.runners import Usual, parser, read_log
from ratchet.core.report import TestResult

_cabal = parser("cabal")


class Cabal(Usual):
    name = family = "cabal"

    def detect(self, project: Project) -> Iterator[Target]:
        whole = [root_of(path) for path in project.named("**/cabal.project")]
        for path in project.named("**/*.cabal"):
            root = next((top for top in whole if top == "." or path.startswith(f"{top}/")), root_of(path))
            if "test-suite" in project.text(path).lower():
                yield Target(
                    runner=self.name,
                    command=["cabal", "test", "all"],
                    root=root,
                    language="haskell",
                    tests=under(root, "**/test/**", "**/tests/**", "**/*Spec.hs"),
                    sources=under(root, "**/*.hs"),
                    protected=under(root, "**/*.cabal", "cabal.project"),
                    setup=["cabal build --only-dependencies --enable-tests all"],
                    why=f"{path} has a test suite",
                    strength=Strength.CONFIG,
                )

    def recognises(self, words: list[str]) -> bool:
        return [word.rpartition("/")[2] for word in words[:1]] == ["cabal"] and "test" in words

    def launch(self, target: Target, session: Session) -> list[Step]:
        shown = ["--test-show-details=direct", "--keep-going"]
        suites = dict.fromkeys(_suite(test) for test in session.only)
        if not suites:
            return [Step(argv=[*target.command, *shown])]
        # Suite by suite: what chooses in one is no option of another.
        each = [[test for test in session.only if _suite(test) == suite] for suite in suites]
        return [Step(argv=[*_alone(target, tests), *shown]) for tests in each]

    def parse(self, results: Results) -> Parsed:
        return read_log(results, _cabal)

    def again(self, target: Target, test: TestResult) -> list[str]:
        return _alone(target, [test])


def _suite(test: TestResult) -> str:
    return test.id.partition(":")[0]


def _alone(target: Target, tests: list[TestResult]) -> list[str]:
    names = [name for test in tests if (name := test.id.partition(":")[2])]
    words = [word for word in target.command if word != "all"]
    return [*words, f"test:{_suite(tests[0])}", *(f"--test-option={option}" for option in _options(names))]


def _options(names: list[str]) -> list[str]:
    """hspec takes paths between slashes, tasty a pattern of awk's."""
    if all(name.startswith("/") for name in names):
        return [f"--match={name}" for name in names]
    return ["-p", " || ".join(f'$0 == "{name}"' for name in names)]
