"""Supervision of agents: what a turn under watch costs more than the program alone, and what idle agents cost."""

from __future__ import annotations

import asyncio
import os
import resource
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from bench import Goal
from ratchet.agents import Ask, Finished
from ratchet.agents.command import CommandAgent
from ratchet.agents.line import LineAgent, command_of
from ratchet.agents.vigil import Limits, Wrong, watched
from ratchet.core import wire

TURN_S = 10.0
ROUNDS = 3
IDLE, IDLE_S = 50, 10.0
LIMITS = Limits(idle_s=300, repeats=5)


def main() -> list[Goal]:
    with tempfile.TemporaryDirectory() as folder:
        return [*_turns(Path(folder)), *_idle(Path(folder))]


# --- one turn -----------------------------------------------------------------------------------------------------


def _turns(folder: Path) -> list[Goal]:
    """The same turn by the scripted agent as a program: once under watch, once with nobody but us at its pipes."""
    script = folder / "script.json"
    calls = [{"name": "shell", "detail": str(n), "result": "ok"} for n in range(50)]
    turn = {"say": "done", "calls": calls, "delay_s": TURN_S}
    script.write_bytes(msgspec.json.encode({"implement": [turn] * (ROUNDS + 1)}))
    argv = [sys.executable, "-m", "ratchet", "agent", "scripted", "--script", str(script)]
    watched_by: list[tuple[float, float]] = []
    alone: list[tuple[float, float]] = []
    for number in range(ROUNDS):
        alone.append(_taken(lambda number=number: _bare(argv, folder, number)))  # type: ignore[misc]
        watched_by.append(_taken(lambda number=number: _supervised(argv, folder, number)))  # type: ignore[misc]
    time_s, cpu_s = (_median(watched_by, n) - _median(alone, n) for n in (0, 1))
    return [
        _goal(f"time of supervision in a turn of {TURN_S:.0f} s", time_s / TURN_S * 100, 2.0,
              f"{_median(watched_by, 0):.3f} s against {_median(alone, 0):.3f} s"),
        _goal(f"CPU of supervision in a turn of {TURN_S:.0f} s", cpu_s / TURN_S * 100, 2.0,
              f"{_median(watched_by, 1):.3f} s against {_median(alone, 1):.3f} s"),
    ]  # fmt: skip


def _taken(act: Callable[[], None]) -> tuple[float, float]:
    """Seconds on the clock, and of processors, ours and our children's."""
    began, before = time.perf_counter(), _cpu_s()
    act()
    return time.perf_counter() - began, _cpu_s() - before


def _cpu_s() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


def _median(taken: list[tuple[float, float]], which: int) -> float:
    return statistics.median(each[which] for each in taken)


def _bare(argv: list[str], folder: Path, number: int) -> None:
    command = command_of(_ask(folder, f"bare-{number}"), folder, now=datetime.now(UTC))
    with subprocess.Popen(argv, cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin and process.stdout
        process.stdin.write(wire.encode_line(command))
        process.stdin.flush()
        while b'"completed"' not in process.stdout.readline():
            pass
        process.kill()


def _supervised(argv: list[str], folder: Path, number: int) -> None:
    agent = LineAgent(shlex.join(argv))
    outcome = asyncio.run(watched(agent, _ask(folder, f"turn-{number}"), lambda _said: None, LIMITS, _nudged))
    assert isinstance(outcome, Finished), outcome


async def _nudged(wrong: Wrong) -> None:
    raise AssertionError(wrong.why)


def _ask(folder: Path, name: str) -> Ask:
    return Ask(
        run="run-1", item="item-1", role="implementer", action="implement", turn=1, key="ik:" + "0" * 64,
        snapshot="snap-1", prompt="Do it.", inputs={}, folder=folder, log=folder / f"{name}.log",
        env=dict(os.environ), timeout_s=120.0,
    )  # fmt: skip


# --- many that say nothing ----------------------------------------------------------------------------------------


def _idle(folder: Path) -> list[Goal]:
    cost = asyncio.run(_idling(folder))
    return [
        _goal(f"of a core for {IDLE} idle agents: the supervisor", cost[0] / IDLE_S * 100, 5.0, f"in {IDLE_S:.0f} s"),
        _goal(f"of a core for {IDLE} idle agents: with its reapers", sum(cost) / IDLE_S * 100, 5.0, ""),
    ]


async def _idling(folder: Path) -> tuple[float, float]:
    agent = CommandAgent("sleep 600")
    asks = [_ask(folder, f"idle-{n}") for n in range(IDLE)]
    turns = [asyncio.ensure_future(watched(agent, ask, lambda _said: None, LIMITS, _nudged)) for ask in asks]
    while len(_children("sleep")) < IDLE:  # noqa: ASYNC110 — who starts is other processes
        await asyncio.sleep(0.1)
    before = time.process_time(), _children_cpu_s()
    await asyncio.sleep(IDLE_S)
    after = time.process_time(), _children_cpu_s()
    for turn in turns:
        turn.cancel()
    await asyncio.wait(turns)
    return after[0] - before[0], after[1] - before[1]


def _children(name: str) -> list[list[str]]:
    """What /proc says of processes of that name below our reapers."""
    return [words for words in _all() if words[1] == f"({name})" and int(words[3]) in _reapers()]


def _reapers() -> set[int]:
    return {int(words[0]) for words in _all() if int(words[3]) == os.getpid()}


def _children_cpu_s() -> float:
    reapers = _reapers()
    ticks = sum(int(words[13]) + int(words[14]) for words in _all() if int(words[0]) in reapers)
    return ticks / os.sysconf("SC_CLK_TCK")


def _all() -> list[list[str]]:
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            head, _, rest = stat.read_text().rpartition(")")
        except OSError:
            continue
        pid, _, name = head.partition(" ")
        found.append([pid, f"{name})", *rest.split()])
    return found


def _goal(measure: str, percent: float, most: float, detail: str) -> Goal:
    return Goal(
        measure=measure, value=percent, unit="%", wanted=f"under {most:.0f} %", ok=percent < most, detail=detail
    )
