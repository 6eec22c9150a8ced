"""The driver of programs that print and exit, with programs that do it well and badly."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from ratchet.agents.drivers import cli_stream
from ratchet.agents.drivers.cli_stream import CliAgent, LaunchSettings
from ratchet.agents.drivers.command import CommandAgent
from ratchet.agents.protocol import (
    Notice,
    SessionStarted,
    Text,
    ToolCall,
    TurnEvent,
    TurnFailed,
    TurnFinished,
    TurnOutcome,
    UsageReported,
)
from ratchet.agents.watchdog import Intervention, WatchdogLimits, ask_with_watchdog
from ratchet.core.failure import Reason
from ratchet.core.receipt import Usage
from ratchet.process import supervise
from tests.agents.support import lines_of, make_ask, program

NAMES = ["claude", "codex", "gemini", "opencode", "goose", "aider", "mini"]


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A place for programs of our own, found before any other, and a home that is nobody's."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "work").mkdir()
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))


@pytest.mark.parametrize(("first", "seen"), [(f"#!{sys.executable}", []), ("#!/bin/sh", ["/project/src"])])
def test_only_a_python_program_gets_no_module_paths_of_the_project(tmp_path: Path, first: str, seen: list[str]) -> None:
    agent = tmp_path / "bin" / "agent"
    python = "import os; print(os.environ.get('PYTHONPATH', ''))"
    agent.write_text(f"{first}\n{python if 'python' in first else 'printenv PYTHONPATH'}\n")
    agent.chmod(0o755)
    ask = make_ask(tmp_path / "work", env={"PATH": os.environ["PATH"]}, modules={"PYTHONPATH": "/project/src"})
    outcome = asyncio.run(CommandAgent(str(agent)).ask(ask, lambda _text: None))
    assert isinstance(outcome, TurnFinished) and outcome.text.split() == seen


def install(tmp_path: Path, name: str, body: str, version: str = "") -> None:
    version = version or program(name).tested.first
    path = tmp_path / "bin" / name
    newest = f"if '--version' in sys.argv: print('{version}'); sys.exit(0)"
    path.write_text(f"#!{sys.executable}\nimport json, os, sys, time\n{newest}\n{body}")
    path.chmod(0o755)


def printing(lines: list[bytes]) -> str:
    content = b"\n".join([*lines, b""])
    return f"sys.stdout.buffer.write({content!r})\nsys.stdout.flush()\n"


def ask(tmp_path: Path, name: str, model: str = "", **more: Any) -> tuple[list[TurnEvent], TurnOutcome]:
    reported: list[TurnEvent] = []
    words = make_ask(tmp_path / "work", **{"env": {"PATH": os.environ["PATH"]}, **more})
    return reported, asyncio.run(CliAgent(program(name), model).ask(words, reported.append))


def test_output_is_shown_and_kept(tmp_path: Path) -> None:
    install(tmp_path, "claude", printing(lines_of("claude", "success")))
    reported, outcome = ask(tmp_path, "claude")
    assert isinstance(outcome, TurnFinished) and outcome.text.startswith("All done")
    assert Text("I will edit the file.") in reported
    assert b"All done" in (tmp_path / "turn.log").read_bytes()


def test_a_line_is_passed_on_before_the_program_ends(tmp_path: Path) -> None:
    """The program continues only after its line was received."""
    go = tmp_path / "work" / "go"
    wait = f"while not os.path.exists({str(go)!r}): time.sleep(0.01)\n"
    first, *rest = lines_of("claude", "success")
    install(tmp_path, "claude", printing([first]) + wait + printing(rest))
    words = make_ask(tmp_path / "work", env={"PATH": os.environ["PATH"]})

    def hear(output: TurnEvent) -> None:
        if isinstance(output, SessionStarted):
            go.touch()

    assert isinstance(asyncio.run(CliAgent(program("claude")).ask(words, hear)), TurnFinished)


def test_an_exit_code_of_zero_is_no_verdict(tmp_path: Path) -> None:
    install(tmp_path, "codex", printing(lines_of("codex", "success")[:-1]) + "sys.exit(0)")
    _, outcome = ask(tmp_path, "codex")
    assert isinstance(outcome, TurnFailed) and outcome.reason is Reason.AGENT_CRASHED
    assert "exit 0" in outcome.detail


def test_what_a_program_says_on_stderr_when_it_dies_is_the_reason(tmp_path: Path) -> None:
    install(tmp_path, "codex", "print('Not logged in. Run codex login.', file=sys.stderr)\nsys.exit(1)")
    _, outcome = ask(tmp_path, "codex")
    assert isinstance(outcome, TurnFailed) and outcome.reason is Reason.AUTH


def test_a_program_that_takes_too_long_has_timed_out(tmp_path: Path) -> None:
    install(tmp_path, "gemini", "time.sleep(600)")
    _, outcome = ask(tmp_path, "gemini", timeout_s=0.3)
    assert isinstance(outcome, TurnFailed) and outcome.reason is Reason.AGENT_TIMED_OUT


MUTTERS = """
print("Attempt 1 failed with status 429. Too many requests, retry in 3600s", file=sys.stderr, flush=True)
"""


def test_a_limit_that_is_waited_out_in_silence_is_the_reason_and_not_the_silence(tmp_path: Path) -> None:
    install(tmp_path, "gemini", MUTTERS + "time.sleep(600)")
    _, outcome = ask(tmp_path, "gemini", timeout_s=1.0)
    assert isinstance(outcome, TurnFailed) and outcome.reason is Reason.RATE_LIMITED and outcome.until


def test_what_was_muttered_before_it_went_on_is_over(tmp_path: Path) -> None:
    install(tmp_path, "gemini", MUTTERS + printing(lines_of("gemini", "success")[:1]) + "time.sleep(600)")
    _, outcome = ask(tmp_path, "gemini", timeout_s=1.0)
    assert isinstance(outcome, TurnFailed) and outcome.reason is Reason.AGENT_TIMED_OUT


def test_so_is_one_that_is_only_in_the_agents_own_log(tmp_path: Path) -> None:
    log = tmp_path / "home/.local/share/opencode/log/opencode.log"
    body = f"open({str(log)!r}, 'w').write('level=ERROR stream error: AI_APICallError: Rate limit reached')\n"
    log.parent.mkdir(parents=True)
    install(tmp_path, "opencode", body + "time.sleep(600)")
    _, outcome = ask(tmp_path, "opencode", timeout_s=1.0)
    assert isinstance(outcome, TurnFailed) and outcome.reason is Reason.RATE_LIMITED


def test_so_is_one_that_is_only_in_the_log_of_the_turn(tmp_path: Path) -> None:
    says = "open(os.environ['GEMINI_DEBUG_LOG_FILE'], 'w').write('[WARN] Attempt 1 failed with status 429. Retrying')\n"
    install(tmp_path, "gemini", says + "time.sleep(600)")
    _, outcome = ask(tmp_path, "gemini", timeout_s=1.0)
    assert isinstance(outcome, TurnFailed) and outcome.reason is Reason.RATE_LIMITED


def test_a_silent_turn_that_is_stopped_reports_the_provider_error_it_waited_for(tmp_path: Path) -> None:
    again = f"while True:\n    time.sleep(0.1)\n    {MUTTERS.strip()}\n"
    install(tmp_path, "gemini", printing(lines_of("gemini", "success")[:1]) + again)

    async def nudged(wrong: Intervention) -> None:
        raise AssertionError(wrong.why)

    words = make_ask(tmp_path / "work", env={"PATH": os.environ["PATH"]})
    limits = WatchdogLimits(idle_s=1.0, repeats=3)
    outcome = asyncio.run(ask_with_watchdog(CliAgent(program("gemini")), words, lambda _text: None, limits, nudged))
    assert isinstance(outcome, TurnFailed) and outcome.reason is Reason.RATE_LIMITED and outcome.until


@pytest.mark.parametrize(
    ("works", "reason"),
    [
        ("subprocess.run(['sleep', '600'])", Reason.AGENT_TIMED_OUT),
        ("time.sleep(600)", Reason.NO_PROGRESS),
        ("subprocess.run(['sleep', '1']); time.sleep(600)", Reason.NO_PROGRESS),
    ],
    ids=["a command runs", "nothing runs", "a command has run"],
)
def test_a_long_command_reported_only_at_its_end_is_no_stall(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, works: str, reason: Reason
) -> None:
    """With a command under way only the deadline ends it; without one its silence does, after a nudge."""
    monkeypatch.setattr(cli_stream, "LOOK_EVERY_S", 0.1)
    begun = b'{"type":"step_start","sessionID":"s"}'
    starts = f"import subprocess\ntime.sleep({cli_stream.AT_ONCE_S + 1})\n"  # none of them begins at once
    install(tmp_path, "opencode", starts + printing([begun]) + f"{works}\n")

    class Nudged(Exception):
        pass

    async def nudged(wrong: Intervention) -> None:
        raise Nudged

    words = make_ask(tmp_path / "work", env={"PATH": os.environ["PATH"]}, timeout_s=8.0)
    agent, limits = CliAgent(program("opencode")), WatchdogLimits(idle_s=cli_stream.AT_ONCE_S + 2, repeats=3)
    try:
        outcome: TurnOutcome = asyncio.run(ask_with_watchdog(agent, words, lambda _text: None, limits, nudged))
    except Nudged:
        outcome = TurnFailed(reason=Reason.NO_PROGRESS, detail="nudged")
    assert isinstance(outcome, TurnFailed) and outcome.reason is reason


def test_a_process_that_starts_after_the_answer_does_not_take_it_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """opencode runs git after its last words: that is no tool call."""
    monkeypatch.setattr(cli_stream, "LOOK_EVERY_S", 0.05)
    answer = printing(lines_of("opencode", "success"))
    # The child ends when it has been seen.
    tidies = f"import subprocess\ntime.sleep({cli_stream.AT_ONCE_S + 0.5})\n{answer}\nsubprocess.run(['sleep', '1'])\n"
    install(tmp_path, "opencode", tidies)
    reported, outcome = ask(tmp_path, "opencode")
    assert any(isinstance(event, ToolCall) and event.name == "command" for event in reported), "it was seen"
    assert isinstance(outcome, TurnFinished) and outcome.text


LEAVES_A_CHILD = """
if os.fork() == 0:
    os.setsid()
    open({pid!r}, "w").write(str(os.getpid()))
    time.sleep(600)
