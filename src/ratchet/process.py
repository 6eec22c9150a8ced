"""Here, and awaited in `supervision`, is the only place where processes are started or killed.

`attend` owns a child's whole life, as `supervise` does, for who has nothing else to do. `call` is for short helper
programs such as git, whose answer is wanted at once. `confined` puts everything supervised in its scope into a sandbox:
no adapter can forget to. `hold` keeps a namespace alive until `let_go`.
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
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import lru_cache
from pathlib import Path
from typing import IO, Protocol

import msgspec

from ratchet.core.lease import Holder
from ratchet.errors import EnvironmentCannot
from ratchet.files import open_private
from ratchet.reaper import STARTED, TRUE_STDERR, descendants

REAPER = Path(__file__).with_name("reaper.py")
GRACE_S = 5.0


class Finished(msgspec.Struct, frozen=True, kw_only=True):
    """How a child ended. `exit_code` is negative for a signal; `survivors` outlived the child and were killed;
    `told` is who heard enough of its lines; `interrupted` that whoever waits for it was told to stop."""

    exit_code: int
    duration_s: float
    timed_out: bool = False
    silent: bool = False
    told: bool = False
    interrupted: bool = False
    survivors: int = 0

    @property
    def signal(self) -> int | None:
        return -self.exit_code if self.exit_code < 0 else None


class Confinement(Protocol):
    """A sandbox or a namespace: turns a command into the one that runs it confined."""

    def wrap(
        self, argv: Sequence[str], *, cwd: Path, env: Mapping[str, str], writable: Sequence[Path]
    ) -> tuple[list[str], dict[str, str]]: ...

    @property
    def contains(self) -> bool:
        """Whether what runs in it can write nothing but what it was given."""
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


def contained() -> bool:
    """Whether what is supervised here runs in a sandbox, where an agent may do as it likes."""
    confinement = _confinement.get()
    return confinement is not None and confinement.contains


class ProgramMissing(EnvironmentCannot):
    """The program to start is not there: install it or correct the command."""


def hint_for(program: str) -> str:
    """Return what to do about a program that cannot be started."""
    if program == "python" and shutil.which("python3"):
        return "there is no `python` on this machine: write `python3` in the command"
    return "check the command and your PATH"


def hint_for_shell(exit_code: int, output: str) -> str:
    """Return a hint for a shell command that failed because it calls `python` where there is only `python3`."""
    is_missing = exit_code == 127 and re.search(r"\bpython: (?:command )?not found|\bpython: Permission denied", output)
    return f"; {hint_for('python')}" if is_missing else ""


class ConfinementFailed(EnvironmentCannot):
    """The sandbox could not be made, so the command was not run: `ratchet doctor` may know why."""


# Bubblewrap walks over every mount there is, and gives up when another workspace's goes away meanwhile.
START_TRIES = 5
# The command's first act once it is confined (see reaper.py): say so, and go on with the stderr that was kept for it.
_LAUNCH = ["sh", "-c", f'echo {STARTED.decode().strip()} >&2; exec "$@" 2>&{TRUE_STDERR} {TRUE_STDERR}>&-', "sh"]


def confine(
    argv: Sequence[str], cwd: Path, env: Mapping[str, str], writable: Sequence[Path]
) -> tuple[Sequence[str], Path, Mapping[str, str], int]:
    """Return what to start, where, with which environment, and how often a sandbox may be made anew."""
    confinement, door = _confinement.get(), enter(cwd)
    if confinement is None and not door:
        return argv, cwd, env, 0
    # Inside a sandbox or behind a shell a missing program is only an exit code: look before.
    if shutil.which(cwd / argv[0] if "/" in argv[0] else argv[0], path=env.get("PATH")) is None:
        raise ProgramMissing(f"{argv[0]} cannot be started: not found", hint=hint_for(argv[0]))
    if confinement is None:
        return [*door, *argv], Path("/"), env, 0
    wrapped, inside = confinement.wrap([*_LAUNCH, *argv], cwd=cwd, env=env, writable=writable)
    return wrapped, Path("/"), inside, START_TRIES


_HELD = re.compile(r"/proc/(\d+)/root(/.*)")


def enter(folder: Path) -> list[str]:
    """Return what to put before a command so that it runs in `folder`, which a namespace holder may have mounted.

    A path below `/proc/PID/root` can be read from outside the namespace, but a program cannot work there: to it the
    folder has no name. Every start of a process comes through here, so no caller needs to know which kind it has.
    """
    held = _HELD.fullmatch(str(folder))
    if not held:
        return []
    join = ["nsenter", "--preserve-credentials", "--user", "--mount", f"--target={held[1]}", "--"]
    return [*join, "sh", "-c", 'cd "$1" && shift && exec "$@"', "sh", held[2]]


def as_seen_inside(path: str) -> str:
    """Return the name a path has for the programs that run where it is."""
    held = _HELD.fullmatch(path)
    return held[2] if held else path


class Tie:
    """What ties a reaper to us: the lifeline it dies with, and where it says what came of its child."""

    def __init__(self) -> None:
        lifeline_read, self._lifeline = os.pipe()
        self._result, result_write = os.pipe()
        self.theirs: tuple[int, ...] = (lifeline_read, result_write)
        self._argv: Sequence[str] = ()

    def __enter__(self) -> Tie:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def reaper(self, argv: Sequence[str], *, grace_s: float, tries: int) -> list[str]:
        self._argv, told = argv, (*self.theirs, grace_s, tries)
        return [sys.executable, "-I", "-S", str(REAPER), *map(str, told), "--", *argv]

    def handed_over(self) -> None:
        for end in self.theirs:
            os.close(end)
        self.theirs = ()

    def ended(self, timeout_s: float) -> bool:
        """Wait so long for what it says: the last thing it does."""
        poll = select.poll()
        poll.register(self._result, select.POLLIN)
        return bool(poll.poll(max(0.0, timeout_s) * 1000))

    def result(self) -> tuple[int, int]:
        """The child's exit code, and how many outlived it. Raises ProgramMissing, ConfinementFailed."""
        return _read_result(self._result, self._argv)

    def close(self) -> None:
        self.handed_over()
        os.close(self._lifeline)
        os.close(self._result)


