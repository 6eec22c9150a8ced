"""The watchdog distinguishes work, waiting for a tool call, silence, loops and questions."""

from __future__ import annotations

import asyncio
from pathlib import Path

from ratchet.agents.protocol import (
    AgentRequest,
    OnEvent,
    Question,
    SessionStarted,
    Text,
    ToolCall,
    ToolResult,
    TurnEvent,
    TurnFailed,
    TurnFinished,
    TurnOutcome,
)
from ratchet.agents.watchdog import Intervention, ProgressMonitor, WatchdogLimits, ask_with_watchdog
from ratchet.core.failure import Reason
from tests.agents.support import make_ask

LIMITS = WatchdogLimits(idle_s=10.0, repeats=3)


def after(*output: TurnEvent, now: float = 0.0) -> ProgressMonitor:
    watch = ProgressMonitor(LIMITS)
    for each in output:
        watch.add(each, now)
    return watch


def test_silence_is_a_stall_only_when_no_call_is_under_way() -> None:
    assert after(ToolCall("shell", "make")).check_silence(10_000.0) is None
    for quiet in (after(Text("hm")), after(ToolCall("shell", "make"), ToolResult("ok"))):
        assert quiet.check_silence(9.0) == 1.0 and quiet.intervention is None
        quiet.check_silence(10.0)
        assert quiet.intervention and quiet.intervention.reason is Reason.AGENT_TIMED_OUT


def test_an_agent_that_reports_nothing_while_it_works_is_not_silent() -> None:
    assert after().check_silence(10_000.0) is None


def test_the_same_call_with_the_same_result_is_a_loop_and_with_another_is_not() -> None:
    call = ToolCall("shell", "pytest")
    waits: list[TurnEvent] = [output for n in range(9) for output in (call, ToolResult(f"{n} passed"))]
    assert after(*waits).intervention is None
    once: list[TurnEvent] = [call, ToolResult("1 failed")]
    stuck = after(*once * 3)
    assert (
        stuck.intervention
        and stuck.intervention.reason is Reason.NO_PROGRESS
        and "pytest" in stuck.intervention.message
    )


class Player:
    """Says its lines of each turn, then waits to be ended; the last turn finishes."""

    name = "player"
    reports_as_it_works = False

    def __init__(self, *turns: list[TurnEvent]) -> None:
        self.turns, self.asked = list(turns), list[AgentRequest]()

    async def ask(self, ask: AgentRequest, on_event: OnEvent) -> TurnOutcome:
        self.asked.append(ask)
        for output in self.turns.pop(0):
            on_event(output)
        if self.turns:
            await asyncio.Event().wait()
        return TurnFinished(text="done")


def play(player: Player, limits: WatchdogLimits = LIMITS) -> tuple[TurnOutcome, list[Intervention]]:
    nudges: list[Intervention] = []

    async def nudged(wrong: Intervention) -> None:
        nudges.append(wrong)

    ask = make_ask(Path("/w"), prompt="The task.")
    return asyncio.run(ask_with_watchdog(player, ask, lambda _text: None, limits, nudged)), nudges


ROUND: list[TurnEvent] = [ToolCall("ls"), ToolResult("a")]
LOOP: list[TurnEvent] = [SessionStarted("s-1"), *ROUND * 3]


def test_an_agent_that_loops_gets_a_message_in_its_session_and_continues() -> None:
    player = Player(LOOP, [Text("ah")])
    outcome, nudges = play(player)
    assert outcome == TurnFinished(text="done") and len(nudges) == 1
    again = player.asked[1]
    assert again.session == "s-1" and "ls 3 times" in again.prompt and again.prompt.endswith("The task.")


def test_the_second_time_it_has_failed() -> None:
    outcome, nudges = play(Player(LOOP, LOOP, []))
    assert isinstance(outcome, TurnFailed) and outcome.reason is Reason.NO_PROGRESS and len(nudges) == 1


def test_a_stalled_agent_is_nudged_too() -> None:
    outcome, nudges = play(Player([Text("hm")], [Text("on we go")]), WatchdogLimits(idle_s=0.05, repeats=3))
    assert outcome == TurnFinished(text="done") and "silent" in nudges[0].why


def test_a_resumed_session_that_reports_nothing_new_is_silent_a_second_time() -> None:
    """The event of a session with the same id is not repeated: silence counts from the start of the turn."""
    limits = WatchdogLimits(idle_s=0.05, repeats=3)
    outcome, nudges = play(Player([SessionStarted("s-1"), Text("hm")], [], []), limits)
    assert isinstance(outcome, TurnFailed) and outcome.reason is Reason.AGENT_TIMED_OUT and len(nudges) == 1


def test_an_agent_that_never_reports_its_first_event_is_silent_from_the_start_and_again_after_the_nudge() -> None:
    """The provider accepts the request and never answers: opencode prints nothing, and has no session to resume."""
    limits = WatchdogLimits(idle_s=0.05, repeats=3)
    player = Player([], [], [])
    player.reports_as_it_works = True
    outcome, nudges = play(player, limits)
    assert isinstance(outcome, TurnFailed) and outcome.reason is Reason.AGENT_TIMED_OUT and len(nudges) == 1


def test_a_nudged_agent_without_a_session_is_silent_a_second_time() -> None:
    limits = WatchdogLimits(idle_s=0.05, repeats=3)
    outcome, nudges = play(Player([Text("hm")], [], []), limits)
    assert isinstance(outcome, TurnFailed) and outcome.reason is Reason.AGENT_TIMED_OUT and len(nudges) == 1


def test_a_question_is_answered_by_the_policy_and_without_one_ends_the_turn() -> None:
    player = Player([Question("tabs or spaces?")], [])
    outcome, _ = play(player, WatchdogLimits(idle_s=10, repeats=3, answer="as you see fit"))
    assert outcome == TurnFinished(text="done") and "as you see fit" in player.asked[1].prompt
    outcome, nudges = play(Player([Question("tabs or spaces?")], []))
    assert (
        isinstance(outcome, TurnFailed)
        and outcome.reason is Reason.QUESTION
        and "tabs" in outcome.detail
        and not nudges
    )


def test_a_question_counts_even_when_the_agent_goes_on_without_an_answer() -> None:
    outcome, _ = play(Player([Question("which?")]))
    assert isinstance(outcome, TurnFailed) and outcome.reason is Reason.QUESTION
