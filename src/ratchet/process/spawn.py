"""Start and kill processes, synchronously.

`run_process` runs a child under a reaper, as `supervise` does for async callers. `run_command` runs short helper
programs such as git. `confined` runs every process started in its scope in a sandbox, so that no adapter can forget to.
`start_namespace_holder` keeps a namespace alive until `stop_namespace_holder`.
"""

from __future__ import annotations

import errno
import math
import os
import re
import select
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import IO, NamedTuple, Protocol

import msgspec

from ratchet.core.lease import Holder
from ratchet.errors import CommandTimedOut, EnvironmentCannot
from ratchet.files import open_private
from ratchet.process.cgroups import own_program
from ratchet.process.reaper import STARTED, TRUE_STDERR, descendants
from ratchet.tree_files import remove_huge_files, remove_special_files

REAPER = Path(__file__).with_name("reaper.py")
GRACE_S = 5.0
CLOCK_JUMP_S = 1.0


class ProcessResult(msgspec.Struct, frozen=True, kw_only=True):
    """How a child ended.

    `exit_code` is negative for a signal. `survivors` is the number of processes that outlived the child and were
    killed. `stopped` is set when the line callback ended the child, `interrupted` when the caller was interrupted.
    """

    exit_code: int
    duration_s: float
    timed_out: bool = False
    silent: bool = False
    stopped: bool = False
    interrupted: bool = False
    survivors: int = 0

    @property
    def signal(self) -> int | None:
        return -self.exit_code if self.exit_code < 0 else None


class Confinement(Protocol):
    """A sandbox or namespace: wraps a command so that it runs confined."""

    def wrap(
        self, argv: Sequence[str], *, cwd: Path, env: Mapping[str, str], writable: Sequence[Path]
    ) -> tuple[list[str], dict[str, str]]: ...

    @property
    def contains(self) -> bool:
        """Whether processes in it can write only the paths they were given."""
        ...

    @property
    def has_own_programs(self) -> bool:
        """Whether programs are looked up inside, not on this machine."""
        ...

    def refused_forks(self) -> int:
        """Return how often a process was not started because of the limit; 0 where nothing counts that."""
        ...

    def tidy(self) -> None:
        """Remove pipes, sockets and devices that its processes left: opening one may block."""
        ...


_confinement: ContextVar[Confinement | None] = ContextVar("confinement", default=None)


@contextmanager
def confined(by: Confinement | None, *, tidies: bool = True) -> Iterator[None]:
    """Confine every process that is started in this scope, by any adapter. Without `tidies` the caller tidies."""
    token = _confinement.set(by)
    try:
        yield
    finally:
        _confinement.reset(token)
        if by is not None and tidies:
            by.tidy()


def tidy(folder: Path) -> None:
    """Make a folder that confined processes wrote safe to read, and their workspace too, once they have ended."""
    with suppress(FileNotFoundError):
        remove_special_files(folder, outgoing_links=True)
        remove_huge_files(folder, enters=lambda _at, _name: True)
    if confinement := _confinement.get():
        confinement.tidy()


def is_sandboxed() -> bool:
    """Whether processes started here run in a sandbox, so that an agent needs no permission prompts of its own."""
    confinement = _confinement.get()
    return confinement is not None and confinement.contains


class ProgramMissing(EnvironmentCannot):
    """The program is not installed: install it or correct the command."""


def python_program(module: str) -> list[str]:
    """Return a command that runs a module of ours: never one of that name, or of one it imports, in its folder."""
    return [sys.executable, "-P", "-m", module]


def refused_forks() -> int:
    confinement = _confinement.get()
    return confinement.refused_forks() if confinement else 0


def missing_program_hint(program: str) -> str:
    """Return what to do about a program that cannot be started."""
    if program == "python" and shutil.which("python3"):
        return "there is no `python` on this machine: write `python3` in the command"
    return "check the command and your PATH"


def missing_python_hint(exit_code: int, output: str) -> str:
    """Return a hint for a shell command that failed because it calls `python` where there is only `python3`."""
    is_missing = exit_code == 127 and re.search(r"\bpython: (?:command )?not found|\bpython: Permission denied", output)
    return f"; {missing_program_hint('python')}" if is_missing else ""


class ConfinementFailed(EnvironmentCannot):
    """The sandbox could not be started, so the command did not run: see `ratchet doctor`."""


