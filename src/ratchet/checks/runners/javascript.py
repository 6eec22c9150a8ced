"""JavaScript and TypeScript: our reporters in jest, vitest, mocha, node:test, playwright; JUnit of bun, deno; TAP."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from ratchet.checks import Results, Session, Step, Strength, Target
from ratchet.checks.builds import builds
from ratchet.checks.formats import Parsed
from ratchet.checks.formats.text import plain as without_colours
from ratchet.checks.project import Project, root_of, under
from ratchet.checks.runners import SHIMS, Usual, channel_env, end_of, junit, read, read_records, unskipped, upward
from ratchet.checks.scripts import Matches, commands, options_only, plain, start_of
from ratchet.core.report import Diagnostic, TestResult

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
        for path in project.named(*(f"**/{name}" for name in self.configs)):
            yield self.target(project, root_of(path), f"there is a {path}", Strength.CONFIG)
        for path in project.named("**/package.json"):
            table, root = project.json(path), root_of(path)
            if self.package and self.package in table:
                yield self.target(project, root, f"{path} configures {self.name}", Strength.CONFIG)
            if script := self._script(table):
                yield self.target(
                    project, root, f"the test script of {path} is `{shlex.join(script)}`", Strength.SCRIPT
                )
            elif self.package and self.package in dependencies(table):
                yield self.target(project, root, f"{path} depends on {self.package}", Strength.DEPENDENCY)

    def _script(self, table: dict[str, Any], matches: Matches = bool) -> list[str]:
        return next(iter(self._scripts(table, matches)), [])

    def _scripts(self, table: dict[str, Any], matches: Matches = bool) -> list[list[str]]:
        return [words for words in commands(table, matches) if self.recognises(words)]

    def recognises(self, words: list[str]) -> bool:
        return self.start(words) is not None

    def start(self, words: list[str]) -> int | None:
        return start_of(words, self.programs or (self.name,))

    def target(self, project: Project, root: str, why: str, strength: Strength) -> Target:
        command, tests = self.command(project, root), under(root, *self.tests)
        return Target(
            runner=self.name,
            command=command,
            root=root,
            language="javascript",
            tests=tests,
            sources=under(root, *SOURCES),
            protected=under(root, *self.configs),
            setup=_setup(project, root),
            builds=builds(project, root, command, tests, self.recognises),
            why="; ".join([why, *self._left_out(project, root)]),
            strength=strength,
        )

    def command(self, project: Project, root: str) -> list[str]:
        """What the script gives the runner: its options and files are often nowhere else."""
        found = self._started(project, root)
        return self._together(found) if found else [self.name, *self.arguments]

    def _started(self, project: Project, root: str) -> list[list[str]]:
        folder = project.folder / root
        scripts = self._scripts(
            project.json(*under(root, "package.json")), lambda word: any(folder.glob(word.lstrip("/")))
        )
        return [plain(script, self.start(script) or 0) for script in scripts]

    def _left_out(self, project: Project, root: str) -> list[str]:
        """What the script starts with other options, which one command cannot do, too."""
        split = [self._split(words) for words in self._started(project, root)]
        if not all(files for _, files in split):
            return []
        others = [[*options, *files] for options, files in split if options != split[0][0]]
        return [f"`{' '.join(words)}` in its script is left out; set test.command to run it too" for words in others]

    def _together(self, found: list[list[str]]) -> list[str]:
        """One command for all that a script starts one after the other: the one without files, for it runs them all, or
        the first with the files of those that differ from it in nothing else."""
        split = [self._split(words) for words in found]
        whole = [words for words, (_, files) in zip(found, split, strict=True) if not files]
        alike = [files for options, files in split if options == split[0][0]]
        return whole[0] if whole else list(dict.fromkeys([*found[0], *(file for files in alike[1:] for file in files)]))

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


def _preloaded(session: Session, guest: str) -> dict[str, str]:
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


def files_of(tests: list[TestResult]) -> list[str]:
    return list(dict.fromkeys(test.file for test in tests if test.file))


def pattern_of(tests: list[TestResult]) -> str:
    """Matches the whole names of the tests, as the runners spell them: the suites and the name with spaces between."""
    return "|".join(dict.fromkeys(_pattern(names_of(test)) for test in tests))


def _pattern(names: list[str]) -> str:
    """A hook cannot be asked for: the tests that it is there for are."""
    *suite, own = names
    if _HOOK.match(own):
        return f"^{escaped(' '.join(suite))}" + (" " if suite else "")
    return f"^{escaped(' '.join(names))}$"


_HOOK = re.compile(r'"(?:before|after) (?:all|each)" hook\b')


def escaped(name: str) -> str:
    """As a pattern of JavaScript's that matches just this, and can still be read."""
    return re.sub(r"([\\^$.*+?()\[\]{}|])", r"\\\1", name)


