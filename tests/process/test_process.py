"""Real children that ignore TERM, fork, flood, and outlive their parents."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import pytest
from msgspec.structs import replace

from ratchet.process.spawn import (
    START_TRIES,
    ConfinementFailed,
    Deadlines,
    ProcessResult,
    ProgramMissing,
    attach,
    confine,
    confined,
    is_gone,
    run_command,
    run_process,
    this_process,
)
from ratchet.process.supervise import interactive_process, supervise

PYTHON = sys.executable


def test_a_program_is_given_paths_as_its_namespace_sees_them(tmp_path: Path) -> None:
    """A sandbox in the namespace has a /proc of its own: a path below `/proc/PID/root` ends there."""
    program = tmp_path / "program"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    door = f"/proc/{os.getpid()}/root"
    argv, _, env, _ = confine([f"{door}{program}", "-x"], Path(f"{door}{tmp_path}"), {"A": f"x:{door}/b"}, ())
    assert argv[-2:] == [str(program), "-x"] and env == {"A": "x:/b"}


class Run(Protocol):
    def __call__(self, *argv: str, timeout_s: float = 30, **options: Any) -> ProcessResult: ...


@pytest.fixture(params=["awaited", "attended"])
def run(request: pytest.FixtureRequest, tmp_path: Path) -> Run:
    """Both ways to run a child to its end: they are to be the same to it."""

    def awaited(*argv: str, timeout_s: float = 30, **options: Any) -> ProcessResult:
        return asyncio.run(_run(tmp_path, *argv, timeout_s=timeout_s, **options))

    def attended(*argv: str, timeout_s: float = 30, **options: Any) -> ProcessResult:
        out = tmp_path / "out"
        return run_process(argv, cwd=tmp_path, env=dict(os.environ), output=out, timeout_s=timeout_s, **options)

    return awaited if request.param == "awaited" else attended


def heard_by(tmp_path: Path, *argv: str, **options: Any) -> ProcessResult:
    return asyncio.run(_run(tmp_path, *argv, **options))


async def _run(tmp_path: Path, *argv: str, timeout_s: float = 30, **options: object) -> ProcessResult:
    return await supervise(
        argv,
        cwd=tmp_path,
        env=dict(os.environ),
        output=tmp_path / "out",
        timeout_s=timeout_s,
        **options,  # type: ignore[arg-type]
    )


def text(tmp_path: Path) -> str:
    return (tmp_path / "out").read_text()


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        return False
    return state != "Z"


async def until(path: Path) -> str:
    """Wait for a child to have written a file; a deadline, not a pause, bounds it."""
    async with asyncio.timeout(20):
        while not path.exists() or not path.read_text().strip():  # noqa: ASYNC110 — the event is in another process
            await asyncio.sleep(0.01)
    return path.read_text()


# A daemon: forks twice, starts a session of its own, and says who it is.
DAEMON = """
import os, sys, time, signal
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        open(sys.argv[1], "w").write(str(os.getpid()))
        time.sleep(600)
    os._exit(0)
while not os.path.exists(sys.argv[1]) or not open(sys.argv[1]).read():
    time.sleep(0.01)
"""


class Fickle:
    """A confinement that fails to start a given number of times."""

    contains = False
    has_own_programs = False

    def refused_forks(self) -> int:
        return 0

    def tidy(self) -> None:
        pass

    def __init__(self, folder: Path, failures: int) -> None:
        self.count, self.failures = folder / "tries", failures

    def wrap(
        self, argv: Sequence[str], *, cwd: Path, env: Mapping[str, str], writable: Sequence[Path]
    ) -> tuple[list[str], dict[str, str]]:
        script = (
            'echo x >> "$1"; [ $(wc -l < "$1") -gt "$2" ] || { echo jail: a mount went away >&2; exit 1; };'
            'shift 2; exec "$@"'
        )
        return ["sh", "-c", script, "sh", str(self.count), str(self.failures), *argv], dict(env)


def test_a_confinement_that_does_not_start_is_made_again_and_says_nothing(tmp_path: Path, run: Run) -> None:
    with confined(Fickle(tmp_path, 2)):
        ended = run("sh", "-c", "echo hello; echo jail: of ours >&2; exit 1")
    assert (ended.exit_code, text(tmp_path)) == (1, "hello\njail: of ours\n")
    assert (tmp_path / "tries").read_text() == "x\n" * 3


def test_a_confinement_that_never_starts_is_an_error_and_no_result(tmp_path: Path, run: Run) -> None:
    with confined(Fickle(tmp_path, 99)), pytest.raises(ConfinementFailed, match="jail: a mount went away"):
        run("true")
    assert (tmp_path / "tries").read_text() == "x\n" * START_TRIES


def test_a_program_on_our_terminal_has_its_confinement_made_again_too(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with confined(Fickle(tmp_path, 2)):
        code = attach(["sh", "-c", "echo hello; echo oops >&2; exit 7"], cwd=tmp_path, env=os.environ)
    assert (code, *capfd.readouterr()) == (7, "hello\n", "oops\n")


def test_a_program_one_talks_with_has_its_confinement_made_again_too(tmp_path: Path) -> None:
    async def talk() -> bytes:
        with confined(Fickle(tmp_path, 2)):
            async with interactive_process(["cat"], cwd=tmp_path, env=os.environ, errors=tmp_path / "errors") as (
                received,
                reported,
            ):
                reported.write(b"hello\n")
                return await received.readline()

    assert asyncio.run(talk()) == b"hello\n"
    assert (tmp_path / "errors").read_bytes() == b""


# Writes over what the reaper was told about the start: the first process of its confinement, which is its parent, still
# has that file open. It touches that one file and no other process: tests are not in a pid namespace.
TAKES_BACK_ITS_START = """
import os
told = f"/proc/{os.getppid()}/fd/2"
if os.readlink(told).startswith("/memfd:stderr"):
    file = os.open(told, os.O_RDWR)
    os.ftruncate(file, 0)
    os.write(file, b"\\xff" * 400)
