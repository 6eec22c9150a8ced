"""The picture of a run, folded from its ledger in one pass: steps, attempts, gaps and iterations, without geometry.

A tooth is a kept commit, a slip a reverted change. The same fold feeds the web page and the terminal.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from functools import singledispatchmethod

import msgspec

from ratchet.core import events as ev
from ratchet.core.item import ParkReason
from ratchet.core.roles import Role


class StepOutcome(StrEnum):
    RUNNING = "running"
    DONE = "done"
    KEPT = "kept"
    REVERTED = "reverted"
    REFUSED = "refused"
    FAILED = "failed"


class Lane(StrEnum):
    TEST = "Test"
    RED_CHECK = "Red check"
    CHANGE = "Change"
    JUDGE = "Judge"
    GATES = "Gates"
    REVIEW = "Review"


class PartKind(StrEnum):
    BEFORE = "before"
    ITERATION = "iteration"
    REFACTOR = "refactor"
    END = "end"


class PictureStep(msgspec.Struct, kw_only=True):
    """One step. Times are seconds since the first event; `end` moves with every event of the step.

    `active_s` leaves out the gaps in which it was interrupted; `earlier_s` is the part of it before the last one.
    """

    number: int
    action: str
    role: str
    part: int
    began: float
    end: float
    earlier_s: float = 0.0
    active_s: float = 0.0
    tree: str = ""
    outcome: StepOutcome = StepOutcome.RUNNING
    result: ev.Event | None = None
    agent: str = ""
    calls: int = 0
    cost_usd: float = 0.0
    tokens_in: int = 0
    tokens_out: int = 0
    sealed: bool = False
    undone: list[str] = []
    nudges: int = 0
    gates: list[ev.GateRan] = []

    @property
    def lane(self) -> Lane:
        return lane_of(self.action, self.role)

    @property
    def is_change(self) -> bool:
        return self.lane is Lane.CHANGE

    @property
    def is_bad(self) -> bool:
        return self.outcome in (StepOutcome.REVERTED, StepOutcome.REFUSED, StepOutcome.FAILED)


class TimeSpan(msgspec.Struct, kw_only=True):
    """A stretch of time: of the step with this index, or a gap without work (`step` is None)."""

    began: float
    end: float
    step: int | None = None
    reason: str = ""
    detail: str = ""
    until: str = ""

    @property
    def waits_for_person(self) -> bool:
        return self.reason in _PERSON

    @property
    def seconds(self) -> float:
        return max(0.0, self.end - self.began)


class AttemptEnd(StrEnum):
    NOW = "n"
    KEPT = "k"
    REVERTED = "r"
    SEALED = "s"


class PictureAttempt(msgspec.Struct, kw_only=True):
    """A change with its judgement. `level` is the number of commits kept before it; `gate` undid its commit."""

    change: int
    judge: int | None = None
    gate: int | None = None
    level: int
    end: AttemptEnd = AttemptEnd.NOW
    commit: str = ""
    subject: str = ""
    sealed: int = 0


class Part(msgspec.Struct, kw_only=True):
    """An iteration, or what comes before, between or after them. `steps` are indexes."""

    kind: PartKind
    number: int = 0
    title: str = ""
    steps: list[int] = []
    is_task: bool = False
    closed: bool = False


_LANES = {
    "audit": Lane.TEST,
    "analyse": Lane.TEST,
    "verify_red": Lane.RED_CHECK,
    "baseline": Lane.GATES,
    "look": Lane.GATES,
    "check_task": Lane.GATES,
    "swarm": Lane.CHANGE,
    "review": Lane.REVIEW,
    "final": Lane.REVIEW,
    "land": Lane.REVIEW,
}
_CHANGERS = frozenset({Role.IMPLEMENTER, Role.ARCHITECT, Role.FIXER, Role.SCRIBE})
_PERSON = frozenset({ParkReason.QUESTION, ParkReason.REVIEW, "login", "approval"})


def lane_of(action: str, role: str) -> Lane:
    """Return the lane of a step; one of an unknown workflow is placed by its name and role."""
    if action in _LANES:
        return _LANES[action]
    if action.startswith("judge"):
        return Lane.JUDGE
    if role in _CHANGERS:
        return Lane.CHANGE
    if role == Role.AUDITOR:
        return Lane.TEST
    return Lane.REVIEW if role == Role.REVIEWER else Lane.GATES


class PersonNote(msgspec.Struct, frozen=True, kw_only=True):
    """A person's message to the run; `steps` is the number of steps that had begun."""

    steps: int
    by: str
    text: str