def _by_name(option: str, test: TestResult) -> list[str]:
    """What a person gives a runner to have this test."""
    *suite, own = names_of(test) or [""]
    name = " ".join(suite if _HOOK.match(own) else [*suite, own])
    return [option, escaped(name)] if name else []


def names_of(test: TestResult) -> list[str]:
    """Suites and name, also of an id that was typed and not read from a report."""
    if test.name:
        return [*test.suite, test.name]
    return test.id.partition("::")[2].split(" > ") if "::" in test.id else []


def _named(tests: list[TestResult]) -> bool:
    return all(names_of(test) for test in tests)


class Vitest(Script):
    name = package = "vitest"
    covers_below = True
    configs = tuple(
        f"{stem}.{end}" for stem in ("vitest.config", "vitest.workspace") for end in ("js", "mjs", "ts", "mts", "cjs")
    )
    arguments = ("run",)
    valued = frozenset(
        ("-c", "--config", "-r", "--root", "--dir", "--environment", "--pool", "--mode", "--project", "--workspace",
         "--testTimeout", "--reporter", "--outputFile", "--shard", "--maxWorkers", "--retry", "--tsconfig")
    )  # fmt: skip

    def launch(self, target: Target, session: Session) -> list[Step]:
        program, given = self.parts(target, session)
        given = ["run", *(word for word in given if word not in ("run", "--run", "watch", "dev"))]
        options = [f"--reporter={SHIMS / '_ratchet_vitest.mjs'}", "--reporter=default", "--includeTaskLocation"]
        argv = [*program, *given, *options, *chosen_by(session.only, "-t")]
        return [Step(argv=argv, env=unattended(session) | _preloaded(session, "_ratchet_vitest_inside.cjs"))]

    def again(self, target: Target, test: TestResult) -> list[str]:
        return self.alone(target, "run", test.file or test.id, *_by_name("-t", test))


def chosen_by(tests: list[TestResult], option: str) -> list[str]:
    named = [option, pattern_of(tests)] if tests and _named(tests) else []
    return [*files_of(tests), *named]


class Jest(Script):
    name = package = "jest"
    covers_below = True
    configs = tuple(f"jest.config.{end}" for end in ("js", "mjs", "ts", "cjs", "json"))
    valued = frozenset(
        ("-c", "--config", "--env", "--testEnvironment", "-w", "--maxWorkers", "--rootDir", "--testTimeout", "--shard",
         "--selectProjects", "--ignoreProjects", "--projects", "--reporters", "--outputFile", "--coverageReporters")
    )  # fmt: skip

    def launch(self, target: Target, session: Session) -> list[Step]:
        program, given = self.parts(target, session)
        options = [f"--reporters={SHIMS / '_ratchet_jest.cjs'}", "--reporters=default", "--testLocationInResults"]
        named = ["-t", pattern_of(session.only)] if session.only and _named(session.only) else []
        files = ["--coverage=false", "--runTestsByPath", *files_of(session.only)] if session.only else []
        return [Step(argv=[*program, *given, *options, *named, *files], env=unattended(session))]

    def again(self, target: Target, test: TestResult) -> list[str]:
        return self.alone(target, test.file, *_by_name("-t", test))