# Bubblewrap reads all mounts, and fails when the mount of another workspace disappears meanwhile.
START_TRIES = 5
# First act of a confined command (see reaper.py): report the start, then switch to the real stderr.
_LAUNCH = ["sh", "-c", f'echo {STARTED.decode().strip()} >&2; exec "$@" 2>&{TRUE_STDERR} {TRUE_STDERR}>&-', "sh"]


def confine(
    argv: Sequence[str], cwd: Path, env: Mapping[str, str], writable: Sequence[Path]
) -> tuple[Sequence[str], Path, Mapping[str, str], int]:
    """Return command, folder and environment to start with, and how often starting the sandbox may be retried."""
    confinement, prefix = _confinement.get(), namespace_prefix(cwd)
    if confinement is None and not prefix:
        return argv, cwd, env, 0
    # Inside a sandbox or shell a missing program is only an exit code: check before.
    inside_only = confinement is not None and confinement.has_own_programs
    if not inside_only and shutil.which(cwd / argv[0] if "/" in argv[0] else argv[0], path=env.get("PATH")) is None:
        raise ProgramMissing(f"{argv[0]} cannot be started: not found", hint=missing_program_hint(argv[0]))
    # Names by which only Ratchet reaches into the namespace: a sandbox has a /proc of its own.
    door = str(cwd).removesuffix(path_in_namespace(str(cwd)))
    if door:
        argv = [word.replace(f"{door}/", "/") for word in argv]
        env = {name: text.replace(f"{door}/", "/") for name, text in env.items()}
    if confinement is None:
        return [*prefix, *argv], Path("/"), env, 0
    launched = argv if inside_only else [*_LAUNCH, *argv]
    wrapped, inside = confinement.wrap(launched, cwd=cwd, env=env, writable=writable)
    return wrapped, Path("/"), inside, START_TRIES


_HELD = re.compile(r"/proc/(\d+)/root(/.*)")


def namespace_prefix(folder: Path) -> list[str]:
    """Return what to put before a command so that it runs in `folder`, which may be mounted in another namespace.

    A path below `/proc/PID/root` can be read from outside the namespace, but a program cannot run there: the folder has
    no name inside. Every process is started through this function, so callers need not know the kind of workspace.
    """
    held = _HELD.fullmatch(str(folder))
    if not held:
        return []
    enter = own_program("nsenter")
    join = [enter, "--preserve-credentials", "--user", "--mount", f"--target={held[1]}", "--"]
    return [*join, own_program("sh"), "-c", 'cd "$1" && shift && exec "$@"', "sh", held[2]]


def path_in_namespace(path: str) -> str:
    """Return the path inside the namespace of the folder's mount, as programs there see it."""
    held = _HELD.fullmatch(path)
    return held[2] if held else path


def resolve(path: Path) -> Path:
    """Resolve symlinks inside the namespace of the mount; elsewhere like `Path.resolve`.

    `Path.resolve` follows `/proc/PID/root` as a link to `/` and returns a path that does not exist outside.
    """
    held = _HELD.fullmatch(str(path))
    if not held:
        return path.resolve()
    handle = os.open(path, os.O_PATH)
    try:
        return Path(f"/proc/{held[1]}/root{Path(f'/proc/self/fd/{handle}').readlink()}")
    finally:
        os.close(handle)


class ReaperLink:
    """The pipes to a reaper: the lifeline, whose closing ends it, and the pipe for its result."""

    def __init__(self) -> None:
        lifeline_read, self._lifeline = os.pipe()
        self._result, result_write = os.pipe()
        self.child_fds: tuple[int, ...] = (lifeline_read, result_write)
        self._argv: Sequence[str] = ()

    def __enter__(self) -> ReaperLink:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def reaper_command(self, argv: Sequence[str], *, grace_s: float, tries: int) -> list[str]:
        self._argv, options = argv, (*self.child_fds, grace_s, tries)
        return [sys.executable, "-I", "-S", str(REAPER), *map(str, options), "--", *argv]

    def close_child_ends(self) -> None:
        for end in self.child_fds:
            os.close(end)
        self.child_fds = ()

    def ended(self, timeout_s: float) -> bool:
        """Wait for the result, which the reaper writes last; returns whether it has arrived."""
        poll = select.poll()
        poll.register(self._result, select.POLLIN)
        return bool(poll.poll(max(0.0, timeout_s) * 1000))

    def result(self) -> tuple[int, int]:
        """Return the child's exit code and the number of survivors. Raises ProgramMissing, ConfinementFailed."""
        return _read_result(self._result, self._argv)

    def close(self) -> None:
        self.close_child_ends()
        os.close(self._lifeline)
        os.close(self._result)


