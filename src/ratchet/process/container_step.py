"""Runs one command in a container as if it were a child: its input, output, signals and exit code are passed on.

Started as `python -I -m ratchet.process.container_step FILE` below a reaper, for a confinement that has prepared the
file. The streams are named pipes in a folder that is mounted into the container.

The container's first process is a guard of another user, which ends when this process has gone, and everything in the
container with it. The command is started beside it by the engine, which reports the exit code: nothing that the command
runs can change what the engine says, or signal, trace or deceive the guard.
"""

from __future__ import annotations

import os
import re
import select
import signal
import stat
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec

from ratchet.errors import EnvironmentCannot, RatchetError
from ratchet.process.containers import (
    AWAY_S,
    ContainerEngine,
    ContainerSpec,
    EngineAway,
    EngineRefused,
    guard_user,
    refuse_socket,
)
from ratchet.process.reaper import STARTED, TRUE_STDERR
from ratchet.tree_files import is_without_links

LABEL = "ratchet.step"  # the label with the process that started the step
PIPES = "/run/ratchet"  # where the folder of the pipes is mounted
UNKNOWN = "unknown"  # a file beside that of the step: how the command ended is not known
# The guard. It waits for `cat`, not by `read`: so it reaps the orphans of the command meanwhile.
GUARD = 'exec 3<"$1/life"; cat <&3 >/dev/null 2>&1 & wait $!'
# All pipes are open before the start is reported: opening one later would wait, or lose what was written.
COMMAND = r"""
pipes=$1; shift
mkdir -p "$HOME"
exec 5<$pipes/in 6>$pipes/out 7>$pipes/err
echo started
exec "$@" <&5 >&6 2>&7 5<&- 6>&- 7>&-
"""
_COUNTERS = ["cat", "/sys/fs/cgroup/memory.events", "/sys/fs/cgroup/memory/memory.oom_control"]
_KILLS = re.compile(rb"^oom_kill (\d{1,9})$", re.MULTILINE)
_IN, _OUT, _ERR, _LIFE = ("in", "out", "err", "life")
_AWAY_TRIES = 100
_KILL_S = 3.0  # after SIGTERM; the reaper gives more
_LOST_S = 10.0  # after all output has ended, until a command that the engine calls running is given up
_POLL_S = 0.1
_KILLED = 128 + signal.SIGKILL
_CHUNK = 1 << 16


class ContainerStep(msgspec.Struct, frozen=True, kw_only=True):
    """A command in a container. `owned` are paths that are given to the container's user first, if this is root.

    `mounts` are added to those of `spec` if their sources are still in the folder `home` by way of no link.
    """

    engine: str
    name: str
    spec: ContainerSpec
    command: list[str]
    folder: str
    home: str
    mounts: list[str]
    owned: list[str] = []


def main(file: Path) -> int:
    step = msgspec.json.decode(file.read_bytes(), type=ContainerStep)
    engine = ContainerEngine(step.engine)
    for path in step.owned:
        give(path, step.spec.user)
    held = TRUE_STDERR if _is_open(TRUE_STDERR) else 0  # before anything is opened here
    with _pipes(file.parent / "pipes", step.spec.user, held) as pipes:
        spec = msgspec.structs.replace(
            step.spec,
            command=["sh", "-c", GUARD, "sh", PIPES],
            user=guard_user(step.spec.user),
            folder="/",
            mounts=[*_resolved(step, engine), f"{pipes.folder}:{PIPES}:ro"],
        )
        try:
            _start(engine, spec, step.name)
            return pipes.carry(engine, step, on_start=file.unlink)
        finally:
            _remove(engine, step.name)


def _resolved(step: ContainerStep, engine: ContainerEngine) -> list[str]:
    """Return the mounts by the real paths of their sources: engines follow links, and do so outside of the container.

    What the workspace holds is reached by no link at all. No process of an earlier step is alive that could make one.
    """
    for mount in step.mounts:
        source = mount.partition(":")[0]
        inner = os.path.relpath(source, step.home)
        if not inner.startswith("..") and not is_without_links(Path(step.home), inner):
            raise EnvironmentCannot(f"{source} is reached by a link: it is not mounted", hint="remove the link")
    mounts = [*step.mounts, *step.spec.mounts]
    refuse_socket(mounts, engine)
    parts = [mount.partition(":") for mount in mounts]
    return [f"{os.path.realpath(source)}:{rest}" for source, _, rest in parts]


