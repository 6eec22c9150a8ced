"""Describes a run for people: one line per event, and the full timeline with a summary."""

from __future__ import annotations

from collections import Counter
from datetime import datetime
from functools import singledispatch
from textwrap import wrap

import msgspec

from ratchet.app.runs import RunHistory
from ratchet.core import events as ev
from ratchet.core.foreign_json import MALFORMED
from ratchet.core.item import ParkReason
from ratchet.core.state import RunState, RunStatus
from ratchet.core.verdict import ReviewFinding
from ratchet.interfaces.terminal.colour import Paint, Tone

_MARKS = {Tone.PLAIN: "·", Tone.DIM: "·", Tone.GOOD: "✔", Tone.BAD: "✘", Tone.WARN: "!"}


class NarrativeLine(msgspec.Struct, frozen=True):
    """One line of the timeline: the actor and what happened."""

    actor: str
    text: str
    tone: Tone = Tone.PLAIN


@singledispatch
def event_line(_event: object) -> NarrativeLine | None:
    """Return the line for an event, or None if it is not shown."""
    return None


@event_line.register
def _(event: ev.RunStarted) -> NarrativeLine:
    return NarrativeLine(
        "run", f"{event.title} · {event.workflow} · from {event.base_commit[:10]} on branch {event.branch}"
    )


@event_line.register
def _(event: ev.RunParked) -> NarrativeLine:
    until = f" until {event.until}" if event.until else ""
    detail = event.detail.removeprefix(f"{event.reason}: ")
    return NarrativeLine("run", f"parked ({event.reason}){until}: {detail}", Tone.WARN)


@event_line.register
def _(event: ev.QuestionAnswered) -> NarrativeLine:
    return NarrativeLine("person", f"answered: {event.answer}")


@event_line.register
def _(event: ev.RunNudged) -> NarrativeLine:
    return NarrativeLine("person", f"nudged: {event.message}")


@event_line.register
def _(event: ev.RunCompleted) -> NarrativeLine:
    kept = f"{_count(event.commits, 'commit')} kept" if event.commits else "nothing was changed"
    return NarrativeLine("run", f"completed: {kept}", Tone.GOOD)


@event_line.register
def _(event: ev.RunFailed) -> NarrativeLine:
    return NarrativeLine("run", f"failed ({event.reason}): {event.detail}", Tone.BAD)


@event_line.register
def _(event: ev.RunAborted) -> NarrativeLine:
    return NarrativeLine("run", f"aborted by {event.by}", Tone.BAD)


@event_line.register
def _(event: ev.StepResumed) -> NarrativeLine:
    return NarrativeLine("run", f"step {event.step} was interrupted; repeating it from its snapshot", Tone.WARN)


@event_line.register
def _(event: ev.WritesUndone) -> NarrativeLine:
    return NarrativeLine(event.role, f"forbidden writes reverted: {_list(event.paths)}", Tone.WARN)


@event_line.register
def _(event: ev.FilesLeftOut) -> NarrativeLine:
    return NarrativeLine(event.role, f"files that nothing refers to were left out: {_list(event.paths)}", Tone.WARN)


@event_line.register
def _(event: ev.FlakyTestsFound) -> NarrativeLine:
    return NarrativeLine("tests", f"flaky, failed and then passed on the same content: {_list(event.tests)}", Tone.WARN)


@event_line.register
def _(event: ev.BaselineTaken) -> NarrativeLine:
    skipped = f"{event.skipped} skipped"
    green = f", {skipped}, all others passing" if event.skipped else ", all passing"
    red = f", {len(event.failing)} already failing" + (f", {skipped}" if event.skipped else "")
    red = red if event.failing else green
    text = f"{_count(event.tests, 'test')}{red if event.tests else ' so far'}"
    if not event.unloaded:
        return NarrativeLine("baseline", text, Tone.DIM)
    files = f"{_count(len(event.unloaded), 'file')} not loaded: {_list(event.unloaded)}"
    return NarrativeLine("baseline", f"{text}; {files}", Tone.WARN)


