"""Supervision of agents: what a turn under watch costs more than the program alone, and what idle agents cost.

A turn is a program that prints for ten seconds what Claude Code printed when it was recorded. Bare, nobody but us is at
its pipe. Supervised, it is asked as a run asks: in the sandbox, behind a reaper, under watch, within a budget that is
metered in the store. Both in turns; what the same program took bare is taken off.
"""

from __future__ import annotations

import asyncio
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import msgspec

from bench import Goal
from ratchet import config
from ratchet.agents.adapters.claude import PROGRAM
from ratchet.agents.drivers.cli_stream import CliAgent
from ratchet.agents.drivers.command import CommandAgent
from ratchet.agents.protocol import Agent, AgentRequest, TurnFinished, TurnResult
from ratchet.agents.watchdog import Intervention, WatchdogLimits, ask_with_watchdog
from ratchet.app.runs import RunService
from ratchet.core.roles import PathRules, Role
from ratchet.core.state import RunState
from ratchet.engine.budget_meter import BudgetMeter
from ratchet.process.spawn import Confinement, confined, this_process
from ratchet.workspace.from_config import sandbox_settings
from ratchet.workspace.git import repository
from ratchet.workspace.protocol import WorkspaceRefused
from ratchet.workspace.sandbox import Sandboxes

TURN_S = 10.0
ROUNDS = 5
IDLE, IDLE_S, SETTLE_S = 50, 20.0, 3.0
LIMITS = WatchdogLimits(idle_s=300, repeats=60)
RECORDED = Path(__file__).parents[1] / "tests/agents/transcripts/claude/success.jsonl"
PLAYER = """#!{python} -IS
import sys, time
if "--version" in sys.argv:
    sys.exit(print({version!r}))
first, *steps, last = {lines!r}
for line in [first, *steps * 8]:
    sys.stdout.buffer.write(line + b"\\n")
    sys.stdout.flush()
    time.sleep({turn_s} / (8 * len(steps) + 1))
sys.stdout.buffer.write(last + b"\\n")
"""


def main() -> list[Goal]:
    with tempfile.TemporaryDirectory() as name, _scene(Path(name)) as scene:
        return [*_turns(scene, Path(name)), *_idle(scene, Path(name))]


# --- one turn -----------------------------------------------------------------------------------------------------


class Scene(msgspec.Struct, frozen=True, kw_only=True):
    """Where a run would ask: its workspace, its sandbox, its budget."""

    folder: Path
    sandbox: Confinement | None
    budget: BudgetMeter


def _turns(scene: Scene, place: Path) -> list[Goal]:
    path = _program(place)
    agent = CliAgent(PROGRAM)
    bare: list[tuple[float, float]] = []
    supervised: list[tuple[float, float]] = []
    for number in range(ROUNDS + 1):
        ask = _ask(scene.folder, place, f"turn-{number}")
        bare.append(_taken(partial(_bare, path, ask)))
        supervised.append(_taken(partial(_supervised, scene, agent, ask)))
    # Not the first: only once is the program asked for its version, and all has to be read from the disk.
    return [_overhead(what, which, supervised[1:], bare[1:]) for which, what in enumerate(("time", "CPU"))]


def _overhead(what: str, which: int, supervised: list[tuple[float, float]], bare: list[tuple[float, float]]) -> Goal:
    """The median of what each pair differs by: the two of a pair met the same moment of the machine."""
    more = statistics.median(one[which] - other[which] for one, other in zip(supervised, bare, strict=True))
    ours, its = (statistics.median(each[which] for each in taken) for taken in (supervised, bare))
    measure = f"{what} of supervision in a turn of {TURN_S:.0f} s"
    return _goal(measure, more / TURN_S * 100, 2.0, f"{ours:.3f} s against {its:.3f} s bare")


def _program(place: Path) -> Path:
    """Prints what Claude Code printed when it was recorded, over and over, for the time of a turn."""
    path, words = place / "bin" / "claude", RECORDED.read_bytes().splitlines()
    path.parent.mkdir()
    path.write_text(PLAYER.format(python=sys.executable, lines=words, turn_s=TURN_S, version=PROGRAM.tested.first))
    path.chmod(0o755)
    os.environ["PATH"] = f"{path.parent}:{os.environ['PATH']}"
    return path


