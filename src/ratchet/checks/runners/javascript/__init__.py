"""JavaScript and TypeScript: what its runners share. They are named in `package.json` and live in `node_modules`."""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Iterator
from typing import Any

from ratchet.checks import Results, Session, Strength, Target
from ratchet.checks.builds import builds
from ratchet.checks.formats import Parsed
from ratchet.checks.project import Project, root_of, under
from ratchet.checks.runners import SHIMS, Usual, channel_env, read_records, unskipped, upward
from ratchet.checks.runners.javascript.choice import files_of
from ratchet.checks.scripts import Matches, commands, handed_on, names, options_only, plain, start_of

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


class Script(Usual):
    """A runner that lives in `node_modules` and is named in `package.json`.

    `valued` are its options that take the next word as their value: any other word that is no option is a file.
    """

    family = "javascript"
    package = ""
    configs: tuple[str, ...] = ()
    arguments: tuple[str, ...] = ()
    tests: tuple[str, ...] = TESTS
    valued: frozenset[str] = frozenset()

    def detect(self, project: Project) -> Iterator[Target]:
        above = handed_on(project.json("package.json"))
        # Where packages are told to run their own tests, a configuration above them is what theirs share.
        configured = {".": Strength.DEPENDENCY} if above else {}
        for path in project.named(*(f"**/{name}" for name in self.configs)):
            strength = configured.get(root_of(path), Strength.CONFIG)
            yield self.target(project, root_of(path), f"there is a {path}", strength)
        for path in project.named("**/package.json"):
            table, root = project.json(path), root_of(path)
            if self.package and self.package in table:
                strength = configured.get(root, Strength.CONFIG)
                yield self.target(project, root, f"{path} configures {self.name}", strength)
            if script := self._script(table, called=above):
                yield self.target(
                    project, root, f"the test script of {path} is `{shlex.join(script)}`", Strength.SCRIPT
                )
            elif self.package and self.package in dependencies(table):
                yield self.target(project, root, f"{path} depends on {self.package}", Strength.DEPENDENCY)

    def _script(self, table: dict[str, Any], matches: Matches = bool, called: Collection[str] = ()) -> list[str]:
        return next(iter(self._scripts(table, matches, called)), [])

    def _scripts(self, table: dict[str, Any], matches: Matches, called: Collection[str]) -> list[list[str]]:
        return [words for words in commands(table, matches, called) if self.recognises(words)]

    def recognises(self, words: list[str]) -> bool:
        return self.start(words) is not None

    def start(self, words: list[str]) -> int | None:
        return start_of(words, self.programs or (self.name,))

    def target(self, project: Project, root: str, why: str, strength: Strength) -> Target:
        (command, *others), tests = self.commands(project, root), under(root, *self.tests)
        return Target(
            runner=self.name,
            command=command,
            also=others,
            root=root,
            language="javascript",
            tests=tests,
            sources=under(root, *SOURCES),
            protected=under(root, *self.configs),
            setup=_setup(project, root),
            builds=builds(project, root, command, tests, self.recognises),
            why=why,
            strength=strength,
        )

    def commands(self, project: Project, root: str) -> list[list[str]]:
        """What the script gives the runner: its options and files are often nowhere else."""
        found = self._started(project, root)
        return self._together(found) if found else [[self.name, *self.arguments]]

    def _started(self, project: Project, root: str) -> list[list[str]]:
        folder = project.folder / root
        table, called = project.json(*under(root, "package.json")), handed_on(project.json("package.json"))
        scripts = self._scripts(table, lambda word: any(folder.glob(word.lstrip("/"))), called)
        return [plain(script, self.start(script) or 0) for script in scripts]

    def _together(self, found: list[list[str]]) -> list[list[str]]:
        """One command for all that a script starts with the same options, one after the other: that without files, for
        it runs them all, or the first with the files of the others. Those without files come first."""
        alike: dict[tuple[str, ...], list[list[str]]] = {}
        for words in found:
            alike.setdefault(tuple(self._split(words)[0]), []).append(words)
        joined = [self._joined(each) for each in alike.values()]
        return sorted(joined, key=lambda words: bool(self._split(words)[1]))

    def _joined(self, found: list[list[str]]) -> list[str]:
        files = [self._split(words)[1] for words in found]
        whole = [words for words, given in zip(found, files, strict=True) if not given]
        return whole[0] if whole else list(dict.fromkeys([*found[0], *(file for given in files[1:] for file in given)]))

    def takes(self, command: list[str], file: str) -> bool:
        """Whether a command runs this file: one that names none may run any."""
        given = self._split(command)[1]
        return not given or any(self.means(word.removeprefix("./"), file) for word in given)

    def means(self, word: str, file: str) -> bool:
        return names(word, file)

    def _split(self, words: list[str]) -> tuple[list[str], list[str]]:
        """The program with its options, and the files it is given."""
        at = (self.start(words) or 0) + 1
        options = options_only(words[at:], self.valued)
        given = [word for word in words[at:] if word not in options and word not in self.arguments]
        return [*words[:at], *options], given

    def parts(self, target: Target, session: Session) -> tuple[list[str], list[str]]:
        """The words that start the program, the project's own copy of it, and those it is given.

        When only some tests are to run their files are named, and those of the command would be too many.
        """
        at = self.start(target.command) or 0
        program, given = target.command[: at + 1], target.command[at + 1 :]
        given = options_only(given, self.valued) if files_of(session.only) else given
        bare = "/" not in program[-1] and (at == 0 or program[0] == "env")
        found = upward(session.folder, f"node_modules/.bin/{program[-1]}") if bare else None
        return [*program[:-1], str(found) if found else program[-1]], given

    asked = staticmethod(unskipped)

    def alone(self, target: Target, *chosen: str) -> list[str]:
        """The command with `npx` before the program, as a person would call it."""
        at = self.start(target.command) or 0
        words = [*target.command[: at + 1], *options_only(target.command[at + 1 :], self.valued), *chosen]
        return [*words[:at], "npx", *words[at:]] if at == 0 or words[0] == "env" else words

    def parse(self, results: Results) -> Parsed:
        return read_records(results)


