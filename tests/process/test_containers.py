"""Containers of a real engine: how they ended is distinguished, and a restart of the engine is survived."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from ratchet.errors import EnvironmentCannot, UsageError
from ratchet.process.containers import (
    LOG_MAX_MB,
    ContainerEnd,
    ContainerEngine,
    ContainerSpec,
    ContainerState,
    EngineAway,
    find_engine,
    how_it_ended,
    refuse_socket,
    with_init,
)
from tests import podman as engines
from tests.podman import IMAGE, USER, Podman

LIMIT_MB = 64
GREEDY = f"x = bytearray({LIMIT_MB * 4} << 20)"
PYTHON = "/usr/bin/python3"


@pytest.fixture(scope="module")
def podman() -> Iterator[Podman]:
    with engines.podman() as started:
        yield started


def spec(*command: str) -> ContainerSpec:
    return ContainerSpec(
        image=IMAGE, command=with_init(command), user=f"{USER}:{USER}", mounts=["/usr:/usr:ro"], network="none",
        memory_mb=LIMIT_MB, processes=32, cpus=1.0, tmp_mb=8,
    )  # fmt: skip


@contextmanager
def started(podman: Podman, *command: str) -> Iterator[str]:
    name = podman.engine.create(spec(*command), "one")
    try:
        podman.engine.start(name)
        yield name
    finally:
        podman.engine.remove(name)


def run(podman: Podman, *command: str) -> tuple[ContainerEnd, str]:
    with started(podman, *command) as name:
        state = podman.engine.wait(name)
        log = podman.engine.logs(name, lines=100)
    return how_it_ended(state, log), log.decode()


def test_the_ways_in_which_a_container_ends_are_distinguished(podman: Podman) -> None:
    ended = {
        "": ["true"],
        "the worker exited with code 3": ["sh", "-c", "exit 3"],
        "the worker was killed by signal 9": ["sh", "-c", "kill -9 $$"],
        f"out of memory (its limit is {LIMIT_MB} MB)": [PYTHON, "-c", GREEDY],
        "the container was killed": ["sh", "-c", "kill -9 $PPID; sleep 9"],
    }
    assert [run(podman, *command)[0].reason(LIMIT_MB) for command in list(ended.values())[:4]] == list(ended)[:4]


def test_a_process_killed_for_memory_is_counted_although_the_worker_goes_on(podman: Podman) -> None:
    end, _ = run(podman, "sh", "-c", f"{PYTHON} -c '{GREEDY}'; true")
    assert end.succeeded and end.memory_kills == 1 and end.reason(LIMIT_MB) == ""


def test_a_killed_and_a_removed_container_are_distinguished(podman: Podman) -> None:
    for act, reason in (
        (podman.engine.kill, "the container was killed"),
        (podman.engine.remove, "the container was removed"),
    ):
        with started(podman, "sleep", "60") as name:
            act(name)
            state = podman.engine.wait(name)
            log = podman.engine.logs(name, lines=100) if state else b""
        assert how_it_ended(state, log).reason(LIMIT_MB) == reason


def test_a_container_can_write_only_its_temporary_folder_and_gain_nothing(podman: Podman) -> None:
    tries = "touch /x; touch /usr/x; touch /tmp/x && echo written; head -c 20M /dev/zero >/tmp/x; cat /proc/self/status"
    end, log = run(podman, "sh", "-c", tries)
    assert end.succeeded
    assert log.count("Read-only file system") == 2 and "No space left" in log
    assert "written" in log and f"Uid:\t{USER}\t" in log and "CapEff:\t0000000000000000" in log


def test_a_stopped_container_gets_the_signal_and_its_grace(podman: Podman) -> None:
    with started(
        podman, "sh", "-c", "trap 'echo stopping; exit 5' TERM; echo ready; while :; do sleep 0.1; done"
    ) as name:
        while b"ready" not in podman.engine.logs(name, lines=10):
            pass
        podman.engine.stop(name, grace_s=20)
        state = podman.engine.wait(name)
        log = podman.engine.logs(name, lines=10)
    assert b"stopping" in log and how_it_ended(state, log).code == 5


@pytest.mark.engines
def test_a_restart_of_the_engine_is_waited_for(podman: Podman) -> None:
    with started(podman, "sh", "-c", "while [ ! -e /tmp/go ]; do sleep 0.1; done; exit 7") as name:
        found: list[int] = []
        waiting = threading.Thread(target=lambda: found.append(getattr(podman.engine.wait(name), "exit_code", -1)))
        waiting.start()
        podman.kill()
        with pytest.raises(EngineAway, match="does not answer"):
            podman.engine.ping()
        podman.start()
        podman.engine.stop(name, grace_s=1)
        waiting.join(60)
    assert found and found[0] > 128, "stopped by a signal"


def test_without_an_engine_the_error_says_what_to_start(tmp_path: Path) -> None:
    with pytest.raises(EngineAway, match="no container engine answers at unix://") as reported:
        find_engine(f"unix://{tmp_path}/none.sock")
    assert "podman system service" in reported.value.hint


def test_mounts_that_hold_the_socket_of_any_engine_here_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    used, other, plain = (tmp_path / name for name in ("used", "other", "plain"))
    for folder in (used, other, plain):
        folder.mkdir()
    monkeypatch.setenv("DOCKER_HOST", f"unix://{other}/docker.sock")
    (plain / "link").symlink_to(used)
    engine = ContainerEngine(f"unix://{used}/podman.sock")
    refuse_socket([f"{plain}:/plain", f"{other}:/other"], engine)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(f"{other}/docker.sock")
        for source in (used, used / "podman.sock", plain / "link", tmp_path, other):
            with pytest.raises(UsageError, match="holds an engine's socket"):
                refuse_socket([f"{source}:/mnt:ro"], engine)


@contextmanager
def engine_that_answers(folder: Path, *parts: bytes) -> Iterator[ContainerEngine]:
    """An engine that answers each request with these parts, and then a byte at a time until it is hung up on."""
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(f"{folder}/engine.sock")
        listening.listen()

        def answer() -> None:
            with suppress(OSError):
                while True:
                    link, _ = listening.accept()
                    with link, suppress(OSError):
                        asked = link.recv(65_536)
                        while b"\r\n\r\n" not in asked or (b"POST /v1.40/containers" in asked and asked[-1:] != b"}"):
                            asked += link.recv(65_536)
                        for part in parts:
                            link.sendall(part)
                        while parts[-1].endswith(b"..."):
                            link.sendall(b".")
                            link.settimeout(0.05)
                            with suppress(TimeoutError):
                                if not link.recv(1):
                                    break

        threading.Thread(target=answer, daemon=True).start()
        yield ContainerEngine(f"unix://{folder}/engine.sock")
        listening.shutdown(socket.SHUT_RDWR)


OK = b"HTTP/1.1 200 OK\r\nContent-Length: "


@pytest.mark.parametrize("body", [b'{"Id":[1,', b"[1]", b"null", b'{"State":{"ExitCode":"x"}}', b"[" * 100_000])
def test_what_is_no_answer_of_an_engine_is_a_clear_error(tmp_path: Path, body: bytes) -> None:
    with engine_that_answers(tmp_path, OK + b"%d\r\n\r\n" % len(body) + body) as engine:
        for ask in (
            lambda: engine.containers("x"),
            lambda: engine.state("x"),
            lambda: engine.create(spec("true"), "x"),
        ):
            with pytest.raises(EnvironmentCannot, match="no answer of Docker or Podman"):
                ask()


@pytest.mark.parametrize("begun", [b"HTTP/1.1 200 OK\r\nX: ...", OK + b"100000\r\n\r\n..."])
def test_an_engine_that_answers_a_byte_at_a_time_is_given_up(tmp_path: Path, begun: bytes) -> None:
    with (
        engine_that_answers(tmp_path, begun) as engine,
        pytest.raises(EngineAway, match="no whole answer within 1 s"),
    ):
        engine.run_exec("x", lambda _: None, timeout_s=1.0)


def test_the_last_line_of_a_hostile_container_is_read_within_bounds() -> None:
    state = ContainerState(exit_code=3)
    for digits in (b"9" * 5_000, b"9" * 10, b"x"):
        log = b"ratchet-container: code=3 oom_kill=" + digits + b"\n"
        assert how_it_ended(state, log).memory_kills == 0
    assert how_it_ended(state, b"x ratchet-container: code=3 oom_kill=2\n").memory_kills == 2


@pytest.mark.engines
def test_what_a_container_prints_is_kept_within_bounds(podman: Podman) -> None:
    flood = f"head -c {3 * LOG_MAX_MB}M /dev/zero | tr '\\0' x; echo; echo last"
    end, log = run(podman, "sh", "-c", flood)
    assert end.succeeded and end.reported and "last" in log
    kept = sum(file.stat().st_size for file in podman.folder.rglob("ctr.log"))
    assert kept < (LOG_MAX_MB + 1) << 20
