"""Runners for Ruby: RSpec with a formatter of ours, Minitest and test-unit with a reporter loaded by RUBYOPT."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import msgspec

from ratchet.checks.detect.project import Project, join_root, parent_of
from ratchet.checks.formats import Parsed
from ratchet.checks.protocol import Confidence, LaunchStep, RunOutput, Session, Target
from ratchet.checks.runners import REPORTERS, open_log_tail, parse_records, reporter_env
from ratchet.checks.runners.base import BaseRunner
from ratchet.core.report import Diagnostic, TestResult
from ratchet.tree_files import is_source


class _Ruby(BaseRunner):
    tests: tuple[str, ...] = ()

    def target(self, project: Project, root: str, words: list[str], why: str, strength: Confidence) -> Target:
        bundled = project.has(*join_root(root, "Gemfile"))
        return Target(
            runner=self.name,
            command=["bundle", "exec", *words] if bundled else words,
            root=root,
            language="ruby",
            tests=join_root(root, *self.tests),
            sources=join_root(root, "**/*.rb"),
            protected=join_root(root, ".rspec", "Rakefile"),
            setup=["bundle install"] if bundled else [],
            why=why,
            strength=strength,
        )

    def parse(self, results: RunOutput) -> Parsed:
        return parse_records(results)

    def crash_output(self, output: str) -> str:
        """Return the crash report, if any: a test that exits prints nothing, and the stacks belong to earlier
        failures."""
        return output.rpartition("[BUG]")[2] if "[BUG]" in output else ""


class RSpec(_Ruby):
    name = family = "rspec"
    tests = ("spec/**", "**/*_spec.rb", ".rspec")

    def detect(self, project: Project) -> Iterator[Target]:
        for path in project.glob("**/.rspec", "**/spec/spec_helper.rb", "**/spec/rails_helper.rb"):
            root = parent_of(parent_of(path)) if "/spec/" in f"/{path}" else parent_of(path)
            yield self.target(project, root, ["rspec"], f"there is a {path}", Confidence.CONFIG)
        if project.has(".rspec"):
            yield self.target(project, ".", ["rspec"], "there is a .rspec", Confidence.CONFIG)
        for path in project.glob("**/*_spec.rb"):
            if "minitest" in project.text(path).lower():
                continue
            yield self.target(project, ".", ["rspec"], f"{path} is named like a spec", Confidence.PATTERN)
            return

    def launch(self, target: Target, session: Session) -> list[LaunchStep]:
        ours = ["--require", str(REPORTERS / "_ratchet_rspec.rb"), "--format", "RatchetFormatter"]
        theirs = ["--format", "progress", "--no-color"]
        chosen = [test.id for test in session.only]
        return [LaunchStep(argv=[*target.command, *ours, *theirs, *chosen], env=reporter_env(session))]

    def parse(self, results: RunOutput) -> Parsed:
        """Add load errors of helpers, which are only on the console because our formatter is not loaded yet."""
        parsed = super().parse(results)
        if any(not error.file for error in parsed.collection_errors):
            with open_log_tail(results) as stream:
                loading = list(_LOADING.finditer(stream.read().decode(errors="replace")))
            parsed.collection_errors = [
                _placed(error, loading[n]) if not error.file and n < len(loading) else error
                for n, error in enumerate(parsed.collection_errors)
            ]
        return parsed


_LOADING = re.compile(
    r"An error occurred while loading (?P<what>\S+?)\.?\s.*?\n\s*(?P<type>[A-Z]\w*(?:::\w+)*):\n"
    r"\s*(?P<message>[^\n]*)\n"
    r"(?:\s*# \./(?P<file>[^\n:]+):(?P<line>\d+))?",
    re.S,
)


def _placed(error: Diagnostic, loading: re.Match[str]) -> Diagnostic:
    return msgspec.structs.replace(
        error,
        file=loading.group("file") or loading.group("what"),
        line=int(loading.group("line") or 0),
        type=loading.group("type"),
        message=loading.group("message"),
    )


_TEST_UNIT = re.compile(r"test/unit\b|Test::Unit::TestCase")
_FOUND = "Dir[*ARGV].sort.grep_v(/_helper.rb$/)"
_LOADING_EACH = ("ruby", "-Ilib", "-Itest", "-e", f"{_FOUND}.each {{ |file| require File.expand_path(file) }}")


class Minitest(_Ruby):
    name = family = "minitest"
    tests = ("test/**", "**/*_test.rb", "**/test_*.rb")

    guest = "_ratchet_minitest.rb"
    library = "Minitest"
    mark = re.compile(r"(?i)require.*minitest|< Minitest::|ActiveSupport::TestCase")

    def detect(self, project: Project) -> Iterator[Target]:
        for path in project.glob("**/test/**/*.rb", "**/*_test.rb", "**/test_*.rb"):
            if self.uses(project, path):
                task = _rake_task(project)
                command = ["rake", task] if task else self._plain(project, path)
                yield self.target(project, ".", command, f"{path} uses {self.library}", Confidence.PATTERN)
                return

    def uses(self, project: Project, path: str) -> bool:
        # Another library whose tests look the same.
        other = any(_TEST_UNIT.search(project.text(helper)) for helper in project.glob("test/*helper.rb"))
        return not other and bool(self.mark.search(project.text(path)))

    def _plain(self, project: Project, found: str) -> list[str]:
        """Without a rake task one Ruby process loads every file, those that are written later too."""
        shapes = ("*_test.rb", "test_*.rb", "*_spec.rb")
        named = {
            f"{folder}/**/{shape}" if slash else shape
            for shape in shapes
            for path in project.glob(f"**/{shape}")
            if not path.endswith("_helper.rb")
            for folder, slash, _ in [path.partition("/")]
        }
        return [*_LOADING_EACH, *(sorted(named) or [found])]

    def recognises(self, words: list[str]) -> bool:
        return any(Path(word).name in ("minitest", "rails") for word in words)

    def launch(self, target: Target, session: Session) -> list[LaunchStep]:
        options = f"-r{REPORTERS / self.guest} {session.env.get('RUBYOPT', '')}".strip()
        env = reporter_env(session) | {"RUBYOPT": options}
        words = target.command
        files = [test.id for test in session.only if test.id.endswith(".rb")]
        names = [test.id for test in session.only if test.id not in files]
        if files and not names:
            start = next((n for n, word in enumerate(words) if word in ("rake", "ruby")), None)
            plain = [re.sub(r"[\[\]{}*?\\]", r"\\\g<0>", file) for file in files]
            words = [*words, *files] if start is None else [*words[:start], *_LOADING_EACH, *plain]
        elif names:
            chosen = self.chosen(names)
            env |= {"TESTOPTS": shlex.join(chosen)}  # rake passes it to a shell
            words = [*words, *chosen] if "rake" not in words else words
        return [LaunchStep(argv=_with_options(words), env=env)]

    def chosen(self, names: list[str]) -> list[str]:
        return [f"--name=/^(?:{'|'.join(map(re.escape, names))})$/"]

    def parse(self, results: RunOutput) -> Parsed:
        """Add the load error: a file that fails to load ends Ruby before our reporter starts."""
        parsed = super().parse(results)
        if results.exit_code and not results.stopped and not parsed.tests and not parsed.running:
            with open_log_tail(results) as stream:
                output = stream.read().decode(errors="replace")
            parsed.collection_errors = _load_errors(output, results.folder)
            parsed.ended = parsed.ended or bool(parsed.collection_errors)
        return parsed

    def named(self, name: str) -> list[str]:
        return ["--name", name]

    def rerun_command(self, target: Target, test: TestResult) -> list[str]:
        if test.file:
            return ["ruby", "-Ilib", "-Itest", test.file, *self.named(test.id)]
        rake = "rake" in target.command
        return [*target.command, *([f"TESTOPTS=--name={shlex.quote(test.id)}"] if rake else ["--name", test.id])]


def _test_unit_name(name: str) -> str:
    """Return the name with its class, unless classes are nested: test-unit cannot select those."""
    case, _, own = name.partition("#")
    return own if re.search(r"::[^A-Z]|\s", case) else name


class TestUnit(Minitest):
    """Runner for test-unit, which Ruby's own libraries use; selected and loaded like Minitest."""

    __test__ = False  # pytest: this is no test class
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
        return False  # by its name the command could be Minitest's too