class Deadlines:
    """How long a child may run, and how long it may be silent: no write to any of its `activity` paths."""

    def __init__(self, activity: Sequence[Path], *, timeout_s: float, silence_s: float | None) -> None:
        self._activity, self._silence_s = activity, silence_s
        self._deadline = time.monotonic() + timeout_s
        self._clock, self._wall = time.monotonic(), time.time()  # when `left` was last called
        self._written, self._active = self._wall, self._clock

    def left(self) -> tuple[float, str]:
        """Return the seconds left, and which limit ends them: `timeout` or `silence`."""
        timeout = self._deadline - time.monotonic()
        if not self._silence_s or timeout <= 0:
            return timeout, "timeout"
        return min((timeout, "timeout"), (self._silence_s - self._silent_s(), "silence"))

    def _silent_s(self) -> float:
        """Return the seconds since the last write, on the clock that stands still while the machine is suspended.

        Files carry the time of the wall clock. When it has jumped since the last call, a new write counts as made now.
        """
        clock, wall, written = time.monotonic(), time.time(), _last_write(self._activity)
        if written != self._written and written > 0:
            jumped = abs((wall - self._wall) - (clock - self._clock)) > CLOCK_JUMP_S
            age = 0.0 if jumped else max(0.0, wall - written)
            self._written, self._active = written, max(self._active, clock - age)
        self._clock, self._wall = clock, wall
        return clock - self._active


def _last_write(places: Sequence[Path]) -> float:
    return max((found.st_mtime for found in _files_of(places)), default=0.0)


def bytes_written(places: Sequence[Path]) -> int:
    """Return the disk space of files, and of those in folders."""
    return sum(found.st_blocks * 512 for found in _files_of(places))


_ENTRIES_MAX, _DEPTH_MAX = 10_000, 32


def _files_of(places: Sequence[Path]) -> Iterator[os.stat_result]:
    """Yield what is known of each file, and of those in folders, which a hostile program may be changing.

    Bounded by all names that are looked at: folders without a file in them are as much work.
    """
    for place in places:
        for path in _paths_below(str(place)) if place.is_dir() else [str(place)]:
            with suppress(OSError):
                yield os.lstat(path)


def _paths_below(top: str) -> Iterator[str]:
    folders, left = [(top, 0)], _ENTRIES_MAX
    while folders and left:
        folder, depth = folders.pop()
        with suppress(OSError), os.scandir(folder) as entries:
            for entry in islice(entries, left):
                left -= 1
                if not entry.is_dir(follow_symlinks=False):
                    yield entry.path
                elif depth < _DEPTH_MAX:
                    folders.append((entry.path, depth + 1))


def stdin_file(content: bytes) -> IO[bytes]:
    """Return a file with the content. Not a pipe: a child that never reads its input must not block the writer."""
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


def _read_result(result: int, argv: Sequence[str]) -> tuple[int, int]:
    words = os.read(result, 512).decode(errors="replace").split(maxsplit=2)
    match words:
        case ["exit", code, survivors]:
            return int(code), int(survivors)
        case ["unstarted", *message]:
            raise ConfinementFailed(f"the sandbox could not be started: {' '.join(message)}", hint="ratchet doctor")
        case ["error", number, why]:
            if int(number) in (2, 13):  # ENOENT, EACCES
                raise ProgramMissing(f"{argv[0]} cannot be started: {why}", hint=missing_program_hint(argv[0]))
            raise EnvironmentCannot(f"{argv[0]} cannot be started: {why}")
        case _:
            return -signal.SIGKILL, 0  # the reaper itself was killed


class CommandOutput(msgspec.Struct, frozen=True, kw_only=True):
    exit_code: int
    stdout: bytes
    stderr: bytes