open("count", "a").write("x")
"""


class KeepsItsStreams(Fickle):
    """A confinement whose first process stays, as bubblewrap's does; if it fails, its message is no text."""

    def wrap(
        self, argv: Sequence[str], *, cwd: Path, env: Mapping[str, str], writable: Sequence[Path]
    ) -> tuple[list[str], dict[str, str]]:
        failing = "i=0; while [ $i -lt 500 ]; do printf '\\377' >&2; i=$((i+1)); done; exit 1"
        return ["sh", "-c", failing if self.failures else f'cd {cwd}; "$@"; exit $?', "sh", *argv], dict(env)


def test_a_command_cannot_take_back_that_it_was_started(tmp_path: Path, run: Run) -> None:
    with confined(KeepsItsStreams(tmp_path, 0)):
        ended = run(PYTHON, "-c", TAKES_BACK_ITS_START)
    assert ended.exit_code == 0
    assert (tmp_path / "count").read_text() == "x"


def test_why_a_confinement_does_not_start_need_not_be_text(tmp_path: Path, run: Run) -> None:
    with confined(KeepsItsStreams(tmp_path, 1)), pytest.raises(ConfinementFailed, match="\ufffd\ufffd"):
        run("true")


# A factory that inherited a descriptor. A process of its own: pytest needs those that it would replace.
INHERITED = """
import asyncio, importlib, os, sys
from pathlib import Path
from ratchet.process.supervise import supervise
loop, number, folder, program = sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]), sys.argv[4]
taken = os.open(folder, os.O_RDONLY)
os.dup2(taken, number, inheritable=True)
with asyncio.Runner(loop_factory=importlib.import_module(loop).new_event_loop) as runner:
    runner.run(supervise([sys.executable, "-c", program], cwd=folder, env={}, output=folder / "out", timeout_s=30))
"""
SHOWS_ITS_DESCRIPTORS = """
import os
names = [f"/proc/self/fd/{name}" for name in os.listdir("/proc/self/fd") if int(name) > 2]
print([os.readlink(name) for name in names if os.path.exists(name)])
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("number", [3, 9, 700])
@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_a_program_is_not_given_what_its_factory_inherited(tmp_path: Path, number: int, loop: str) -> None:
    """Uvloop starts programs with all inheritable descriptors of its process."""
    pytest.importorskip(loop)
    subprocess.run([PYTHON, "-c", INHERITED, loop, str(number), str(tmp_path), SHOWS_ITS_DESCRIPTORS], check=True)
    assert text(tmp_path) == "[]\n"


def test_a_child_gets_its_input_and_its_output_is_kept(tmp_path: Path, run: Run) -> None:
    ended = run("cat", stdin=b"hello")
    assert (ended.exit_code, text(tmp_path)) == (0, "hello")


def test_a_childs_exit_code_is_its_own(tmp_path: Path, run: Run) -> None:
    assert run("sh", "-c", "exit 7").exit_code == 7


def test_the_end_of_a_child_names_the_signal_that_killed_it(tmp_path: Path, run: Run) -> None:
    assert run("sh", "-c", "kill -SEGV $$").signal == signal.SIGSEGV


def test_a_program_that_is_not_there_is_an_error_with_its_name(tmp_path: Path, run: Run) -> None:
    with pytest.raises(ProgramMissing, match="no-such-program"):
        run("no-such-program")
    with pytest.raises(ProgramMissing, match="no-such-program"):
        run_command(["no-such-program"])


def test_a_child_that_ignores_term_is_killed_when_its_time_is_up(tmp_path: Path, run: Run) -> None:
    code = "import signal, time; signal.signal(15, signal.SIG_IGN); time.sleep(600)"
    ended = run(PYTHON, "-c", code, timeout_s=0.5, grace_s=0.2)
    assert ended.timed_out and ended.signal == signal.SIGKILL


def test_a_child_that_minds_term_ends_itself_within_its_grace(tmp_path: Path, run: Run) -> None:
    code = "trap 'echo bye; exit 3' TERM; echo ready; while :; do sleep 0.05; done"
    ended = run("sh", "-c", code, timeout_s=0.5)
    assert ended.timed_out and ended.exit_code == 3 and "bye" in text(tmp_path)


def test_a_daemon_that_left_its_session_dies_with_the_step(tmp_path: Path, run: Run) -> None:
    ended = run(PYTHON, "-c", DAEMON, str(tmp_path / "pid"))
    assert ended.exit_code == 0 and ended.survivors >= 1
    assert not alive(int((tmp_path / "pid").read_text()))


def test_children_that_fork_while_being_killed_are_all_gone(tmp_path: Path, run: Run) -> None:
    # A child that outlives its sleep must not go on with the loop: it would fork 40 more.
    child = "os.setsid(); print(os.getpid(), flush=True); time.sleep(600); os._exit(0)"
    code = f"import os, time\nfor _ in range(40):\n    if os.fork() == 0:\n        {child}\n"
    ended = run(PYTHON, "-c", code)
    assert ended.survivors > 0
    assert [pid for pid in text(tmp_path).split() if alive(int(pid))] == []


def test_a_silent_child_is_stopped_and_a_talking_one_is_not(tmp_path: Path, run: Run) -> None:
    quiet = run("sleep", "600", silence_s=0.3)
    assert quiet.silent and not quiet.timed_out
    talking = "for i in 1 2 3 4 5 6 7 8; do echo $i; sleep 0.1; done"
    assert run("sh", "-c", talking, silence_s=0.6).exit_code == 0


def test_a_program_that_has_just_written_is_not_silent_when_the_clock_jumps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, wall, monotonic = tmp_path / "out", 1_000_000.0, 50.0
    out.write_text("")
    os.utime(out, (wall, wall))
    monkeypatch.setattr(time, "time", lambda: wall)
    monkeypatch.setattr(time, "monotonic", lambda: monotonic)
    deadlines = Deadlines([out], timeout_s=10_000, silence_s=60)
    wall, monotonic = wall + 50, monotonic + 50
    os.utime(out, (wall - 20, wall - 20))
    assert deadlines.left() == (40, "silence")
    wall += 3_600  # the machine was suspended
    assert deadlines.left() == (40, "silence")
    os.utime(out, (wall + 1, wall + 1))
    wall, monotonic = wall + 3_600, monotonic + 30  # it wrote, and then the machine was suspended
    assert deadlines.left() == (60, "silence")
    os.utime(out, (wall, wall))
    wall, monotonic = wall - 7_200, monotonic + 30  # it wrote, and then the clock was set back
    assert deadlines.left() == (60, "silence")
    wall, monotonic = wall + 60, monotonic + 60
    assert deadlines.left() == (0, "silence")


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting /proc needs root")
def test_a_process_that_proc_hides_is_not_taken_for_dead() -> None:
    code = """
