"""Ruby: RSpec by a formatter of ours, Minitest by a reporter that RUBYOPT brings along."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import msgspec

from ratchet.checks import Results, Session, Step, Strength, Target
from ratchet.checks.formats import Parsed
from ratchet.checks.project import Project, root_of, under
from ratchet.checks.runners import SHIMS, Usual, channel_env, end_of, read_records
from ratchet.core.report import Diagnostic, TestResult


class _Ruby(Usual):
    tests: tuple[str, ...] = ()

    def target(self, project: Project, root: str, words: list[str], why: str, strength: Strength) -> Target:
        bundled = project.has(*under(root, "Gemfile"))
        return Target(
            runner=self.name,
            command=["bundle", "exec", *words] if bundled else words,
            root=root,
            language="ruby",
            tests=under(root, *self.tests),
            sources=under(root, "**/*.rb"),
            protected=under(root, ".rspec", "Rakefile"),
            setup=["bundle install"] if bundled else [],
            why=why,
            strength=strength,
        )

    def parse(self, results: Results) -> Parsed:
        return read_records(results)

    def last_words(self, said: str) -> str:
        """A test that exits says nothing: the stacks on the console are those of others that failed before."""
        return said.rpartition("[BUG]")[2] if "[BUG]" in said else ""


class RSpec(_Ruby):
    name = family = "rspec"
    tests = ("spec/**", "**/*_spec.rb", ".rspec")

    def detect(self, project: Project) -> Iterator[Target]:
        for path in project.named("**/.rspec", "**/spec/spec_helper.rb", "**/spec/rails_helper.rb"):
            root = root_of(root_of(path)) if "/spec/" in f"/{path}" else root_of(path)
            yield self.target(project, root, ["rspec"], f"there is a {path}", Strength.CONFIG)
        if project.has(".rspec"):
            yield self.target(project, ".", ["rspec"], "there is a .rspec", Strength.CONFIG)
        for path in project.named("**/*_spec.rb"):
            if "minitest" in project.text(path).lower():
                continue
            yield self.target(project, ".", ["rspec"], f"{path} is named like a spec", Strength.PATTERN)
            return

    def launch(self, target: Target, session: Session) -> list[Step]:
        ours = ["--require", str(SHIMS / "_ratchet_rspec.rb"), "--format", "RatchetFormatter"]
        theirs = ["--format", "progress", "--no-color"]
        chosen = [test.id for test in session.only]
        return [Step(argv=[*target.command, *ours, *theirs, *chosen], env=channel_env(session))]

    def parse(self, results: Results) -> Parsed:
        """A helper that does not load is told on the console only, before our formatter is there."""
        parsed = super().parse(results)
        if any(not error.file for error in parsed.collection_errors):
            with end_of(results) as stream:
                told = list(_LOADING.finditer(stream.read().decode(errors="replace")))
            parsed.collection_errors = [
                _placed(error, told[n]) if not error.file and n < len(told) else error
                for n, error in enumerate(parsed.collection_errors)
            ]
        return parsed


_LOADING = re.compile(
    r"An error occurred while loading (?P<what>\S+?)\.?\s.*?\n\s*(?P<type>[A-Z]\w*(?:::\w+)*):\n"
    r"\s*(?P<message>[^\n]*)\n"
    r"(?:\s*# \./(?P<file>[^\n:]+):(?P<line>\d+))?",
    re.S,
)


def _placed(error: Diagnostic, told: re.Match[str]) -> Diagnostic:
    return msgspec.structs.replace(
        error,
        file=told.group("file") or told.group("what"),
        line=int(told.group("line") or 0),
        type=told.group("type"),
        message=told.group("message"),
    )


_TEST_UNIT = re.compile(r"test/unit\b|Test::Unit::TestCase")
_LOADING_EACH = ("ruby", "-Ilib", "-Itest", "-e", "ARGV.each { |file| require File.expand_path(file) }")


class Minitest(_Ruby):
    name = family = "minitest"
    tests = ("test/**", "**/*_test.rb", "**/test_*.rb")

    guest = "_ratchet_minitest.rb"
    library = "Minitest"
    mark = re.compile(r"(?i)require.*minitest|< Minitest::|ActiveSupport::TestCase")

    def detect(self, project: Project) -> Iterator[Target]:
        for path in project.named("**/test/**/*.rb", "**/*_test.rb", "**/test_*.rb"):
            if self.uses(project, path):
                task = _rake_task(project)
                command = ["rake", task] if task else self._plain(project, path)
                yield self.target(project, ".", command, f"{path} uses {self.library}", Strength.PATTERN)
                return

    def uses(self, project: Project, path: str) -> bool:
        # Another library, whose tests look the same.
        other = any(_TEST_UNIT.search(project.text(helper)) for helper in project.named("test/*helper.rb"))
        return not other and bool(self.mark.search(project.text(path)))

    def _plain(self, project: Project, found: str) -> list[str]:
        """Without a task for it every file is loaded by one Ruby."""
        named = project.named("**/*_test.rb", "**/test_*.rb", "**/*_spec.rb")
        globs = [path for path in named if not path.endswith("_helper.rb")] or [found]
        return [*_LOADING_EACH, *globs]

    def recognises(self, words: list[str]) -> bool:
        return any(Path(word).name in ("minitest", "rails") for word in words)

    def launch(self, target: Target, session: Session) -> list[Step]:
        options = f"-r{SHIMS / self.guest} {session.env.get('RUBYOPT', '')}".strip()
        env = channel_env(session) | {"RUBYOPT": options}
        words = target.command
        files = [test.id for test in session.only if test.id.endswith(".rb")]
        names = [test.id for test in session.only if test.id not in files]
        if files and not names:
            start = next((n for n, word in enumerate(words) if word in ("rake", "ruby")), None)
            words = [*words, *files] if start is None else [*words[:start], *_LOADING_EACH, *files]
        elif names:
            chosen = self.chosen(names)
            env |= {"TESTOPTS": shlex.join(chosen)}  # rake gives it to a shell
            words = [*words, *chosen] if "rake" not in words else words
        return [Step(argv=_with_options(words), env=env)]

    def chosen(self, names: list[str]) -> list[str]:
        return [f"--name=/^(?:{'|'.join(map(re.escape, names))})$/"]

    def parse(self, results: Results) -> Parsed:
        """A file that does not load ends Ruby before there is anyone to tell it."""
        parsed = super().parse(results)
        if results.exit_code and not results.stopped and not parsed.tests and not parsed.running:
            with end_of(results) as stream:
                said = stream.read().decode(errors="replace")
            parsed.collection_errors = _unloaded(said, results.folder)
            parsed.ended = parsed.ended or bool(parsed.collection_errors)
        return parsed

    def named(self, name: str) -> list[str]:
        return ["--name", name]

    def again(self, target: Target, test: TestResult) -> list[str]:
        if test.file:
            return ["ruby", "-Ilib", "-Itest", test.file, *self.named(test.id)]
        rake = "rake" in target.command
        return [*target.command, *([f"TESTOPTS=--name={shlex.quote(test.id)}"] if rake else ["--name", test.id])]


def _test_unit_name(name: str) -> str:
    """With its class, unless that is a case within a case: such a one has no name that test-unit would compare."""
    case, _, own = name.partition("#")
    return own if re.search(r"::[^A-Z]|\s", case) else name


class TestUnit(Minitest):
    """test-unit, which Ruby's own libraries use: chosen and loaded as Minitest is."""

    __test__ = False  # to pytest
    name = "testunit"
    guest = "_ratchet_testunit.rb"
    library = "test-unit"

    def uses(self, project: Project, path: str) -> bool:
        return bool(_TEST_UNIT.search(project.text(path)))

    def chosen(self, names: list[str]) -> list[str]:
        return [f"--name={_test_unit_name(name)}" for name in names]

    def named(self, name: str) -> list[str]:
        return ["--name", _test_unit_name(name)]

    def recognises(self, words: list[str]) -> bool:
        return False  # by its name a command is as well Minitest's