def run_command(
    argv: Sequence[str],
    *,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    stdin: bytes = b"",
    timeout_s: float = 300.0,
    silence_s: float = 0.0,
    output_max_bytes: int = 0,
    prefix: Sequence[str] = (),
) -> CommandOutput:
    """Run a short helper program and return its output. `prefix` is put before it and not named in errors.

    With more output than `output_max_bytes`, or none for `silence_s`, it is killed with all that it started. With
    `silence_s` it waits for somebody else, and is killed too when its caller is `stoppable` and stopped.
    """
    program, entry = argv[0], namespace_prefix(cwd) if cwd else []
    argv, place = [*entry, *prefix, *argv], None if entry else cwd
    try:
        if output_max_bytes or silence_s:
            stop = _stop.get() if silence_s else None
            limits = _Limits(timeout_s, silence_s or timeout_s, output_max_bytes or _OUTPUT_MAX_BYTES, stop)
            return _run_bounded(argv, place, env, stdin, limits)
        done = subprocess.run(
            argv, cwd=place, env=env, input=stdin, capture_output=True, timeout=timeout_s, check=False
        )
    except (FileNotFoundError, PermissionError) as error:  # denied: PATH contains a folder that we may not search
        if cwd is not None and not cwd.exists():
            raise EnvironmentCannot(f"the folder {cwd} does not exist") from error
        raise ProgramMissing(f"{program} is not installed", hint=f"install {program} and try again") from error
    except subprocess.TimeoutExpired as error:
        raise CommandTimedOut(f"{program} did not answer within {error.timeout:.0f} s") from error
    return CommandOutput(exit_code=done.returncode, stdout=done.stdout, stderr=done.stderr)


_stop: ContextVar[threading.Event | None] = ContextVar("stop", default=None)


@contextmanager
def stoppable() -> Iterator[threading.Event]:
    """Yield an event that ends what waits for servers, in what is called in the context: also in other threads."""
    token = _stop.set(event := threading.Event())
    try:
        yield event
    finally:
        _stop.reset(token)


def check_stopped(stop: threading.Event | None = None) -> None:
    """Raise EnvironmentCannot if our caller was stopped."""
    if (stop or _stop.get() or threading.Event()).is_set():
        raise EnvironmentCannot("a command was stopped, since nobody waits for it any more")


_LOOK_S = 0.2
_OUTPUT_MAX_BYTES = 1 << 30


class _Limits(NamedTuple):
    timeout_s: float
    silence_s: float
    output_max_bytes: int
    stop: threading.Event | None


def _run_bounded(
    argv: Sequence[str], cwd: Path | None, env: Mapping[str, str] | None, stdin: bytes, limits: _Limits
) -> CommandOutput:
    import tempfile  # noqa: PLC0415 — few commands need it

    most = limits.output_max_bytes
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err, stdin_file(stdin) as feed:
        process = subprocess.Popen(argv, cwd=cwd, env=env, stdin=feed, stdout=out, stderr=err)
        try:
            _wait_within(limits, process, out, err)
        finally:
            if process.poll() is None:
                _kill_tree(process.pid)  # a program that it started may wait for a server
            process.wait()
        out.seek(0)
        err.seek(0)
        return CommandOutput(exit_code=process.returncode, stdout=out.read(most), stderr=err.read(most))


def _wait_within(limits: _Limits, process: subprocess.Popen[bytes], *outputs: IO[bytes]) -> None:
    began = spoke = time.monotonic()
    printed = 0
    while True:
        with suppress(subprocess.TimeoutExpired):
            process.wait(_LOOK_S)
            return
        check_stopped(limits.stop)
        now, before = time.monotonic(), printed
        printed = sum(os.fstat(file.fileno()).st_size for file in outputs)
        spoke = now if printed != before else spoke
        if printed > limits.output_max_bytes:
            raise EnvironmentCannot(f"a command was stopped: it printed more than {limits.output_max_bytes >> 20} MiB")
        if now - began > limits.timeout_s:
            raise subprocess.TimeoutExpired(process.args, limits.timeout_s)
        if now - spoke > limits.silence_s:
            raise subprocess.TimeoutExpired(process.args, limits.silence_s)


def _kill_tree(root: int) -> None:
    for pid in (root, *descendants(root)):
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)


def attach(argv: Sequence[str], *, cwd: Path, env: Mapping[str, str]) -> int:
    """Run a program on our own terminal and return its exit code; its descendants are killed when it ends."""
    argv, cwd, env, tries = confine(argv, cwd, env, ())
    with ReaperLink() as link:
        command = link.reaper_command(argv, grace_s=GRACE_S, tries=tries)
        with subprocess.Popen(command, cwd=cwd, env=dict(env), pass_fds=link.child_fds) as reaper:
            link.close_child_ends()
            reaper.wait()
        return link.result()[0]


