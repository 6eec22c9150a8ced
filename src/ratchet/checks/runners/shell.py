"""Runners for shell and Perl: bats, read from its internal stream, and prove, read from TAP."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import msgspec

from ratchet.checks.detect.project import Project, is_auxiliary, join_root, parent_of
from ratchet.checks.formats import Parsed
from ratchet.checks.protocol import Confidence, LaunchStep, RunOutput, Session, Target
from ratchet.checks.runners import merge_parsed, open_log_tail, parse_file, parser
from ratchet.checks.runners.base import BaseRunner
from ratchet.core.report import RED, Diagnostic, TestResult
from ratchet.tree_files import open_source

_bats = parser("bats")
_perl = parser("tap", "parse_as_perl")


class Bats(BaseRunner):
    name = family = "bats"

    def detect(self, project: Project) -> Iterator[Target]:
        # One folder at a time: folders of data below contain test data.
        folders = list(dict.fromkeys(parent_of(path) for path in project.glob("**/*.bats")))
        folders = [place for place in folders if not is_auxiliary(place)] or folders
        if folders:
            yield Target(
                runner=self.name,
                command=["bats", *folders],
                language="shell",
                tests=["**/*.bats"],
                sources=["**/*.sh", "**/*.bash"],
                protected=[],
                why=f"{next(project.glob('**/*.bats'))} is a bats file",
                strength=Confidence.CONFIG,
            )

    def launch(self, target: Target, session: Session) -> list[LaunchStep]:
        # With `cat` as formatter bats prints the stream that other formatters get: it names each test and its file
        # before it runs.
        passing = session.private / "pass-on"
        passing.write_text("#!/bin/sh\nexec cat\n")
        passing.chmod(0o755)
        options = ["--formatter", str(passing), "--timing"]
        words = target.command
        if session.only:
            files = dict.fromkeys(test.file for test in session.only if test.file)
            words = [words[0], *_filter(session.only), *(files or words[1:])]
        return [LaunchStep(argv=[*words, *options], channel="bats.tap")]

    def parse(self, results: RunOutput) -> Parsed:
        return parse_file(results.private / "bats.tap", _bats)

    def rerun_command(self, target: Target, test: TestResult) -> list[str]:
        return ["bats", test.file, *_filter([test])]


def _filter(tests: list[TestResult]) -> list[str]:
    """Filter by name; for a result that stands for a file or failed for a whole file, run the file."""
    names = [test.name or test.id.split("::")[-1] for test in tests]
    is_whole = any(test.id == test.file for test in tests) or not _HOOKS.isdisjoint(names)
    return [] if is_whole else ["--filter", "|".join(f"^{_plain(name)}$" for name in names)]


_HOOKS = {"setup_file", "teardown_file", "setup_suite", "teardown_suite"}


def _plain(name: str) -> str:
    """Return the name as a pattern. bats compares the name as written, with backslashes before quotes and dollars."""
    return "".join(rf"\\?{_literal(c)}" if c in '"$`\\' else _literal(c) for c in name)


def _literal(character: str) -> str:
    return f"\\{character}" if character in r".[]()*+?{}|^$\\" else character


class Prove(BaseRunner):
    name = family = "prove"

    def detect(self, project: Project) -> Iterator[Target]:
        for root, (folder, found) in _perl_tests(project).items():
            # Parts in C are built first and found in `blib`; `lib` takes precedence.
            built = [file for file in ("Build.PL", "Makefile.PL") if project.has(*join_root(root, file))]
            is_built = built and any(project.glob(*join_root(root, "**/*.xs")))
            yield Target(
                runner=self.name,
                command=["prove", "-l", *(["-b"] if is_built else []), "-r", folder],
                root=root,
                language="perl",
                tests=join_root(root, f"{folder}/**"),
                sources=join_root(root, "**/*.pm", "**/*.pl", *(["**/*.xs"] if is_built else [])),
                protected=[],
                setup=_BUILDING[built[0]] if is_built else [],
                why=f"there are {parent_of(found)}/*.t files",
                strength=Confidence.CONFIG,
            )

    def launch(self, target: Target, session: Session) -> list[LaunchStep]:
        files = list(dict.fromkeys(test.file for test in session.only if test.file))
        words = [*target.command[:-1], *files] if files else target.command
        # Merge the streams: actual and expected values are only on stderr.
        dump = {"PERL_TEST_HARNESS_DUMP_TAP": str(session.private / "tap")}
        return [LaunchStep(argv=[*words, "--nocolor", "--merge"], env=dump)]

    def parse(self, results: RunOutput) -> Parsed:
        """Parse file by file. A file that died is a broken file, if prove went on to its end and says so."""
        top = results.private / "tap"
        files = sorted(path for path in top.rglob("*") if path.is_file()) if top.exists() else []
        with open_log_tail(results) as stream:
            ends = _ends(stream.read().decode(errors="replace"))
        parts = [_of_file(path, path.relative_to(top).as_posix(), ends, results.folder) for path in files]
        return merge_parsed(parts) if parts else Parsed(ended=False)

    def rerun_command(self, target: Target, test: TestResult) -> list[str]:
        return [*target.command[:-1], "-v", test.file]


_BUILDING = {"Build.PL": ["perl Build.PL", "./Build"], "Makefile.PL": ["perl Makefile.PL", "make"]}
_IN_PERL = re.compile(r"^#!.*\bperl\b|^\s*use Test\w*\b", re.M)


def _perl_tests(project: Project) -> dict[str, tuple[str, str]]:
    """Map the folder of each distribution to its test folder and one test. `test` is also used for other purposes."""
    found: dict[str, tuple[str, str]] = {}
    for path in project.glob("**/*.t"):
        parts = PurePosixPath(path).parts[:-1]
        at = next((n for n, part in enumerate(parts) if part in ("t", "test")), None)
        if at is not None and (parts[at] == "t" or _IN_PERL.search(project.text(path))):
            found.setdefault("/".join(parts[:at]) or ".", (parts[at], path))
    return found


_SUMMARY = re.compile(
    r"^(?P<file>\S+) +\(Wstat: (?P<wait>\d{1,9})(?: \((?P<how>[^)]*)\))? Tests: \d+ Failed: (?P<failed>\d+)\)$", re.M
)
_RESULT = re.compile(r"^Result: \w+$", re.M)
_DIED = re.compile(r"^(?!#|ok\b|not ok\b)(?P<message>\S.*?) at (?P<file>\S+?),? line (?P<line>\d{1,9})[.,]", re.M)


def _ends(text: str) -> dict[str, re.Match[str]] | None:
    """Return prove's summary of each failed file; empty if prove did not reach it."""
    return {match.group("file"): match for match in _SUMMARY.finditer(text)} if _RESULT.search(text) else None