_RAISED = re.compile(r"^(?P<at>\S+?:\d+):in [`'].*?': (?P<message>.*) \((?P<type>[A-Z]\w*(?:::\w+)*)\)$", re.M)
_SYNTAX = re.compile(r"(?P<file>[^\s:]+\.rb):(?P<line>\d+): (?P<message>syntax errors?\b.*)$", re.M)
_FROM = re.compile(r"(?:^\tfrom )?(?P<file>[^\s:]+):(?P<line>\d+)(?::in |$)", re.M)


def _load_errors(text: str, folder: Path) -> list[Diagnostic]:
    """Return the error that ended Ruby, at the innermost project line of its stack."""
    if syntax := _SYNTAX.search(text):
        return [_broken(syntax, "SyntaxError", syntax.group("message"))]
    if not (raised := _RAISED.search(text)):
        return []
    places = _FROM.finditer(text, raised.start())
    known = next((match for match in places if _is_inside(match.group("file"), folder)), None)
    return [_broken(known, raised.group("type"), raised.group("message"))]


def _broken(place: re.Match[str] | None, kind: str, message: str) -> Diagnostic:
    file, line = (place.group("file"), int(place.group("line"))) if place else ("", 0)
    return Diagnostic(file=file, line=line, type=kind, message=message, tool="ruby")


def _is_inside(file: str, folder: Path) -> bool:
    return (folder / file).is_relative_to(folder) and is_source(folder, file)


_TASK = re.compile(
    r"^[ \t]*(?:(?P<made>(?:Rake|Minitest)::TestTask\.(?:new|create))\b|task\b)"
    r"[ (]*[:'\"]?(?P<name>(?!do\b)[a-z][\w:]*\w|)",
    re.M,
)


def _rake_task(project: Project) -> str:
    """Return the task that runs the tests. Without a `test` task rake takes the folder for one and does nothing."""
    text = "\n".join(project.text(path) for path in ("Rakefile", *project.glob("rakelib/*.rake")))
    made = [match.group("name") or "test" for match in _TASK.finditer(text) if match.group("made")]
    names = [*made, *(match.group("name") for match in _TASK.finditer(text))]
    if "test" in names or re.search(r"\.load_tasks\b|^Hoe\.", text, re.M):
        return "test"
    return next((name for name in (*made, "spec", "default") if name in names), "")


def _with_options(words: list[str]) -> list[str]:
    """Load the files and leave options in ARGV, which the library reads when it starts."""
    ours = "Dir[*ARGV.shift(ARGV.take_while { |a| !a.start_with?('-') }.size)]"
    return [word.replace("Dir[*ARGV]", ours) for word in words]