def run_process(
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
    on_start: Callable[[], None] | None = None,
) -> ProcessResult:
    """Do what `supervise` does without an event loop, which takes longer to load than a child takes to start.

    `meanwhile` is called after the child has been started.
    """
    began = time.monotonic()
    argv, cwd, env, tries = confine(argv, cwd, env, writable)
    deadlines = Deadlines([output, *([errors] if errors else []), *activity], timeout_s=timeout_s, silence_s=silence_s)
    with (
        stdin_file(stdin) as feed,
        open_private(output) as out,
        open_private(errors or output) as err,
        ReaperLink() as link,
    ):
        reaper = subprocess.Popen(
            link.reaper_command(argv, grace_s=grace_s, tries=tries), cwd=cwd, env=dict(env),
            stdin=feed, stdout=out, stderr=err, pass_fds=link.child_fds, start_new_session=True,
        )  # fmt: skip
        link.close_child_ends()
        why = "interrupted"
        try:
            if on_start:
                on_start()
            why = _wait(link, deadlines)
        finally:  # even after an interrupt the process tree is dead before the caller continues
            if why:
                reaper.terminate()
            _outlive(reaper, grace_s)
        return process_result(*link.result(), began, why)


def process_result(exit_code: int, survivors: int, began: float, why: str) -> ProcessResult:
    return ProcessResult(
        exit_code=exit_code,
        duration_s=round(time.monotonic() - began, 3),
        timed_out=why == "timeout",
        silent=why == "silence",
        stopped=why == "stopped",
        survivors=survivors,
    )


def _wait(link: ReaperLink, deadlines: Deadlines) -> str:
    """Wait for the end; returns the limit that was reached, or an empty string."""
    while True:
        left, what = deadlines.left()
        if left <= 0:
            return what
        if link.ended(left):
            return ""


def _outlive(reaper: subprocess.Popen[bytes], grace_s: float) -> None:
    try:
        reaper.wait(grace_s + 15)
    except subprocess.TimeoutExpired:
        reaper.kill()
        reaper.wait()


# --- forked workers ---------------------------------------------------------------------------------------------------

_SIGNALS = (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT)


class ForkedWorkers:
    """Forks of this process that run one function each: they start in milliseconds, because all modules are loaded.

    They are killed when this process ends. Only for a process without threads: fork copies locks but not threads.
    """

    def __enter__(self) -> ForkedWorkers:
        self._before = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
        self.alive: set[int] = set()
        return self

    def __exit__(self, *_: object) -> None:
        self.send(signal.SIGKILL)
        while self.alive:
            self._reap(os.WEXITED)
        signal.pthread_sigmask(signal.SIG_SETMASK, self._before)

    def start(self, work: Callable[[], int]) -> int:
        sys.stdout.flush()
        sys.stderr.flush()
        us = os.getpid()
        if child := os.fork():
            self.alive.add(child)
            return child
        code = 70
        try:
            os.setpgid(0, 0)  # a signal to the whole group, as Ctrl-C, comes once: from this process
            _die_with(us)
            signal.pthread_sigmask(signal.SIG_SETMASK, self._before)
            code = work()
        except BaseException:  # noqa: BLE001 — the fork must never continue in the caller's code
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)

    def wait(self, timeout_s: float) -> tuple[dict[int, int], bool]:
        """Wait for the end of a child or a stop signal; returns exit codes of ended children, and whether to stop."""
        received = signal.sigtimedwait(_SIGNALS, timeout_s)
        stop = received is not None and received.si_signo != signal.SIGCHLD
        return self._reap(os.WEXITED | os.WNOHANG), stop

    def send(self, number: signal.Signals) -> None:
        for child in self.alive:
            with suppress(ProcessLookupError):
                os.kill(child, number)

    def kill(self, child: int) -> None:
        """Kill one child, also one that is stopped. What it started ends with it."""
        with suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)

    def _reap(self, how: int) -> dict[int, int]:
        ended: dict[int, int] = {}
        while self.alive and (found := os.waitid(os.P_ALL, 0, how)):
            self.alive.discard(found.si_pid)
            ended[found.si_pid] = found.si_status if found.si_code == os.CLD_EXITED else -found.si_status
        return ended


_PR_SET_PDEATHSIG = 1