@event_line.register
def _(event: ev.TestWritten) -> NarrativeLine:
    sealed = f" and sealed tests beside it ({event.summary})" if event.sealed else f": {event.summary}"
    return NarrativeLine("auditor", f"wrote a test in {_list(event.paths)}{sealed}{_unsealed(event)}")


def _unsealed(event: ev.TestWritten) -> str:
    return f"; no sealed test: {event.unsealed}" if event.unsealed else ""


@event_line.register
def _(_event: ev.RequirementsMet) -> NarrativeLine:
    return NarrativeLine("auditor", "reports that the requirements are complete")


@event_line.register
def _(event: ev.AuditFailed) -> NarrativeLine:
    return NarrativeLine("auditor", event.why, Tone.WARN)


@event_line.register
def _(event: ev.RedConfirmed) -> NarrativeLine:
    sealed = "; so do the sealed tests" if event.sealed else ""
    return NarrativeLine("tests", f"new test fails as expected: {_list(event.tests)}{sealed}", Tone.BAD)


@event_line.register
def _(event: ev.RedRefused) -> NarrativeLine:
    return NarrativeLine("tests", f"test rejected: {event.why}", Tone.WARN)


@event_line.register
def _(event: ev.ChangeProposed) -> NarrativeLine:
    return NarrativeLine("change", f"{_list(event.paths)}: {event.summary}")


@event_line.register
def _(event: ev.AttemptFailed) -> NarrativeLine:
    return NarrativeLine("attempt", f"failed: {event.why}", Tone.WARN)


@event_line.register
def _(event: ev.Escalated) -> NarrativeLine:
    return NarrativeLine(event.role, f"{event.tries} failed attempts: switching to the stronger agent", Tone.WARN)


@event_line.register
def _(event: ev.ForkEnded) -> NarrativeLine:
    tone = {"won": Tone.GOOD, "refused": Tone.BAD, "failed": Tone.WARN}.get(event.how, Tone.DIM)
    return NarrativeLine(f"attempt {event.attempt}", f"{event.how} ({event.agent}): {event.why}", tone)


@event_line.register
def _(event: ev.FailuresAnalysed) -> NarrativeLine:
    if not event.tests:
        return NarrativeLine("analysis", "the tests cannot be run", Tone.BAD)
    causes = f", {event.clusters} distinct causes" if event.clusters > 1 else ""
    return NarrativeLine(
        "analysis", f"{_count(len(event.tests), 'failing test')}{causes}: {_list(event.tests)}", Tone.BAD
    )


@event_line.register
def _(_event: ev.TreeFoundGreen) -> NarrativeLine:
    return NarrativeLine("analysis", "no failing tests", Tone.GOOD)


@event_line.register
def _(event: ev.NothingChanged) -> NarrativeLine:
    return NarrativeLine("change", f"no changes: {event.summary}", Tone.DIM)


@event_line.register
def _(event: ev.SpecUnchanged) -> NarrativeLine:
    return NarrativeLine("scribe", f"the spec is up to date: {event.summary}", Tone.DIM)


@event_line.register
def _(event: ev.SpecRefused) -> NarrativeLine:
    return NarrativeLine("scribe", f"spec change rejected: {event.why}", Tone.WARN)


@event_line.register
def _(event: ev.SpecLeft) -> NarrativeLine:
    return NarrativeLine("run", f"spec not changed: {event.why}", Tone.WARN)


@event_line.register
def _(event: ev.TaskBegun) -> NarrativeLine:
    return NarrativeLine("task", f"{event.task}: {event.title}")


@event_line.register
def _(event: ev.TaskFinished) -> NarrativeLine:
    return NarrativeLine("task", f"{event.task} finished ({event.how})", Tone.GOOD)


@event_line.register
def _(event: ev.TaskUnfinished) -> NarrativeLine:
    return NarrativeLine("task", f"{event.task} not finished: {event.why}", Tone.WARN)


@event_line.register
def _(event: ev.TasksDone) -> NarrativeLine:
    return NarrativeLine("run", f"all {event.count} tasks are finished", Tone.GOOD)


@event_line.register
def _(event: ev.StepCommitted) -> NarrativeLine:
    return NarrativeLine("kept", f"{event.commit[:10]} {event.subject}", Tone.GOOD)