_RAISED = re.compile(r"^(?P<at>\S+?:\d+):in [`'].*?': (?P<message>.*) \((?P<type>[A-Z]\w*(?:::\w+)*)\)$", re.M)
_SYNTAX = re.compile(r"(?P<file>[^\s:]+\.rb):(?P<line>\d+): (?P<message>syntax errors?\b.*)$", re.M)
_FROM = re.compile(r"(?:^\tfrom )?(?P<file>[^\s:]+):(?P<line>\d+)(?::in |$)", re.M)


def _unloaded(said: str, folder: Path) -> list[Diagnostic]:
    """What Ruby died of, and the innermost line of the project on the way there."""
    if syntax := _SYNTAX.search(said):
        return [_broken(syntax, "SyntaxError", syntax.group("message"))]
    if not (raised := _RAISED.search(said)):
        return []
    places = _FROM.finditer(said, raised.start())
    known = next((match for match in places if _is_inside(match.group("file"), folder)), None)
    return [_broken(known, raised.group("type"), raised.group("message"))]


def _broken(place: re.Match[str] | None, kind: str, message: str) -> Diagnostic:
    file, line = (place.group("file"), int(place.group("line"))) if place else ("", 0)
    return Diagnostic(file=file, line=line, type=kind, message=message, tool="ruby")


def _is_inside(file: str, folder: Path) -> bool:
    path = folder / file
    return path.is_relative_to(folder) and path.is_file()


_TASK = re.compile(
    r"^[ \t]*(?:(?P<made>(?:Rake|Minitest)::TestTask\.(?:new|create))\b|task\b)"
    r"[ (]*[:'\"]?(?P<name>(?!do\b)[a-z][\w:]*\w|)",
    re.M,
)


def _rake_task(project: Project) -> str:
    """The task that runs the tests. Where there is no `test`, rake takes the folder for it and is content."""
    text = "\n".join(project.text(path) for path in ("Rakefile", *project.named("rakelib/*.rake")))
    made = [match.group("name") or "test" for match in _TASK.finditer(text) if match.group("made")]
    names = [*made, *(match.group("name") for match in _TASK.finditer(text))]
    if "test" in names or re.search(r"\.load_tasks\b|^Hoe\.", text, re.M):
        return "test"
    return next((name for name in (*made, "spec", "default") if name in names), "")


def _with_options(words: list[str]) -> list[str]:
    """Files are loaded, and what looks like an option is left to the library, which reads ARGV when it starts."""
    return [
        word.replace("ARGV.each", "ARGV.shift(ARGV.take_while { |a| !a.start_with?('-') }.size).each") for word in words
    ]
