"""JavaScript and TypeScript: our reporters in jest, vitest, mocha, node:test, playwright; JUnit of bun, deno; TAP."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from ratchet.checks import Results, Session, Step, Strength, Target
from ratchet.checks.formats import Parsed
from ratchet.checks.project import Project, root_of, under
from ratchet.checks.runners import SHIMS, Usual, channel_env, end_of, junit, parser, read, read_records, upward
from ratchet.core.report import Diagnostic, TestResult

_tap = parser("tap")
TESTS = [
    "test/**", "tests/**", "**/__tests__/**", "**/*.test.*", "**/*.spec.*", "**/*-test.*", "**/*_test.*", "**/test.*js",
]  # fmt: skip
SOURCES = ["**/*.js", "**/*.mjs", "**/*.cjs", "**/*.jsx", "**/*.ts", "**/*.mts", "**/*.tsx"]
_LOCKS = {
    "pnpm-lock.yaml": "pnpm install --frozen-lockfile",
    "yarn.lock": "yarn install --frozen-lockfile",
    "bun.lockb": "bun install --frozen-lockfile",
    "bun.lock": "bun install --frozen-lockfile",
    "package-lock.json": "npm ci",
}


class _Script(Usual):
    """A runner that lives in `node_modules` and is named in `package.json`."""

    family = "javascript"
    package = ""
    configs: tuple[str, ...] = ()
    shim = ""
    arguments: tuple[str, ...] = ()
    tests = TESTS

    def detect(self, project: Project) -> Iterator[Target]:
        for path in project.named(*(f"**/{name}" for name in self.configs)):
            yield self.target(project, root_of(path), f"there is a {path}", Strength.CONFIG)
        for path in project.named("**/package.json"):
            table, root = project.json(path), root_of(path)
            if self.package and self.package in table:
                yield self.target(project, root, f"{path} configures {self.name}", Strength.CONFIG)
            if script := self._script(table):
                yield self.target(project, root, f"the test script of {path} is `{script}`", Strength.SCRIPT)
            elif self.package and self.package in dependencies(table):
                yield self.target(project, root, f"{path} depends on {self.package}", Strength.DEPENDENCY)

    def _script(self, table: dict[str, Any]) -> str:
        return next((script for script in test_scripts(table) if self.recognises(words_of(script))), "")

    def target(self, project: Project, root: str, why: str, strength: Strength) -> Target:
        return Target(
            runner=self.name,
            command=self.command(project, root),
            root=root,
            language="javascript",
            tests=under(root, *self.tests),
            sources=under(root, *SOURCES),
            protected=under(root, *self.configs),
            setup=_setup(project, root),
            why=why,
            strength=strength,
        )

    def command(self, project: Project, root: str) -> list[str]:
        return [self.name, *self.arguments]

    def program(self, words: list[str], session: Session) -> list[str]:
        """The project's own copy of the program, if it has one: the command names it only."""
        if Path(words[0]).name != words[0]:
            return words
        found = upward(session.folder, f"node_modules/.bin/{words[0]}")
        return [str(found), *words[1:]] if found else words

    def parse(self, results: Results) -> Parsed:
        return read_records(results)


def dependencies(table: dict[str, Any]) -> set[str]:
    return {*_table(table, "dependencies"), *_table(table, "devDependencies")}


def _table(table: dict[str, Any], name: str) -> dict[str, Any]:
    value = table.get(name)
    return value if isinstance(value, dict) else {}


_RUN = re.compile(r"(?:(?:npm|pnpm|bun) run(?:-script)?|yarn(?: run)?|pnpm)(?: -s| --silent)? ([\w:.-]+)(?: --)?")


def test_scripts(table: dict[str, Any]) -> list[str]:
    """The commands that the test script comes down to: scripts call scripts, and check style before they test."""
    scripts, found, todo = _table(table, "scripts"), [], ["test"]
    for name in todo:
        for command in re.split(r"\s*(?:&&|;)\s*", str(scripts.get(name, ""))):
            other = _RUN.fullmatch(command)
            if other and other.group(1) in scripts and other.group(1) not in todo:
                todo.append(other.group(1))
            elif command:
                found.append(command)
    return found


