"""Runs one command in a container as if it were a child: its input, output, signals and exit code are passed on.

Started as `python -I -m ratchet.process.container_step FILE` below a reaper, for a confinement that has prepared the
file. The streams are named pipes in a folder that is mounted into the container, so the engine may be killed and
started again meanwhile: it only creates the container and removes it. The container's first process reads one of the
pipes, and ends everything when this process has gone.
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
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec

from ratchet.errors import RatchetError
from ratchet.process.containers import AWAY_S, ContainerEngine, ContainerSpec, EngineAway, new_name
from ratchet.process.reaper import STARTED, TRUE_STDERR
from ratchet.process.spawn import this_process

LABEL = "ratchet.step"  # the label with the process that carries the streams
PIPES = "/run/ratchet"  # where the folder of the pipes is mounted
# The first process. The command is in the foreground, because a shell lets background commands ignore SIGINT.
INIT = r"""
pipes=$1; shift
exec 3<$pipes/life 4>$pipes/end 5<$pipes/in 6>$pipes/out 7>$pipes/err
mkdir -p "$HOME"
echo started >&4
{ while read -r signal; do kill -$signal -1; done; kill -KILL -1; } <&3 4>&- 5<&- 6>&- 7>&- 2>&- &
"$@" <&5 >&6 2>&7 3<&- 4>&- 5<&- 6>&- 7>&-
code=$?
kills=$(cat /sys/fs/cgroup/memory.events /sys/fs/cgroup/memory/memory.oom_control 2>&- | sed -n 's/^oom_kill //p')
echo "code=$code oom_kill=$kills" >&4
exit $code
"""
_END = re.compile(rb"code=(\d+) oom_kill=(\d*)")
_IN, _OUT, _ERR, _LIFE, _LAST = ("in", "out", "err", "life", "end")
_AWAY_TRIES = 100
_KILL_S = 3.0  # after SIGTERM; the reaper gives more
_CHUNK = 1 << 16


class ContainerStep(msgspec.Struct, frozen=True, kw_only=True):
    """A command in a container. `owned` are paths that are given to the container's user first, if this is root."""

    engine: str
    spec: ContainerSpec
    owned: list[str] = []


def init_command(argv: Sequence[str]) -> list[str]:
    """Return the container's first command, which runs another with the streams of the pipes."""
    return ["sh", "-c", INIT, "sh", PIPES, *argv]


def main(file: Path) -> int:
    step = msgspec.json.decode(file.read_bytes(), type=ContainerStep)
    engine, name = ContainerEngine(step.engine), new_name("step")
    for path in step.owned:
        give(path, step.spec.user)
    held = TRUE_STDERR if _is_open(TRUE_STDERR) else 0  # before anything is opened here
    with _pipes(file.parent / "pipes", step.spec.user, held) as pipes:
        spec = msgspec.structs.replace(
            step.spec,
            mounts=[*step.spec.mounts, f"{pipes.folder}:{PIPES}:ro"],
            labels={LABEL: msgspec.json.encode(this_process()).decode()},
        )
        try:
            _start(engine, spec, name)
            return pipes.carry(engine, name, spec.memory_mb, on_start=file.unlink)
        finally:
            _remove(engine, name)


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
        except EngineAway:
            if last:
                raise
            time.sleep(AWAY_S)
            with suppress(EngineAway):
                engine.remove(name)
    return None


def _remove(engine: ContainerEngine, name: str) -> None:
    """Remove the container now; what the engine cannot do now is done by the step's workspace, or by the next one."""
    with suppress(RatchetError):
        engine.remove(name)