@contextmanager
def _scene(folder: Path) -> Iterator[Scene]:
    project = folder / "project"
    project.mkdir()
    (project / "SPEC.md").write_text("# Anything\n")
    for words in (["init", "-q"], ["add", "-A"], ["-c", "user.name=b", "-c", "user.email=b@b", "commit", "-qm", "s"]):
        subprocess.run(["git", *words], cwd=project, check=True)
    flags = [
        "agent=command:true",
        "test.command=true",
        *(f"budget.{scope}.cost_usd=1000" for scope in ("item", "repo", "day")),  # fifty set something aside at once
        f"workspace.root={folder}/workspaces",
        f"workspace.bases={folder}/bases",
    ]
    settings = config.load(project, environ={}, flags=flags).config
    with RunService(repository.find_repository(project), settings) as factory:
        lease = factory.claim(factory.add(project / "SPEC.md").id)
        head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=project, check=True, capture_output=True, text=True)
        workspace = factory.workspaces.create(
            "bench", repo=project, commit=head.stdout.strip(), kind="auto", on="auto", recipe=None, owner=this_process()
        )
        assert not isinstance(workspace, WorkspaceRefused), workspace
        sandboxes = Sandboxes(workspace, sandbox_settings(settings))
        sandbox = sandboxes.for_role(Role.IMPLEMENTER, PathRules(tests=()))
        budget = BudgetMeter(factory.store, lease, settings.budget, repo=str(project))
        try:
            yield Scene(folder=workspace.path, sandbox=sandbox, budget=budget)
        finally:
            sandboxes.close()
            factory.workspaces.destroy("bench")


def _taken(act: Callable[[], None]) -> tuple[float, float]:
    """Seconds on the clock, and of processors, ours and our children's."""
    began, before = time.perf_counter(), _cpu_s()
    act()
    return time.perf_counter() - began, _cpu_s() - before


def _cpu_s() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


def _bare(path: Path, ask: AgentRequest) -> None:
    with subprocess.Popen([path], cwd=ask.folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE) as process:
        assert process.stdout
        while process.stdout.readline():
            pass


def _supervised(scene: Scene, agent: Agent, ask: AgentRequest) -> None:
    outcome = asyncio.run(_asked(scene, agent, ask))
    assert isinstance(outcome, TurnFinished), outcome


async def _asked(scene: Scene, agent: Agent, ask: AgentRequest) -> TurnResult:
    with confined(scene.sandbox):
        async with scene.budget.reserve(RunState(run="run-1"), ask.timeout_s) as meter:
            request = msgspec.structs.replace(ask, allowance=meter.allowance)
            return await meter.enforce(ask_with_watchdog(agent, request, lambda _event: None, LIMITS, _nudged))


async def _nudged(wrong: Intervention) -> None:
    raise AssertionError(wrong.why)


def _ask(folder: Path, place: Path, name: str) -> AgentRequest:
    return AgentRequest(
        run="run-1", item="item-1", role="implementer", action="implement", turn=1, key="ik:" + "0" * 64,
        snapshot="snap-1", prompt="Do it.", inputs={}, folder=folder, log=place / f"{name}.log",
        env=dict(os.environ), timeout_s=120.0,
    )  # fmt: skip


# --- many that say nothing ----------------------------------------------------------------------------------------


def _idle(scene: Scene, place: Path) -> list[Goal]:
    ours, theirs = asyncio.run(_idling(scene, place))
    return [
        _goal(f"of a core for {IDLE} idle agents: the supervisor", ours / IDLE_S * 100, 5.0, f"in {IDLE_S:.0f} s"),
        _goal(f"of a core for {IDLE} idle agents: with all below it", (ours + theirs) / IDLE_S * 100, 5.0, ""),
    ]


async def _idling(scene: Scene, place: Path) -> tuple[float, float]:
    asks = [_ask(scene.folder, place, f"idle-{n}") for n in range(IDLE)]
    turns = [asyncio.ensure_future(_asked(scene, CommandAgent("sleep 600"), ask)) for ask in asks]
    while sum(process.name == "sleep" for process in _below()) < IDLE:
        done, _ = await asyncio.wait(turns, timeout=0.1, return_when=asyncio.FIRST_COMPLETED)
        assert not done, [turn.result() for turn in done]
    await asyncio.sleep(SETTLE_S)
    before = time.process_time(), sum(process.cpu_s for process in _below())
    await asyncio.sleep(IDLE_S)
    after = time.process_time(), sum(process.cpu_s for process in _below())
    for turn in turns:
        turn.cancel()
    await asyncio.wait(turns)
    return after[0] - before[0], after[1] - before[1]


class Process(msgspec.Struct, frozen=True, kw_only=True):
    pid: int
    parent: int
    name: str
    cpu_s: float


def _below() -> list[Process]:
    """Everyone below us, as /proc says it."""
    everyone = _everyone()
    found = {os.getpid()}
    while more := {each.pid for each in everyone if each.parent in found} - found:
        found |= more
    return [each for each in everyone if each.pid in found - {os.getpid()}]


def _everyone() -> list[Process]:
    found, tick_s = list[Process](), 1 / os.sysconf("SC_CLK_TCK")
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            head, _, rest = stat.read_text().rpartition(")")
        except OSError:
            continue
        (pid, _, name), words = head.partition(" ("), rest.split()
        cpu_s = (int(words[11]) + int(words[12])) * tick_s
        found.append(Process(pid=int(pid), parent=int(words[1]), name=name, cpu_s=cpu_s))
    return found


def _goal(measure: str, percent: float, most: float, detail: str) -> Goal:
    return Goal(
        measure=measure, value=percent, unit="%", wanted=f"under {most:.0f} %", ok=percent < most, detail=detail
    )