def words_of(script: str) -> list[str]:
    try:
        return shlex.split(script)
    except ValueError:
        return script.split()


def _setup(project: Project, root: str) -> list[str]:
    for name, command in _LOCKS.items():
        if any(project.has(path) for place in {root, "."} for path in under(place, name)):
            return [command]
    return ["npm install"] if project.has(*under(root, "package.json")) else []


def _files(tests: list[TestResult]) -> list[str]:
    return list(dict.fromkeys(test.file for test in tests if test.file))


def _pattern(tests: list[TestResult]) -> str:
    """Matches the whole names of the tests, as the runners spell them: the suites and the name with spaces between."""
    names = [" ".join(_names(test)) for test in tests]
    return "|".join(f"^{re.escape(name)}$" for name in names)


def _names(test: TestResult) -> list[str]:
    """Suites and name, also of an id that was typed and not read from a report."""
    if test.name:
        return [*test.suite, test.name]
    return test.id.partition("::")[2].split(" > ") if "::" in test.id else []


def _named(tests: list[TestResult]) -> bool:
    return all(_names(test) for test in tests)


class Vitest(_Script):
    name = package = "vitest"
    covers_below = True
    configs = tuple(
        f"{stem}.{end}" for stem in ("vitest.config", "vitest.workspace") for end in ("js", "mjs", "ts", "mts", "cjs")
    )
    arguments = ("run",)

    def launch(self, target: Target, session: Session) -> list[Step]:
        words = self.program(target.command, session)
        if "run" not in words and "related" not in words:
            words = [words[0], "run", *words[1:]]
        options = [f"--reporter={SHIMS / '_ratchet_vitest.mjs'}", "--reporter=default", "--includeTaskLocation"]
        return [Step(argv=[*words, *options, *_chosen(session.only, "-t")], env=channel_env(session))]

    def again(self, target: Target, test: TestResult) -> list[str]:
        return ["npx", *target.command, test.file, "-t", " ".join(_names(test))]


def _chosen(tests: list[TestResult], option: str) -> list[str]:
    named = [option, _pattern(tests)] if tests and _named(tests) else []
    return [*_files(tests), *named]


class Jest(_Script):
    name = package = "jest"
    covers_below = True
    configs = tuple(f"jest.config.{end}" for end in ("js", "mjs", "ts", "cjs", "json"))

    def launch(self, target: Target, session: Session) -> list[Step]:
        words = self.program(target.command, session)
        options = [f"--reporters={SHIMS / '_ratchet_jest.cjs'}", "--reporters=default", "--testLocationInResults"]
        named = ["-t", _pattern(session.only)] if session.only and _named(session.only) else []
        files = ["--runTestsByPath", *_files(session.only)] if session.only else []
        return [Step(argv=[*words, *options, *named, *files], env=channel_env(session))]

    def again(self, target: Target, test: TestResult) -> list[str]:
        return ["npx", *target.command, test.file, "-t", " ".join(_names(test))]


class Mocha(_Script):
    name = package = "mocha"
    configs = tuple(f".mocharc.{end}" for end in ("js", "cjs", "mjs", "json", "jsonc", "yml", "yaml"))

    def command(self, project: Project, root: str) -> list[str]:
        """What the script gives mocha besides its name: its files are nowhere else."""
        script = words_of(self._script(project.json(*under(root, "package.json"))))
        at = next((n for n, word in enumerate(script) if Path(word).name in ("mocha", "_mocha")), None)
        rest = script[at + 1 :] if at is not None else []
        stop = next((n for n, word in enumerate(rest) if word in ("&&", "||", "|", ";")), len(rest))
        return ["mocha", *rest[:stop]]

    def launch(self, target: Target, session: Session) -> list[Step]:
        words = self.program(target.command, session)
        if session.only:
            words = [words[0], *(word for word in words[1:] if word.startswith("-"))]
        named = ["-g", _pattern(session.only)] if session.only and _named(session.only) else []
        files = _files(session.only)
        reporter = ["--reporter", str(SHIMS / "_ratchet_mocha.cjs")]
        return [Step(argv=[*words, *reporter, *named, *files], env=channel_env(session))]

    def parse(self, results: Results) -> Parsed:
        """A file that does not load ends mocha before it has a reporter: the error is in what it printed."""
        parsed = read_records(results)
        if parsed.tests or parsed.ended or results.stopped:
            return parsed
        with end_of(results) as stream:
            text = stream.read().decode(errors="replace")
        from ratchet.checks.formats import recover  # noqa: PLC0415 — many patterns, seldom needed

        found = recover.failure(text)
        if found.type or found.file:
            error = Diagnostic(file=found.file, line=found.line, type=found.type, message=_first(text), tool="mocha")
            return Parsed(collection_errors=[error], ended=True)
        return parsed

    def again(self, target: Target, test: TestResult) -> list[str]:
        return ["npx", "mocha", test.file, "-g", " ".join(_names(test))]