class _Pipes:
    """The ends of the pipes on this side. Those for writing are opened for reading too until the container has opened
    them: otherwise opening would wait, or what was written would be lost."""

    def __init__(self, folder: Path, stderr: int) -> None:
        self.folder, self.stderr = folder, stderr
        self.outputs = [name for name in (_OUT, _ERR, _LAST) if not (folder / name).is_symlink()]
        self.ends = {name: os.open(folder / name, os.O_RDONLY | os.O_NONBLOCK) for name in self.outputs}
        self.ends |= {name: os.open(folder / name, os.O_RDWR | os.O_NONBLOCK) for name in (_IN, _LIFE)}
        self.started, self.last = False, b""
        self.stopped_at = 0.0

    def carry(self, engine: ContainerEngine, name: str, memory_mb: int, *, on_start: Callable[[], None]) -> int:
        """Pass everything on until the container has ended; returns its exit code."""
        wake, waker = os.pipe()
        os.set_blocking(waker, False)
        signal.set_wakeup_fd(waker)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, self._stop)
        poll, left = select.poll(), {self.ends[each]: each for each in self.outputs}
        for end in (*left, wake):
            poll.register(end, select.POLLIN)
        while left:
            ready = poll.poll(200)
            for end, _ in ready:
                if end == wake:
                    os.read(wake, 64)
                elif not self._pass_on(left[end], os.read(end, _CHUNK)):
                    poll.unregister(end)
                    del left[end]
            if not self.started and b"started\n" in self.last:
                self._has_started()
                on_start()
            if self.stopped_at and time.monotonic() > self.stopped_at + _KILL_S:
                with suppress(RatchetError):
                    engine.kill(name)
            if not (ready or self.started):
                self._check_start(engine, name)
        return self._conclude(memory_mb)

    def _pass_on(self, name: str, content: bytes) -> bool:
        if name == _LAST:
            self.last += content
        else:
            _write(1 if name == _OUT else 2, content)
        return bool(content)

    def _has_started(self) -> None:
        """Report the start to the reaper, and keep only the writing ends, so that the container sees when they are
        closed."""
        self.started = True
        if self.stderr:
            os.write(2, STARTED)
            os.dup2(self.stderr, 2)
            os.close(self.stderr)
        for name in (_IN, _LIFE):
            with suppress(OSError):  # the container has ended already
                writing = os.open(self.folder / name, os.O_WRONLY | os.O_NONBLOCK)
                os.set_blocking(writing, True)
                os.close(self.ends[name])
                self.ends[name] = writing
        threading.Thread(target=_feed, args=[self.ends[_IN]], daemon=True).start()

    def _stop(self, *_: object) -> None:
        if not self.stopped_at:
            self.stopped_at = time.monotonic()
            with suppress(OSError):
                os.write(self.ends[_LIFE], b"TERM\n")

    def _check_start(self, engine: ContainerEngine, name: str) -> None:
        with suppress(EngineAway):
            state = engine.state(name)
            if state is None or not state.running:
                log = engine.logs(name, lines=5).decode(errors="replace").strip() if state else ""
                sys.exit(f"the container ended before the command could start: {log or (state and state.error) or ''}")

    def _conclude(self, memory_mb: int) -> int:
        found = next(reversed([*_END.finditer(self.last)]), None)  # others can write into the pipe, but not later
        if found and int(found[2] or 0) and int(found[1]):
            limit = f" (containers.memory_mb is {memory_mb})" if memory_mb else ""
            os.write(
                2, f"ratchet: {int(found[2])} of the step's processes were killed, out of memory{limit}\n".encode()
            )
        return int(found[1]) if found else 128 + signal.SIGKILL


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
    for name in (_IN, _OUT, _ERR, _LIFE, _LAST):
        (folder / name).unlink(missing_ok=True)
        os.mkfifo(folder / name, 0o600)
    if os.path.samestat(
        os.fstat(1), os.fstat(stderr or 2)
    ):  # one file or pipe: the order of what is written to both is kept
        (folder / _ERR).unlink()
        (folder / _ERR).symlink_to(_OUT)
    give(str(folder), user)
    try:
        yield _Pipes(folder, stderr)
    finally:
        for name in (_IN, _OUT, _ERR, _LIFE, _LAST):
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