@event_line.register(ev.StepReverted)
@event_line.register(ev.RefactorReverted)
@event_line.register(ev.RevisionReverted)
def _(event: ev.StepReverted | ev.RefactorReverted | ev.RevisionReverted) -> NarrativeLine:
    return NarrativeLine("reverted", f"{_list(event.paths)}: {event.why}", Tone.BAD)


@event_line.register
def _(event: ev.SealedLaid) -> NarrativeLine:
    return NarrativeLine("sealed", f"{_count(event.tests, 'sealed example')} from outside, {event.green} passing")


@event_line.register
def _(event: ev.SealedContested) -> NarrativeLine:
    return NarrativeLine("contest", f"no attempts left; the auditor compares change and sealed test: {event.why}")


@event_line.register
def _(event: ev.SealedUpheld) -> NarrativeLine:
    return NarrativeLine("contest", event.why, Tone.WARN)


@event_line.register
def _(event: ev.SealedReplaced) -> NarrativeLine:
    return NarrativeLine("contest", f"the sealed test was replaced, the change is judged again: {event.why}", Tone.WARN)


@event_line.register(ev.StepVerified)
@event_line.register(ev.RevisionVerified)
def _(event: ev.StepVerified | ev.RevisionVerified) -> NarrativeLine | None:
    if event.completion and event.completion.sealed:
        many = _count(event.completion.sealed, "sealed example")
        doubts = f"; {'; '.join(event.warnings)}" if event.warnings else ""
        kept = event.completion.commit[:10]
        return NarrativeLine("sealed", f"{kept} {many} passed that the author never saw{doubts}", Tone.GOOD)
    if event.warnings:
        return NarrativeLine("gates", "; ".join(event.warnings), Tone.WARN)
    return NarrativeLine("gates", f"passed: {', '.join(event.gates)}", Tone.DIM) if event.gates else None


@event_line.register
def _(event: ev.GateProved) -> NarrativeLine | None:
    if not event.output:
        return None
    return NarrativeLine("gates", f"{event.gate} fails on the unchanged base; recorded as a known failure", Tone.WARN)


@event_line.register
def _(event: ev.FinalVerified) -> NarrativeLine:
    text = "the base's tests and the accepted tests pass in a fresh workspace"
    if event.canaries:
        text += f"; canary check passed: {_count(event.canaries, 'deliberately failing test')} failed"
    if event.without:
        text += f"; no canary for {_list(event.without)}"
    if event.failing:
        text += f"; body check passed: {_count(event.failing, 'test')} failed with a failing body"
    if event.unchecked:
        text += f"; no body check for {_count(event.unchecked, 'test')}"
    return NarrativeLine("final", text, Tone.GOOD)


@event_line.register
def _(event: ev.FinalRefused) -> NarrativeLine:
    return NarrativeLine("final", f"rejected: {event.why}", Tone.BAD)


@event_line.register
def _(event: ev.TestAbandoned) -> NarrativeLine:
    return NarrativeLine("run", f"returned the test to the auditor: {event.why}", Tone.WARN)


@event_line.register
def _(event: ev.RefactorFellDue) -> NarrativeLine:
    return NarrativeLine("run", f"{event.greens} passing steps: refactoring", Tone.DIM)


@event_line.register
def _(event: ev.RefactorFailed) -> NarrativeLine:
    return NarrativeLine("architect", event.why, Tone.DIM)


@event_line.register
def _(event: ev.ReviewApproved) -> NarrativeLine:
    return NarrativeLine("reviewer", f"approved: {event.summary}", Tone.GOOD)


@event_line.register
def _(event: ev.ChangesRequested) -> NarrativeLine:
    wanted = "; ".join(filter(None, [event.summary, *map(_finding, event.findings)]))
    return NarrativeLine("reviewer", f"requests {_count(len(event.findings), 'change')}: {wanted}", Tone.WARN)


def _finding(text: str) -> str:
    """Format a finding; show the recorded text if it was truncated and is not valid JSON."""
    try:
        found = msgspec.json.decode(text, type=ReviewFinding)
    except MALFORMED:
        return text
    return f"{found.file}:{found.line}: {found.issue}" if found.file else found.issue


