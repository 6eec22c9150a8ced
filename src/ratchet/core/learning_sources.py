"""Learnings and trials of a finished run, derived from its ledger: the same ledger always gives the same ones.

Each has the number of the entry that it comes from, so writing them again changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import singledispatchmethod

import msgspec

from ratchet.core import events as ev
from ratchet.core.failure import Reason, RevertOutcome
from ratchet.core.learning import (
    CONTENT_MAX_CHARS,
    CONTROL_CHARACTERS,
    FINGERPRINTS_MAX,
    Learning,
    LearningKind,
    LearningSource,
    LearningTrial,
    Matched,
    learning_id,
)
from ratchet.core.lines import split_lines

_TESTS_SHOWN, _PATHS_SHOWN, _TRIES_SHOWN, _TEXT_CHARS = 3, 5, 3, 300
_LEARNINGS_MAX = 50  # of one run
_SET_UP = {Reason.MISCONFIGURED, Reason.NO_TEST_COMMAND, Reason.WORKSPACE}
_GIVEN_UP = {Reason.NO_PROGRESS, Reason.BUDGET_SPENT, Reason.AGENT_REFUSED}
Reverted = ev.StepReverted | ev.RefactorReverted | ev.RevisionReverted


class Derived(msgspec.Struct, frozen=True, kw_only=True):
    """What a run taught, and what came of the learnings that it was given or that were held out."""

    learnings: list[Learning]
    trials: list[LearningTrial]


class _Try(msgspec.Struct, frozen=True, kw_only=True):
    """A reverted attempt."""

    summary: str
    why: str
    paths: list[str]
    tree: str
    outcome: RevertOutcome | None


def derive(run: str, entries: Iterable[tuple[int, str, object]]) -> Derived:
    """Return the learnings and trials of a run's ledger, given as numbers, times and events."""
    fold = _RunLearnings(run)
    for seq, at, event in entries:
        fold.seq, fold.at = seq, at
        fold.take(event)
    return Derived(learnings=fold.learnings[:_LEARNINGS_MAX], trials=fold.closed)


