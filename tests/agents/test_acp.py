"""Our side of ACP: what an agent may read, write and run, and how its turn ends."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from ratchet.agents.drivers.acp import AcpAgent
from ratchet.agents.protocol import (
    Notice,
    SessionStarted,
    Text,
    TurnCancelled,
    TurnEvent,
    TurnFailed,
    TurnFinished,
    TurnOutcome,
    UsageReported,
)
from ratchet.core.failure import Reason
from ratchet.core.receipt import Usage
from ratchet.core.roles import PathRules, Role
from ratchet.process.spawn import Confinement, confined
from tests.agents.support import make_ask
from tests.agents.test_driver import is_alive

AGENT = f"{sys.executable} {Path(__file__).with_name('acp_program.py')}"
SCOPE = PathRules(tests=("tests/**",))


class Free:
    """A confinement in name: what runs in it is taken to be held."""

    contains = True
    has_own_programs = False

    def refused_forks(self) -> int:
        return 0

    def tidy(self) -> None:
        pass

    def wrap(self, argv: Any, *, cwd: Path, env: Any, writable: Any) -> tuple[list[str], dict[str, str]]:
        return ["sh", "-c", 'cd "$1" && shift && exec "$@"', "sh", str(cwd), *argv], dict(env)


def say(
    tmp_path: Path, prompt: str, *, by: Confinement | None = None, **more: Any
) -> tuple[list[TurnEvent], TurnOutcome]:
    """One turn of an agent that does what its prompt says."""
    (tmp_path / "work" / "tests").mkdir(parents=True, exist_ok=True)
    reported: list[TurnEvent] = []
    words = make_ask(
        tmp_path / "work", **{"prompt": prompt, "env": {"PATH": os.environ["PATH"]}, "scope": SCOPE, **more}
    )
    with confined(by):
        return reported, asyncio.run(AcpAgent(AGENT).ask(words, reported.append))


def text_of(outcome: TurnOutcome) -> str:
    assert isinstance(outcome, TurnFinished), outcome
    return outcome.text


def test_a_file_in_the_workspace_is_read(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "a.txt").write_text("inside")
    assert "inside" in text_of(say(tmp_path, f"read {tmp_path / 'work'}/a.txt")[1])


def test_nothing_outside_the_workspace_is_read_by_name_or_by_link(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("the key")
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "link").symlink_to(tmp_path / "secret")
    (tmp_path / "work" / "folder").symlink_to(tmp_path)
    for path in ("secret", "work/../secret", "work/link", "work/folder/secret"):
        text = text_of(say(tmp_path, f"read {tmp_path}/{path}")[1])
        assert "error" in text and "the key" not in text, path


def test_a_missing_file_is_reported_as_missing(tmp_path: Path) -> None:
    assert "-32002" in text_of(say(tmp_path, f"read {tmp_path / 'work'}/none")[1])


def test_a_role_writes_what_is_its_own(tmp_path: Path) -> None:
    _, outcome = say(tmp_path, f"write {tmp_path / 'work'}/src/new.py")
    assert "error" not in text_of(outcome)
    assert (tmp_path / "work/src/new.py").read_text() == "new\n"


@pytest.mark.parametrize("path", ["work/tests/test_a.py", "outside.py", "work/out/x.py", "work/ratchet.toml"])
def test_a_role_writes_nothing_else(tmp_path: Path, path: str) -> None:
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "out").symlink_to(tmp_path)
    _, outcome = say(tmp_path, f"write {tmp_path}/{path}", role=Role.IMPLEMENTER)
    assert "error" in text_of(outcome)
    assert not (tmp_path / path).exists() and not (tmp_path / "x.py").exists()


@pytest.mark.parametrize(
    ("call", "free", "answer"),
    [
        ("edit work/a.py", False, "allow_once"),
        ("edit work/tests/test_a.py", True, "reject_once"),
        ("edit outside.py", True, "reject_once"),
        ("read work/a.py", False, "allow_once"),
        ("execute work", True, "allow_once"),
        ("execute work", False, "reject_once"),
    ],
)
def test_permission_is_given_by_policy(tmp_path: Path, call: str, free: bool, answer: str) -> None:
    kind, path = call.split()
    reported, outcome = say(tmp_path, f"may {kind} {tmp_path}/{path}", by=Free() if free else None)
    assert text_of(outcome) == answer
    assert any(isinstance(output, Notice) for output in reported) == (answer == "reject_once")


@pytest.mark.parametrize(("by", "mode"), [(Free(), "agent-full-access"), (None, "agent")])
def test_only_in_our_sandbox_does_an_agent_go_without_its_own(tmp_path: Path, by: Free | None, mode: str) -> None:
    assert text_of(say(tmp_path, "mode", by=by)[1]) == mode


def test_a_terminal_runs_where_the_agent_does(tmp_path: Path) -> None:
    _, outcome = say(tmp_path, "shell echo here > made; cat made; exit 3", by=Free())
    assert text_of(outcome) == "3:here"
    assert (tmp_path / "work" / "made").exists()


def test_there_is_no_terminal_without_a_sandbox(tmp_path: Path) -> None:
    assert text_of(say(tmp_path, "shell echo here")[1]) == "refused"


def test_what_floods_its_stderr_goes_on(tmp_path: Path) -> None:
    assert text_of(say(tmp_path, "flood")[1]) == "still here"
    assert (tmp_path / "turn.err").stat().st_size >= 2_000_000


def test_what_is_not_understood_is_passed_over(tmp_path: Path) -> None:
    assert text_of(say(tmp_path, "odd")[1]) == "went on"


def test_usage_is_reported_once(tmp_path: Path) -> None:
    reported, _ = say(tmp_path, "env HOME")
    spent = sum((output.usage for output in reported if isinstance(output, UsageReported)), Usage())
    assert (spent.tokens_in, spent.tokens_out) == (10, 2)


def test_an_end_of_turn_after_a_complaint_is_a_failure(tmp_path: Path) -> None:
    _, outcome = say(tmp_path, "complain")
    assert isinstance(outcome, TurnFailed) and outcome.reason is Reason.RATE_LIMITED and outcome.until


def test_a_goose_error_is_reported_beside_its_text_and_may_be_recovered(tmp_path: Path) -> None:
    _, outcome = say(tmp_path, "broken systemError")
    assert isinstance(outcome, TurnFailed) and outcome.reason is Reason.OVERLOADED
    assert isinstance(say(tmp_path, "broken idle")[1], TurnFinished)


def test_a_limit_that_is_waited_out_in_silence_is_the_reason_and_not_the_silence(tmp_path: Path) -> None:
    _, outcome = say(tmp_path, "mutter", timeout_s=1.5)
    assert isinstance(outcome, TurnFailed) and outcome.reason is Reason.RATE_LIMITED and outcome.until


def test_so_is_one_that_codex_reports_beside_the_protocol(tmp_path: Path) -> None:
    reported, outcome = say(tmp_path, "reconnect", timeout_s=1.5)
    assert isinstance(outcome, TurnFailed) and outcome.reason is Reason.RATE_LIMITED
    assert [output.text for output in reported if isinstance(output, Notice)] == [
        "Reconnecting... 1/2: last status: 429"
    ]


def test_an_end_of_turn_without_a_word_is_a_failure(tmp_path: Path) -> None:
    assert isinstance(say(tmp_path, "nothing")[1], TurnFailed)


@pytest.mark.parametrize(
    ("stop", "reason"), [("refusal", Reason.AGENT_REFUSED), ("max_turn_requests", Reason.NO_PROGRESS)]
)
def test_other_ends_are_failures_with_a_reason(tmp_path: Path, stop: str, reason: Reason) -> None:
    _, outcome = say(tmp_path, f"stop {stop}")
    assert isinstance(outcome, TurnFailed) and outcome.reason is reason


def test_a_turn_that_was_cancelled_says_so(tmp_path: Path) -> None:
    assert isinstance(say(tmp_path, "stop cancelled")[1], TurnCancelled)


def test_an_agent_that_dies_has_crashed(tmp_path: Path) -> None:
    _, outcome = say(tmp_path, "die")
    assert isinstance(outcome, TurnFailed) and outcome.reason is Reason.AGENT_CRASHED


def test_a_turn_that_takes_too_long_has_timed_out(tmp_path: Path) -> None:
    _, outcome = say(tmp_path, f"hang {tmp_path}/pid", timeout_s=1.0)
    assert isinstance(outcome, TurnFailed) and outcome.reason is Reason.AGENT_TIMED_OUT
    assert not is_alive(int((tmp_path / "pid").read_text()))


def test_a_turn_that_spends_its_allowance_is_stopped(tmp_path: Path) -> None:
    _, outcome = say(tmp_path, "spend", allowance=Usage(cost_usd=0.1))
    assert isinstance(outcome, TurnFailed) and outcome.reason is Reason.BUDGET_SPENT


def test_a_resumed_session_repeats_no_earlier_events(tmp_path: Path) -> None:
    reported, outcome = say(tmp_path, "env NOTHING", session="sess-0#1,2,0.0")
    assert text_of(outcome) == "unset"
    assert not any(isinstance(output, Text) and "past" in output.text for output in reported)
    assert any(isinstance(output, SessionStarted) and output.session.startswith("sess-0") for output in reported)


def test_a_cancelled_turn_leaves_no_process(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    pid = tmp_path / "pid"
    words = make_ask(tmp_path / "work", prompt=f"hang {pid}", env={"PATH": os.environ["PATH"]})

    async def cancel_when_heard() -> float:
        received = asyncio.Event()
        agent = AcpAgent(AGENT)
        task = asyncio.ensure_future(
            agent.ask(words, lambda output: received.set() if isinstance(output, Text) else None)
        )
        await received.wait()
        began = time.monotonic()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return time.monotonic() - began

    assert asyncio.run(cancel_when_heard()) < 5
    assert not is_alive(int(pid.read_text()))


KILLED = """
import asyncio, sys
from pathlib import Path
from ratchet.agents.drivers.acp import AcpAgent
from tests.agents.support import make_ask
folder = Path(sys.argv[1])
ask = make_ask(folder / "work", prompt=f"hang {folder}/pid", env={"PATH": sys.argv[2]})
asyncio.run(AcpAgent(sys.argv[3]).ask(ask, lambda said: print(said, flush=True)))
"""


def test_a_factory_that_is_killed_takes_its_agent_with_it(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    words = [sys.executable, "-c", KILLED, str(tmp_path), os.environ["PATH"], AGENT]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2]) as factory:
        assert factory.stdout
        assert any("hanging" in line for line in factory.stdout)
        factory.kill()
    pid, deadline = int((tmp_path / "pid").read_text()), time.monotonic() + 10
    while is_alive(pid) and time.monotonic() < deadline:
        os.sched_yield()
    assert not is_alive(pid)
