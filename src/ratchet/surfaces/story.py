"""Events in the words of a person: one line each for the live view, the whole story for `show` and the demo."""

from __future__ import annotations

from collections import Counter
from datetime import datetime
from functools import singledispatch

import msgspec

from ratchet.core import events as ev
from ratchet.core.state import RunState, RunStatus
from ratchet.core.verdict import Finding
from ratchet.factory import Story
from ratchet.surfaces.paint import Paint, Tone

_MARKS = {Tone.PLAIN: "·", Tone.DIM: "·", Tone.GOOD: "✔", Tone.BAD: "✘", Tone.WARN: "!"}


class Line(msgspec.Struct, frozen=True):
    """`who` acted, and what came of it."""

    who: str
    text: str
    tone: Tone = Tone.PLAIN


@singledispatch
def line_of(_event: object) -> Line | None:
    """None: not worth a line."""
    return None


@line_of.register
def _(event: ev.RunStarted) -> Line:
    return Line("run", f"{event.title} · {event.workflow} · from {event.base_commit[:10]} on branch {event.branch}")


@line_of.register
def _(event: ev.RunParked) -> Line:
    until = f" until {event.until}" if event.until else ""
    return Line("run", f"parked ({event.reason}){until}: {event.detail}", Tone.WARN)


@line_of.register
def _(event: ev.RunCompleted) -> Line:
    return Line("run", f"completed: {_count(event.commits, 'commit')} kept", Tone.GOOD)


@line_of.register
def _(event: ev.RunFailed) -> Line:
    return Line("run", f"failed ({event.reason}): {event.detail}", Tone.BAD)


@line_of.register
def _(event: ev.RunAborted) -> Line:
    return Line("run", f"aborted by {event.by}", Tone.BAD)


@line_of.register
def _(event: ev.StepResumed) -> Line:
    return Line("run", f"step {event.step} was cut off: done again from its recorded tree", Tone.WARN)


@line_of.register
def _(event: ev.WritesUndone) -> Line:
    return Line(event.role, f"wrote where it may not, undone: {_list(event.paths)}", Tone.WARN)


@line_of.register
def _(event: ev.BaselineTaken) -> Line:
    red = f", {len(event.failing)} of them red before we start" if event.failing else ", all green"
    return Line("baseline", f"{_count(event.tests, 'test')}{red if event.tests else ': none yet'}", Tone.DIM)


@line_of.register
def _(event: ev.TestWritten) -> Line:
    return Line("auditor", f"wrote a test in {_list(event.paths)}: {event.summary}")


@line_of.register
def _(_event: ev.RequirementsMet) -> Line:
    return Line("auditor", "says the requirements are complete")


@line_of.register
def _(event: ev.AuditFailed) -> Line:
    return Line("auditor", event.why, Tone.WARN)


@line_of.register
def _(event: ev.RedConfirmed) -> Line:
    return Line("tests", f"red for the right reason: {_list(event.tests)}", Tone.BAD)


@line_of.register
def _(event: ev.RedRefused) -> Line:
    return Line("tests", f"test refused: {event.why}", Tone.WARN)


@line_of.register
def _(event: ev.ChangeProposed) -> Line:
    return Line("change", f"{_list(event.paths)}: {event.summary}")


@line_of.register
def _(event: ev.AttemptFailed) -> Line:
    return Line("attempt", f"failed: {event.why}", Tone.WARN)


@line_of.register
def _(event: ev.Escalated) -> Line:
    return Line(event.role, f"{event.tries} tries in vain: its stronger agent is asked now", Tone.WARN)


@line_of.register
def _(event: ev.ForkEnded) -> Line:
    tone = {"won": Tone.GOOD, "refused": Tone.BAD, "failed": Tone.WARN}.get(event.how, Tone.DIM)
    return Line(f"attempt {event.attempt}", f"{event.how} ({event.agent}): {event.why}", tone)


@line_of.register
def _(event: ev.FailuresAnalysed) -> Line:
    if not event.tests:
        return Line("analysis", "the tests cannot be run", Tone.BAD)
    kinds = f" of {event.clusters} kinds" if event.clusters > 1 else ""
    return Line("analysis", f"{len(event.tests)} red{kinds}: {_list(event.tests)}", Tone.BAD)


@line_of.register
def _(_event: ev.TreeFoundGreen) -> Line:
    return Line("analysis", "nothing is red", Tone.GOOD)


@line_of.register
def _(event: ev.NothingChanged) -> Line:
    return Line("change", f"nothing was changed: {event.summary}", Tone.DIM)


@line_of.register
def _(event: ev.SpecUnchanged) -> Line:
    return Line("scribe", f"the spec is true as it stands: {event.summary}", Tone.DIM)


@line_of.register
def _(event: ev.SpecRefused) -> Line:
    return Line("scribe", f"change of the spec refused: {event.why}", Tone.WARN)


@line_of.register
def _(event: ev.SpecLeft) -> Line:
    return Line("run", f"the spec is left as it is: {event.why}", Tone.WARN)