def give(path: str, user: str) -> None:
    """Make `user` or `user:group` the owner of a folder and all below it, if this is root. Links are not followed.

    Names of users are known in the image only, so nothing is given to them.
    """
    names = user.split(":")
    if os.geteuid() or not Path(path).is_dir() or not all(name.isdigit() for name in names):
        return
    owner, group = int(names[0]), int(names[-1])
    for _, folders, files, handle in os.fwalk(path, follow_symlinks=False):
        if os.fstat(handle).st_uid != owner:
            os.fchown(handle, owner, group)
        for name in [*folders, *files]:
            with suppress(FileNotFoundError):
                found = os.stat(name, dir_fd=handle, follow_symlinks=False)
                if found.st_uid != owner and not stat.S_ISDIR(found.st_mode):
                    os.chown(name, owner, group, dir_fd=handle, follow_symlinks=False)


def _start(engine: ContainerEngine, spec: ContainerSpec, name: str) -> None:
    for last in [False] * _AWAY_TRIES + [True]:
        try:
            engine.create(spec, name)
            return engine.start(name)
        except (EngineAway, EngineRefused) as error:
            # The name is ours: what has it was made by a request whose answer was lost.
            taken = isinstance(error, EngineRefused) and error.status == 409
            if last or not (taken or isinstance(error, EngineAway)):
                raise
            time.sleep(AWAY_S)
            with suppress(EngineAway):
                engine.remove(name)
    return None


def _remove(engine: ContainerEngine, name: str) -> None:
    """Remove the container now; what the engine cannot do now is done before the workspace is looked at."""
    with suppress(RatchetError):
        engine.remove(name)


class _Pipes:
    """The ends of the pipes on this side. `in` is opened for reading too until the container has opened it: otherwise
    opening would wait, or what was written would be lost."""

    def __init__(self, folder: Path, stderr: int) -> None:
        self.folder, self.stderr = folder, stderr
        self.outputs = [name for name in (_OUT, _ERR) if not (folder / name).is_symlink()]
        self.ends = {name: os.open(folder / name, os.O_RDONLY | os.O_NONBLOCK) for name in self.outputs}
        self.ends[_IN] = os.open(folder / _IN, os.O_RDWR | os.O_NONBLOCK)
        wake, self.waker = os.pipe()
        self.wake = wake
        os.set_blocking(self.waker, False)
        self.engine_said, self.code, self.memory_kills = b"", -1, 0
        self.ended, self.silent_since = threading.Event(), 0.0
        self.started, self.stopped_at = False, 0.0

    def carry(self, engine: ContainerEngine, step: ContainerStep, *, on_start: Callable[[], None]) -> int:
        """Start the command and pass everything on until it and the container have ended; returns its exit code."""
        self.engine, self.step = engine, step
        signal.set_wakeup_fd(self.waker)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, self._stop)
        self._hold_life()
        threading.Thread(target=self._run, daemon=True).start()
        poll, left = select.poll(), {self.ends[each]: each for each in self.outputs}
        for end in (*left, self.wake):
            poll.register(end, select.POLLIN)
        while left or not self.ended.is_set():
            for end, _ in poll.poll(200):
                if end == self.wake:
                    os.read(end, 64)
                elif content := os.read(end, _CHUNK):
                    self._has_started(on_start)  # what it prints may come before what the engine says
                    _write(1 if left[end] == _OUT else 2, content)
                else:
                    poll.unregister(end)
                    del left[end]
                    self.silent_since = 0.0 if left else time.monotonic()
            if self.engine_said.startswith(b"started\n"):
                self._has_started(on_start)
            if self.ended.is_set():
                self._end_all()
            if (self.ended.is_set() and not self.started) or self._is_overdue():
                break
        self._end_all()
        return self._conclude()

    def _hold_life(self) -> None:
        """Connect with the guard, and take the pipe's name away before anything of the project runs."""
        checked_at = time.monotonic()
        while _LIFE not in self.ends:
            try:
                self.ends[_LIFE] = os.open(self.folder / _LIFE, os.O_WRONLY | os.O_NONBLOCK)
            except OSError:  # the guard has not opened it yet
                select.select([self.wake], [], [], 0.005)
                if self.stopped_at or time.monotonic() > checked_at + 1:
                    checked_at = time.monotonic()
                    self._check_start()
        (self.folder / _LIFE).unlink()

    def _check_start(self) -> None:
        with suppress(EngineAway):
            state = self.engine.state(self.step.name)
            if self.stopped_at or state is None or not state.running:
                log = self.engine.logs(self.step.name, lines=5).decode(errors="replace").strip() if state else ""
                _give_up(log or (state.error if state else ""))

    # --- the command, in a thread ---

    def _run(self) -> None:
        try:
            name, user = self.step.name, self.step.spec.user
            argv = ["sh", "-c", COMMAND, "sh", PIPES, *self.step.command]
            prepared = self.engine.prepare_exec(name, argv, user=user, folder=self.step.folder)
            self.engine.run_exec(prepared, self._hear)
            self.code = self._verdict(prepared)
            if self.code:
                self.memory_kills = self._count_kills()
        except RatchetError as error:
            self._hear(error.message.encode())
        finally:
            self.ended.set()
            self._wake_up()

    def _hear(self, content: bytes) -> None:
        if len(self.engine_said) < _CHUNK:
            self.engine_said += content
            self._wake_up()

    def _wake_up(self) -> None:
        with suppress(BlockingIOError):
            os.write(self.waker, b"x")

    def _verdict(self, prepared: str) -> int:
        """Return the exit code that the engine reports; -1 if it does not know."""
        while True:
            state = self.engine.exec_state(prepared)
            if not state.running:
                known = state.exit_code is not None and 0 <= state.exit_code <= 255
                return state.exit_code if known and state.exit_code is not None else -1
            if self.silent_since and time.monotonic() > self.silent_since + _LOST_S:
                return -1
            time.sleep(_POLL_S)

    def _count_kills(self) -> int:
        with suppress(RatchetError):
            user = guard_user(self.step.spec.user)
            told = self.engine.output_of(self.step.name, _COUNTERS, user=user, timeout_s=_KILL_S)
            return int(found[1]) if (found := _KILLS.search(told)) else 0
        return 0

    # --- passing on ---

    def _has_started(self, on_start: Callable[[], None]) -> None:
        """Report the start to the reaper, and keep only the writing end, so that the container sees when it is
        closed."""
        if self.started:
            return
        self.started = True
        on_start()
        if self.stderr:
            os.write(2, STARTED)
            os.dup2(self.stderr, 2)
            os.close(self.stderr)
        with suppress(OSError):  # the container has ended already
            writing = os.open(self.folder / _IN, os.O_WRONLY | os.O_NONBLOCK)
            os.set_blocking(writing, True)
            os.close(self.ends[_IN])
            self.ends[_IN] = writing
        threading.Thread(target=_feed, args=[self.ends[_IN]], daemon=True).start()

    def _stop(self, *_: object) -> None:
        if not self.stopped_at:
            self.stopped_at = time.monotonic()
            threading.Thread(target=self._terminate, daemon=True).start()

    def _terminate(self) -> None:
        """Send SIGTERM to all processes of the container but the guard, which are another user's."""
        argv = ["sh", "-c", "kill -TERM -1"]
        with suppress(RatchetError):
            self.engine.output_of(self.step.name, argv, user=self.step.spec.user, timeout_s=_KILL_S)

    def _is_overdue(self) -> bool:
        return bool(self.stopped_at) and time.monotonic() > self.stopped_at + _KILL_S

    def _end_all(self) -> None:
        """End the guard, and so every process of the container."""
        if _LIFE in self.ends:
            os.close(self.ends.pop(_LIFE))

    def _conclude(self) -> int:
        if not self.started:
            _give_up(self.engine_said.decode(errors="replace").strip())
        if self.memory_kills:
            most = self.step.spec.memory_mb
            limit = f" (containers.memory_mb is {most})" if most else ""
            _say(f"{self.memory_kills} of the step's processes were killed, out of memory{limit}")
        if self.code < 0 and not self.stopped_at:
            (self.folder.parent / UNKNOWN).touch()
            _say("the container engine does not know how the command ended: was it started again meanwhile?")
        return self.code if self.code >= 0 else _KILLED