def _first(text: str) -> str:
    found = re.search(r"(?m)^\w*(?:Error|Exception)\b.*$", text)
    return found.group(0) if found else text.strip()[:500]


class Node(_Script):
    name = "node"
    covers_below = True
    tests = TESTS

    def detect(self, project: Project) -> Iterator[Target]:
        yield from super().detect(project)
        for path in project.named(
            "**/*.test.*", "**/*-test.*", "**/*_test.*", "**/test-*.*", "**/test/**", "**/test.*"
        ):
            if path.endswith((".js", ".mjs", ".cjs", ".ts")) and re.search(
                r"""["']node:test["']""", project.text(path)
            ):
                manifest = next((place for place in _above(path) if project.has(*under(place, "package.json"))), ".")
                yield self.target(project, manifest, f"{path} imports node:test", Strength.DEPENDENCY)
                return

    def recognises(self, words: list[str]) -> bool:
        return bool(words) and Path(words[0]).name == "node" and "--test" in words

    def command(self, project: Project, root: str) -> list[str]:
        return words_of(self._script(project.json(*under(root, "package.json")))) or ["node", "--test"]

    def launch(self, target: Target, session: Session) -> list[Step]:
        at = target.command.index("--test") + 1
        ours = [f"--test-reporter={SHIMS / '_ratchet_node.mjs'}", "--test-reporter-destination=stdout"]
        theirs = ["--test-reporter=spec", "--test-reporter-destination=stdout"]
        rest = [word for word in target.command[at:] if not session.only or word.startswith("-")]
        names = [f"--test-name-pattern=^{re.escape(part)}$" for test in session.only for part in _names(test)]
        chosen = [*(dict.fromkeys(names) if _named(session.only) else []), *rest, *_files(session.only)]
        argv = [*target.command[:at], *ours, *theirs, *chosen]
        options = f"{session.env.get('NODE_OPTIONS', '')} --require={SHIMS / '_ratchet_node_inside.cjs'}".strip()
        return [Step(argv=argv, env=channel_env(session) | {"NODE_OPTIONS": options})]

    def again(self, target: Target, test: TestResult) -> list[str]:
        return ["node", "--test", f"--test-name-pattern={test.name}", test.file]


def _above(path: str) -> list[str]:
    place = root_of(path)
    return [place] if place == "." else [place, *_above(place)]


class Tape(_Script):
    """Any script of tape's: what it prints is TAP, and its files are in the script only."""

    name = package = "tape"

    def command(self, project: Project, root: str) -> list[str]:
        script = words_of(self._script(project.json(*under(root, "package.json"))))
        at = next((n for n, word in enumerate(script) if Path(word).name == "tape"), None)
        return ["tape", *script[at + 1 :]] if at is not None else ["tape", "test/**/*.js"]

    def launch(self, target: Target, session: Session) -> list[Step]:
        files = _files(session.only)
        words = [target.command[0], *files] if files else target.command
        return [Step(argv=self.program(words, session), channel="tape.tap")]

    def parse(self, results: Results) -> Parsed:
        return read(results.private / "tape.tap", _tap)

    def again(self, target: Target, test: TestResult) -> list[str]:
        return ["npx", "tape", test.file] if test.file else ["npx", *target.command]


