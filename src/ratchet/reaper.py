"""The program that stands between the factory and each child: when it ends, every descendant is gone.

Run as `python -I -S reaper.py LIFELINE RESULT GRACE TRIES -- argv…` and by `process.py` only. It imports next to
nothing, so that it starts in milliseconds. A group signal is not enough: agents put their shells into sessions of
their own. So the reaper makes itself the parent of all orphans below it (Linux), and kills whatever is left when the
child has ended, when it is told to (SIGTERM), or when the factory is gone: then nobody holds the other end of LIFELINE
any more.

A confined command (TRIES above 0) says STARTED first thing on its stderr, and goes on with the real one, which is
file TRUE_STDERR till then. So what a sandbox says that could not be made is never taken for the command's, and the
sandbox is made again.
"""

# What is below `ctypes` and `signal`: what those add, enums above all, takes as long to load as the interpreter does.
import _ctypes
import _signal as signal  # type: ignore[import-not-found]
import os
import select
import sys
import time

PR_SET_CHILD_SUBREAPER = 36
F_SETPIPE_SZ = 1031
PIPE_BYTES = 1_048_576  # the most that everybody may have
S_IFMT, S_IFIFO = 0o170000, 0o010000
SWEEP_S = 10.0
STARTED = b"started\n"
TRUE_STDERR = 9


def main(argv: list[str]) -> int:
    lifeline, result, grace_s, tries = int(argv[1]), int(argv[2]), float(argv[3]), int(argv[4])
    command = argv[argv.index("--") + 1 :]
    os.set_inheritable(lifeline, False)
    os.set_inheritable(result, False)
    adopt_orphans()
    widen_stdout()
    wake, waker = os.pipe()
    os.set_blocking(waker, False)
    signal.set_wakeup_fd(waker)
    stops: list[int] = []
    for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda got, _frame: stops.append(got) if got != signal.SIGCHLD else None)
    held = hold_back() if tries else None
    while True:
        try:
            child = start(command, held)
        except OSError as error:
            say(result, f"error {error.errno} {error.strerror}")
            return 127
        status = wait(child, lifeline, wake, stops, grace_s)
        left = sweep(child)
        tries -= 1
        if held is None or stops or has_started(held):
            say(result, f"exit {status} {left}")
            return 0
        if tries <= 0:
            say(result, f"unstarted {said(held)}")
            return 0


def hold_back() -> int:
    if hasattr(os, "memfd_create"):
        return os.memfd_create("stderr")
    import tempfile  # noqa: PLC0415 — only where there is no memfd: it is slow to load

    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


def has_started(held: int) -> bool:
    return STARTED in os.pread(held, 65_536, 0)


def said(held: int) -> str:
    return os.pread(held, 400, 0).decode(errors="replace").strip().replace("\n", "; ")


def widen_stdout() -> None:
    """Some programs end without waiting until what they said was read (Node's do): the pipe has to hold it."""
    if os.fstat(1).st_mode & S_IFMT != S_IFIFO:
        return
    import fcntl  # noqa: PLC0415 — few are listened to

    try:
        fcntl.fcntl(1, F_SETPIPE_SZ, PIPE_BYTES)
    except OSError:
        pass  # another system, or this user's pipes hold all they may


def adopt_orphans() -> None:
    if sys.platform == "linux":
        prctl = _ctypes.dlsym(_ctypes.dlopen("libc.so.6", 0), "prctl")
        _ctypes.call_function(prctl, (PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0))


def start(command: list[str], held: int | None) -> int:
    """posix_spawn reports a missing program as an error here, where a fork would hide it in an exit code."""
    ours = [signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGPIPE]
    files = []
    if held is not None:
        os.ftruncate(held, 0)
        os.lseek(held, 0, os.SEEK_SET)
        files = [(os.POSIX_SPAWN_DUP2, 2, TRUE_STDERR), (os.POSIX_SPAWN_DUP2, held, 2)]
    return os.posix_spawnp(command[0], command, os.environ, setsid=True, setsigdef=ours, file_actions=files)


def wait(child: int, lifeline: int, wake: int, stops: list[int], grace_s: float) -> int:
    """Until the child has ended. Told to stop: TERM, a grace, KILL. Factory gone: KILL at once."""
    poll = select.poll()
    poll.register(lifeline, select.POLLHUP)
    poll.register(wake, select.POLLIN)
    deadline = None
    while True:
        status = reap(child)
        if status is not None:
            return status
        if stops and deadline is None:
            signal_group(child, signal.SIGTERM)
            deadline = time.monotonic() + grace_s
        if deadline is not None and time.monotonic() >= deadline:
            kill_tree(child)
        pause_ms = 50 if deadline is not None else None
        for ready, _ in poll.poll(pause_ms):
            if ready == lifeline:
                stops.append(signal.SIGHUP)
                kill_tree(child)
                poll.unregister(lifeline)
                deadline = time.monotonic()
            else:
                os.read(wake, 512)


def reap(child: int) -> int | None:
    """Collect whoever has died; the child's own status when it is among them."""
    found = None
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return found
        if pid == 0:
            return found
        if pid == child:
            found = os.waitstatus_to_exitcode(status)


def sweep(child: int) -> int:
    """Kill what outlived the child; says how many there were. Bounded: a process in the kernel cannot be killed."""
    if sys.platform == "linux" and not has_children():
        return 0
    signal_group(child, signal.SIGKILL)
    seen: set[int] = set()
    deadline = time.monotonic() + SWEEP_S
    while has_children() and time.monotonic() < deadline:
        left = descendants(os.getpid())
        seen.update(left)
        for pid in left:
            kill(pid, signal.SIGKILL)
        time.sleep(0.002)
    return len(seen)


def has_children() -> bool:
    """Whoever lives below us lives below a child of ours: orphans become our children. Who has none need not look
    through all processes of the machine; and a group whose leader is reaped may be somebody else's by now."""
    reap(0)
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def kill_tree(child: int) -> None:
    signal_group(child, signal.SIGKILL)
    for pid in descendants(os.getpid()):
        kill(pid, signal.SIGKILL)


def descendants(root: int) -> list[int]:
    """Everyone below `root`, zombies left out. Without /proc (not Linux) only the group signal is left."""
    children: dict[int, list[int]] = {}
    try:
        names = [name for name in os.listdir("/proc") if name.isdigit()]
    except OSError:
        return []
    for name in names:
        try:
            with open(f"/proc/{name}/stat", "rb") as file:
                fields = file.read().rsplit(b")", 1)[1].split()
        except OSError:
            continue
        if fields[0] != b"Z":
            children.setdefault(int(fields[1]), []).append(int(name))
    found, queue = [], [root]
    while queue:
        below = children.get(queue.pop(), [])
        found += below
        queue += below
    return found


def signal_group(leader: int, number: int) -> None:
    # The leader may be gone while its children live on: signal the group, never just the pid.
    try:
        os.killpg(leader, number)
    except (ProcessLookupError, PermissionError):
        pass


def kill(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        pass


def say(result: int, line: str) -> None:
    try:
        os.write(result, line.encode() + b"\n")
    except OSError:
        pass


if __name__ == "__main__":
    sys.exit(main(sys.argv))