def unattended(session: Session) -> dict[str, str]:
    """Our channel, and the word that nobody watches: these runners wait for changes, or write snapshots, without it."""
    return channel_env(session) | {"CI": "1"}


def preloaded(session: Session, guest: str) -> dict[str, str]:
    """A guest in every process of node's below."""
    return {"NODE_OPTIONS": f"{session.env.get('NODE_OPTIONS', '')} --require={SHIMS / guest}".strip()}


def dependencies(table: dict[str, Any]) -> set[str]:
    return {*_table(table, "dependencies"), *_table(table, "devDependencies")}


def _table(table: dict[str, Any], name: str) -> dict[str, Any]:
    value = table.get(name)
    return value if isinstance(value, dict) else {}


def _setup(project: Project, root: str) -> list[str]:
    for name, command in _LOCKS.items():
        if any(project.has(path) for place in {root, "."} for path in under(place, name)):
            return [command]
    return ["npm install"] if project.has(*under(root, "package.json")) else []


def importing(project: Project, module: str) -> dict[str, str]:
    """The packages that have a test file which imports this module, each with the first such file."""
    found: dict[str, str] = {}
    for path in project.named(
        "**/*.test.*", "**/*.spec.*", "**/*-test.*", "**/*_test.*", "**/test-*.*", "**/test/**", "**/test.*"
    ):
        if path.endswith((".js", ".mjs", ".cjs", ".ts", ".mts", ".tsx")) and re.search(
            rf"""["']{module}["']""", project.text(path)
        ):
            package = next((place for place in _above(path) if project.has(*under(place, "package.json"))), ".")
            found.setdefault(package, path)
    return found


def _above(path: str) -> list[str]:
    place = root_of(path)
    return [place] if place == "." else [place, *_above(place)]
