"""Shared parts of the JavaScript and TypeScript runners, which are named in `package.json` and installed in
`node_modules`."""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Iterator
from typing import Any

from ratchet.checks.detect.build_scripts import build_commands, scripted_builds
from ratchet.checks.detect.package_scripts import (
    Judge,
    Matches,
    index_of_program,
    matches_word,
    options_only,
    plain,
    script_commands,
    uses_browser,
    workspace_scripts,
)
from ratchet.checks.detect.project import Project, join_root, parent_of
from ratchet.checks.formats import Parsed
from ratchet.checks.globs import find
from ratchet.checks.protocol import Confidence, RunOutput, Session, Target
from ratchet.checks.runners import REPORTERS, drop_unselected_skips, find_upward, parse_records, reporter_env
from ratchet.checks.runners.base import BaseRunner
from ratchet.checks.runners.javascript.selection import files_of

TESTS = (
    "test/**", "tests/**", "**/__tests__/**", "**/*.test.*", "**/*.spec.*", "**/*-test.*", "**/*_test.*", "**/test.*js",
)  # fmt: skip
SOURCES = ["**/*.js", "**/*.mjs", "**/*.cjs", "**/*.jsx", "**/*.ts", "**/*.mts", "**/*.tsx"]
_LOCKS = {
    "pnpm-lock.yaml": "pnpm install --frozen-lockfile",
    "yarn.lock": "yarn install --frozen-lockfile",
    "bun.lockb": "bun install --frozen-lockfile",
    "bun.lock": "bun install --frozen-lockfile",
    "package-lock.json": "npm ci",
}


class ScriptRunner(BaseRunner):
    """Base of runners that are installed in `node_modules` and named in `package.json`.

    `valued` lists the options whose value is the next word; any other word that is not an option is a file.
    """

    family = "javascript"
    package = ""
    configs: tuple[str, ...] = ()
    arguments: tuple[str, ...] = ()
    tests: tuple[str, ...] = TESTS
    valued: frozenset[str] = frozenset()

    def detect(self, project: Project) -> Iterator[Target]:
        above = workspace_scripts(project.json("package.json"))
        # If packages run their own tests, a configuration above is shared by them.
        configured = {".": Confidence.DEPENDENCY} if above else {}
        for path in project.glob(*(f"**/{name}" for name in self.configs)):
            strength = configured.get(parent_of(path), Confidence.CONFIG)
            yield self.target(project, parent_of(path), f"there is a {path}", strength)
        for path in project.glob("**/package.json"):
            table, root = project.json(path), parent_of(path)
            if self.package and self.package in table:
                strength = configured.get(root, Confidence.CONFIG)
                yield self.target(project, root, f"{path} configures {self.name}", strength)
            if script := self._script(table, called=above):
                yield self.target(
                    project, root, f"the test script of {path} is `{shlex.join(script)}`", Confidence.SCRIPT
                )
            elif self.package and self.package in dependencies(table) and not uses_browser(table):
                yield self.target(project, root, f"{path} depends on {self.package}", Confidence.DEPENDENCY)

    def _script(self, table: dict[str, Any], matches: Matches = bool, called: Collection[str] = ()) -> list[str]:
        return next(iter(self._scripts(table, matches, called)), [])

    def _scripts(self, table: dict[str, Any], matches: Matches, called: Collection[str]) -> list[list[str]]:
        return [words for words in script_commands(table, matches, called) if self.recognises(words)]

    def recognises(self, words: list[str]) -> bool:
        return self.start(words) is not None

    def start(self, words: list[str]) -> int | None:
        return index_of_program(words, self.programs or (self.name,))

    def target(self, project: Project, root: str, why: str, strength: Confidence) -> Target:
        (command, *others), tests = self.commands(project, root), join_root(root, *self.tests)
        return Target(
            runner=self.name,
            command=command,
            also=others,
            root=root,
            language="javascript",
            tests=tests,
            sources=join_root(root, *SOURCES),
            protected=join_root(root, *self.configs),
            setup=_setup(project, root, self.recognises),
            builds=build_commands(project, root, command, tests, self.recognises),
            why=why,
            strength=strength,
        )

    def commands(self, project: Project, root: str) -> list[list[str]]:
        """Return the commands in the script: options and files are often configured only there."""
        found = self._started(project, root)
        return self._together(found) if found else [[self.name, *self.arguments]]

    def _started(self, project: Project, root: str) -> list[list[str]]:
        folder = project.folder / root
        table, called = project.json(*join_root(root, "package.json")), workspace_scripts(project.json("package.json"))
        scripts = self._scripts(table, lambda word: any(find(folder, word.lstrip("/"))), called)
        return [plain(script, self.start(script) or 0) for script in scripts]

    def _together(self, found: list[list[str]]) -> list[list[str]]:
        """Merge the commands of a script that have the same options: the one without files, which runs everything,
        or the first with the files of all. Commands without files come first."""
        alike: dict[tuple[str, ...], list[list[str]]] = {}
        for words in found:
            alike.setdefault(tuple(self._split(words)[0]), []).append(words)
        joined = [self._joined(each) for each in alike.values()]
        return sorted(joined, key=lambda words: bool(self._split(words)[1]))

    def _joined(self, found: list[list[str]]) -> list[str]:
        files = [self._split(words)[1] for words in found]
        whole = [words for words, given in zip(found, files, strict=True) if not given]
        return whole[0] if whole else list(dict.fromkeys([*found[0], *(file for given in files[1:] for file in given)]))

    def runs_file(self, command: list[str], file: str) -> bool:
        """Return whether a command runs this file; a command without files may run any."""
        given = self._split(command)[1]
        return not given or any(self.means(word.removeprefix("./"), file) for word in given)

    def means(self, word: str, file: str) -> bool:
        return matches_word(word, file)

    def _split(self, words: list[str]) -> tuple[list[str], list[str]]:
        """Split a command into the program with its options and the files."""
        at = (self.start(words) or 0) + 1
        options = options_only(words[at:], self.valued)
        given = [word for word in words[at:] if word not in options and word not in self.arguments]
        return [*words[:at], *options], given

    def parts(self, target: Target, session: Session) -> tuple[list[str], list[str]]:
        """Return the words that start the project's copy of the program, and its arguments.

        If tests are selected, their files replace those of the command.
        """
        at = self.start(target.command) or 0
        program, given = target.command[: at + 1], target.command[at + 1 :]
        given = options_only(given, self.valued) if files_of(session.only) else given
        bare = "/" not in program[-1] and (at == 0 or program[0] == "env")
        found = find_upward(session.folder, f"node_modules/.bin/{program[-1]}") if bare else None
        return [*program[:-1], str(found) if found else program[-1]], given

    filter_results = staticmethod(drop_unselected_skips)

    def alone(self, target: Target, *chosen: str) -> list[str]:
        """Return the command with `npx` before the program, as a person would type it."""
        at = self.start(target.command) or 0
        words = [*target.command[: at + 1], *options_only(target.command[at + 1 :], self.valued), *chosen]
        return [*words[:at], "npx", *words[at:]] if at == 0 or words[0] == "env" else words

    def parse(self, results: RunOutput) -> Parsed:
        return parse_records(results)