def _say(text: str) -> None:
    os.write(2, f"ratchet: {text}\n".encode())


def _give_up(why: str) -> None:
    sys.exit(f"the container ended before the command could start: {why}")


def _feed(end: int) -> None:
    with suppress(OSError):
        while content := os.read(0, _CHUNK):
            _write(end, content)
    os.close(end)


def _write(end: int, content: bytes) -> None:
    while content:
        content = content[os.write(end, content) :]


@contextmanager
def _pipes(folder: Path, user: str, stderr: int) -> Iterator[_Pipes]:
    folder.mkdir(mode=0o700, exist_ok=True)
    for name in (_IN, _OUT, _ERR, _LIFE):
        (folder / name).unlink(missing_ok=True)
        os.mkfifo(folder / name, 0o600)
    if os.path.samestat(
        os.fstat(1), os.fstat(stderr or 2)
    ):  # one file or pipe: the order of what is written to both is kept
        (folder / _ERR).unlink()
        (folder / _ERR).symlink_to(_OUT)
    give(str(folder), user)
    folder.chmod(0o711)  # the guard is another user; what is above is closed to others
    (folder / _LIFE).chmod(0o644)
    try:
        yield _Pipes(folder, stderr)
    finally:
        for name in (_IN, _OUT, _ERR, _LIFE):
            (folder / name).unlink(missing_ok=True)
        folder.rmdir()


def _is_open(handle: int) -> bool:
    try:
        os.fstat(handle)
    except OSError:
        return False
    return True


if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    try:
        sys.exit(main(Path(sys.argv[1])))
    except RatchetError as error:
        sys.exit(f"{error.message}; {error.hint}")