import os
from ratchet.process.spawn import is_gone, this_process
me = this_process()
if (child := os.fork()) == 0:
    os.setgid(65534)
    os.setuid(65534)
    os._exit(is_gone(me))
raise SystemExit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    hidden = 'mount -t proc -o hidepid=2 proc /proc && exec "$@"'
    done = subprocess.run(["unshare", "-m", "sh", "-c", hidden, "sh", PYTHON, "-c", code], check=False)
    assert done.returncode == 0


def test_a_flood_of_output_goes_to_the_file_and_not_into_memory(tmp_path: Path, run: Run) -> None:
    ended = run("sh", "-c", "head -c 50000000 /dev/zero")
    assert ended.exit_code == 0 and (tmp_path / "out").stat().st_size == 50_000_000


def test_a_child_that_never_reads_a_large_input_does_not_block(tmp_path: Path, run: Run) -> None:
    assert run("true", stdin=b"x" * 10_000_000).exit_code == 0


def test_cancelling_leaves_no_process_behind(tmp_path: Path) -> None:
    async def cancelled() -> int:
        task = asyncio.create_task(
            _run(tmp_path, PYTHON, "-c", DAEMON + "time.sleep(600)", str(tmp_path / "pid"), grace_s=0.2)
        )
        pid = int(await until(tmp_path / "pid"))
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return pid

    assert not alive(asyncio.run(cancelled()))