class Playwright(_Script):
    name = "playwright"
    family = "playwright"
    package = "@playwright/test"
    configs = tuple(f"playwright.config.{end}" for end in ("js", "mjs", "ts", "mts", "cjs"))
    arguments = ("test",)

    def launch(self, target: Target, session: Session) -> list[Step]:
        words = self.program(target.command, session)
        places = [f"{test.file}:{test.line}" if test.line else test.file for test in session.only]
        reporters = f"--reporter={SHIMS / '_ratchet_playwright.cjs'},line"
        return [Step(argv=[*words, reporters, *places], env=channel_env(session))]

    def again(self, target: Target, test: TestResult) -> list[str]:
        return ["npx", *target.command, f"{test.file}:{test.line}"]


class _ByJUnit(_Script):
    """A runner whose own JUnit file is its best channel; what it leaves out is in the text."""

    output = ""

    def parse(self, results: Results) -> Parsed:
        parsed = read(results.private / "junit.xml", junit)
        with end_of(results) as stream:
            text = stream.read().decode(errors="replace")
        for file, message in self.broken(text):
            parsed.collection_errors.append(Diagnostic(file=file, message=message, tool=self.name, type="Error"))
        parsed.ended = parsed.ended or bool(parsed.collection_errors)
        parsed.tests = [_with_file(test) for test in parsed.tests]
        return parsed

    def broken(self, _text: str) -> Iterator[tuple[str, str]]:
        yield from ()


def _with_file(test: TestResult) -> TestResult:
    """These write the file where others write the class."""
    file = test.file or (test.suite[0] if test.suite else "") or test.id.partition("::")[0]
    if not re.search(r"\.[cm]?[jt]sx?$", file):
        return test
    suite = test.suite[1:] if test.suite and test.suite[0] == file else test.suite
    return msgspec.structs.replace(test, file=file.removeprefix("./"), suite=suite)


class Bun(_ByJUnit):
    name = "bun"
    covers_below = True
    configs = ("bunfig.toml",)
    arguments = ("test",)

    def detect(self, project: Project) -> Iterator[Target]:
        yield from (target for target in super().detect(project) if target.strength is Strength.SCRIPT)
        for path in project.named("**/*.test.*", "**/*.spec.*", "**/*_test.*"):
            if re.search(r"""["']bun:test["']""", project.text(path)):
                yield self.target(project, ".", f"{path} imports bun:test", Strength.CONFIG)
                return

    def recognises(self, words: list[str]) -> bool:
        return [Path(word).name for word in words[:2]] == ["bun", "test"]

    def launch(self, target: Target, session: Session) -> list[Step]:
        options = ["--reporter=junit", f"--reporter-outfile={session.private / 'junit.xml'}"]
        return [Step(argv=[*self.program(target.command, session), *options, *_chosen(session.only, "-t")])]

    def broken(self, text: str) -> Iterator[tuple[str, str]]:
        """Files that do not load are in the text only: a file's name, then its error, and no test."""
        for match in re.finditer(
            r"(?m)^(\S+\.[cm]?[jt]sx?):\n+# Unhandled error between tests\n-+\n(.*(?:\n.*)?)", text
        ):
            yield match.group(1), match.group(2).strip().splitlines()[0]

    def again(self, target: Target, test: TestResult) -> list[str]:
        return ["bun", "test", test.file, "-t", test.name]


class Deno(_ByJUnit):
    name = "deno"
    covers_below = True
    configs = ("deno.json", "deno.jsonc")
    arguments = ("test", "--allow-all", "--no-prompt")

    def recognises(self, words: list[str]) -> bool:
        return [Path(word).name for word in words[:2]] == ["deno", "test"]

    def launch(self, target: Target, session: Session) -> list[Step]:
        option = f"--junit-path={session.private / 'junit.xml'}"
        names = [f"--filter=/{_pattern(session.only)}/"] if session.only and _named(session.only) else []
        argv = [*self.program(target.command, session), option, *names, *_files(session.only)]
        return [Step(argv=argv)]

    def broken(self, text: str) -> Iterator[tuple[str, str]]:
        for match in re.finditer(r"(?m)^(\./\S+) \(uncaught error\)$", text):
            yield match.group(1).removeprefix("./"), _first(text[match.end() :])

    def again(self, target: Target, test: TestResult) -> list[str]:
        return ["deno", "test", f"--filter={test.name}", test.file]