class Mocha(Script):
    name = package = "mocha"
    programs = ("mocha", "_mocha")
    configs = tuple(f".mocharc.{end}" for end in ("js", "cjs", "mjs", "json", "jsonc", "yml", "yaml"))
    valued = frozenset(
        ("-r", "--require", "-R", "--reporter", "-O", "--reporter-option", "--reporter-options", "-t", "--timeout",
         "-u", "--ui", "--extension", "--config", "--package", "-s", "--slow", "-j", "--jobs", "--retries", "--ignore",
         "--exclude", "--import", "--loader", "--experimental-loader", "-n", "--node-option", "--file")
    )  # fmt: skip

    def launch(self, target: Target, session: Session) -> list[Step]:
        program, given = self.parts(target, session)
        named = ["-g", pattern_of(session.only)] if session.only and _named(session.only) else []
        reporter = ["--reporter", str(SHIMS / "_ratchet_mocha.cjs")]
        argv = [*program, *_without_reporter(given), *reporter, *named, *files_of(session.only)]
        return [Step(argv=argv, env=unattended(session))]

    def parse(self, results: Results) -> Parsed:
        """A file that does not load ends mocha before it has a reporter: the error is in what it printed."""
        parsed = read_records(results)
        if parsed.tests or parsed.running or parsed.ended or results.stopped:
            return parsed
        text = _said(results)
        if _FOUND_NONE.search(text):
            return Parsed(ended=True)
        error = unloaded(text)
        return Parsed(collection_errors=[error], ended=True) if error else parsed

    def again(self, target: Target, test: TestResult) -> list[str]:
        return self.alone(target, test.file, *_by_name("-g", test))


# How runners say that there are no tests, before there is a reporter.
_FOUND_NONE = re.compile(r"(?m)^(?:Error: No test files found\b|Could not find '.*'$)")


def _said(results: Results) -> str:
    with end_of(results) as stream:
        return without_colours(stream.read().decode(errors="replace"))


# Of a module that is not there only the file that imports it is named: the stack is all node's.
_NOT_THERE = re.compile(
    r"(?m)(?P<type>\w*Error) \[(?P<code>ERR_\w+)\]: (?P<said>Cannot find .+ imported from (?:file://)?(?P<file>\S+))$"
)


def unloaded(text: str) -> Diagnostic | None:
    from ratchet.checks.formats import recover  # noqa: PLC0415 — many patterns, seldom needed

    found, absent = recover.failure(text), _NOT_THERE.search(text)
    if absent and not found.file:
        kind, code, said, file = absent.group("type", "code", "said", "file")
        return Diagnostic(file=file, type=kind, code=code, message=said, tool="mocha")
    if found.type or found.file:
        said = re.sub(rf"^{re.escape(found.type)}(?: \[\w+\])?: ", "", _first(text)) if found.type else _first(text)
        return Diagnostic(file=found.file, line=found.line, type=found.type, message=said, tool="mocha")
    return None


def _without_reporter(words: list[str]) -> list[str]:
    """mocha has one reporter, and it is ours."""
    options = ("-R", "--reporter")
    before = ["", *words]
    kept = zip(words, before, strict=False)
    return [word for word, last in kept if last not in options and not word.startswith(("-R", "--reporter"))]


def _first(text: str) -> str:
    found = re.search(r"(?m)^\w*(?:Error|Exception)\b.*$", text)
    return found.group(0) if found else text.strip()[:500]