class Patience:
    """How long a child may take, and how long it may write nothing to any of the places where it is `heard`."""

    def __init__(self, heard: Sequence[Path], *, timeout_s: float, silence_s: float | None) -> None:
        self._heard, self._silence_s = heard, silence_s
        self._deadline, self._began = time.monotonic() + timeout_s, time.time()

    def left(self) -> tuple[float, str]:
        """So many seconds, and what will have run out then."""
        timeout = self._deadline - time.monotonic()
        if not self._silence_s or timeout <= 0:
            return timeout, "timeout"
        silence = self._silence_s - (time.time() - max(self._began, _last_heard(self._heard)))
        return min((timeout, "timeout"), (silence, "silence"))


def _last_heard(places: Sequence[Path]) -> float:
    files = [file for place in places for file in (place.iterdir() if place.is_dir() else [place])]
    return max((file.stat().st_mtime for file in files if file.exists()), default=0.0)


def stdin_file(content: bytes) -> IO[bytes]:
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


def _read_result(result: int, argv: Sequence[str]) -> tuple[int, int]:
    words = os.read(result, 512).decode().split(maxsplit=2)
    match words:
        case ["exit", code, survivors]:
            return int(code), int(survivors)
        case ["unstarted", *said]:
            raise ConfinementFailed(f"the sandbox could not be made: {' '.join(said)}", hint="ratchet doctor")
        case ["error", number, why]:
            if int(number) in (2, 13):  # ENOENT, EACCES
                raise ProgramMissing(f"{argv[0]} cannot be started: {why}", hint=hint_for(argv[0]))
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
    door = enter(cwd) if cwd else []
    argv, place = [*door, *argv], None if door else cwd
    try:
        done = subprocess.run(
            argv, cwd=place, env=env, input=stdin, capture_output=True, timeout=timeout_s, check=False
        )
    except (FileNotFoundError, PermissionError) as error:  # denied: PATH names a folder we may not search
        if cwd is not None and not cwd.exists():
            raise EnvironmentCannot(f"the folder {cwd} is gone") from error
        raise ProgramMissing(f"{argv[0]} is not installed", hint=f"install {argv[0]} and try again") from error
    except subprocess.TimeoutExpired as error:
        raise EnvironmentCannot(f"{argv[0]} did not answer within {timeout_s:.0f} s") from error
    return Answer(exit_code=done.returncode, stdout=done.stdout, stderr=done.stderr)


