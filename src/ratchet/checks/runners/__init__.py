"""The built-in runners, and the few things they share. Each is found by entry point, as a third party's would be."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import BinaryIO

import msgspec

from ratchet.checks import Results, Session, Target, records
from ratchet.checks.formats import Parsed
from ratchet.checks.project import Project
from ratchet.core.report import TestResult, TestStatus

SHIMS = Path(__file__).parents[1] / "shims"
Parser = Callable[[BinaryIO], Parsed]


def parser(name: str, function: str = "parse") -> Parser:
    """A format's parser, loaded when it is first used: who only asks what there is to run waits for none of them."""

    def parse(stream: BinaryIO) -> Parsed:
        module = import_module(f"ratchet.checks.formats.{name}")
        parsed: Parsed = getattr(module, function)(stream)
        return parsed

    return parse


compiler = parser("compiler")
junit = parser("junit")


class Usual:
    """What most runners do alike: they are recognised by their program's name and re-run by test id."""

    name = ""
    family = ""
    covers_below = False
    programs: tuple[str, ...] = ()

    def detect(self, project: Project) -> Iterable[Target]:
        raise NotImplementedError

    def recognises(self, words: list[str]) -> bool:
        return any(Path(word).name in (self.programs or (self.name,)) for word in words)

    def again(self, target: Target, test: TestResult) -> list[str]:
        return [*target.command, test.id]


def channel_env(session: Session) -> dict[str, str]:
    """Where our own reporters write, and the word that proves they are ours."""
    return {"_RATCHET_REPORT": str(session.private / records.CHANNEL), "_RATCHET_NONCE": session.nonce}


def read_records(results: Results) -> Parsed:
    path = results.private / records.CHANNEL
    if not path.exists():
        return Parsed(ended=False)
    with path.open("rb") as stream:
        return records.parse(
            stream,
            nonce=results.nonce,
            exit_code=results.exit_code,
            stopped=results.stopped,
            folder=str(results.folder),
        )


def read(path: Path, parse: Parser) -> Parsed:
    """A file through its format's parser; a file that was never written is a run that never ended."""
    try:
        with path.open("rb") as stream:
            return parse(stream)
    except FileNotFoundError:
        return Parsed(ended=False)


FILES_BEFORE = "files-before"
Marks = dict[str, tuple[int, ...]]


def note_files(session: Session, pattern: str) -> None:
    """Remember which report files lie there from earlier runs, so that none of them is taken for this one's."""
    kept = [pattern, _marks(session.folder, pattern)]
    (session.private / FILES_BEFORE).write_bytes(msgspec.json.encode(kept))


def new_files(results: Results) -> tuple[str, list[Path]]:
    """The pattern, and the files that were written since. No clock is asked: it may jump, and some round it."""
    pattern, before = msgspec.json.decode((results.private / FILES_BEFORE).read_bytes(), type=tuple[str, Marks])
    now = _marks(results.folder, pattern)
    return pattern, [Path(path) for path, mark in sorted(now.items()) if before.get(path) != mark]


def _marks(folder: Path, pattern: str) -> Marks:
    found: Marks = {}
    top, below = (Path("/"), pattern.lstrip("/")) if pattern.startswith("/") else (folder, pattern)
    for path in top.glob(below):
        with suppress(OSError):
            stat = path.stat()
            if path.is_file():
                found[str(path)] = stat.st_ino, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_size
    return found


def joined(parts: Iterable[Parsed]) -> Parsed:
    """Several files of one run as one. It has ended when each has."""
    whole = Parsed(ended=True)
    for part in parts:
        whole.tests = [*whole.tests, *part.tests]
        whole.collection_errors = [*whole.collection_errors, *part.collection_errors]
        whole.compile_errors = [*whole.compile_errors, *part.compile_errors]
        whole.notes = [*whole.notes, *part.notes]
        whole.running = [*whole.running, *part.running]
        whole.ended, whole.partial = whole.ended and part.ended, whole.partial or part.partial
        whole.reported = {
            name: whole.reported.get(name, 0) + part.reported.get(name, 0) for name in {*whole.reported, *part.reported}
        }
    return whole


def unskipped(tests: list[TestResult], only: list[TestResult]) -> list[TestResult]:
    """Without those that the runner skipped only because others were chosen, a file or a suite maybe."""
    ids = {test.id for test in only}
    above = tuple(f"{name}{sign}" for name in ids for sign in (_BELOW if "::" not in name else (" > ", "::")))
    return [
        test
        for test in tests
        if not ids or test.status is not TestStatus.SKIPPED or test.id in ids or test.id.startswith(above)
    ]


_BELOW = ("::", " > ", "/", ":", "[")  # what stands between a file or suite and the tests in it


def upward(folder: Path, *names: str) -> Path | None:
    """The nearest of these files here or in a folder above."""
    for place in (folder, *folder.parents):
        for name in names:
            if (place / name).exists():
                return place / name
    return None


def joined_path(*parts: str | None) -> str:
    return os.pathsep.join(part for part in parts if part)


@contextmanager
def end_of(results: Results, limit: int = 1_000_000) -> Iterator[BinaryIO]:
    """The last part of what this run printed. Others may have written to the same log before it."""
    with results.log.open("rb") as stream:
        stream.seek(max(results.began, results.log.stat().st_size - limit))
        yield stream


def read_log(results: Results, parse: Parser) -> Parsed:
    """All that this run printed, through a parser."""
    with results.log.open("rb") as stream:
        stream.seek(results.began)
        return parse(stream)
