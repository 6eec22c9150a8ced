"""Runner for node's own test runner, with our reporter."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from ratchet.checks.detect.package_scripts import index_of_program, options_only, plain, script_commands
from ratchet.checks.detect.project import Project, join_root
from ratchet.checks.formats import Parsed
from ratchet.checks.globs import find
from ratchet.checks.protocol import Confidence, LaunchStep, RunOutput, Session, Target
from ratchet.checks.runners import REPORTERS, parse_records
from ratchet.checks.runners.javascript import ScriptRunner, ci_env, packages_importing, preload_env
from ratchet.checks.runners.javascript.console_errors import FOUND_NONE, text_of
from ratchet.checks.runners.javascript.selection import all_named, escaped, files_of, names_of
from ratchet.core.report import TestResult


class Node(ScriptRunner):
    name = "node"
    covers_subfolders = True
    programs = ("node", "tsx")
    valued = frozenset(
        ("--import", "-r", "--require", "--loader", "--experimental-loader", "-C", "--conditions", "--test-concurrency",
         "--test-timeout", "--env-file", "--test-reporter", "--test-reporter-destination", "--test-shard")
    )  # fmt: skip

    def detect(self, project: Project) -> Iterator[Target]:
        yield from super().detect(project)
        for manifest, path in packages_importing(project, "node:test").items():
            yield self.target(project, manifest, f"{path} imports node:test", Confidence.DEPENDENCY)

    def start(self, words: list[str]) -> int | None:
        return super().start(words) if "--test" in words else None

    def commands(self, project: Project, root: str) -> list[list[str]]:
        found = super().commands(project, root)
        return found if "--test" in found[0] else [self._program(project, root) or ["node", "--test"]]

    def _program(self, project: Project, root: str) -> list[str]:
        """Return a program that the script starts: it may contain all tests without being named like one."""
        for words in script_commands(project.json(*join_root(root, "package.json"))):
            at = index_of_program(words, self.programs)
            given = words[at + 1 :] if at is not None else []
            files = [word for word in given if word not in options_only(given, self.valued)]
            if at is not None and files and _leads_to(project, join_root(root, files[0].removeprefix("./"))[0]):
                own = plain(words, at)
                return [*own[: own.index(files[0])], "--test", files[0]]
        return []

    def launch(self, target: Target, session: Session) -> list[LaunchStep]:
        program, given = self.parts(target, session)
        given = _without_reporters(given)
        at = given.index("--test") + 1
        # If two reporters share a destination and the exit is forced, node does not wait for both. Ours writes nothing
        # there.
        aside = f"--test-reporter-destination={session.private / 'node'}"
        ours = [f"--test-reporter={REPORTERS / '_ratchet_node.mjs'}", aside]
        theirs = ["--test-reporter=spec", "--test-reporter-destination=stdout"]
        parts = [part for test in session.only for part in _to_be_named(test, session.folder)]
        names = [f"--test-name-pattern=^{re.escape(part)}$" for part in dict.fromkeys(parts)]
        names = names if all_named(session.only) else []
        rest = [name for word in given[at:] for name in _expanded(word, session.folder)]
        argv = [*program, *given[:at], *ours, *theirs, *names, *rest, *files_of(session.only)]
        return [LaunchStep(argv=argv, env=ci_env(session) | preload_env(session, "_ratchet_node_inside.cjs"))]

    def parse(self, results: RunOutput) -> Parsed:
        parsed = parse_records(results)
        nothing = not parsed.ended and not parsed.tests and not parsed.running and not results.stopped
        return Parsed(ended=True) if nothing and FOUND_NONE.search(text_of(results)) else parsed

    def rerun_command(self, target: Target, test: TestResult) -> list[str]:
        at = target.command.index("--test") + 1
        options = options_only(target.command[at:], self.valued)
        named = [f"--test-name-pattern=^{escaped(test.name)}$"] if test.name else []
        return [*target.command[:at], *named, *options, test.file or test.id]


def _without_reporters(words: list[str]) -> list[str]:
    """Remove other reporters: ours and one for people are enough. Each has a destination after it, or none."""
    named = [re.fullmatch(r"--test-reporter(?:-destination)?(=.*)?", word) for word in ["", *words]]
    pairs = zip(words, named[1:], named, strict=False)
    return [word for word, own, last in pairs if not own and not (last and not last[1])]


def _leads_to(project: Project, path: str) -> bool:
    """Return whether a program, or a file that it imports, contains tests for node's runner."""
    from ratchet.checks.select.import_graph import imports  # noqa: PLC0415 — many patterns, seldom needed

    places = [path, f"{path}.js", f"{path}/index.js"]
    files = [each for place in places if place in project.file_set for each in (place, *imports(project, place))]
    return any(re.search(r"""["']node:test["']""", project.text(file)) for file in files)


def _to_be_named(test: TestResult, folder: Path) -> list[str]:
    """Return the test's name and those of the tests around it, which run only if they are named too.

    A named suite runs everything inside of it.
    """
    *around, name = names_of(test) or [""]
    text = Project(folder).text(test.file) if around else ""
    return [*(part for part in around if not _is_suite(part, text)), name]


def _is_suite(name: str, text: str) -> bool:
    return bool(re.search(rf"""(?:describe|suite)\b.{{0,20}}\(\s*[`'"]{re.escape(name)}[`'"]""", text))


def _expanded(word: str, folder: Path) -> list[str]:
    """Expand a pattern: node 20 accepts none, later versions give the same files."""
    if word.startswith(("-", "/")) or "*" not in word:
        return [word]
    return sorted(path.relative_to(folder).as_posix() for path in find(folder, word)) or [word]
