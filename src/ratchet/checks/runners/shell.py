"""Shell and Perl: bats by the stream that it makes its reports from, prove by TAP."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import msgspec

from ratchet.checks import Results, Session, Step, Strength, Target
from ratchet.checks.formats import Parsed
from ratchet.checks.project import Project, is_aside, root_of, under
from ratchet.checks.runners import Usual, end_of, joined, parser, read
from ratchet.core.report import RED, Diagnostic, TestResult

_bats = parser("bats")
_perl = parser("tap", "parse_as_perl")


class Bats(Usual):
    name = family = "bats"

    def detect(self, project: Project) -> Iterator[Target]:
        # Folder by folder: what lies below in folders of data is what is tested with.
        folders = list(dict.fromkeys(root_of(path) for path in project.named("**/*.bats")))
        folders = [place for place in folders if not is_aside(place)] or folders
        if folders:
            yield Target(
                runner=self.name,
                command=["bats", *folders],
                language="shell",
                tests=["**/*.bats"],
                sources=["**/*.sh", "**/*.bash"],
                protected=[],
                why=f"{next(project.named('**/*.bats'))} is a bats file",
                strength=Strength.CONFIG,
            )

    def launch(self, target: Target, session: Session) -> list[Step]:
        # As a formatter of its own, `cat` passes on the stream that bats makes the others from: it names each test
        # before it runs, and the file it is in.
        passing = session.private / "pass-on"
        passing.write_text("#!/bin/sh\nexec cat\n")
        passing.chmod(0o755)
        options = ["--formatter", str(passing), "--timing"]
        words = target.command
        if session.only:
            files = dict.fromkeys(test.file for test in session.only if test.file)
            words = [words[0], *_filter(session.only), *(files or words[1:])]
        return [Step(argv=[*words, *options], channel="bats.tap")]

    def parse(self, results: Results) -> Parsed:
        return read(results.private / "bats.tap", _bats)

    def again(self, target: Target, test: TestResult) -> list[str]:
        return ["bats", test.file, *_filter([test])]


def _filter(tests: list[TestResult]) -> list[str]:
    """By their names; but what stands for a file, or failed for a whole one, is tried again by running the file."""
    names = [test.name or test.id.split("::")[-1] for test in tests]
    is_whole = any(test.id == test.file for test in tests) or not _HOOKS.isdisjoint(names)
    return [] if is_whole else ["--filter", "|".join(f"^{_plain(name)}$" for name in names)]


_HOOKS = {"setup_file", "teardown_file", "setup_suite", "teardown_suite"}


def _plain(name: str) -> str:
    """As a pattern. bats looks at the name as it is written, where quotes and dollars have a backslash before them."""
    return "".join(rf"\\?{_literal(c)}" if c in '"$`\\' else _literal(c) for c in name)


def _literal(character: str) -> str:
    return f"\\{character}" if character in r".[]()*+?{}|^$\\" else character


class Prove(Usual):
    name = family = "prove"

    def detect(self, project: Project) -> Iterator[Target]:
        for root, (folder, found) in _perl_tests(project).items():
            # What is written in C is built first, and found there; `lib` is looked into before.
            built = [file for file in ("Build.PL", "Makefile.PL") if project.has(*under(root, file))]
            is_built = built and any(project.named(*under(root, "**/*.xs")))
            yield Target(
                runner=self.name,
                command=["prove", "-l", *(["-b"] if is_built else []), "-r", folder],
                root=root,
                language="perl",
                tests=under(root, f"{folder}/**"),
                sources=under(root, "**/*.pm", "**/*.pl", *(["**/*.xs"] if is_built else [])),
                protected=[],
                setup=_BUILDING[built[0]] if is_built else [],
                why=f"there are {root_of(found)}/*.t files",
                strength=Strength.CONFIG,
            )

    def launch(self, target: Target, session: Session) -> list[Step]:
        files = list(dict.fromkeys(test.file for test in session.only if test.file))
        words = [*target.command[:-1], *files] if files else target.command
        # Merged: what was got and what was expected is said on stderr only.
        dump = {"PERL_TEST_HARNESS_DUMP_TAP": str(session.private / "tap")}
        return [Step(argv=[*words, "--nocolor", "--merge"], env=dump)]

    def parse(self, results: Results) -> Parsed:
        """File by file. One that died is a broken file, if prove itself went on to its end and says so."""
        top = results.private / "tap"
        files = sorted(path for path in top.rglob("*") if path.is_file()) if top.exists() else []
        with end_of(results) as stream:
            ends = _ends(stream.read().decode(errors="replace"))
        parts = [_of_file(path, path.relative_to(top).as_posix(), ends, results.folder) for path in files]
        return joined(parts) if parts else Parsed(ended=False)

    def again(self, target: Target, test: TestResult) -> list[str]:
        return [*target.command[:-1], "-v", test.file]


_BUILDING = {"Build.PL": ["perl Build.PL", "./Build"], "Makefile.PL": ["perl Makefile.PL", "make"]}
_IN_PERL = re.compile(r"^#!.*\bperl\b|^\s*use Test\w*\b", re.M)


def _perl_tests(project: Project) -> dict[str, tuple[str, str]]:
    """By the folder of each distribution that of its tests, and one of them. `test` is others' name for theirs, too."""
    found: dict[str, tuple[str, str]] = {}
    for path in project.named("**/*.t"):
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


def _ends(said: str) -> dict[str, re.Match[str]] | None:
    """What prove sums up of each file that was not as it should be; nothing if it did not come to that."""
    return {match.group("file"): match for match in _SUMMARY.finditer(said)} if _RESULT.search(said) else None


def _of_file(path: Path, file: str, ends: dict[str, re.Match[str]] | None, folder: Path) -> Parsed:
    """A test point has a number and a name in its file only."""
    parsed = read(path, _perl)
    red = any(test.status in RED for test in parsed.tests)
    parsed.tests = [msgspec.structs.replace(test, id=f"{file}::{test.id}", file=file) for test in parsed.tests]
    end = ends.get(file) if ends else None
    # Test::More ends with the number of tests that failed: alone that is no death.
    if end and (parsed.notes or not parsed.ended or not red):
        parsed.collection_errors = [_lost(path, file, end, parsed.notes, folder)]
        parsed.notes, parsed.ended, parsed.partial, parsed.running = [], True, False, []
    elif ends is None and not parsed.ended:
        parsed.running = [f"{file}::#{len(parsed.tests) + 1}"]
    return parsed


def _last_words(every: list[re.Match[str]], said: str) -> re.Match[str] | None:
    """What killed it comes last, behind warnings; but of what does not compile the first error is meant."""
    errors = [match for match in every if match.group("message") == "syntax error"]
    if "aborted" in said and (first := errors or every[:1]):
        return first[0]
    return every[-1] if every else None


def _lost(path: Path, file: str, end: re.Match[str], notes: list[str], folder: Path) -> Diagnostic:
    with path.open("rb") as stream:
        stream.seek(max(0, path.stat().st_size - 100_000))
        said = stream.read().decode(errors="replace")
    every = list(_DIED.finditer(said))
    died = _last_words(every, said)
    # One that died in a library of others is told where it used that.
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