def test_an_interrupt_while_supervising_a_child_leaves_no_process_behind(tmp_path: Path) -> None:
    def interrupt() -> None:
        asyncio.run(until(tmp_path / "pid"))
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_process(
            [PYTHON, "-c", DAEMON + "time.sleep(600)", str(tmp_path / "pid")],
            cwd=tmp_path,
            env=dict(os.environ),
            output=tmp_path / "out",
            timeout_s=60,
            grace_s=0.2,
            on_start=interrupt,
        )
    assert not alive(int((tmp_path / "pid").read_text()))


def test_children_die_when_the_factory_is_killed(tmp_path: Path) -> None:
    factory = f"""
import asyncio, os, sys
from pathlib import Path
from ratchet.process.supervise import supervise
asyncio.run(supervise([sys.executable, "-c", {DAEMON + "time.sleep(600)"!r}, "pid"], cwd=Path({str(tmp_path)!r}),
    env=dict(os.environ), output=Path({str(tmp_path)!r}) / "out", timeout_s=600))
"""
    killed = subprocess.Popen([PYTHON, "-c", factory])
    daemon = int(asyncio.run(until(tmp_path / "pid")))
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    deadline = time.monotonic() + 20
    while alive(daemon) and time.monotonic() < deadline:
        os.sched_yield()
    assert not alive(daemon)


def test_a_holder_is_gone_when_it_is_dead_or_its_pid_is_another_process() -> None:
    me = this_process()
    assert not is_gone(me)
    child = subprocess.Popen(["true"])
    child.wait()
    assert is_gone(replace(me, pid=child.pid)) and is_gone(replace(me, born="1"))
    assert not is_gone(replace(me, machine="elsewhere", pid=child.pid))


def keep_in(received: list[bytes]) -> Callable[[bytes], bool]:
    def hear(line: bytes) -> bool:
        received.append(line)
        return False

    return hear


def test_lines_are_received_whole_and_in_order_and_all_output_is_kept(tmp_path: Path) -> None:
    received: list[bytes] = []
    print_them = "import sys\nfor n in range(5000): print(n, 'x' * (n % 300))\nsys.stdout.write('no newline')"
    heard_by(tmp_path, PYTHON, "-c", print_them, on_line=keep_in(received))
    assert b"\n".join(received).decode() == text(tmp_path)
    assert (len(received), received[-1]) == (5001, b"no newline")


def test_the_last_output_of_a_child_that_exits_at_once_is_received(tmp_path: Path) -> None:
    """As Node's programs do: what does not fit into the pipe at once is lost with them."""
    received: list[bytes] = []
    hasty = "import os; os.set_blocking(1, False); os.write(1, b'x' * 900_000 + b'\\n')"
    heard_by(tmp_path, PYTHON, "-c", hasty, on_line=keep_in(received))
    assert [len(line) for line in received] == [900_000]


def test_a_line_without_end_is_kept_and_not_handed_on(tmp_path: Path) -> None:
    received: list[bytes] = []
    flood = "import sys\nfor _ in range(40): sys.stdout.write('x' * 2**19)\nprint()\nprint('after')"
    heard_by(tmp_path, PYTHON, "-c", flood, on_line=keep_in(received))
    assert received == [b"after"]
    assert (tmp_path / "out").stat().st_size == 40 * 2**19 + len("\nafter\n")


def test_the_line_callback_can_end_the_child(tmp_path: Path) -> None:
    ended = heard_by(tmp_path, "sh", "-c", "echo one; echo two; sleep 600", on_line=lambda line: line == b"two")
    assert ended.stopped and not ended.timed_out


def test_a_listener_that_breaks_is_not_hidden_and_leaves_no_child(tmp_path: Path) -> None:
    def broken(_line: bytes) -> bool:
        raise ValueError("the listener broke")

    with pytest.raises(ValueError, match="the listener broke"):
        heard_by(tmp_path, "sh", "-c", "echo $$; exec sleep 600", on_line=broken)
    assert not alive(int(text(tmp_path)))


def test_a_program_one_talked_with_is_gone_when_the_talk_is_over(tmp_path: Path) -> None:
    async def talk() -> tuple[bytes, int]:
        program = [PYTHON, "-c", DAEMON + "\nfor line in sys.stdin: print(line.upper(), end='', flush=True)", "pid"]
        async with interactive_process(program, cwd=tmp_path, env=dict(os.environ), errors=tmp_path / "err") as (
            reader,
            writer,
        ):
            writer.write(b"hello\n")
            answer = await reader.readline()
            return answer, int(await until(tmp_path / "pid"))

    answer, daemon = asyncio.run(talk())
    assert answer == b"HELLO\n"
    assert not alive(daemon)