while not os.path.exists({pid!r}) or not open({pid!r}).read(): time.sleep(0.01)
"""


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rsplit(b")", 1)[1].split()[0] != b"Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_a_turn_that_spends_its_allowance_is_stopped_with_all_it_started(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    body = LEAVES_A_CHILD.format(pid=str(pid)) + printing(lines_of("claude", "success")[:3]) + "time.sleep(600)"
    install(tmp_path, "claude", body)
    _, outcome = ask(tmp_path, "claude", allowance=Usage(tokens_in=20_000))
    assert isinstance(outcome, TurnFailed) and outcome.reason is Reason.BUDGET_SPENT
    assert not is_alive(int(pid.read_text()))


def test_a_cancelled_turn_leaves_no_process_not_even_in_a_session_of_its_own(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    install(
        tmp_path,
        "codex",
        LEAVES_A_CHILD.format(pid=str(pid)) + printing(lines_of("codex", "success")[:1]) + "time.sleep(600)",
    )
    words = make_ask(tmp_path / "work", env={"PATH": os.environ["PATH"]})

    async def cancel_when_heard() -> float:
        opened = asyncio.Event()
        task = asyncio.ensure_future(CliAgent(program("codex")).ask(words, lambda _text: opened.set()))
        await opened.wait()
        began = time.monotonic()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert task.cancelled()
        return time.monotonic() - began

    assert asyncio.run(cancel_when_heard()) < 3
    assert not is_alive(int(pid.read_text()))


@pytest.mark.parametrize("name", ["goose", "mini"])
def test_an_agent_that_cannot_be_restricted_is_not_started_without_a_sandbox(tmp_path: Path, name: str) -> None:
    install(tmp_path, name, f"open({str(tmp_path / 'ran')!r}, 'w')")
    _, outcome = ask(tmp_path, name)
    assert isinstance(outcome, TurnFailed) and outcome.reason is Reason.MISCONFIGURED
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("name", NAMES)
def test_a_prompt_of_any_length_is_passed(tmp_path: Path, name: str) -> None:
    prompt = "long " * 500_000
    launch = program(name).launch(make_ask(tmp_path, prompt=prompt), LaunchSettings(scratch_dir=tmp_path, free=True))
    assert max(map(len, launch.argv)) < 1_000
    assert prompt in launch.stdin or any(prompt in content for content in launch.files.values())


@pytest.mark.parametrize("name", NAMES)
def test_the_requested_model_and_session_are_used(tmp_path: Path, name: str) -> None:
    of = program(name)
    launch = of.launch(
        make_ask(tmp_path), LaunchSettings(scratch_dir=tmp_path, model="provider/the-model", session="the-session")
    )
    assert any("the-model" in word for word in launch.argv)
    assert ("the-session" in launch.argv) == of.resumes


@pytest.mark.parametrize("named", ["/home/me/.ssh/id_ed25519", "../keys", "--settings", "a b", "x" * 300])
def test_what_a_program_reports_as_its_session_is_no_path_and_no_option_of_its_next_command(
    tmp_path: Path, named: str
) -> None:
    install(tmp_path, "codex", "open('argv', 'w').write('|'.join(sys.argv))\n" + printing(lines_of("codex", "success")))
    ask(tmp_path, "codex", session=named)
    assert named not in (tmp_path / "work" / "argv").read_text().split("|")


BYPASS = ("danger", "yolo", "--auto", "Bash")


@pytest.mark.parametrize("name", ["claude", "codex", "gemini", "opencode"])
def test_only_in_a_sandbox_may_an_agent_do_as_it_likes(tmp_path: Path, name: str) -> None:
    free, bound = [
        " ".join(program(name).launch(make_ask(tmp_path), LaunchSettings(scratch_dir=tmp_path, free=free)).argv)
        for free in (True, False)
    ]
    assert any(word in free for word in BYPASS)
    assert not any(word in bound for word in BYPASS)


def test_a_resumed_session_is_billed_for_what_is_new(tmp_path: Path) -> None:
    lines = lines_of("codex", "success")
    install(tmp_path, "codex", "open('argv', 'w').write(' '.join(sys.argv))\n" + printing(lines))
    reported, _ = ask(tmp_path, "codex")
    handle = [output.session for output in reported if isinstance(output, SessionStarted)][-1]
    again = lines[-1].replace(b"40680", b"50680").replace(b'"output_tokens":136', b'"output_tokens":150')
    install(tmp_path, "codex", "open('argv', 'w').write(' '.join(sys.argv))\n" + printing([*lines[:-1], again]))
    reported, _ = ask(tmp_path, "codex", session=handle)
    spent = sum((output.usage for output in reported if isinstance(output, UsageReported)), Usage())
    assert (spent.tokens_in, spent.tokens_out) == (10_000, 14)
    assert "resume 01a1e0fa-d46b-71f1-8cfa-22109ab34e52 -" in (tmp_path / "work" / "argv").read_text()


def test_a_version_that_was_not_tested_is_noticed_once(tmp_path: Path) -> None:
    install(tmp_path, "claude", "", version="9.9.9")
    reported: list[TurnEvent] = []
    agent = CliAgent(program("claude"))
    for _ in range(2):
        asyncio.run(agent.ask(make_ask(tmp_path / "work", env={"PATH": os.environ["PATH"]}), reported.append))
    noticed = [output.text for output in reported if isinstance(output, Notice)]
    assert len(noticed) == 1 and "9.9.9" in noticed[0]


def test_an_agent_sees_its_providers_variables_and_no_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "mine")
    monkeypatch.setenv("GITHUB_TOKEN", "not yours")
    monkeypatch.setenv("OPENAI_API_KEY", "not yours")
    install(tmp_path, "claude", "open('env', 'w').write(json.dumps(dict(os.environ)))")
    ask(tmp_path, "claude")
    seen = (tmp_path / "work" / "env").read_text()
    assert "mine" in seen and "not yours" not in seen


def test_aider_gets_a_git_identity_where_none_is_configured(tmp_path: Path) -> None:
    says = (
        "import subprocess\nopen('name', 'wb').write(subprocess.check_output(['git', 'config', '--get', 'user.name']))"
    )
    install(tmp_path, "aider", says)
    ask(tmp_path, "aider", env={"PATH": os.environ["PATH"], "HOME": str(tmp_path), "GIT_CONFIG_NOSYSTEM": "1"})
    assert (tmp_path / "work" / "name").read_text() == "aider\n"


def test_a_link_in_the_place_of_git_gets_no_folder_from_aider(tmp_path: Path) -> None:
    install(tmp_path, "aider", "")
    (other := tmp_path / "other").mkdir()
    (other / "commondir").write_text(str(tmp_path))
    (tmp_path / "work").mkdir(exist_ok=True)
    (tmp_path / "work" / ".git").symlink_to(other)
    ask(tmp_path, "aider")
    assert [path.name for path in other.iterdir()] == ["commondir"]


def test_litter_does_not_stay_in_the_workspace(tmp_path: Path) -> None:
    install(
        tmp_path, "aider", "os.mkdir('.aider.tags.cache.v4'); open('.aider.input.history', 'w'); open('kept.py', 'w')"
    )
    ask(tmp_path, "aider")
    assert [path.name for path in (tmp_path / "work").iterdir()] == ["kept.py"]


def test_what_a_command_prints_without_end_is_kept_up_to_a_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervise, "OUTPUT_MAX_BYTES", 100_000)
    (tmp_path / "w").mkdir()
    agent = CommandAgent("sh -c 'head -c 500000 /dev/zero; echo on stderr >&2; head -c 500000 /dev/zero'")
    outcome = asyncio.run(agent.ask(make_ask(tmp_path / "w"), lambda _text: None))
    assert isinstance(outcome, TurnFinished) and (tmp_path / "turn.log").stat().st_size == 100_000