class Node(Script):
    name = "node"
    covers_below = True
    programs = ("node", "tsx")
    valued = frozenset(
        ("--import", "-r", "--require", "--loader", "--experimental-loader", "-C", "--conditions", "--test-concurrency",
         "--test-timeout", "--env-file", "--test-reporter", "--test-reporter-destination", "--test-shard")
    )  # fmt: skip

    def detect(self, project: Project) -> Iterator[Target]:
        yield from super().detect(project)
        for manifest, path in importing(project, "node:test").items():
            yield self.target(project, manifest, f"{path} imports node:test", Strength.DEPENDENCY)

    def start(self, words: list[str]) -> int | None:
        return super().start(words) if "--test" in words else None

    def command(self, project: Project, root: str) -> list[str]:
        words = super().command(project, root)
        return words if "--test" in words else self._program(project, root) or ["node", "--test"]

    def _program(self, project: Project, root: str) -> list[str]:
        """A script may start the one file that has all the tests, without a word that they are tests."""
        for words in commands(project.json(*under(root, "package.json"))):
            at = start_of(words, self.programs)
            given = words[at + 1 :] if at is not None else []
            files = [word for word in given if word not in options_only(given, self.valued)]
            if at is not None and files and _leads_to(project, under(root, files[0].removeprefix("./"))[0]):
                own = plain(words, at)
                return [*own[: own.index(files[0])], "--test", files[0]]
        return []

    def launch(self, target: Target, session: Session) -> list[Step]:
        program, given = self.parts(target, session)
        at = given.index("--test") + 1
        ours = [f"--test-reporter={SHIMS / '_ratchet_node.mjs'}", "--test-reporter-destination=stdout"]
        theirs = ["--test-reporter=spec", "--test-reporter-destination=stdout"]
        parts = [part for test in session.only for part in _to_be_named(test, session.folder)]
        names = [f"--test-name-pattern=^{re.escape(part)}$" for part in dict.fromkeys(parts)]
        names = names if _named(session.only) else []
        rest = [name for word in given[at:] for name in _expanded(word, session.folder)]
        argv = [*program, *given[:at], *ours, *theirs, *names, *rest, *files_of(session.only)]
        return [Step(argv=argv, env=unattended(session) | _preloaded(session, "_ratchet_node_inside.cjs"))]

    def parse(self, results: Results) -> Parsed:
        parsed = read_records(results)
        nothing = not parsed.ended and not parsed.tests and not parsed.running and not results.stopped
        return Parsed(ended=True) if nothing and _FOUND_NONE.search(_said(results)) else parsed

    def again(self, target: Target, test: TestResult) -> list[str]:
        at = target.command.index("--test") + 1
        options = options_only(target.command[at:], self.valued)
        return [*target.command[:at], f"--test-name-pattern={escaped(test.name)}", *options, test.file]


def _leads_to(project: Project, path: str) -> bool:
    """Whether a program, or a file that it imports, has tests of node's."""
    from ratchet.checks.imports import imports  # noqa: PLC0415 — many patterns, seldom needed

    places = [path, f"{path}.js", f"{path}/index.js"]
    files = [each for place in places if place in project.known for each in (place, *imports(project, place))]
    return any(re.search(r"""["']node:test["']""", project.text(file)) for file in files)


def _to_be_named(test: TestResult, folder: Path) -> list[str]:
    """The test's name, and those of the tests around it, which run only if named too.

    A suite that is named runs all it holds, and needs no naming.
    """
    *around, name = names_of(test) or [""]
    text = Project(folder).text(test.file) if around else ""
    return [*(part for part in around if not _is_suite(part, text)), name]


def _is_suite(name: str, text: str) -> bool:
    return bool(re.search(rf"""(?:describe|suite)\b.{{0,20}}\(\s*[`'"]{re.escape(name)}[`'"]""", text))


def _expanded(word: str, folder: Path) -> list[str]:
    """The files of a pattern: node 20 takes none, a later one the same."""
    if word.startswith("-") or "*" not in word:
        return [word]
    return sorted(path.relative_to(folder).as_posix() for path in folder.glob(word)) or [word]


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


class Jasmine(Script):
    name = package = "jasmine"
    configs = tuple(f"spec/support/jasmine.{end}" for end in ("json", "js", "mjs", "cjs"))
    tests = (*TESTS, "spec/**")
    valued = frozenset(("--config", "--helper", "--require", "--reporter", "--parallel"))

    def detect(self, project: Project) -> Iterator[Target]:
        for target in super().detect(project):
            root = target.root.removesuffix("spec/support").rstrip("/") or "."
            yield target if root == target.root else self.target(project, root, target.why, target.strength)

    def launch(self, target: Target, session: Session) -> list[Step]:
        program, given = self.parts(target, session)
        given = [word for word in given if not word.startswith(("--reporter", "--parallel"))]
        names = [" ".join(names_of(test)) for test in session.only]
        named = [f"--filter=^(?:{'|'.join(map(re.escape, names))})$"] if names and _named(session.only) else []
        reporter = f"--reporter={SHIMS / '_ratchet_jasmine.cjs'}"
        return [Step(argv=[*program, *given, reporter, *named, *files_of(session.only)], env=unattended(session))]

    def again(self, target: Target, test: TestResult) -> list[str]:
        name = escaped(" ".join(names_of(test)))
        return self.alone(target, f"--filter={name}", *([test.file] if test.file else []))


