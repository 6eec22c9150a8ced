"""The only module that starts or kills a process.

`supervise` owns a child's whole life: own session, output to a file, TERM, grace, KILL, every descendant reaped.
`call` is for short helper programs such as git, whose answer is wanted at once. `confined` puts everything supervised
in its scope into a sandbox: no adapter can forget to. `hold` keeps a namespace alive until `let_go`.
"""

from __future__ import annotations

import asyncio
import errno
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import lru_cache, wraps
from pathlib import Path
from typing import IO, ParamSpec, Protocol

import msgspec

from ratchet.core.lease import Holder
from ratchet.errors import EnvironmentCannot
from ratchet.files import open_private

REAPER = Path(__file__).with_name("reaper.py")
GRACE_S = 5.0


class Finished(msgspec.Struct, frozen=True, kw_only=True):
    """How a child ended. `exit_code` is negative for a signal; `survivors` outlived the child and were killed."""

    exit_code: int
    duration_s: float
    timed_out: bool = False
    silent: bool = False
    survivors: int = 0

    @property
    def signal(self) -> int | None:
        return -self.exit_code if self.exit_code < 0 else None


class Confinement(Protocol):
    """A sandbox or a namespace: turns a command into the one that runs it confined."""

    def wrap(
        self, argv: Sequence[str], *, cwd: Path, env: Mapping[str, str], writable: Sequence[Path]
    ) -> tuple[list[str], dict[str, str]]: ...

    def did_not_start(self, said: bytes) -> bool:
        """Whether what was printed says that the confinement failed, before the command was run."""
        ...


_confinement: ContextVar[Confinement | None] = ContextVar("confinement", default=None)


@contextmanager
def confined(by: Confinement | None) -> Iterator[None]:
    """Everything `supervise` starts in here, by whatever adapter, is confined."""
    token = _confinement.set(by)
    try:
        yield
    finally:
        _confinement.reset(token)


class ProgramMissing(EnvironmentCannot):
    """The program to start is not there: install it or correct the command."""


P = ParamSpec("P")
START_TRIES = 5


def _tried_again(run: Callable[P, Awaitable[Finished]]) -> Callable[P, Awaitable[Finished]]:
    """A confinement that did not start has not run the command: that is nobody's result, and worth another try."""

    async def until_started(*args: P.args, **kwargs: P.kwargs) -> Finished:
        confinement = _confinement.get()
        said = kwargs.get("errors") or kwargs["output"]
        assert isinstance(said, Path)
        for tries_left in reversed(range(START_TRIES)):
            before = said.stat().st_size if said.exists() else 0
            ended = await run(*args, **kwargs)
            if confinement is None or ended.exit_code != 1 or not confinement.did_not_start(_first(said, before)):
                break
            if tries_left:
                os.truncate(said, before)
        return ended

    return wraps(run)(until_started)


def _first(path: Path, start: int) -> bytes:
    with path.open("rb") as file:
        file.seek(start)
        return file.read(512)


@_tried_again
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
) -> Finished:
    """Run a program to its end or its deadline. On return, also by cancellation, nothing it started is alive.

    Silent is who writes neither to its output nor to `signs`, which are files or folders of files.
    `writable` are paths besides its folder that it must be able to write, should it be confined.
    """
    began = time.monotonic()
    argv, cwd, env = _confine(argv, cwd, env, writable)
    lifeline_read, lifeline = os.pipe()
    result, result_write = os.pipe()
    feed = _stdin_file(stdin)
    try:
        with open_private(output) as out, open_private(errors or output) as err:
            command = [
                sys.executable,
                "-I",
                "-S",
                str(REAPER),
                str(lifeline_read),
                str(result_write),
                str(grace_s),
            ]
            try:
                reaper = await asyncio.create_subprocess_exec(
                    *command,
                    "--",
                    *argv,
                    cwd=cwd,
                    env=dict(env),
                    stdin=feed,
                    stdout=out,
                    stderr=err,
                    pass_fds=(lifeline_read, result_write),
                    start_new_session=True,
                )
            finally:
                os.close(lifeline_read)
                os.close(result_write)
        heard = [output, *([errors] if errors else []), *signs]
        why = await _watch(reaper, heard, timeout_s=timeout_s, silence_s=silence_s, grace_s=grace_s)
        exit_code, survivors = _read_result(result, argv)
        return Finished(
            exit_code=exit_code,
            duration_s=round(time.monotonic() - began, 3),
            timed_out=why == "timeout",
            silent=why == "silence",
            survivors=survivors,
        )
    finally:
        os.close(lifeline)
        os.close(result)
        feed.close()