@event_line.register
def _(event: ev.ReviewFailed) -> NarrativeLine:
    return NarrativeLine("reviewer", f"no valid verdict: {event.why}", Tone.WARN)


@event_line.register
def _(event: ev.Landed) -> NarrativeLine:
    return NarrativeLine("landed", f"branch {event.branch} at {event.head[:10]}", Tone.GOOD)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _list(names: list[str]) -> str:
    """List up to three names; count the cases of a parameterised test instead of listing them."""
    cases = Counter(name.split("[")[0] if name.endswith("]") else name for name in names)
    shown = [f"{name} ({count} cases)" if count > 1 else name for name, count in cases.items()]
    return ", ".join(shown[:3]) + (f" and {len(shown) - 3} more" if len(shown) > 3 else "")


def render(line: NarrativeLine, seconds: float, paint: Paint, *, width: int | None = None) -> str:
    """Render a line; on a terminal its text is wrapped at words, below its own beginning."""
    clock = f"{int(seconds) // 60}:{seconds % 60:04.1f}".rjust(7)
    text = paint(line.tone, _indent_continuation(_wrapped(line.text, width), _TEXT_AT))
    return f"{paint(Tone.DIM, clock)}  {paint(line.tone, _MARKS[line.tone])} {line.actor:<11} {text}"


_TEXT_AT = 23  # where the text of a line begins


def _wrapped(text: str, width: int | None) -> str:
    if width is None:
        return text
    room = max(20, width - _TEXT_AT)
    lines = (wrap(part, room, break_on_hyphens=False, drop_whitespace=True) for part in text.splitlines())
    return "\n".join(line for wrapped in lines for line in wrapped or [""])


def _indent_continuation(text: str, column: int) -> str:
    """Indent continuation lines to the given column."""
    return f"\n{' ' * column}".join(text.rstrip().splitlines())


def seconds_between(start: str, end: str) -> float:
    return (datetime.fromisoformat(end) - datetime.fromisoformat(start)).total_seconds()


def status_line(state: RunState, seconds: float) -> str:
    """Return phase, task, iteration, attempts, commits, reverts, time and cost in one line."""
    phase = f"{state.phase} {state.task}".rstrip()
    return (
        f"{phase} · iteration {state.iteration}/{state.policy.iterations} · attempt {state.attempts + 1}"
        f"/{state.policy.attempts} · {len(state.commits)} kept · {state.reverts} reverted · {seconds:.0f} s"
        f" · {_money(state.usage.cost_usd, priced=state.priced)}"
    )


def how_to_go_on(state: RunState) -> str:
    """Return the command that continues a parked or interrupted run."""
    if state.parked and state.parked.reason is ParkReason.QUESTION:
        return f'Answer with: ratchet resume {state.run} --answer "…"'
    return f"Continue with: ratchet resume {state.run}"


def render_history(history: RunHistory, paint: Paint, *, width: int | None = None) -> str:
    """Render the full timeline of a run with a summary."""
    entries, cost_usd = history.entries, 0.0
    lines = [_headline(history, paint), ""]
    for entry, event in zip(entries, history.events, strict=True):
        if isinstance(event, ev.UsageMetered):
            cost_usd += event.cost_usd
        elif line := event_line(event):
            text = render(line, seconds_between(entries[0].at, entry.at), paint, width=width)
            lines.append(text + (paint(Tone.DIM, f"  ${cost_usd:.4f}") if cost_usd else ""))
            cost_usd = 0.0
    return "\n".join([*lines, "", render_summary(history, paint)])


def render_summary(history: RunHistory, paint: Paint) -> str:
    """Render the summary: commits, reverts, rejections, open tasks and cost."""
    parts = [
        _commits(history.state, paint),
        _doubts(history, paint),
        _reverted_and_refused(history, paint),
        _unfinished(history.state, paint),
        _costs(history, paint),
    ]
    return "\n".join([line for part in parts for line in part] + _sums(history.state))


_STATUS_TONE = {RunStatus.COMPLETED: Tone.GOOD, RunStatus.RUNNING: Tone.PLAIN}