def _of_file(path: Path, file: str, ends: dict[str, re.Match[str]] | None, folder: Path) -> Parsed:
    """Qualify a test point: its number and name are unique only within a file."""
    parsed = parse_file(path, _perl)
    red = any(test.status in RED for test in parsed.tests)
    parsed.tests = [msgspec.structs.replace(test, id=f"{file}::{test.id}", file=file) for test in parsed.tests]
    end = ends.get(file) if ends else None
    # Test::More exits with the number of failed tests: that alone is not a crash.
    if end and (parsed.notes or not parsed.ended or not red):
        parsed.collection_errors = [_file_error(path, file, end, parsed.notes, folder)]
        parsed.notes, parsed.ended, parsed.partial, parsed.running = [], True, False, []
    elif ends is None and not parsed.ended:
        parsed.running = [f"{file}::#{len(parsed.tests) + 1}"]
    return parsed


def _last_words(every: list[re.Match[str]], text: str) -> re.Match[str] | None:
    """Return the fatal message: the last one, after warnings; for compiler errors the first."""
    errors = [match for match in every if match.group("message") == "syntax error"]
    if "aborted" in text and (first := errors or every[:1]):
        return first[0]
    return every[-1] if every else None


def _file_error(path: Path, file: str, end: re.Match[str], notes: list[str], folder: Path) -> Diagnostic:
    with open_source(path.parent, path.name) as stream:
        stream.seek(max(0, path.stat().st_size - 100_000))
        output = stream.read().decode(errors="replace")
    every = list(_DIED.finditer(output))
    died = _last_words(every, output)
    # Report an error in a third-party library where the project used it.
    later = every[every.index(died) :] if died else []
    place = next((match for match in later if (folder / match.group("file")).is_relative_to(folder)), None)
    how = (end.group("how") or "exited 0").lower()
    return Diagnostic(
        file=place.group("file") if place else file,
        line=int(place.group("line")) if place else 0,
        type="Died" if died else how.partition(" ")[0].rstrip(":").capitalize(),
        message=died.group("message") if died else "; ".join([how, *notes]),
        tool="prove",
    )
