"""Delivers learnings to a role: beside the failure they match, as an experiment that measures whether they help."""

from __future__ import annotations

import msgspec

from ratchet.core import events as ev
from ratchet.core.learning import PLACEBO, Learning, Matched, TrialArm, assign_arm, delivered_text
from ratchet.core.report import RED, Report, load_errors
from ratchet.engine.blocking import run_blocking
from ratchet.engine.steps.context import RunContext, StepContext
from ratchet.engine.steps.run_tests import load_report

QUERY_MAX_CHARS = 1_000
_MESSAGES_MAX = 3


class Delivery(msgspec.Struct, frozen=True, kw_only=True):
    """The texts for the packet and for the role's prompt, and an event for each learning that matched."""

    packet: list[str] = []
    prompt: list[str] = []
    events: list[ev.Event] = []


async def deliver(context: RunContext, step: StepContext) -> Delivery:
    """Choose learnings for a step: at a failure by fingerprint, then by its text; without one by the item's title."""
    if not context.config.learnings.on or not await run_blocking(context.library.has_any, context.item.repo):
        return Delivery()
    state = step.state
    failures = list(dict.fromkeys([*(state.reverted_failures if state.feedback else []), *state.failures]))
    if not (state.red or state.feedback):
        return await run_blocking(_by_title, context, step)
    report = await load_report(context, state.red_report) if state.red and state.red_report else None
    query = _query(report, state.red, state.feedback)
    return await run_blocking(_at_failure, context, step, failures, query)


def _by_title(context: RunContext, step: StepContext) -> Delivery:
    """Learnings delivered without a failure are not compared: it is unknown when they should have helped."""
    found = context.library.search(context.item.repo, context.item.title, limit=context.config.learnings.most)
    events: list[ev.Event] = [
        ev.LearningDelivered(step=step.number, learning=one.id, arm=TrialArm.PROMPT, matched=Matched.TITLE)
        for one in found
    ]
    return Delivery(prompt=[delivered_text(one) for one in found], events=events)


def _at_failure(context: RunContext, step: StepContext, failures: list[str], query: str) -> Delivery:
    config, state = context.config.learnings, step.state
    about = state.fingerprint or f"{state.task}:{state.iteration}"  # the same in each attempt
    texts: dict[TrialArm, list[str]] = {arm: [] for arm in TrialArm}
    events: list[ev.Event] = []
    for one, matched in _matching(context, failures, query):
        arm = assign_arm(
            context.ledger.lease.run, about, one.id,
            held_out=config.held_out, placebo=config.placebo, prompt=config.prompt,
        )  # fmt: skip
        texts[arm].append(delivered_text(one))
        fingerprint = failures[0] if failures else ""
        events.append(
            ev.LearningDelivered(step=step.number, learning=one.id, arm=arm, matched=matched, fingerprint=fingerprint)
        )
    placebo = [PLACEBO] if texts[TrialArm.PLACEBO] else []
    return Delivery(packet=[*texts[TrialArm.PACKET], *placebo], prompt=texts[TrialArm.PROMPT], events=events)


def _matching(context: RunContext, failures: list[str], query: str) -> list[tuple[Learning, Matched]]:
    most = context.config.learnings.most
    exact, found = context.library.matching(context.item.repo, failures, query, most)
    return [*((one, Matched.FINGERPRINT) for one in exact), *((one, Matched.SEARCH) for one in found)]


def _query(report: Report | None, red: list[str], feedback: list[str]) -> str:
    """Return the text of the failures and of the last feedback."""
    tests = [test for test in report.tests if test.status in RED and test.id in red] if report else []
    messages = [f"{test.failure.type} {test.failure.message[:300]}" for test in tests if test.failure]
    messages += [f"{error.type} {error.message[:300]}" for error in load_errors(report)] if report else []
    words = [*feedback[-1:], *dict.fromkeys(messages[:_MESSAGES_MAX]), *(test.name for test in tests[:_MESSAGES_MAX])]
    return "\n".join(words)[:QUERY_MAX_CHARS]