class Picture:
    """Folds events; `add` may be called again as the ledger grows."""

    def __init__(self) -> None:
        self.started: ev.RunStarted | None = None
        self.ended: ev.RunCompleted | ev.RunFailed | ev.RunAborted | None = None
        self.steps: list[PictureStep] = []
        self.attempts: list[PictureAttempt] = []
        self.spans: list[TimeSpan] = []
        self.parts: list[Part] = []
        self.notes: list[PersonNote] = []
        self.level = 0
        self.seq = 0
        self.at = 0.0
        self.began_at = ""
        self._by_number: dict[int, int] = {}
        self._origin: float | None = None

    # --- reading -------------------------------------------------------------------------------------------

    @property
    def kept(self) -> int:
        return self.level

    @property
    def slips(self) -> int:
        return sum(one.end in (AttemptEnd.REVERTED, AttemptEnd.SEALED) for one in self.attempts)

    @property
    def sealed(self) -> int:
        return sum(one.end is AttemptEnd.SEALED for one in self.attempts)

    @property
    def doubts(self) -> list[str]:
        """Return the doubtful findings that no judge decided."""
        verified = [step.result for step in self.steps if isinstance(step.result, _VERIFIED)]
        return [doubt for event in verified if event.completion for doubt in event.completion.doubts]

    @property
    def shape(self) -> str:
        """One character for each attempt."""
        return "".join(one.end for one in self.attempts)

    @property
    def running(self) -> PictureStep | None:
        last = self.steps[-1] if self.steps else None
        return last if last and last.outcome is StepOutcome.RUNNING and not self.ended and not self.gap else None

    @property
    def gap(self) -> TimeSpan | None:
        """The gap that is open at the end."""
        last = self.spans[-1] if self.spans else None
        return last if last and last.step is None and not self.ended else None

    @property
    def active_s(self) -> float:
        return sum(span.seconds for span in self.spans if span.step is not None)

    @property
    def waited_s(self) -> float:
        """Return how long the run waited for a person."""
        return sum(span.seconds for span in self.spans if span.waits_for_person)

    @property
    def iteration(self) -> int:
        return max((part.number for part in self.parts), default=0)

    def step(self, number: int) -> PictureStep | None:
        index = self._by_number.get(number)
        return None if index is None else self.steps[index]

    # --- folding -------------------------------------------------------------------------------------------

    def add(self, seq: int, at: float, event: object) -> None:
        """Fold the next event; `at` is a POSIX time. An event that was folded before is skipped."""
        if seq <= self.seq:
            return
        if self._origin is None:
            self._origin = at
        self.seq, self.at = seq, max(self.at, at - self._origin)
        self._touch(getattr(event, "step", None))
        self._fold(event)

    def watch(self, at: float) -> None:
        """Extend the running step, or the open gap, to the current time."""
        if self._origin is None or self.ended:
            return
        self.at = max(self.at, at - self._origin)
        if self.spans:
            self.spans[-1].end = self.at
        if running := self.running:
            self._touch(running.number)

    def _touch(self, number: int | None) -> None:
        """Move the end of a step to its latest event."""
        index = self._by_number.get(number) if number else None
        if index is not None and self.spans and self.spans[-1].step == index:
            step = self.steps[index]
            step.end = self.spans[-1].end = self.at
            step.active_s = step.earlier_s + self.spans[-1].seconds

    @singledispatchmethod
    def _fold(self, event: object) -> None:
        if isinstance(event, _OUTCOMES) and (step := self._step_of(event)):
            self._end(step, StepOutcome.DONE, event)

    @_fold.register
    def _(self, event: ev.RunStarted) -> None:
        self.started = event

    @_fold.register
    def _(self, _event: ev.RunClaimed) -> None:
        if self.spans and self.spans[-1].step is None:
            self.spans[-1].end = self.at

    @_fold.register(ev.QuestionAnswered)
    @_fold.register(ev.RunNudged)
    def _(self, event: ev.QuestionAnswered | ev.RunNudged) -> None:
        text = event.answer if isinstance(event, ev.QuestionAnswered) else event.message
        self.notes.append(PersonNote(steps=len(self.steps), by=event.by, text=text))

    @_fold.register(ev.RunParked)
    @_fold.register(ev.RunReturned)
    def _(self, event: ev.RunParked | ev.RunReturned) -> None:
        reason = str(event.reason) if isinstance(event, ev.RunParked) else ""
        self.spans.append(TimeSpan(began=self.at, end=self.at, reason=reason, detail=event.detail, until=event.until))

    @_fold.register(ev.RunCompleted)
    @_fold.register(ev.RunFailed)
    @_fold.register(ev.RunAborted)
    def _(self, event: ev.RunCompleted | ev.RunFailed | ev.RunAborted) -> None:
        self.ended = event
        last = self.steps[-1] if self.steps else None
        if last and last.outcome is StepOutcome.RUNNING:  # it will never end
            last.outcome = StepOutcome.FAILED
        self.attempts = [one for one in self.attempts if one.end is not AttemptEnd.NOW]

    @_fold.register
    def _(self, event: ev.StepStarted) -> None:
        index = len(self.steps)
        step = PictureStep(
            number=event.step,
            action=event.action,
            role=event.role,
            tree=event.tree,
            part=self._part_of(event),
            began=self.at,
            end=self.at,
        )
        self.steps.append(step)
        self._by_number[event.step] = index
        self.parts[step.part].steps.append(index)
        self.spans.append(TimeSpan(began=self.at, end=self.at, step=index))
        if step.is_change:
            self._drop_open_attempt()
            self.attempts.append(PictureAttempt(change=index, level=self.level))

    @_fold.register
    def _(self, event: ev.StepResumed) -> None:
        index = self._by_number.get(event.step)
        if index is not None and self.spans[-1].step != index:
            self.steps[index].earlier_s = self.steps[index].active_s
            self.spans.append(TimeSpan(began=self.at, end=self.at, step=index))

    @_fold.register
    def _(self, event: ev.UsageMetered) -> None:
        if step := self._step_of(event):
            step.agent, step.calls = event.agent or step.agent, step.calls + 1
            step.cost_usd += event.cost_usd
            step.tokens_in += event.tokens_in
            step.tokens_out += event.tokens_out

    @_fold.register
    def _(self, event: ev.SessionOpened) -> None:
        if step := self._step_of(event):
            step.agent = event.agent

    @_fold.register
    def _(self, event: ev.WritesUndone) -> None:
        if step := self._step_of(event):
            step.undone = [*step.undone, *event.paths]

    @_fold.register(ev.AgentNudged)
    @_fold.register(ev.AgentReplaced)
    def _(self, event: ev.AgentNudged | ev.AgentReplaced) -> None:
        if step := self._step_of(event):
            step.nudges += 1

    @_fold.register
    def _(self, event: ev.GateRan) -> None:
        if step := self._step_of(event):
            step.gates = [*step.gates, event]

    @_fold.register
    def _(self, event: ev.TestWritten) -> None:
        self._done_with_title(event, event.summary)

    @_fold.register
    def _(self, event: ev.FailuresAnalysed) -> None:
        tests = len(event.tests)
        self._done_with_title(event, f"{tests} failing test{'' if tests == 1 else 's'}")

    @_fold.register
    def _(self, event: ev.ChangeProposed) -> None:
        self._done_with_title(event, event.summary)

    @_fold.register
    def _(self, event: ev.RequirementsMet) -> None:
        self._done_with_title(event, "")
        part = self.parts[-1]
        if part.kind is PartKind.ITERATION and len(part.steps) == 1:  # it only found that nothing is left to do
            part.kind, part.number = PartKind.END, 0

    @_fold.register
    def _(self, event: ev.TaskBegun) -> None:
        number = self.iteration + 1
        self.parts.append(Part(kind=PartKind.ITERATION, number=number, title=event.title, is_task=True, steps=[]))

    @_fold.register
    def _(self, event: ev.StepCommitted) -> None:
        step = self._step_of(event)
        attempt = self._open_attempt()
        if step and attempt:
            self._end(step, StepOutcome.KEPT, event)
            attempt.judge, attempt.end = self._by_number[step.number], AttemptEnd.KEPT
            attempt.level, attempt.commit, attempt.subject = self.level, event.commit, event.subject
            self.level += 1
            self.parts[step.part].closed = True

    @_fold.register(ev.StepReverted)
    @_fold.register(ev.RefactorReverted)
    @_fold.register(ev.RevisionReverted)
    def _(self, event: ev.StepReverted | ev.RefactorReverted | ev.RevisionReverted) -> None:
        if (step := self._step_of(event)) is None:
            return
        self._end(step, StepOutcome.REVERTED, event)
        step.sealed = is_overfitted(event)
        end = AttemptEnd.SEALED if step.sealed else AttemptEnd.REVERTED
        if event.commit:
            self._undo_commit(step, event.commit, end)
        elif attempt := self._open_attempt():
            attempt.judge, attempt.end = self._by_number[step.number], end

    @_fold.register(ev.StepVerified)
    @_fold.register(ev.RevisionVerified)
    def _(self, event: ev.StepVerified | ev.RevisionVerified) -> None:
        """A completion replaces the verified commit by one that holds its sealed tests too."""
        if step := self._step_of(event):
            self._end(step, StepOutcome.DONE, event)
        last = next((one for one in reversed(self.attempts) if one.end is AttemptEnd.KEPT), None)
        if last and event.completion:
            last.commit, last.sealed = event.completion.commit, event.completion.sealed

    @_fold.register(ev.RedRefused)
    @_fold.register(ev.SpecRefused)
    @_fold.register(ev.FinalRefused)
    def _(self, event: ev.RedRefused | ev.SpecRefused | ev.FinalRefused) -> None:
        if step := self._step_of(event):
            self._end(step, StepOutcome.REFUSED, event)
            self._drop_open_attempt(step)

    @_fold.register(ev.AuditFailed)
    @_fold.register(ev.AttemptFailed)
    @_fold.register(ev.RefactorFailed)
    @_fold.register(ev.ReviewFailed)
    def _(self, event: ev.AuditFailed | ev.AttemptFailed | ev.RefactorFailed | ev.ReviewFailed) -> None:
        if step := self._step_of(event):
            self._end(step, StepOutcome.FAILED, event)
            self._drop_open_attempt(step)

    @_fold.register(ev.NothingChanged)
    @_fold.register(ev.SpecUnchanged)
    def _(self, event: ev.NothingChanged | ev.SpecUnchanged) -> None:
        if step := self._step_of(event):
            self._end(step, StepOutcome.DONE, event)
            self._drop_open_attempt(step)

    @_fold.register
    def _(self, event: ev.SealedReplaced) -> None:
        """The last change is judged again, against another sealed test: a further attempt."""
        if step := self._step_of(event):
            self._end(step, StepOutcome.DONE, event)
            self.attempts += [PictureAttempt(change=last.change, level=self.level) for last in self.attempts[-1:]]

    @_fold.register(ev.TestAbandoned)
    @_fold.register(ev.SealedUpheld)
    def _(self, event: ev.TestAbandoned | ev.SealedUpheld) -> None:
        if isinstance(event, ev.SealedUpheld) and (step := self._step_of(event)):
            self._end(step, StepOutcome.DONE, event)
        if self.parts:
            self.parts[-1].closed = True

    # --- parts of the fold ---------------------------------------------------------------------------------

    def _step_of(self, event: object) -> PictureStep | None:
        return self.step(getattr(event, "step", 0))

    def _end(self, step: PictureStep, outcome: StepOutcome, event: ev.Event) -> None:
        step.outcome, step.result, step.end = outcome, event, max(step.end, self.at)

    def _done_with_title(self, event: ev.Event, title: str) -> None:
        if step := self._step_of(event):
            self._end(step, StepOutcome.DONE, event)
            part = self.parts[step.part]
            part.title = part.title or title

    def _open_attempt(self) -> PictureAttempt | None:
        last = self.attempts[-1] if self.attempts else None
        return last if last and last.end is AttemptEnd.NOW else None

    def _drop_open_attempt(self, step: PictureStep | None = None) -> None:
        """Forget an attempt that led to no judgement: it draws no slope."""
        attempt = self._open_attempt()
        if attempt and (step is None or step.is_change):
            self.attempts.pop()

    def _undo_commit(self, step: PictureStep, commit: str, end: AttemptEnd) -> None:
        found = next((one for one in reversed(self.attempts) if one.commit == commit), None)
        if found and found.end is AttemptEnd.KEPT:
            found.end, found.gate = end, self._by_number[step.number]
            self.level = max(0, self.level - 1)
            self.parts[step.part].closed = False

    def _part_of(self, event: ev.StepStarted) -> int:
        """Return the index of the part that a new step belongs to, opened if needed."""
        current = self.parts[-1] if self.parts else None
        kind = _part_kind(event.action, current)
        if current is None or kind is not None:
            kind = kind or (PartKind.BEFORE if event.action in ("baseline", "look") else PartKind.ITERATION)
            number = self.iteration + 1 if kind is PartKind.ITERATION else 0
            self.parts.append(Part(kind=kind, number=number, steps=[]))
        return len(self.parts) - 1


