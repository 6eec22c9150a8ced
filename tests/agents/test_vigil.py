"""An agent under watch: told apart are working, waiting for its own call, silence, going in circles, and asking."""

from __future__ import annotations

import asyncio
from pathlib import Path

from ratchet.agents import (
    Ask,
    Failed,
    Finished,
    Outcome,
    Question,
    Said,
    SessionOpened,
    Tell,
    Text,
    ToolCall,
    ToolEnded,
)
from ratchet.agents.vigil import Limits, Watch, Wrong, watched
from ratchet.core.failure import Reason
from tests.agents.support import make_ask

LIMITS = Limits(idle_s=10.0, repeats=3)


def after(*said: Said, now: float = 0.0) -> Watch:
    watch = Watch(LIMITS)
    for each in said:
        watch.take(each, now)
    return watch


def test_silence_is_a_stall_only_when_no_call_is_under_way() -> None:
    assert after(ToolCall("shell", "make")).look(10_000.0) is None
    for quiet in (after(Text("hm")), after(ToolCall("shell", "make"), ToolEnded("ok"))):
        assert quiet.look(9.0) == 1.0 and quiet.wrong is None
        quiet.look(10.0)
        assert quiet.wrong and quiet.wrong.reason is Reason.AGENT_TIMED_OUT


def test_who_never_says_anything_while_it_works_is_not_called_silent() -> None:
    assert after().look(10_000.0) is None


def test_the_same_call_with_the_same_result_is_a_loop_and_with_another_is_not() -> None:
    call = ToolCall("shell", "pytest")
    waits: list[Said] = [said for n in range(9) for said in (call, ToolEnded(f"{n} passed"))]
    assert after(*waits).wrong is None
    once: list[Said] = [call, ToolEnded("1 failed")]
    stuck = after(*once * 3)
    assert stuck.wrong and stuck.wrong.reason is Reason.NO_PROGRESS and "pytest" in stuck.wrong.message


class Player:
    """Says its lines of each turn, then waits to be ended; the last turn finishes."""

    name = "player"

    def __init__(self, *turns: list[Said]) -> None:
        self.turns, self.asked = list(turns), list[Ask]()

    async def ask(self, ask: Ask, tell: Tell) -> Outcome:
        self.asked.append(ask)
        for said in self.turns.pop(0):
            tell(said)
        if self.turns:
            await asyncio.Event().wait()
        return Finished(text="done")


def play(player: Player, limits: Limits = LIMITS) -> tuple[Outcome, list[Wrong]]:
    nudges: list[Wrong] = []

    async def nudged(wrong: Wrong) -> None:
        nudges.append(wrong)

    ask = make_ask(Path("/w"), prompt="The task.")
    return asyncio.run(watched(player, ask, lambda _said: None, limits, nudged)), nudges


ROUND: list[Said] = [ToolCall("ls"), ToolEnded("a")]
LOOP: list[Said] = [SessionOpened("s-1"), *ROUND * 3]


def test_an_agent_that_goes_in_circles_is_told_so_in_its_session_and_may_go_on() -> None:
    player = Player(LOOP, [Text("ah")])
    outcome, nudges = play(player)
    assert outcome == Finished(text="done") and len(nudges) == 1
    again = player.asked[1]
    assert again.session == "s-1" and "ls 3 times" in again.prompt and again.prompt.endswith("The task.")


def test_the_second_time_it_has_failed() -> None:
    outcome, nudges = play(Player(LOOP, LOOP, []))
    assert isinstance(outcome, Failed) and outcome.reason is Reason.NO_PROGRESS and len(nudges) == 1


def test_a_stalled_agent_is_nudged_too() -> None:
    outcome, nudges = play(Player([Text("hm")], [Text("on we go")]), Limits(idle_s=0.05, repeats=3))
    assert outcome == Finished(text="done") and "silent" in nudges[0].why


def test_a_question_is_answered_by_the_policy_and_without_one_ends_the_turn() -> None:
    player = Player([Question("tabs or spaces?")], [])
    outcome, _ = play(player, Limits(idle_s=10, repeats=3, answer="as you see fit"))
    assert outcome == Finished(text="done") and "as you see fit" in player.asked[1].prompt
    outcome, nudges = play(Player([Question("tabs or spaces?")], []))
    assert isinstance(outcome, Failed) and outcome.reason is Reason.QUESTION and "tabs" in outcome.detail and not nudges


def test_a_question_counts_even_when_the_agent_goes_on_without_an_answer() -> None:
    outcome, _ = play(Player([Question("which?")]))
    assert isinstance(outcome, Failed) and outcome.reason is Reason.QUESTION
