"""A child's whole life, awaited: own session, output to a file, TERM, grace, KILL, every descendant reaped.

`supervise` runs a program to its end. `conversing` is for programs one talks with.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import IO, Any

from ratchet.files import open_private
from ratchet.process import GRACE_S, Finished, Patience, Tie, confine, finished, stdin_file

Hear = Callable[[bytes], bool]


async def supervise(
    argv: Sequence[str],
    *,
    cwd: Path,
    env: Mapping[str, str],
    output: Path,
    errors: Path | None = None,
    stdin: bytes = b"",
    timeout_s: float,
    silence_s: float | None = None,
    signs: Sequence[Path] = (),
    grace_s: float = GRACE_S,
    writable: Sequence[Path] = (),
    hear: Hear | None = None,
    started: Callable[[int], None] | None = None,
) -> Finished:
    """Run a program to its end or its deadline. On return, also by cancellation, nothing it started is alive.

    Silent is who writes neither to its output nor to `signs`, which are files or folders of files.
    `writable` are paths besides its folder that it must be able to write, should it be confined.
    `hear` gets every line of its stdout as it comes, and ends it by answering True; then no more than
    OUTPUT_MAX_BYTES of its output are kept, and without `errors` its stderr is heard too. `started` is told the pid
    that all it starts is below.
    """
    began, heard = time.monotonic(), [output, *([errors] if errors else []), *signs]
    with stdin_file(stdin) as feed, open_private(output) as out, open_private(errors or output) as err, Tie() as tie:
        process = await _start(
            tie, argv, cwd=cwd, env=env, writable=writable, grace_s=grace_s,
            stdin=feed, stdout=asyncio.subprocess.PIPE if hear else out,
            stderr=asyncio.subprocess.STDOUT if hear and errors is None else err,
        )  # fmt: skip
        if started:
            started(process.pid)
        ear = asyncio.ensure_future(_listen(process, out, hear)) if hear else None
        try:
            patience = Patience(heard, timeout_s=timeout_s, silence_s=silence_s)
            why = await _watch(process, patience, grace_s=grace_s, ear=ear)
            await _hear_out(ear)
            return finished(*tie.result(), began, why)
        finally:
            if ear:
                ear.cancel()


LINE_MAX_BYTES = 16 * 1024 * 1024
OUTPUT_MAX_BYTES = 64 * 1024 * 1024
_CHUNK_BYTES = 65_536
_LAST_WORDS_S = 2.0


async def _listen(process: asyncio.subprocess.Process, out: IO[bytes], hear: Hear) -> bool:
    """Keep what fits, hand on each line; of one that is too long nothing is handed on. Says whether to stop."""
    assert process.stdout
    begun, size, room = [b""], 0, OUTPUT_MAX_BYTES
    while chunk := await process.stdout.read(_CHUNK_BYTES):
        out.write(chunk[:room])
        out.flush()
        room = max(0, room - len(chunk))
        head, *rest = chunk.split(b"\n")
        size += len(head)
        if size <= LINE_MAX_BYTES:
            begun.append(head)
        if rest:
            whole = [b"".join(begun)] if size <= LINE_MAX_BYTES else []
            begun, size = [rest[-1]], len(rest[-1])
            for line in [*whole, *rest[:-1]]:
                if hear(line):
                    return True
    return 0 < size <= LINE_MAX_BYTES and hear(b"".join(begun))


async def _hear_out(ear: asyncio.Future[bool] | None) -> None:
    """The last words may still be on their way; whoever listens may have broken, and that is not to be hidden."""
    if ear:
        await asyncio.wait({ear}, timeout=_LAST_WORDS_S)
        if ear.done():
            ear.result()


@asynccontextmanager
async def conversing(
    argv: Sequence[str],
    *,
    cwd: Path,
    env: Mapping[str, str],
    errors: Path,
    grace_s: float = GRACE_S,
    writable: Sequence[Path] = (),
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """A program to talk with over its stdin and stdout. When the talk is over, nothing it started is alive."""
    with Tie() as tie:
        with open_private(errors) as err:
            process = await _start(
                tie, argv, cwd=cwd, env=env, writable=writable, grace_s=grace_s,
                stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=err,
            )  # fmt: skip
        assert process.stdin and process.stdout
        try:
            yield process.stdout, process.stdin
        finally:
            process.stdin.close()
            await asyncio.shield(_stop(process, asyncio.ensure_future(process.wait()), grace_s))


async def _start(
    tie: Tie,
    argv: Sequence[str],
    *,
    cwd: Path,
    env: Mapping[str, str],
    writable: Sequence[Path],
    grace_s: float,
    stdin: IO[bytes] | int,
    stdout: IO[bytes] | int,
    stderr: IO[bytes] | int,
) -> asyncio.subprocess.Process:
    argv, cwd, env, tries = confine(argv, cwd, env, writable)
    process = await asyncio.create_subprocess_exec(
        *tie.reaper(argv, grace_s=grace_s, tries=tries),
        cwd=cwd,
        env=dict(env),
        stdin=stdin,
        stdout=stdout,
        stderr=stderr,
        pass_fds=tie.theirs,
        start_new_session=True,
        limit=LINE_MAX_BYTES,
    )
    tie.handed_over()
    return process


async def _watch(
    reaper: asyncio.subprocess.Process,
    patience: Patience,
    *,
    grace_s: float,
    ear: asyncio.Future[bool] | None = None,
) -> str:
    """Wait for the end, the deadline, too long a silence or enough said; says which stopped it."""
    ended = asyncio.ensure_future(reaper.wait())
    why = ""
    try:
        while not ended.done():
            left, what = patience.left()
            if left <= 0:
                why = what
                break
            if ear and ear.done() and (ear.cancelled() or ear.exception() or ear.result()):
                why = "told"
                break
            waited: set[asyncio.Future[Any]] = {ended, ear} if ear and not ear.done() else {ended}
            await asyncio.wait(waited, timeout=left, return_when=asyncio.FIRST_COMPLETED)
        if why:
            await _stop(reaper, ended, grace_s)
    finally:
        if not ended.done():
            # Cancelled: the caller must not get control back before the tree is dead.
            await asyncio.shield(_stop(reaper, ended, grace_s))
    return why


async def _stop(reaper: asyncio.subprocess.Process, ended: asyncio.Future[int], grace_s: float) -> None:
    _signal(reaper, signal.SIGTERM)
    await asyncio.wait({ended}, timeout=grace_s + 15)
    if not ended.done():
        _signal(reaper, signal.SIGKILL)
        await ended


def _signal(process: asyncio.subprocess.Process, number: signal.Signals) -> None:
    """Not by the library: it first looks whether the child has ended, and takes its end from who waits for it."""
    if process.returncode is None:
        with suppress(ProcessLookupError):
            os.kill(process.pid, number)
