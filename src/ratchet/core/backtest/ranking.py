"""Outcomes of trials, and their comparison by arm: rates with Wilson intervals, pairs with McNemar's exact test."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from enum import StrEnum
from itertools import combinations
from math import comb, sqrt

import msgspec

from ratchet.core.backtest.task import MinedTask, green_tests
from ratchet.core.receipt import Usage
from ratchet.core.report import Report

_Z = 1.959964  # of a 95 % interval


class TrialOutcome(StrEnum):
    SOLVED = "solved"
    PARTLY = "partly"
    BROKE_OTHERS = "broke_others"
    CHEATED = "cheated"
    FAILED = "failed"


class Arm(msgspec.Struct, frozen=True, kw_only=True):
    """What is compared: an agent with its model, a workflow, and a variant of the settings, such as with learnings."""

    agent: str
    workflow: str = "tdd"
    variant: str = ""
    settings: list[str] = []

    @property
    def model(self) -> str:
        """The model: as given by a setting, else by the agent's name; empty for the agent's own default."""
        given = [text.partition("=")[2] for text in self.settings if text.startswith("roles.implementer.model=")]
        return given[-1] if given else self.agent.partition(":")[2]

    @property
    def label(self) -> str:
        return " ".join(filter(None, [self.agent, self.workflow, self.variant]))


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """How a result does on the sealed tests. `fixed` of the tests to turn green; `lost` passed at the parent."""

    outcome: TrialOutcome
    why: str = ""
    fixed: int = 0
    lost: list[str] = []


class Trial(msgspec.Struct, frozen=True, kw_only=True):
    """One task with one arm. `attempts` counts changes that were proposed; without `priced` the cost is not known."""

    task: str
    arm: str
    outcome: TrialOutcome
    why: str = ""
    fixed: int = 0
    to_fix: int = 0
    lost: list[str] = []
    status: str = ""
    attempts: int = 0
    refused_cheats: int = 0
    seconds: float = 0.0
    usage: Usage = Usage()
    priced: bool = True
    run: str = ""
    patch: str = ""


def judge_result(task: MinedTask, report: Report | None, *, cheats: Sequence[str], refused: Sequence[str]) -> Verdict:
    """Judge a result by the sealed tests. `report` is None without a result; `cheats` are in the result, `refused` were
    undone on the way to it."""
    passed = green_tests(report) if report else set()
    fixed = len(passed.intersection(task.fail_to_pass))
    lost = sorted(set(task.pass_to_pass) - passed) if report else []
    if report and cheats:
        return Verdict(outcome=TrialOutcome.CHEATED, why=cheats[0], fixed=fixed, lost=lost[:20])
    if lost:
        return Verdict(
            outcome=TrialOutcome.BROKE_OTHERS, why=f"{len(lost)} tests no longer pass", fixed=fixed, lost=lost[:20]
        )
    if fixed == len(task.fail_to_pass):
        return Verdict(outcome=TrialOutcome.SOLVED, fixed=fixed)
    if fixed:
        return Verdict(outcome=TrialOutcome.PARTLY, why=f"{fixed} of {len(task.fail_to_pass)} tests pass", fixed=fixed)
    if refused:
        return Verdict(outcome=TrialOutcome.CHEATED, why=refused[0])
    return Verdict(outcome=TrialOutcome.FAILED, why="none of the tests pass" if report else "there is no result")


class ArmResult(msgspec.Struct, frozen=True, kw_only=True):
    """The trials of an arm. `low` and `high` bound the share that it solves with 95 % confidence."""

    arm: Arm
    trials: int
    outcomes: dict[str, int]
    rate: float
    low: float
    high: float
    attempts: int
    refused_cheats: int
    seconds: float
    usage: Usage
    priced: bool

    @property
    def solved(self) -> int:
        return self.outcomes.get(TrialOutcome.SOLVED, 0)


class Pair(msgspec.Struct, frozen=True, kw_only=True):
    """Two arms on the tasks that both have done: how many only one of them solved.

    `difference` of their rates with its 95 % interval (Agresti and Min); `p` by McNemar's exact test.
    """

    first: str
    second: str
    tasks: int
    only_first: int
    only_second: int
    difference: float
    low: float
    high: float
    p: float


def rank(arms: Sequence[Arm], trials: Sequence[Trial]) -> list[ArmResult]:
    """Return the results of each arm, best first: by share solved, then by cost and time."""
    results = [_result(arm, [trial for trial in trials if trial.arm == arm.label]) for arm in arms]
    return sorted(results, key=lambda found: (-found.rate, -found.low, found.usage.cost_usd, found.seconds))


def _result(arm: Arm, trials: Sequence[Trial]) -> ArmResult:
    outcomes = Counter(trial.outcome for trial in trials)
    low, high = wilson(outcomes[TrialOutcome.SOLVED], len(trials))
    usage = Usage()
    for trial in trials:
        usage += trial.usage
    return ArmResult(
        arm=arm,
        trials=len(trials),
        outcomes={outcome.value: outcomes[outcome] for outcome in TrialOutcome},
        rate=outcomes[TrialOutcome.SOLVED] / len(trials) if trials else 0.0,
        low=low,
        high=high,
        attempts=sum(trial.attempts for trial in trials),
        refused_cheats=sum(trial.refused_cheats for trial in trials),
        seconds=round(sum(trial.seconds for trial in trials), 1),
        usage=usage,
        priced=all(trial.priced for trial in trials),
    )


def compare_pairs(results: Sequence[ArmResult], trials: Sequence[Trial]) -> list[Pair]:
    """Compare every two arms on the tasks that both have done."""
    solved = {
        found.arm.label: {
            trial.task: trial.outcome is TrialOutcome.SOLVED for trial in trials if trial.arm == found.arm.label
        }
        for found in results
    }
    return [_pair(first, solved[first], second, solved[second]) for first, second in combinations(solved, 2)]


def _pair(first: str, ours: dict[str, bool], second: str, theirs: dict[str, bool]) -> Pair:
    tasks = ours.keys() & theirs.keys()
    only_first = sum(ours[task] and not theirs[task] for task in tasks)
    only_second = sum(theirs[task] and not ours[task] for task in tasks)
    low, high = paired_interval(only_first, only_second, len(tasks))
    return Pair(
        first=first,
        second=second,
        tasks=len(tasks),
        only_first=only_first,
        only_second=only_second,
        difference=(only_first - only_second) / len(tasks) if tasks else 0.0,
        low=low,
        high=high,
        p=mcnemar(only_first, only_second),
    )


def wilson(hits: int, trials: int) -> tuple[float, float]:
    """Return the 95 % interval of a share by Wilson's method, which holds for few trials and for shares near 0 or 1."""
    if not trials:
        return 0.0, 1.0
    share, scale = hits / trials, 1 + _Z**2 / trials
    middle = (share + _Z**2 / (2 * trials)) / scale
    reach = _Z * sqrt(share * (1 - share) / trials + _Z**2 / (4 * trials**2)) / scale
    return max(0.0, middle - reach), min(1.0, middle + reach)


def mcnemar(only_first: int, only_second: int) -> float:
    """Return how likely pairs as unequal as these are if both arms are equally good: the exact two-sided test."""
    unequal = only_first + only_second
    tail = sum(comb(unequal, k) for k in range(min(only_first, only_second) + 1))
    return min(1.0, float(2 * tail / 2**unequal))


def paired_interval(only_first: int, only_second: int, tasks: int) -> tuple[float, float]:
    """Return the 95 % interval of the difference of two paired shares (Agresti and Min: half a task in each cell)."""
    more, less, total = only_first + 0.5, only_second + 0.5, tasks + 2
    middle = (more - less) / total
    reach = _Z * sqrt(more + less - (more - less) ** 2 / total) / total
    return max(-1.0, middle - reach), min(1.0, middle + reach)
