"""Run child processes from async code: own session, output to a file, TERM, grace period, KILL, descendants reaped.

`supervise` runs a program to its end. `interactive_process` exchanges messages with one over stdin and stdout.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from contextvars import copy_context
from pathlib import Path
from typing import IO, Any

from ratchet.files import open_private
from ratchet.process.spawn import (
    GRACE_S,
    Deadlines,
    ProcessResult,
    ReaperLink,
    bytes_written,
    confine,
    process_result,
    refused_forks,
    stdin_file,
)

LineCallback = Callable[[bytes], bool]


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
    activity: Sequence[Path] = (),
    grace_s: float = GRACE_S,
    writable: Sequence[Path] = (),
    on_line: LineCallback | None = None,
    on_start: Callable[[int], None] | None = None,
) -> ProcessResult:
    """Run a program to its end or deadline. On return, even by cancellation, all its descendants are dead.

    A program is silent when it writes neither to its output nor to the `activity` paths (files or folders of files).
    `writable` are paths besides its folder that it must be able to write when confined.
    `on_line` receives every line of stdout, and of stderr without `errors`; it stops the program by returning True.
    With it, at most OUTPUT_MAX_BYTES of output are kept. `on_start` receives the pid of the reaper. A program that
    writes more than WRITTEN_MAX_BYTES to its output and the `activity` paths is stopped; so is one that has reached
    the limit of processes, which would otherwise use up the processor until its deadline.
    """
    began, written = time.monotonic(), [output, *([errors] if errors else []), *activity]
    with (
        stdin_file(stdin) as feed,
        open_private(output) as out,
        open_private(errors or output) as err,
        ReaperLink() as link,
    ):
        process = await _start(
            link, argv, cwd=cwd, env=env, writable=writable, grace_s=grace_s,
            stdin=feed, stdout=asyncio.subprocess.PIPE if on_line else out,
            stderr=asyncio.subprocess.STDOUT if on_line and errors is None else err,
        )  # fmt: skip
        if on_start:
            on_start(process.pid)
        reader = asyncio.ensure_future(_read_lines(process, out, on_line)) if on_line else None
        try:
            deadlines = Deadlines(written, timeout_s=timeout_s, silence_s=silence_s)
            use = ResourceUse(written)
            why = await _watch(process, deadlines, grace_s=grace_s, reader=reader, use=use)
            if use.exceeded:
                os.write((err if errors else out).fileno(), f"\nratchet: stopped: it {use.exceeded}\n".encode())
            await _drain(reader)
            return process_result(*link.result(), began, why)
        finally:
            if reader:
                reader.cancel()


LINE_MAX_BYTES = 16 * 1024 * 1024
OUTPUT_MAX_BYTES = 64 * 1024 * 1024
WRITTEN_MAX_BYTES = 1 << 30
_LOOK_S = 1.0
_CHUNK_BYTES = 65_536
_DRAIN_S = 2.0


async def _read_lines(process: asyncio.subprocess.Process, out: IO[bytes], on_line: LineCallback) -> bool:
    """Write the output and pass each line to the callback, except lines that are too long; returns whether to stop."""
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
                if on_line(line):
                    return True
    return 0 < size <= LINE_MAX_BYTES and on_line(b"".join(begun))


async def _drain(reader: asyncio.Future[bool] | None) -> None:
    """Wait briefly for the remaining output, and raise the exception of a failed callback."""
    if reader:
        await asyncio.wait({reader}, timeout=_DRAIN_S)
        if reader.done():
            reader.result()


@asynccontextmanager
async def interactive_process(
    argv: Sequence[str],
    *,
    cwd: Path,
    env: Mapping[str, str],
    errors: Path,
    grace_s: float = GRACE_S,
    writable: Sequence[Path] = (),
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """Start a program and yield its stdout and stdin. On exit all its descendants are dead."""
    with ReaperLink() as link:
        with open_private(errors) as err:
            process = await _start(
                link, argv, cwd=cwd, env=env, writable=writable, grace_s=grace_s,
                stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=err,
            )  # fmt: skip
        assert process.stdin and process.stdout
        try:
            yield process.stdout, process.stdin
        finally:
            process.stdin.close()
            await asyncio.shield(_stop(process, asyncio.ensure_future(process.wait()), grace_s))


class ResourceUse:
    """What a program uses that its sandbox does not end: space outside of its workspace, and attempts to start
    processes beyond their limit."""

    def __init__(self, places: Sequence[Path]) -> None:
        self._places, self._before, self._forks = places, bytes_written(places), refused_forks()
        self.exceeded = ""

    def is_exceeded(self) -> bool:
        if refused_forks() > self._forks:
            self.exceeded = "reached the limit of processes (sandbox.max_processes)"
        elif bytes_written(self._places) - self._before > WRITTEN_MAX_BYTES:
            self.exceeded = f"wrote more than {WRITTEN_MAX_BYTES >> 20} MiB of output"
        return bool(self.exceeded)


async def _start(
    link: ReaperLink,
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
        *link.reaper_command(argv, grace_s=grace_s, tries=tries),
        cwd=cwd,
        env=dict(env),
        stdin=stdin,
        stdout=stdout,
        stderr=stderr,
        pass_fds=link.child_fds,
        start_new_session=True,
        limit=LINE_MAX_BYTES,
    )
    link.close_child_ends()
    return process


# Threads of their own: those of the event loop may all be taken for minutes, and limits hold meanwhile.
_LOOKS = ThreadPoolExecutor(2, thread_name_prefix="ratchet-look")


async def look(deadlines: Deadlines, use: ResourceUse | None) -> tuple[float, str]:
    """Return the seconds left, and the limit that is reached, if any. Not on the event loop: a hostile program may have
    left many folders to look through."""
    return await asyncio.get_running_loop().run_in_executor(_LOOKS, copy_context().run, _look, deadlines, use)


def _look(deadlines: Deadlines, use: ResourceUse | None) -> tuple[float, str]:
    left, what = deadlines.left()
    if left <= 0:
        return left, what
    return left, "stopped" if use and use.is_exceeded() else ""


async def _watch(
    reaper: asyncio.subprocess.Process,
    deadlines: Deadlines,
    *,
    grace_s: float,
    reader: asyncio.Future[bool] | None = None,
    use: ResourceUse | None = None,
) -> str:
    """Wait for the end; returns what stopped the program: a limit, the line callback, or an empty string."""
    ended = asyncio.ensure_future(reaper.wait())
    why = ""
    try:
        while not ended.done():
            left, why = await look(deadlines, use)
            if why:
                break
            if reader and reader.done() and (reader.cancelled() or reader.exception() or reader.result()):
                why = "stopped"
                break
            waited: set[asyncio.Future[Any]] = {ended, reader} if reader and not reader.done() else {ended}
            await asyncio.wait(waited, timeout=min(left, _LOOK_S), return_when=asyncio.FIRST_COMPLETED)
        if why:
            await _stop(reaper, ended, grace_s)
    finally:
        if not ended.done():
            # Cancelled: the process tree must be dead before the caller continues.
            await asyncio.shield(_stop(reaper, ended, grace_s))
    return why


async def _stop(reaper: asyncio.subprocess.Process, ended: asyncio.Future[int], grace_s: float) -> None:
    _signal(reaper, signal.SIGTERM)
    await asyncio.wait({ended}, timeout=grace_s + 15)
    if not ended.done():
        _signal(reaper, signal.SIGKILL)
        await ended


def _signal(process: asyncio.subprocess.Process, number: signal.Signals) -> None:
    """Send a signal without asyncio's method, which may reap the child and take its status from the waiter."""
    if process.returncode is None:
        with suppress(ProcessLookupError):
            os.kill(process.pid, number)