_OUTCOMES = (
    ev.BaselineTaken,
    ev.RedConfirmed,
    ev.TreeFoundGreen,
    ev.TaskFinished,
    ev.TaskUnfinished,
    ev.FinalVerified,
    ev.ReviewApproved,
    ev.ChangesRequested,
    ev.Landed,
)


def _part_kind(action: str, current: Part | None) -> PartKind | None:
    """Return the kind of the part that an action opens, or None if it stays in the current one."""
    if current is None:
        return None
    if action in ("audit", "analyse"):
        ends = current.kind is not PartKind.ITERATION or current.closed
        return PartKind.ITERATION if ends else None
    if action == "refactor":
        return PartKind.REFACTOR
    if action in ("final", "land") or (action == "review" and not current.is_task):
        return None if current.kind is PartKind.END else PartKind.END
    if current.kind is PartKind.BEFORE and action not in ("baseline", "look"):
        return PartKind.ITERATION
    return None


_VERIFIED = ev.StepVerified | ev.RevisionVerified


def is_overfitted(event: ev.StepReverted | ev.RefactorReverted | ev.RevisionReverted) -> bool:
    """Whether a sealed test caught the change."""
    return getattr(event, "outcome", "") == "overfitted" or event.why.startswith("overfitted")


def fold_picture(events: Iterable[tuple[int, float, object]]) -> Picture:
    picture = Picture()
    for seq, at, event in events:
        picture.add(seq, at, event)
    return picture