def ci_env(session: Session) -> dict[str, str]:
    """Return our reporter variables and CI=1, without which these runners watch for changes or write snapshots."""
    return reporter_env(session) | {"CI": "1"}


def preload_env(session: Session, guest: str) -> dict[str, str]:
    """Load a reporter into every node process below."""
    return {"NODE_OPTIONS": f"{session.env.get('NODE_OPTIONS', '')} --require={REPORTERS / guest}".strip()}


def dependencies(table: dict[str, Any]) -> set[str]:
    return {*_table(table, "dependencies"), *_table(table, "devDependencies")}


def _table(table: dict[str, Any], name: str) -> dict[str, Any]:
    value = table.get(name)
    return value if isinstance(value, dict) else {}


def _setup(project: Project, root: str, is_runner: Judge) -> list[str]:
    """Return the commands that install the dependencies, and those of the test script that build."""
    if not (install := _install(project, root)):
        return []
    builds = [[word for word in words if word != "--silent"] for words in scripted_builds(project, root, is_runner)]
    return [install, *(shlex.join([*_starter(words), *words]) for words in builds)]


def _starter(words: list[str]) -> list[str]:
    return [] if words[0] in ("npm", "npx") else ["npx"]


def _install(project: Project, root: str) -> str:
    for name, command in _LOCKS.items():
        if any(project.has(path) for place in {root, "."} for path in join_root(place, name)):
            return command
    return "npm install" if project.has(*join_root(root, "package.json")) else ""


def packages_importing(project: Project, module: str) -> dict[str, str]:
    """Return the packages with a test file that imports this module, each with the first such file."""
    found: dict[str, str] = {}
    for path in project.glob(
        "**/*.test.*", "**/*.spec.*", "**/*-test.*", "**/*_test.*", "**/test-*.*", "**/test/**", "**/test.*"
    ):
        if path.endswith((".js", ".mjs", ".cjs", ".ts", ".mts", ".tsx")) and re.search(
            rf"""["']{module}["']""", project.text(path)
        ):
            package = next((place for place in _above(path) if project.has(*join_root(place, "package.json"))), ".")
            found.setdefault(package, path)
    return found


def _above(path: str) -> list[str]:
    place = parent_of(path)
    return [place] if place == "." else [place, *_above(place)]