def _die_with(parent: int) -> None:
    if sys.platform == "linux":
        import ctypes  # noqa: PLC0415 — only here

        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # the parent died before prctl
        os._exit(1)


def end_process(holder: Holder, *, grace_s: float = GRACE_S) -> None:
    """End another process of this machine and all that it started, with SIGKILL after a grace period."""
    if holder.machine != _machine() or _born(holder.pid) != holder.born:
        return
    tree = [process_holder(pid) for pid in (holder.pid, *descendants(holder.pid))]
    with suppress(ProcessLookupError):
        os.kill(holder.pid, signal.SIGTERM)
    deadline = time.monotonic() + grace_s
    while (alive := [one for one in tree if not is_gone(one)]) and time.monotonic() < deadline:
        time.sleep(0.02)
    for one in alive:
        with suppress(ProcessLookupError):
            os.kill(one.pid, signal.SIGKILL)


# --- namespaces that outlive this process --------------------------------------------------------------------------


def start_namespace_holder(program: Path, *args: str, timeout_s: float = 20.0) -> Holder:
    """Start a program that creates namespaces and stays in them. It ends with this process until it is detached."""
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
    message = os.read(ready, 512).decode() if select.select([ready], [], [], timeout_s)[0] else ""
    os.close(ready)
    if message != "ready":
        os.close(go)
        child.kill()
        child.wait()
        raise OSError(*_reason(message))
    _held[child.pid] = child, go
    return Holder(worker="", machine=_machine(), pid=child.pid, born=_born(child.pid) or "")


def detach_namespace_holder(holder: Holder) -> None:
    """Let the holder outlive this process. Call it after the holder's pid is recorded."""
    child, go = _held[holder.pid]
    if go >= 0:
        os.write(go, b"!")
        os.close(go)
        _held[holder.pid] = child, -1


_held: dict[int, tuple[subprocess.Popen[bytes], int]] = {}


def _reason(message: str) -> tuple[int, str]:
    match message.split(maxsplit=2):
        case ["error", number, why]:
            return int(number), why
        case _:
            return errno.EIO, "the namespace holder ended without a message"


def stop_namespace_holder(holder: Holder) -> None:
    """Kill a namespace holder. Success if it is already dead."""
    if holder.machine == _machine() and _born(holder.pid) == holder.born:
        with suppress(ProcessLookupError):
            os.kill(holder.pid, signal.SIGKILL)
    if held := _held.pop(holder.pid, None):
        child, go = held
        if go >= 0:
            os.close(go)
        child.wait()


def seconds_since_last_child(root: int) -> float:
    """Return the seconds since the youngest live descendant was started; infinite without descendants."""
    now, ticks = time.clock_gettime(time.CLOCK_BOOTTIME), os.sysconf("SC_CLK_TCK")
    born = [int(each) / ticks for pid in descendants(root) if (each := _born(pid))]
    return now - max(born, default=-math.inf)


# --- process identity, for leases ----------------------------------------------------------------------------------


def this_process() -> Holder:
    pid = os.getpid()
    return Holder(worker=f"{socket.gethostname()}:{pid}", machine=_machine(), pid=pid, born=_born(pid) or "")


def process_holder(pid: int) -> Holder:
    """Return another process as an owner."""
    return Holder(worker=f"{socket.gethostname()}:{pid}", machine=_machine(), pid=pid, born=_born(pid) or "")


def this_machine() -> str:
    """Return an id shared by all processes whose pids can be compared with ours."""
    return _machine()


def is_gone(holder: Holder) -> bool:
    """Whether a lease's holder is certainly dead. Known only for processes of this machine since its last boot."""
    # An empty start time: the process lives, but /proc hides it (hidepid) or does not exist.
    return holder.machine == _machine() and _born(holder.pid) not in ("", holder.born)


@lru_cache(maxsize=1)
def _machine() -> str:
    """Return boot id and pid namespace: within both, a pid and its start time identify a process."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot}:{Path('/proc/self/ns/pid').stat().st_ino}"
    except OSError:
        return socket.gethostname()


def _born(pid: int) -> str | None:
    """Return the start time of a process, to detect reused pids: None when it is dead, empty when hidden."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_bytes().rsplit(b")", 1)[1].split()
        return None if fields[0] == b"Z" else fields[19].decode()
    except OSError:
        return _alive(pid)


def _alive(pid: int) -> str | None:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return None
    except PermissionError:
        return ""
    return ""