class _RunLearnings:
    def __init__(self, run: str) -> None:
        self.run, self.seq, self.at = run, 0, ""
        self.learnings: list[Learning] = []
        self.closed: list[LearningTrial] = []
        self._repo = self._title = self._spec = ""
        self._tests: list[str] = []
        self._failures: list[str] = []  # of the tests that are to turn green
        self._tries: list[_Try] = []
        self._proposal: ev.ChangeProposed | None = None
        self._commit: ev.StepCommitted | None = None
        self._set_up: tuple[int, str] | None = None
        self._open: dict[str, tuple[ev.LearningDelivered, LearningTrial]] = {}
        self._step_cost = 0.0

    @singledispatchmethod
    def take(self, _event: object) -> None:
        """Events that teach nothing."""

    def _add(
        self,
        content: str,
        *tags: str,
        kind: LearningKind = LearningKind.LESSON,
        source: LearningSource = LearningSource.FACTORY,
        failures: Sequence[str] = (),
        commit: str = "",
        seq: int = 0,
    ) -> None:
        content = CONTROL_CHARACTERS.sub(" ", content).strip()[:CONTENT_MAX_CHARS]
        if not content:
            return
        learning = Learning(
            id=learning_id(self._repo, content),
            repo=self._repo,
            content=content,
            spec=CONTROL_CHARACTERS.sub(" ", self._spec),
            tags=list(tags),
            run=self.run,
            seq=seq or self.seq,
            created_at=self.at,
            kind=kind,
            source=source,
            commit=commit,
            fingerprints=list(dict.fromkeys(failures))[:FINGERPRINTS_MAX],
        )
        self.learnings.append(learning)

    # --- the run -----------------------------------------------------------------------------------------------

    @take.register
    def _(self, event: ev.RunStarted) -> None:
        self._repo, self._title, self._spec = event.repo, event.title, event.spec_path

    @take.register(ev.RunReturned)
    @take.register(ev.RunFailed)
    def _(self, event: ev.RunReturned | ev.RunFailed) -> None:
        if event.reason in _SET_UP:
            self._set_up = self.seq, event.detail
        if isinstance(event, ev.RunFailed):
            if event.reason in _GIVEN_UP:
                self._give_up()
            self._open.clear()

    @take.register
    def _(self, _event: ev.RunAborted) -> None:
        self._open.clear()

    @take.register
    def _(self, _event: ev.BaselineTaken) -> None:
        if self._set_up:
            seq, detail = self._set_up
            self._add(
                f"The tests of this project run only after a set-up. Without it: {_short(detail)}", "set-up", seq=seq
            )
        self._set_up = None

    # --- a failure, and what was tried ---------------------------------------------------------------------------

    @take.register(ev.RedConfirmed)
    @take.register(ev.FailuresAnalysed)
    def _(self, event: ev.RedConfirmed | ev.FailuresAnalysed) -> None:
        self._aim(event.tests, event.failures)

    @take.register
    def _(self, _event: ev.TaskBegun) -> None:
        self._aim([], [])

    def _aim(self, tests: list[str], failures: list[str]) -> None:
        self._tests, self._failures, self._tries, self._commit = tests, failures, [], None

    @take.register
    def _(self, event: ev.ChangeProposed) -> None:
        self._proposal = event
        self._count(attempts=1)

    @take.register
    def _(self, _event: ev.AttemptFailed) -> None:
        self._count(attempts=1)

    @take.register
    def _(self, event: ev.StepCommitted) -> None:
        self._commit = event
        if flaky := next((one for one in self._tries if one.tree and one.tree == event.tree), None):
            self._add(f"Flaky: the same files failed and then passed. {flaky.why}", "flaky", commit=event.commit)

    @take.register
    def _(self, event: ev.FlakyTestsFound) -> None:
        self._add(f"Flaky: {_names(event.tests)} failed and then passed on the same files.", "flaky")

    @take.register(ev.StepReverted)
    @take.register(ev.RevisionReverted)
    @take.register(ev.RefactorReverted)
    def _(self, event: Reverted) -> None:
        made = self._proposal
        summary, tree = (made.summary, made.tree) if made else ("", "")
        one = _Try(summary=_short(summary), why=_short(event.why), paths=event.paths, tree=tree, outcome=event.outcome)
        self._count(reverts=1, failures=event.failures)
        if event.outcome is RevertOutcome.GATE:
            self._refused(one, event)
        elif event.outcome is RevertOutcome.OVERFITTED:
            what = (
                f"“{one.summary}” passed the visible test of {_names(self._tests)} and missed the sealed one: {one.why}"
            )
            self._add(what, "overfitted", kind=LearningKind.DEAD_END, failures=[*event.failures, *self._failures])
        if not isinstance(event, ev.RefactorReverted):
            self._tries.append(one)
            self._failures = list(dict.fromkeys([*self._failures, *event.failures]))

    def _refused(self, one: _Try, event: Reverted) -> None:
        self._add(
            f"Refused after the tests had passed: “{one.summary}” in {_places(one.paths)}: {one.why}",
            "refused",
            kind=LearningKind.DEAD_END,
            failures=event.failures,
            commit=event.commit,
        )

    @take.register(ev.StepVerified)
    @take.register(ev.RevisionVerified)
    def _(self, event: ev.StepVerified | ev.RevisionVerified) -> None:
        if self._tries and self._commit:
            self._learn_green(self._commit, event.completion)
        self._close(green=True)
        self._aim([], [])

    def _learn_green(self, made: ev.StepCommitted, completion: ev.Completion | None) -> None:
        paths = self._proposal.paths if self._proposal else []
        tests = _names(self._tests or made.tests) or self._title
        lines = [f"{tests}: what worked is “{_short(made.subject)}” in {_places(paths)}.", *self._failed_tries()]
        commit = completion.commit if completion else made.commit
        self._add("\n".join(lines), "fixed", failures=self._failures, commit=commit)

    def _failed_tries(self) -> list[str]:
        shown = list(dict.fromkeys((one.summary, one.why) for one in self._tries))[-_TRIES_SHOWN:]
        return [f"What did not work: “{summary}”: {why}." for summary, why in shown]

    @take.register(ev.TestAbandoned)
    @take.register(ev.SealedUpheld)
    @take.register(ev.TaskUnfinished)
    def _(self, _event: object) -> None:
        self._give_up()

    def _give_up(self) -> None:
        if self._tries:
            lines = [f"{_names(self._tests) or self._title} was given up.", *self._failed_tries()]
            self._add("\n".join(lines), "given-up", kind=LearningKind.DEAD_END, failures=self._failures)
        self._close(green=False)
        self._aim([], [])

    @take.register
    def _(self, event: ev.LearningNoted) -> None:
        """Record a learning that an agent reports: a candidate until a second run confirms it."""
        self._add(
            event.content,
            event.role,
            kind=LearningKind.CANDIDATE,
            source=LearningSource.AGENT,
            failures=self._failures,
        )

    # --- trials ------------------------------------------------------------------------------------------------

    @take.register
    def _(self, _event: ev.StepStarted) -> None:
        self._step_cost = 0.0

    @take.register
    def _(self, event: ev.UsageMetered) -> None:
        self._step_cost += event.cost_usd
        self._count(cost_usd=event.cost_usd)

    @take.register
    def _(self, event: ev.LearningDelivered) -> None:
        """The first delivery for a failure opens a trial; its cost includes the call that it was delivered to."""
        if event.matched is Matched.TITLE or event.learning in self._open:
            return
        trial = LearningTrial(
            learning=event.learning,
            run=self.run,
            seq=self.seq,
            arm=event.arm,
            cost_usd=self._step_cost,
            at=self.at,
        )
        self._open[event.learning] = event, trial

    def _count(
        self, *, attempts: int = 0, reverts: int = 0, cost_usd: float = 0.0, failures: Sequence[str] = ()
    ) -> None:
        for learning, (event, trial) in self._open.items():
            counted = msgspec.structs.replace(
                trial,
                attempts=trial.attempts + attempts,
                reverts=trial.reverts + reverts,
                repeats=trial.repeats + int(bool(event.fingerprint) and event.fingerprint in failures),
                cost_usd=trial.cost_usd + cost_usd,
            )
            self._open[learning] = event, counted

    def _close(self, *, green: bool) -> None:
        """End the open trials. A failure that was given up needs at least one attempt more than were made."""
        for _, trial in self._open.values():
            attempts = max(1, trial.attempts) + int(not green)
            self.closed.append(msgspec.structs.replace(trial, attempts=attempts, green=green))
        self._open.clear()


def noted_learning(answer: str) -> str:
    """Return the text under the heading `# Learning` of an agent's answer, or ''."""
    found: list[str] = []
    inside = False
    for line in split_lines(answer):
        if line.startswith("#"):
            inside = line.strip("# \t:").lower() in ("learning", "learnings", "lesson", "lessons")
        elif inside:
            found.append(line)
    return "\n".join(found).strip()[:_NOTED_MAX_CHARS]


_NOTED_MAX_CHARS = 1_000


def _names(tests: Sequence[str]) -> str:
    more = f" and {len(tests) - _TESTS_SHOWN} more" if len(tests) > _TESTS_SHOWN else ""
    return ", ".join(tests[:_TESTS_SHOWN]) + more


def _places(paths: Sequence[str]) -> str:
    return ", ".join(paths[:_PATHS_SHOWN]) or "no file"


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _TEXT_CHARS else f"{line[:_TEXT_CHARS]}…"