@line_of.register
def _(event: ev.TaskBegun) -> Line:
    return Line("task", f"{event.task}: {event.title}")


@line_of.register
def _(event: ev.TaskFinished) -> Line:
    return Line("task", f"{event.task} finished ({event.how})", Tone.GOOD)


@line_of.register
def _(event: ev.TaskUnfinished) -> Line:
    return Line("task", f"{event.task} not finished: {event.why}", Tone.WARN)


@line_of.register
def _(event: ev.TasksDone) -> Line:
    return Line("run", f"all tasks are finished: {event.count}", Tone.GOOD)


@line_of.register
def _(event: ev.StepCommitted) -> Line:
    return Line("kept", f"{event.commit[:10]} {event.subject}", Tone.GOOD)


@line_of.register(ev.StepReverted)
@line_of.register(ev.RefactorReverted)
@line_of.register(ev.RevisionReverted)
def _(event: ev.StepReverted | ev.RefactorReverted | ev.RevisionReverted) -> Line:
    return Line("reverted", f"{_list(event.paths)}: {event.why}", Tone.BAD)


@line_of.register(ev.StepVerified)
@line_of.register(ev.RevisionVerified)
def _(event: ev.StepVerified | ev.RevisionVerified) -> Line | None:
    if event.warnings:
        return Line("gates", "; ".join(event.warnings), Tone.WARN)
    return Line("gates", f"passed: {', '.join(event.gates)}", Tone.DIM) if event.gates else None


@line_of.register
def _(event: ev.GateProved) -> Line | None:
    if not event.output:
        return None
    return Line("gates", f"{event.gate} is red on the untouched base; that is known from now on", Tone.WARN)


@line_of.register
def _(event: ev.FinalVerified) -> Line:
    told = "green with the base's own tests and with the accepted ones, in a fresh workspace"
    if event.canaries:
        told += f"; {_count(event.canaries, 'test')} that cannot pass did fail"
    if event.without:
        told += f"; no such test could be added to {_list(event.without)}"
    return Line("final", told, Tone.GOOD)


@line_of.register
def _(event: ev.FinalRefused) -> Line:
    return Line("final", f"refused {event.why}", Tone.BAD)


@line_of.register
def _(event: ev.TestAbandoned) -> Line:
    return Line("run", f"gave the test back to the auditor: {event.why}", Tone.WARN)


@line_of.register
def _(event: ev.RefactorFellDue) -> Line:
    return Line("run", f"{event.greens} greens: time to refactor", Tone.DIM)


@line_of.register
def _(event: ev.RefactorFailed) -> Line:
    return Line("architect", event.why, Tone.DIM)


@line_of.register
def _(event: ev.ReviewApproved) -> Line:
    return Line("reviewer", f"approved: {event.summary}", Tone.GOOD)


@line_of.register
def _(event: ev.ChangesRequested) -> Line:
    wanted = "; ".join(filter(None, [event.summary, *map(_finding, event.findings)]))
    return Line("reviewer", f"wants {_count(len(event.findings), 'change')}: {wanted}", Tone.WARN)


def _finding(text: str) -> str:
    """As it was recorded, for the implementer to read; one that was clipped is shown as it is."""
    try:
        found = msgspec.json.decode(text, type=Finding)
    except msgspec.DecodeError:
        return text
    return f"{found.file}:{found.line}: {found.issue}" if found.file else found.issue


@line_of.register
def _(event: ev.ReviewFailed) -> Line:
    return Line("reviewer", f"no valid verdict: {event.why}", Tone.WARN)


@line_of.register
def _(event: ev.Landed) -> Line:
    return Line("landed", f"branch {event.branch} at {event.head[:10]}", Tone.GOOD)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _list(names: list[str]) -> str:
    """A few names; the cases of one parameterised test are counted, not listed."""
    cases = Counter(name.split("[")[0] if name.endswith("]") else name for name in names)
    shown = [f"{name} ({count} cases)" if count > 1 else name for name, count in cases.items()]
    return ", ".join(shown[:3]) + (f" and {len(shown) - 3} more" if len(shown) > 3 else "")


def render(line: Line, seconds: float, paint: Paint) -> str:
    clock = f"{int(seconds) // 60}:{seconds % 60:04.1f}".rjust(7)
    text = paint(line.tone, _below(line.text, 23))
    return f"{paint(Tone.DIM, clock)}  {paint(line.tone, _MARKS[line.tone])} {line.who:<11} {text}"


def _below(text: str, column: int) -> str:
    """What has several lines goes on where it began: a trace is no part of the clock's column."""
    return f"\n{' ' * column}".join(text.rstrip().splitlines())


def seconds_between(start: str, end: str) -> float:
    return (datetime.fromisoformat(end) - datetime.fromisoformat(start)).total_seconds()