def _headline(history: RunHistory, paint: Paint) -> str:
    state = history.state
    status = f"parked ({state.parked.reason})" if state.parked else str(state.status)
    tone = Tone.WARN if state.parked else _STATUS_TONE.get(state.status, Tone.BAD)
    return f"{history.row.run}  {paint(tone, status)}  {history.row.title}"


def _commits(state: RunState, paint: Paint) -> list[str]:
    if not state.commits:
        return ["No commits."]
    lines = [f"Commits, each with its proof ({len(state.commits)}):"]
    for kept in state.commits:
        proved = f"failed before, passes after: {_list(kept.tests)}" if kept.tests else "tests pass before and after"
        lines.append(f"  {paint(Tone.GOOD, kept.commit[:10])} {kept.subject}  {paint(Tone.DIM, f'[{proved}]')}")
    return lines


def _doubts(history: RunHistory, paint: Paint) -> list[str]:
    """List the doubtful findings that no judge decided."""
    verified = [event for event in history.events if isinstance(event, ev.StepVerified | ev.RevisionVerified)]
    doubts = [doubt for event in verified if event.completion for doubt in event.completion.doubts]
    lines = [f"Doubts that no judge decided, for review ({len(doubts)}):"] if doubts else []
    return lines + [f"  {paint(Tone.WARN, doubt)}" for doubt in doubts]


def _reverted_and_refused(history: RunHistory, paint: Paint) -> list[str]:
    reverted = [
        (event.paths, event.why)
        for event in history.events
        if isinstance(event, ev.StepReverted | ev.RefactorReverted | ev.RevisionReverted)
    ]
    refused = [event.why for event in history.events if isinstance(event, ev.RedRefused)]
    unwritten = [event.why for event in history.events if isinstance(event, ev.SpecRefused)]
    forbidden = [event for event in history.events if isinstance(event, ev.WritesUndone)]
    lines = [f"Reverted ({len(reverted)}):"] if reverted else []
    lines += [f"  {paint(Tone.BAD, _list(paths))}: {_indent_continuation(why, 4)}" for paths, why in reverted]
    for what, whys in (("Rejected tests", refused), ("Rejected spec changes", unwritten)):
        lines += [f"{what} ({len(whys)}):"] if whys else []
        lines += [f"  {paint(Tone.WARN, _indent_continuation(why, 4))}" for why in whys]
    lines += [f"Forbidden writes reverted ({len(forbidden)}):"] if forbidden else []
    lines += [f"  {paint(Tone.WARN, f'{event.role}: {_list(event.paths)}')}" for event in forbidden]
    return lines


def _unfinished(state: RunState, paint: Paint) -> list[str]:
    """List the tasks of a checklist that are not finished."""
    left = state.pending if state.task or state.finished else []
    lines = [f"Not finished ({len(left)}):"] if left else []
    return lines + [f"  {paint(Tone.WARN, task.id)} {task.title}" for task in left]


def _costs(history: RunHistory, paint: Paint) -> list[str]:
    """List calls, cost and time by role and agent."""
    spent: dict[tuple[str, str], list[ev.UsageMetered]] = {}
    for event in history.events:
        if isinstance(event, ev.UsageMetered):
            spent.setdefault((event.role, event.agent), []).append(event)
    lines = ["Agent calls:"] if spent else []
    for (role, agent), asks in spent.items():
        cost, seconds = sum(ask.cost_usd for ask in asks), sum(ask.seconds for ask in asks)
        money = _money(cost, priced=all(ask.priced for ask in asks))
        text = f"{_count(len(asks), 'call')}, {money}, {seconds:.1f} s"
        lines.append(f"  {role:<11} {text}  {paint(Tone.DIM, agent)}")
    return lines


def _money(cost_usd: float, *, priced: bool) -> str:
    if priced:
        return f"${cost_usd:.4f}"
    return f"unknown (${cost_usd:.4f} of it known)" if cost_usd else "unknown"


def _sums(state: RunState) -> list[str]:
    used = state.usage
    return [
        f"Cost: {_money(used.cost_usd, priced=state.priced)}, {used.tokens_in:,} tokens in, {used.tokens_out:,} out, "
        f"{used.seconds:.1f} s of agent time, {_count(state.step, 'step')}."
    ]