def attach(argv: Sequence[str], *, cwd: Path, env: Mapping[str, str]) -> int:
    """Run a program on our own terminal and return its exit code; what it started dies with it."""
    argv, cwd, env, tries = confine(argv, cwd, env, ())
    with Tie() as tie:
        command = tie.reaper(argv, grace_s=GRACE_S, tries=tries)
        with subprocess.Popen(command, cwd=cwd, env=dict(env), pass_fds=tie.theirs) as reaper:
            tie.handed_over()
            reaper.wait()
        return tie.result()[0]


def attend(
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
    meanwhile: Callable[[], None] | None = None,
) -> Finished:
    """What `supervise` does, without an event loop, which takes longer to load than a child to start.

    `meanwhile` is done once the child is under way.
    """
    began = time.monotonic()
    argv, cwd, env, tries = confine(argv, cwd, env, writable)
    patience = Patience([output, *([errors] if errors else []), *signs], timeout_s=timeout_s, silence_s=silence_s)
    with stdin_file(stdin) as feed, open_private(output) as out, open_private(errors or output) as err, Tie() as tie:
        reaper = subprocess.Popen(
            tie.reaper(argv, grace_s=grace_s, tries=tries), cwd=cwd, env=dict(env), stdin=feed, stdout=out, stderr=err,
            pass_fds=tie.theirs, start_new_session=True,
        )  # fmt: skip
        tie.handed_over()
        why = "interrupted"
        try:
            if meanwhile:
                meanwhile()
            why = _wait(tie, patience)
        finally:  # also after an interrupt nobody gets control back before the tree is dead
            if why:
                reaper.terminate()
            _outlive(reaper, grace_s)
        return finished(*tie.result(), began, why)


def finished(exit_code: int, survivors: int, began: float, why: str) -> Finished:
    return Finished(
        exit_code=exit_code,
        duration_s=round(time.monotonic() - began, 3),
        timed_out=why == "timeout",
        silent=why == "silence",
        told=why == "told",
        survivors=survivors,
    )


def _wait(tie: Tie, patience: Patience) -> str:
    """Until it has ended; else says what ran out."""
    while True:
        left, what = patience.left()
        if left <= 0:
            return what
        if tie.ended(left):
            return ""


def _outlive(reaper: subprocess.Popen[bytes], grace_s: float) -> None:
    try:
        reaper.wait(grace_s + 15)
    except subprocess.TimeoutExpired:
        reaper.kill()
        reaper.wait()


# --- copies of us ---------------------------------------------------------------------------------------------------

_HEARD = (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT)


class Children:
    """Copies of this process that each do one thing and end: they start in milliseconds, for all is loaded already.

    They die when we do, however we die. Only for a process without threads: those are not copied, their locks are.
    """

    def __enter__(self) -> Children:
        self._before = signal.pthread_sigmask(signal.SIG_BLOCK, _HEARD)
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
            _die_with(us)
            signal.pthread_sigmask(signal.SIG_SETMASK, self._before)
            code = work()
        except BaseException:  # noqa: BLE001 — nothing of the copy may run on in what it was copied from
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)

    def wait(self, timeout_s: float) -> tuple[dict[int, int], bool]:
        """Until a child ended or we are told to stop: the exit codes of those that ended, and whether to stop."""
        heard = signal.sigtimedwait(_HEARD, timeout_s)
        stop = heard is not None and heard.si_signo != signal.SIGCHLD
        return self._reap(os.WEXITED | os.WNOHANG), stop

    def send(self, number: signal.Signals) -> None:
        for child in self.alive:
            with suppress(ProcessLookupError):
                os.kill(child, number)

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
    if os.getppid() != parent:  # it died before we could ask
        os._exit(1)


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


def youngest_below(root: int) -> float:
    """How many seconds ago the last of its descendants that are alive was started; infinite without any."""
    now, ticks = time.clock_gettime(time.CLOCK_BOOTTIME), os.sysconf("SC_CLK_TCK")
    born = [int(each) / ticks for pid in descendants(root) if (each := _born(pid))]
    return now - max(born, default=-math.inf)


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
