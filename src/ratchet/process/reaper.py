"""The parent process of each child: when it ends, every descendant of the child is dead.

Run as `python -I -S reaper.py LIFELINE RESULT GRACE TRIES -- argv…` by `process.spawn` only. It imports almost
nothing, so that it starts in milliseconds. Signalling the process group is not enough: agents start shells in sessions
of their own. So the reaper becomes the parent of all orphans below it (Linux), and kills the remaining processes when
the child has ended, on SIGTERM, or when Ratchet is gone: then the other end of LIFELINE is closed.

A confined command (TRIES above 0) first writes STARTED to its stderr, then switches to the real stderr, which is file
TRUE_STDERR until then. So error messages of a sandbox that failed to start are never taken for output of the command,
and the sandbox is started again. The first stderr is a socket: the sandbox's first process keeps it open, and in a
file or pipe the command could take back what was written.

The child gets the three streams and nothing else: whatever this process inherited, it closes first.
"""

# The C modules below `ctypes` and `signal`: loading those takes as long as starting the interpreter.
import _ctypes
import _signal as signal  # type: ignore[import-not-found]
import os
import select
import sys
import time

PR_SET_CHILD_SUBREAPER = 36
F_SETPIPE_SZ = 1031
PIPE_BYTES = 1_048_576  # the largest size for unprivileged users
S_IFMT, S_IFIFO = 0o170000, 0o010000
SWEEP_S = 10.0
STARTED = b"started\n"
TRUE_STDERR = 9


def main(argv: list[str]) -> int:
    lifeline, result, grace_s, tries = int(argv[1]), int(argv[2]), float(argv[3]), int(argv[4])
    command = argv[argv.index("--") + 1 :]
    close_all_but(0, 1, 2, lifeline, result)
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
    confined = tries > 0
    while True:
        reports, report = open_reports() if confined else (-1, -1)
        try:
            child = start(command, report)
        except OSError as error:
            write_result(result, f"error {error.errno} {error.strerror}")
            return 127
        status = wait(child, lifeline, wake, stops, grace_s)
        left = sweep(child)
        tries -= 1
        said = read_reports(reports, report) if confined else b""
        if not confined or stops or STARTED in said:
            write_result(result, f"exit {status} {left}")
            return 0
        if tries <= 0:
            message = said[:400].decode(errors="replace").strip().replace("\n", "; ")
            write_result(result, f"unstarted {message}")
            return 0


def close_all_but(*kept: int) -> None:
    """Close what a careless parent has left open: a folder of the host would be a way out of any sandbox."""
    for number in {*open_descriptors()} - {*kept}:
        try:
            os.close(number)
        except OSError:
            pass  # the one that listed the others


def keep_inherited_descriptors() -> None:
    """Let no program that this process starts inherit what it inherited itself, but for the three streams."""
    for number in {*open_descriptors()} - {0, 1, 2}:
        try:
            os.set_inheritable(number, False)
        except OSError:
            pass


def open_descriptors() -> list[int]:
    try:
        return [int(name) for name in os.listdir("/dev/fd")]
    except OSError:
        return list(range(os.sysconf("SC_OPEN_MAX")))


def open_reports() -> tuple[int, int]:
    """Return the ends for reading and writing: of a socket nobody can open them anew, or read back what was written."""
    import _socket  # noqa: PLC0415 — only for confined children

    reports, report = _socket.socketpair()
    for end in (reports, report):  # nobody reads meanwhile: what is too much is lost, and keeps nobody waiting
        end.setblocking(False)
    return reports.detach(), report.detach()


def read_reports(reports: int, report: int) -> bytes:
    """Return what was written, and close both ends."""
    os.close(report)
    said = b""
    try:
        while part := os.read(reports, PIPE_BYTES):
            said += part
    except BlockingIOError:
        pass  # a process that could not be killed holds the other end
    os.close(reports)
    return said


def widen_stdout() -> None:
    """Enlarge the stdout pipe: some programs (Node) exit before their output is read, so the pipe must hold it."""
    if os.fstat(1).st_mode & S_IFMT != S_IFIFO:
        return
    import fcntl  # noqa: PLC0415 — only for children whose stdout is a pipe

    try:
        fcntl.fcntl(1, F_SETPIPE_SZ, PIPE_BYTES)
    except OSError:
        pass  # not Linux, or the user's limit for pipes is reached


def adopt_orphans() -> None:
    if sys.platform == "linux":
        prctl = _ctypes.dlsym(_ctypes.dlopen("libc.so.6", 0), "prctl")
        _ctypes.call_function(prctl, (PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0))


def start(command: list[str], report: int) -> int:
    """Start the child. posix_spawn raises for a missing program; a fork would only return an exit code."""
    ours = [signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGPIPE]
    files = [(os.POSIX_SPAWN_DUP2, 2, TRUE_STDERR), (os.POSIX_SPAWN_DUP2, report, 2)] if report >= 0 else []
    return os.posix_spawnp(command[0], command, os.environ, setsid=True, setsigdef=ours, file_actions=files)


def wait(child: int, lifeline: int, wake: int, stops: list[int], grace_s: float) -> int:
    """Wait for the end of the child. On a stop signal: TERM, grace period, KILL. When Ratchet is gone: KILL at once."""
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
    """Reap all dead children; return the status of `child` if it is among them."""
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
    """Kill processes that outlived the child; return their number. Bounded: some inside the kernel cannot be killed."""
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
    """Whether any descendant is left: orphans become our children, so one check of our own children is enough.

    This avoids a scan of all processes, and a signal to a group whose id may have been reused after its leader's end.
    """
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
    """Return all descendants of `root` except zombies; nothing without /proc (not Linux)."""
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
    # The leader may be dead while its children live: signal the group, never only the pid.
    try:
        os.killpg(leader, number)
    except (ProcessLookupError, PermissionError):
        pass


def kill(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        pass


def write_result(result: int, line: str) -> None:
    try:
        os.write(result, line.encode() + b"\n")
    except OSError:
        pass


if __name__ == "__main__":
    sys.exit(main(sys.argv))
