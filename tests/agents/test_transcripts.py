"""Each adapter understands what its program really printed."""

from __future__ import annotations

import msgspec
import pytest

from ratchet.agents.protocol import (
    FileChange,
    Notice,
    SessionStarted,
    Text,
    ToolCall,
    TurnCancelled,
    TurnFailed,
    TurnFinished,
    UsageReported,
)
from ratchet.core.failure import Reason
from ratchet.core.receipt import Price, Usage
from tests.agents.support import RECORDED, lines_of, program, replay

STREAMING = [name for name in RECORDED if name not in ("aider", "mini")]


@pytest.mark.parametrize("name", RECORDED)
def test_a_finished_turn_has_its_last_text_as_the_answer(name: str) -> None:
    reported, outcome = replay(name, lines_of(name, "success"))
    assert isinstance(outcome, TurnFinished)
    assert "All done" in outcome.text
    assert any(isinstance(output, Text | ToolCall | FileChange) for output in reported)
    spent = sum((output.usage for output in reported if isinstance(output, UsageReported)), Usage())
    assert spent.tokens_in > 100 and spent.tokens_out > 10


@pytest.mark.parametrize("name", STREAMING)
def test_a_session_is_named_once_it_is_open(name: str) -> None:
    reported, _ = replay(name, lines_of(name, "success"))
    sessions = {output.session for output in reported if isinstance(output, SessionStarted)}
    assert len(sessions) == 1 and all(sessions)


@pytest.mark.parametrize(
    ("case", "reason"),
    [("auth", Reason.AUTH), ("rate_limit", Reason.RATE_LIMITED), ("context_overflow", Reason.CONTEXT_OVERFLOW)],
)
@pytest.mark.parametrize("name", RECORDED)
def test_a_failure_has_the_reason_the_provider_gave(name: str, case: str, reason: Reason) -> None:
    _, outcome = replay(name, lines_of(name, case))
    if case == "context_overflow" and name in ("claude", "goose", "opencode"):
        assert isinstance(outcome, TurnFinished), "these compact the conversation and go on"
        return
    assert isinstance(outcome, TurnFailed)
    assert (outcome.reason, bool(outcome.detail)) == (reason, True)


@pytest.mark.parametrize("name", [name for name in STREAMING if name != "opencode"])
def test_a_request_that_is_tried_again_is_no_failure(name: str) -> None:
    _, outcome = replay(name, lines_of(name, "rate_limit_once"))
    assert isinstance(outcome, TurnFinished)


@pytest.mark.parametrize("name", RECORDED)
def test_an_unknown_kind_of_event_is_passed_over(name: str) -> None:
    lines = lines_of(name, "success")
    new = [
        b'{"type":"from.the.future","event":"new","item":{"x":[1]}}',
        b"not json at all",
        b'{"type": 7}',
        b"\xff\xfe",
    ]
    odd = [each for line in lines for each in (line, *new)]
    if name == "aider":
        odd = [*new, *lines]
    if name == "mini":
        odd = [b"".join(lines).replace(b'{"info"', b'{"from_the_future":[1],"info"', 1)]
    assert odd != lines
    assert replay(name, odd)[1] == replay(name, lines)[1]


@pytest.mark.parametrize("name", STREAMING)
def test_a_stream_that_was_cut_off_is_a_failure_whatever_the_exit_code(name: str) -> None:
    lines = lines_of(name, "success")
    for end in range(len(lines) - 1):
        _, outcome = replay(name, lines[:end])
        assert isinstance(outcome, TurnFailed), f"after {end} lines"


@pytest.mark.parametrize("name", STREAMING)
def test_a_line_of_any_shape_breaks_no_reader(name: str) -> None:
    for line in lines_of(name, "success"):
        for old, new in ((b'":"', b'":["'), (b'"', b"'"), (b":{", b":null,{"), (b":{", b":[{"), (b'":"', b'":1,"')):
            list(program(name).read(line.replace(old, new)))
        list(program(name).read(line[:-1]))


def test_claude_says_success_and_means_failure() -> None:
    last = lines_of("claude", "rate_limit")[-1]
    assert b'"subtype":"success"' in last
    assert isinstance(replay("claude", [last])[1], TurnFailed)


def test_claude_that_was_interrupted_is_cancelled() -> None:
    line = b'{"type":"result","subtype":"error_during_execution","is_error":true,"terminal_reason":"aborted_tools"}'
    assert replay("claude", [line])[1] == TurnCancelled(detail="aborted_tools")


def test_claude_names_when_its_limit_ends() -> None:
    event = b'{"type":"rate_limit_event","rate_limit_info":{"status":"rejected","resetsAt":1794780000}}'
    _, outcome = replay("claude", [event, *lines_of("claude", "rate_limit")])
    assert isinstance(outcome, TurnFailed) and outcome.until == "2026-11-15T22:00:00Z"


def test_claudes_messages_are_counted_once_and_its_end_is_what_counts() -> None:
    reported, _ = replay("claude", lines_of("claude", "success"))
    spent = [output.usage for output in reported if isinstance(output, UsageReported)]
    assert spent[0].tokens_in == 21_426, "while it runs: a budget must be able to stop it"
    assert sum(spent, Usage()) == Usage(tokens_in=87_821, tokens_out=130, cost_usd=0.264873)


def test_gemini_that_ends_well_without_a_word_has_failed() -> None:
    silent = [line for line in lines_of("gemini", "success") if b'"role":"assistant"' not in line]
    assert any(b'"tool_use"' in line for line in silent)
    assert isinstance(replay("gemini", silent)[1], TurnFailed)


def test_goose_that_was_interrupted_is_cancelled() -> None:
    line = b'{"type":"error","error":"Headless run interrupted"}'
    assert isinstance(replay("goose", [line])[1], TurnCancelled)


def test_opencode_that_stops_at_a_refused_permission_has_failed() -> None:
    line = b'{"type":"step_finish","sessionID":"s","part":{"id":"p","reason":"tool-calls"}}'
    _, outcome = replay("opencode", [line])
    assert isinstance(outcome, TurnFailed) and outcome.reason is Reason.AGENT_REFUSED


def test_agents_that_report_only_tokens_are_priced_from_the_table() -> None:
    prices = {"m": Price(in_usd=2.0, out_usd=10.0)}
    reported, _ = replay("codex", lines_of("codex", "success"), prices=prices)
    spent = sum((output.usage for output in reported if isinstance(output, UsageReported)), Usage())
    assert spent.cost_usd == pytest.approx((40_680 * 2 + 136 * 10) / 1e6)


def test_a_retry_is_reported_as_a_notice() -> None:
    reported, _ = replay("claude", lines_of("claude", "rate_limit"))
    assert next(output.text for output in reported if isinstance(output, Notice)) == "retry 1: 429 rate_limit"


def test_goose_without_a_provider_is_misconfigured_at_once() -> None:
    failed = replay("goose", [b"  error: No provider configured. Run 'goose configure' first."])[1]
    assert isinstance(failed, TurnFailed) and failed.reason is Reason.MISCONFIGURED
    assert "goose configure" in failed.detail


def test_goose_that_reaches_no_provider_has_a_provider_failure_not_an_answer() -> None:
    text = "Network error: Could not connect to 127.0.0.1:9 — check your network connection and try again."
    words = {"role": "assistant", "content": [{"type": "text", "text": text}]}
    line = msgspec.json.encode({"type": "message", "message": words})
    failed = replay("goose", [line])[1]
    assert isinstance(failed, TurnFailed) and failed.reason is Reason.OVERLOADED
