"""Shell and Perl: bats and prove, by TAP."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import msgspec

from ratchet.checks import Results, Session, Step, Strength, Target
from ratchet.checks.formats import Parsed
from ratchet.checks.formats.text import lines
from ratchet.checks.project import Project, is_aside, root_of, under
from ratchet.checks.runners import Usual, joined, parser, read
from ratchet.core.report import TestResult

_tap = parser("tap")
_perl = parser("tap", "parse_as_perl")

_BEGIN = re.compile(r"^begin (\d+) (.*)$")


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
            named = [test for test in session.only if test.id != test.file]  # the others stand for their files
            names = "|".join(f"^{_plain(test.name or test.id.split('::')[-1])}$" for test in named)
            files = dict.fromkeys(test.file for test in session.only if test.file)
            chosen = ["--filter", names] if len(named) == len(session.only) else []
            words = [words[0], *chosen, *(files or words[1:])]
        return [Step(argv=[*words, *options], channel="bats.tap")]

    def parse(self, results: Results) -> Parsed:
        """TAP between lines that say `suite FILE` and `begin NUMBER NAME`."""
        channel = results.private / "bats.tap"
        parsed = read(channel, _tap)
        places = read_places(channel)
        parsed.tests = [_placed(test, number, places) for number, test in enumerate(parsed.tests, start=1)]
        parsed.running = [place.id for number, place in places.items() if number > len(parsed.tests)]
        return parsed

    def again(self, target: Target, test: TestResult) -> list[str]:
        return ["bats", test.file, "--filter", f"^{_plain(test.name)}$"]


class Place(msgspec.Struct, frozen=True):
    file: str
    name: str

    @property
    def id(self) -> str:
        return f"{self.file}::{self.name}"


def read_places(channel: Path) -> dict[int, Place]:
    """The file and the name of each test that began, by its number."""
    found: dict[int, Place] = {}
    file = ""
    with channel.open("rb") as stream:
        for line in lines(stream):
            if line.startswith("suite "):
                file = line[6:]
            elif match := _BEGIN.match(line):
                found[int(match.group(1))] = Place(file, match.group(2))
    return found


def _placed(test: TestResult, number: int, places: dict[int, Place]) -> TestResult:
    place = places.get(number)
    return msgspec.structs.replace(test, id=place.id, file=place.file, name=place.name) if place else test


def _plain(name: str) -> str:
    """As a pattern. bats looks at the name as it is written, where quotes and dollars have a backslash before them."""
    return "".join(rf"\\?{_literal(c)}" if c in '"$`\\' else _literal(c) for c in name)


def _literal(character: str) -> str:
    return f"\\{character}" if character in r".[]()*+?{}|^$\\" else character


class Prove(Usual):
    name = family = "prove"

    def detect(self, project: Project) -> Iterator[Target]:
        roots = dict.fromkeys(root_of(root_of(path)) for path in project.named("**/t/*.t"))
        for root in roots:
            yield Target(
                runner=self.name,
                command=["prove", "-l", "-r", "t"],
                root=root,
                language="perl",
                tests=under(root, "t/**"),
                sources=under(root, "**/*.pm", "**/*.pl"),
                protected=[],
                why=f"there are {PurePosixPath(*under(root, 't'))}/*.t files",
                strength=Strength.CONFIG,
            )

    def launch(self, target: Target, session: Session) -> list[Step]:
        files = list(dict.fromkeys(test.file for test in session.only if test.file))
        words = [*target.command[:-1], *files] if files else target.command
        # Merged: what was got and what was expected is said on stderr only.
        dump = {"PERL_TEST_HARNESS_DUMP_TAP": str(session.private / "tap")}
        return [Step(argv=[*words, "--nocolor", "--merge"], env=dump)]

    def parse(self, results: Results) -> Parsed:
        top = results.private / "tap"
        files = sorted(path for path in top.rglob("*") if path.is_file()) if top.exists() else []
        parts = [_of_file(read(path, _perl), path.relative_to(top).as_posix()) for path in files]
        return joined(parts) if parts else Parsed(ended=False)

    def again(self, target: Target, test: TestResult) -> list[str]:
        return [*target.command[:-1], "-v", test.file]


def _of_file(parsed: Parsed, file: str) -> Parsed:
    """A test point has a number and a name in its file only."""
    parsed.tests = [msgspec.structs.replace(test, id=f"{file}::{test.id}", file=file) for test in parsed.tests]
    return parsed
