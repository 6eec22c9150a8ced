"""`ratchet run` is really killed, again and again, at moments nobody chose."""

from __future__ import annotations

import os
import random
import signal
import subprocess
from pathlib import Path

from ratchet.interfaces.cli import demo
from tests.support import RATCHET, git, lay_out_demo, quick_environment, ratchet

KILLS = 12


def command(place: Path) -> list[str]:
    return [*RATCHET, "run", "SPEC.md", "--agent", f"scripted:{place / demo.SCRIPT}", "--set", f"workspace.root={place.parent}/ws"]  # fmt: skip # noqa: E501


def children_of(place: Path) -> list[str]:
    """Whoever is still at work in the folder."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if str(place.parent) in str((process / "cwd").readlink()):
                found.append((process / "cmdline").read_bytes().decode(errors="replace"))
        except OSError:
            continue
    return found


def ended(place: Path) -> bool:
    return "completed: " in ratchet("show", "last", cwd=place).stdout


def test_a_run_killed_at_random_moments_ends_with_the_same_commits(tmp_path: Path) -> None:
    place = lay_out_demo(tmp_path / "demo")
    seed = int(os.environ.get("RATCHET_TEST_SEED", random.SystemRandom().randrange(10**6)))
    chance = random.Random(seed)
    env = quick_environment()
    killed = 0
    for _ in range(KILLS):
        running = subprocess.Popen(
            command(place), cwd=place, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        try:
            running.wait(timeout=chance.uniform(0.2, 2.0))
        except subprocess.TimeoutExpired:
            running.send_signal(signal.SIGKILL)
            running.wait()
            killed += 1
            if ended(place):  # killed between the last write and its exit: the same command would begin a new item
                break
        else:
            break
    finished = None if ended(place) else ratchet(*command(place)[3:], cwd=place)
    assert finished is None or finished.returncode == 0, f"seed {seed}: {finished.stderr if finished else ''}"
    reported = ratchet("show", "last", cwd=place)
    assert "completed: 4 commits kept" in reported.stdout, f"seed {seed}: {reported.stdout}"
    branch = git("for-each-ref", "--format=%(refname:short)", "refs/heads/ratchet", cwd=place)
    assert len(git("log", "--format=%s", f"main..{branch}", cwd=place).splitlines()) == 4, f"seed {seed}"
    assert children_of(place) == []


def test_after_the_holder_is_killed_another_takes_over_and_before_that_it_is_refused(tmp_path: Path) -> None:
    place = lay_out_demo(tmp_path / "demo")
    running = subprocess.Popen(
        command(place), cwd=place, env=quick_environment(), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    assert running.stdout and "run" in running.stdout.readline()
    second = ratchet(*command(place)[3:], cwd=place)
    assert second.returncode == 1 and f":{running.pid}" in second.stderr and "ratchet abort" in second.stderr
    running.send_signal(signal.SIGKILL)
    running.wait()
    running.stdout.close()
    third = ratchet("resume", "last", cwd=place)
    assert third.returncode == 0 and "4 commits kept" in third.stdout


def test_an_interrupted_run_says_how_to_go_on_and_gives_its_lease_back(tmp_path: Path) -> None:
    place = lay_out_demo(tmp_path / "demo")
    running = subprocess.Popen(
        command(place), cwd=place, env=quick_environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert running.stdout and running.stdout.readline()
    running.send_signal(signal.SIGTERM)
    _, output = running.communicate(timeout=30)
    assert running.returncode == 130 and "ratchet resume run-" in output
    assert " - " in ratchet("runs", cwd=place).stdout.splitlines()[1]


def test_an_abort_reaches_the_worker_wherever_it_is(tmp_path: Path) -> None:
    place = lay_out_demo(tmp_path / "demo")
    running = subprocess.Popen(
        command(place), cwd=place, env=quick_environment(), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    assert running.stdout and running.stdout.readline()
    reported = ratchet("abort", "last", cwd=place)
    out, _ = running.communicate(timeout=30)
    assert reported.returncode == 0 and running.returncode == 1 and "aborted by" in out
    again = ratchet("abort", "last", cwd=place)
    assert again.returncode == 2 and "already aborted" in again.stderr


def test_a_terminated_demo_ends_without_a_traceback(tmp_path: Path) -> None:
    argv = [*RATCHET, "demo", "--into", str(tmp_path / "demo")]
    running = subprocess.Popen(argv, env=quick_environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert running.stdout
    while "baseline" not in running.stdout.readline():
        pass
    running.send_signal(signal.SIGTERM)
    _, output = running.communicate(timeout=30)
    assert running.returncode == 130 and "Traceback" not in output