def _confine(
    argv: Sequence[str], cwd: Path, env: Mapping[str, str], writable: Sequence[Path]
) -> tuple[Sequence[str], Path, Mapping[str, str]]:
    confinement = _confinement.get()
    if confinement is None:
        return argv, cwd, env
    # Inside a sandbox a missing program is only an exit code: look before.
    if shutil.which(cwd / argv[0] if "/" in argv[0] else argv[0], path=env.get("PATH")) is None:
        raise ProgramMissing(f"{argv[0]} cannot be started: not found", hint="check the command and your PATH")
    wrapped, inside = confinement.wrap(argv, cwd=cwd, env=env, writable=writable)
    return wrapped, Path("/"), inside


def _stdin_file(content: bytes) -> IO[bytes]:
    """A file, not a pipe: a child that never reads its input must not block anyone."""
    if not content:
        return open(os.devnull, "rb")  # noqa: PTH123 — handed to the child, closed by the caller
    feed = os.fdopen(os.memfd_create("stdin"), "w+b") if hasattr(os, "memfd_create") else _temporary()
    feed.write(content)
    feed.flush()
    feed.seek(0)
    return feed


def _temporary() -> IO[bytes]:
    import tempfile  # noqa: PLC0415 — only where there is no memfd

    return tempfile.TemporaryFile()


async def _watch(
    reaper: asyncio.subprocess.Process,
    heard: Sequence[Path],
    *,
    timeout_s: float,
    silence_s: float | None,
    grace_s: float,
) -> str:
    """Wait for the end, the deadline or too long a silence; says which stopped it."""
    ended = asyncio.ensure_future(reaper.wait())
    deadline = time.monotonic() + timeout_s
    began = time.time()
    why = ""
    try:
        while not ended.done():
            now = time.monotonic()
            quiet_s = time.time() - max(began, _last_heard(heard)) if silence_s else 0.0
            left = min(deadline - now, silence_s - quiet_s if silence_s else deadline - now)
            if left <= 0:
                why = "timeout" if now >= deadline else "silence"
                break
            await asyncio.wait({ended}, timeout=left)
        if why:
            await _stop(reaper, ended, grace_s)
    finally:
        if not ended.done():
            # Cancelled: the caller must not get control back before the tree is dead.
            await asyncio.shield(_stop(reaper, ended, grace_s))
    return why


def _last_heard(places: Sequence[Path]) -> float:
    files = [file for place in places for file in (place.iterdir() if place.is_dir() else [place])]
    return max((file.stat().st_mtime for file in files if file.exists()), default=0.0)


async def _stop(reaper: asyncio.subprocess.Process, ended: asyncio.Future[int], grace_s: float) -> None:
    with suppress(ProcessLookupError):
        reaper.send_signal(signal.SIGTERM)
    await asyncio.wait({ended}, timeout=grace_s + 15)
    if not ended.done():
        with suppress(ProcessLookupError):
            reaper.kill()
        await ended


def _read_result(result: int, argv: Sequence[str]) -> tuple[int, int]:
    words = os.read(result, 512).decode().split(maxsplit=2)
    match words:
        case ["exit", code, survivors]:
            return int(code), int(survivors)
        case ["error", number, why]:
            if int(number) in (2, 13):  # ENOENT, EACCES
                raise ProgramMissing(f"{argv[0]} cannot be started: {why}", hint="check the command and your PATH")
            raise EnvironmentCannot(f"{argv[0]} cannot be started: {why}")
        case _:
            return -signal.SIGKILL, 0  # the reaper itself was killed


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    exit_code: int
    stdout: bytes
    stderr: bytes


def call(
    argv: Sequence[str],
    *,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    stdin: bytes = b"",
    timeout_s: float = 300.0,
) -> Answer:
    """Run a short helper program and return what it said."""
    try:
        done = subprocess.run(argv, cwd=cwd, env=env, input=stdin, capture_output=True, timeout=timeout_s, check=False)
    except FileNotFoundError as error:
        if cwd is not None and not cwd.exists():
            raise EnvironmentCannot(f"the folder {cwd} is gone") from error
        raise ProgramMissing(f"{argv[0]} is not installed", hint=f"install {argv[0]} and try again") from error
    except subprocess.TimeoutExpired as error:
        raise EnvironmentCannot(f"{argv[0]} did not answer within {timeout_s:.0f} s") from error
    return Answer(exit_code=done.returncode, stdout=done.stdout, stderr=done.stderr)