class Playwright(Script):
    name = "playwright"
    family = "playwright"
    package = "@playwright/test"
    configs = tuple(f"playwright.config.{end}" for end in ("js", "mjs", "ts", "mts", "cjs"))
    arguments = ("test",)

    def detect(self, project: Project) -> Iterator[Target]:
        """What the test script starts is surer than a configuration: that may be of tests that run beside it."""
        for target in super().detect(project):
            aside = target.strength is Strength.CONFIG
            yield msgspec.structs.replace(target, strength=Strength.DEPENDENCY) if aside else target

    def launch(self, target: Target, session: Session) -> list[Step]:
        program, given = self.parts(target, session)
        given = ["test", *(word for word in given if word != "test" and not word.startswith("--reporter"))]
        places = [f"{test.file}:{test.line}" if test.line else test.file for test in session.only]
        reporters = f"--reporter={SHIMS / '_ratchet_playwright.cjs'},line"
        return [Step(argv=[*program, *given, reporters, *places], env=unattended(session))]

    def again(self, target: Target, test: TestResult) -> list[str]:
        return self.alone(target, "test", f"{test.file}:{test.line}")


class _ByJUnit(Script):
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

    valued = frozenset(("--preload", "-r", "--timeout", "--jsx-import-source", "--tsconfig-override"))

    def detect(self, project: Project) -> Iterator[Target]:
        yield from (target for target in super().detect(project) if target.strength is Strength.SCRIPT)
        for package, path in importing(project, "bun:test").items():
            yield self.target(project, package, f"{path} imports bun:test", Strength.DEPENDENCY)

    def start(self, words: list[str]) -> int | None:
        return _before_test(words, super().start(words))

    def launch(self, target: Target, session: Session) -> list[Step]:
        program, given = self.parts(target, session)
        given = ["test", *(word for word in given if word != "test")]
        options = ["--reporter=junit", f"--reporter-outfile={session.private / 'junit.xml'}"]
        return [Step(argv=[*program, *given, *options, *chosen_by(session.only, "-t")], env=unattended(session))]

    def broken(self, text: str) -> Iterator[tuple[str, str]]:
        """Files that do not load are in the text only: a file's name, then its error, and no test."""
        for match in re.finditer(
            r"(?m)^(\S+\.[cm]?[jt]sx?):\n+# Unhandled error between tests\n-+\n(.*(?:\n.*)?)", text
        ):
            yield match.group(1), match.group(2).strip().splitlines()[0]

    def again(self, target: Target, test: TestResult) -> list[str]:
        return ["bun", "test", test.file, "-t", escaped(test.name)]


class Deno(_ByJUnit):
    name = "deno"
    covers_below = True
    configs = ("deno.json", "deno.jsonc")
    arguments = ("test", "--allow-all", "--no-prompt")

    valued = frozenset(("-c", "--config", "--import-map", "--lock", "--filter", "--reload"))

    def start(self, words: list[str]) -> int | None:
        return _before_test(words, super().start(words))

    def launch(self, target: Target, session: Session) -> list[Step]:
        program, given = self.parts(target, session)
        given = ["test", *(word for word in given if word != "test")]
        option = f"--junit-path={session.private / 'junit.xml'}"
        names = [f"--filter=/{pattern_of(session.only)}/"] if session.only and _named(session.only) else []
        return [Step(argv=[*program, *given, option, *names, *files_of(session.only)], env=unattended(session))]

    def broken(self, text: str) -> Iterator[tuple[str, str]]:
        for match in re.finditer(r"(?m)^(\./\S+) \(uncaught error\)$", text):
            yield match.group(1).removeprefix("./"), _first(text[match.end() :])

    def again(self, target: Target, test: TestResult) -> list[str]:
        return ["deno", "test", f"--filter={test.name}", test.file]


def _before_test(words: list[str], at: int | None) -> int | None:
    """These are also interpreters: only `bun test` is a runner."""
    return at if at is not None and words[at + 1 : at + 2] == ["test"] else None