def status_line(state: RunState, seconds: float) -> str:
    """Phase, task, iteration, attempts, commits, reverts, time, cost."""
    phase = f"{state.phase} {state.task}".rstrip()
    return (
        f"{phase} · iteration {state.iteration}/{state.policy.iterations} · attempt {state.attempts + 1}"
        f"/{state.policy.attempts} · {len(state.commits)} kept · {state.reverts} reverted · {seconds:.0f} s"
        f" · ${state.usage.cost_usd:.4f}"
    )


def tell(story: Story, paint: Paint) -> str:
    """What was asked, tried, refused, reverted, kept, and what it cost."""
    entries, cost_usd = story.entries, 0.0
    lines = [_headline(story, paint), ""]
    for entry, event in zip(entries, story.events, strict=True):
        if isinstance(event, ev.UsageMetered):
            cost_usd += event.cost_usd
        elif line := line_of(event):
            told = render(line, seconds_between(entries[0].at, entry.at), paint)
            lines.append(told + (paint(Tone.DIM, f"  ${cost_usd:.4f}") if cost_usd else ""))
            cost_usd = 0.0
    return "\n".join([*lines, "", ending(story, paint)])


def ending(story: Story, paint: Paint) -> str:
    """What it came to: kept, reverted, refused, and the cost."""
    parts = [_commits(story.state, paint), _undone(story, paint), _unfinished(story.state, paint), _costs(story, paint)]
    return "\n".join([line for part in parts for line in part] + _sums(story.state))


_STATUS_TONE = {RunStatus.COMPLETED: Tone.GOOD, RunStatus.RUNNING: Tone.PLAIN}


def _headline(story: Story, paint: Paint) -> str:
    state = story.state
    status = f"parked ({state.parked.reason})" if state.parked else str(state.status)
    tone = Tone.WARN if state.parked else _STATUS_TONE.get(state.status, Tone.BAD)
    return f"{story.row.run}  {paint(tone, status)}  {story.row.title}"


def _commits(state: RunState, paint: Paint) -> list[str]:
    if not state.commits:
        return ["No commit was kept."]
    lines = [f"Kept, each with its proof ({len(state.commits)}):"]
    for kept in state.commits:
        proved = f"red, then green: {_list(kept.tests)}" if kept.tests else "green before and after"
        lines.append(f"  {paint(Tone.GOOD, kept.commit[:10])} {kept.subject}  {paint(Tone.DIM, f'[{proved}]')}")
    return lines


def _undone(story: Story, paint: Paint) -> list[str]:
    reverted = [
        (event.paths, event.why)
        for event in story.events
        if isinstance(event, ev.StepReverted | ev.RefactorReverted | ev.RevisionReverted)
    ]
    refused = [event.why for event in story.events if isinstance(event, ev.RedRefused)]
    unwritten = [event.why for event in story.events if isinstance(event, ev.SpecRefused)]
    forbidden = [event for event in story.events if isinstance(event, ev.WritesUndone)]
    lines = [f"Reverted ({len(reverted)}):"] if reverted else []
    lines += [f"  {paint(Tone.BAD, _list(paths))}: {_below(why, 4)}" for paths, why in reverted]
    for what, whys in (("Refused tests", refused), ("Refused changes of the spec", unwritten)):
        lines += [f"{what} ({len(whys)}):"] if whys else []
        lines += [f"  {paint(Tone.WARN, _below(why, 4))}" for why in whys]
    lines += [f"Forbidden writes undone ({len(forbidden)}):"] if forbidden else []
    lines += [f"  {paint(Tone.WARN, f'{event.role}: {_list(event.paths)}')}" for event in forbidden]
    return lines


def _unfinished(state: RunState, paint: Paint) -> list[str]:
    """Only where there are tasks that are taken one by one, and only when some are left."""
    left = state.pending if state.task or state.finished else []
    lines = [f"Not finished ({len(left)}):"] if left else []
    return lines + [f"  {paint(Tone.WARN, task.id)} {task.title}" for task in left]


def _costs(story: Story, paint: Paint) -> list[str]:
    """By role and agent: who took part, how often, and for how much."""
    spent: dict[tuple[str, str], list[ev.UsageMetered]] = {}
    for event in story.events:
        if isinstance(event, ev.UsageMetered):
            spent.setdefault((event.role, event.agent), []).append(event)
    lines = ["Asked:"] if spent else []
    for (role, agent), asks in spent.items():
        cost, seconds = sum(ask.cost_usd for ask in asks), sum(ask.seconds for ask in asks)
        told = f"{_count(len(asks), 'time')}, ${cost:.4f}, {seconds:.1f} s"
        lines.append(f"  {role:<11} {told}  {paint(Tone.DIM, agent)}")
    return lines


def _sums(state: RunState) -> list[str]:
    used = state.usage
    return [
        f"Cost: ${used.cost_usd:.4f}, {used.tokens_in:,} tokens in, {used.tokens_out:,} out, "
        f"{used.seconds:.1f} s of agents' time, {_count(state.step, 'step')}."
    ]