def attach(argv: Sequence[str], *, cwd: Path, env: Mapping[str, str]) -> int:
    """Run a program on our own terminal and return its exit code; what it started dies with it."""
    argv, cwd, env = _confine(argv, cwd, env, ())
    lifeline_read, lifeline = os.pipe()
    result, result_write = os.pipe()
    command = [sys.executable, "-I", "-S", str(REAPER), str(lifeline_read), str(result_write), str(GRACE_S), "--"]
    try:
        with subprocess.Popen(
            [*command, *argv], cwd=cwd, env=dict(env), pass_fds=(lifeline_read, result_write)
        ) as reaper:
            os.close(lifeline_read)
            os.close(result_write)
            reaper.wait()
        return _read_result(result, argv)[0]
    finally:
        os.close(lifeline)
        os.close(result)


# --- namespaces that outlive us ------------------------------------------------------------------------------------


def hold(program: Path, *args: str, timeout_s: float = 20.0) -> Holder:
    """Start a program that makes namespaces and stays in them. It ends with us until `stay` has been said."""
    ready, ready_write = os.pipe()
    go_read, go = os.pipe()
    with open(os.devnull, "r+b") as null:  # noqa: PTH123 — its three streams
        child = subprocess.Popen(
            [sys.executable, "-I", "-S", str(program), str(ready_write), str(go_read), *args],
            cwd="/",
            env={"PATH": os.environ.get("PATH", os.defpath)},
            stdin=null,
            stdout=null,
            stderr=null,
            pass_fds=(ready_write, go_read),
            start_new_session=True,
        )
    os.close(ready_write)
    os.close(go_read)
    said = os.read(ready, 512).decode() if select.select([ready], [], [], timeout_s)[0] else ""
    os.close(ready)
    if said != "ready":
        os.close(go)
        child.kill()
        child.wait()
        raise OSError(*_reason(said))
    _held[child.pid] = child, go
    return Holder(worker="", machine=_machine(), pid=child.pid, born=_born(child.pid) or "")


def stay(holder: Holder) -> None:
    """It is written down who holds the namespace: now it may outlive us."""
    child, go = _held[holder.pid]
    if go >= 0:
        os.write(go, b"!")
        os.close(go)
        _held[holder.pid] = child, -1


_held: dict[int, tuple[subprocess.Popen[bytes], int]] = {}


def _reason(said: str) -> tuple[int, str]:
    match said.split(maxsplit=2):
        case ["error", number, why]:
            return int(number), why
        case _:
            return errno.EIO, "the namespace holder ended without a word"


def let_go(holder: Holder) -> None:
    """End what `hold` started. Already gone is success."""
    if holder.machine == _machine() and _born(holder.pid) == holder.born:
        with suppress(ProcessLookupError):
            os.kill(holder.pid, signal.SIGKILL)
    if held := _held.pop(holder.pid, None):
        child, go = held
        if go >= 0:
            os.close(go)
        child.wait()


# --- who we are, for leases --------------------------------------------------------------------------------------


def this_process() -> Holder:
    pid = os.getpid()
    return Holder(worker=f"{socket.gethostname()}:{pid}", machine=_machine(), pid=pid, born=_born(pid) or "")


def holder_of(pid: int) -> Holder:
    """Another process as an owner."""
    return Holder(worker=f"{socket.gethostname()}:{pid}", machine=_machine(), pid=pid, born=_born(pid) or "")


def this_machine() -> str:
    """What is the same for all processes whose pids can be compared with ours."""
    return _machine()


def is_gone(holder: Holder) -> bool:
    """Whether a lease's holder is certainly dead: known only of this machine's processes since this boot."""
    return holder.machine == _machine() and _born(holder.pid) != holder.born


@lru_cache(maxsize=1)
def _machine() -> str:
    """This boot of this machine, and this pid namespace: what makes a pid mean one process."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot}:{Path('/proc/self/ns/pid').stat().st_ino}"
    except OSError:
        return socket.gethostname()


def _born(pid: int) -> str | None:
    """When the process started, so that a reused pid is not mistaken for it. None when it is dead or a zombie."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_bytes().rsplit(b")", 1)[1].split()
        return None if fields[0] == b"Z" else fields[19].decode()
    except OSError:
        return _alive(pid) if not Path("/proc").exists() else None


def _alive(pid: int) -> str | None:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return None
    except PermissionError:
        return ""
    return ""
