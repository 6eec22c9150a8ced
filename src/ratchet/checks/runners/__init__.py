"""The built-in runners and their shared helpers. All are found by entry point, like third-party ones."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import BinaryIO

import msgspec

from ratchet.checks.formats import Parsed
from ratchet.checks.globs import find_files
from ratchet.checks.protocol import RunOutput, Session
from ratchet.checks.run import reporter_protocol
from ratchet.core.report import TestResult, TestStatus
from ratchet.files import is_of_others, is_open_to_others
from ratchet.tree_files import NotRegularFile, open_source

JUNIT = "junit.xml"  # report of runners that do not load our reporter
REPORTERS = Path(__file__).parents[1] / "reporters"
Parser = Callable[[BinaryIO], Parsed]


def parser(name: str, function: str = "parse") -> Parser:
    """Return a format's parser, which is imported on first use: commands that only list targets need none."""

    def parse(stream: BinaryIO) -> Parsed:
        module = import_module(f"ratchet.checks.formats.{name}")
        parsed: Parsed = getattr(module, function)(stream)
        return parsed

    return parse


compiler = parser("compiler")
junit = parser("junit")


def reporter_env(session: Session) -> dict[str, str]:
    """Return the variables for our reporters: where to write, and the nonce that authenticates them."""
    return {"_RATCHET_REPORT": str(session.private / reporter_protocol.CHANNEL), "_RATCHET_NONCE": session.nonce}


def parse_records(results: RunOutput) -> Parsed:
    path = results.private / reporter_protocol.CHANNEL
    if not path.exists():
        parsed = parse_file(results.private / JUNIT, junit)
        # The totals also count parts of tests; the exit code is compared in any case.
        return msgspec.structs.replace(parsed, reported={}, notes=[])
    with open_source(path.parent, path.name) as stream:
        return reporter_protocol.parse(
            stream,
            nonce=results.nonce,
            exit_code=results.exit_code,
            stopped=results.stopped,
            folder=str(results.folder),
        )


def parse_file(path: Path, parse: Parser) -> Parsed:
    """Parse a file; a file that was never written means that the run did not end."""
    try:
        with open_source(path.parent, path.name) as stream:
            return parse(stream)
    except (FileNotFoundError, NotRegularFile):
        return Parsed(ended=False)


FILES_BEFORE = "files-before"
FileStates = dict[str, tuple[int, ...]]


def record_existing_files(session: Session, pattern: str) -> None:
    """Record the report files of earlier runs, so that they are not taken for results of this run."""
    kept = [pattern, _file_states(session.folder, pattern)]
    (session.private.parent / FILES_BEFORE).write_bytes(msgspec.json.encode(kept))


def new_files(results: RunOutput) -> tuple[str, list[Path]]:
    """Return the pattern and the files written since. Clocks are not compared: they may jump, and some filesystems
    round."""
    kept = (results.private.parent / FILES_BEFORE).read_bytes()
    pattern, before = msgspec.json.decode(kept, type=tuple[str, FileStates])
    now = _file_states(results.folder, pattern)
    return pattern, [Path(path) for path, mark in sorted(now.items()) if before.get(path) != mark]


def _file_states(folder: Path, pattern: str) -> FileStates:
    found: FileStates = {}
    for path in find_files(folder, pattern):
        with suppress(OSError):
            stat = path.stat()
            found[str(path)] = stat.st_ino, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_size
    return found


def merge_parsed(parts: Iterable[Parsed]) -> Parsed:
    """Merge the results of several files of one run. The run has ended if each file has."""
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


def drop_unselected_skips(tests: list[TestResult], only: list[TestResult]) -> list[TestResult]:
    """Drop tests that the runner reports as skipped only because others were selected, by file or suite."""
    ids = {test.id for test in only}
    above = tuple(f"{name}{sign}" for name in ids for sign in (_BELOW if "::" not in name else (" > ", "::")))
    return [
        test
        for test in tests
        if not ids or test.status is not TestStatus.SKIPPED or test.id in ids or test.id.startswith(above)
    ]


_BELOW = ("::", " > ", "/", ":", "[")  # separators between a file or suite and its tests


def find_upward(folder: Path, *names: str) -> Path | None:
    """Return the nearest of these files in the folder or its parents, up to the root of the repository.

    Without a repository, up to where others could have put one. What another user put into a parent is none.
    """
    owner = folder.stat().st_uid if folder.exists() else -1
    for place in (folder, *folder.parents):
        for name in names:
            if (place / name).exists() and not is_of_others(place / Path(name).parts[0], besides=owner):
                return place / name
        if (place / ".git").exists() or is_open_to_others(place.parent):
            return None
    return None


def join_paths(*parts: str | None) -> str:
    return os.pathsep.join(part for part in parts if part)


@contextmanager
def open_log_tail(results: RunOutput, limit: int = 1_000_000) -> Iterator[BinaryIO]:
    """Open the end of this run's output. The log may begin with the output of other commands."""
    with results.log.open("rb") as stream:
        stream.seek(max(results.log_offset, results.log.stat().st_size - limit))
        yield stream


def parse_log(results: RunOutput, parse: Parser) -> Parsed:
    """Parse the whole output of this run."""
    with results.log.open("rb") as stream:
        stream.seek(results.log_offset)
        return parse(stream)
