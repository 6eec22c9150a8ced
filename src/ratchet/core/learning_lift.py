"""The effect of learnings, measured against failures for which the same learning was held out.

Each learning is drawn for each failure independently, so its own trials compare like with like; totals are weighted
means of the learnings' own differences. Differences of means have Welch's intervals, shares Newcombe's. Which learnings
help is decided by the attempts saved, with the share of false discoveries controlled (Benjamini and Hochberg).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from statistics import NormalDist

import msgspec

from ratchet.core.learning import MEASURES, LearningSource, TrialArm, TrialSums

FALSE_DISCOVERY_RATE = 0.05
CONTROLS_MIN = 10  # fewer allow no conclusion, however different they are
_CONFIDENCE = 0.95
_NORMAL = NormalDist()


class Effect(msgspec.Struct, frozen=True, kw_only=True):
    """The mean of a measure with and without, and the difference with its 95 % interval; `p` is that of no benefit."""

    delivered: float
    held_out: float
    difference: float
    low: float
    high: float
    p: float


class Lift(msgspec.Struct, frozen=True, kw_only=True):
    """The effect of one learning or of a group, in one arm. Negative differences of attempts, repeats, reverts and cost
    are good, positive ones of `green`. An effect is null while it cannot be estimated."""

    name: str
    arm: TrialArm
    delivered: int
    held_out: int
    attempts: Effect | None = None
    repeats: Effect | None = None
    reverts: Effect | None = None
    cost_usd: Effect | None = None
    green: Effect | None = None

    @property
    def saved(self) -> float | None:
        """The share of attempts that is saved."""
        effect = self.attempts
        return -effect.difference / effect.held_out if effect and effect.held_out else None


class Judged(msgspec.Struct, frozen=True, kw_only=True):
    """A learning's lift, and whether it is proven at the false discovery rate; `due` once it has enough trials."""

    lift: Lift
    content: str
    source: LearningSource
    retired: bool
    due: bool
    proven: bool

    @property
    def verdict(self) -> str:
        if self.retired:
            return "retired"
        return "helps" if self.proven else "no effect" if self.due else "too few trials"


class LiftReport(msgspec.Struct, frozen=True, kw_only=True):
    """`totals` compare each arm with what was held out; `learnings` are sorted by what they save. About
    `false_discoveries` of the proven ones are proven by chance."""

    false_discovery_rate: float
    false_discoveries: float
    totals: list[Lift]
    sources: list[Lift]
    learnings: list[Judged]


def lift_report(sums: Iterable[TrialSums], *, trials: int) -> LiftReport:
    """Judge all learnings; those with at least `trials` deliveries are due."""
    by_learning: dict[str, dict[TrialArm, TrialSums]] = {}
    for one in sums:
        by_learning.setdefault(one.learning, {})[one.arm] = one
    lifts = {name: lift_of(name, [arms], TrialArm.PACKET) for name, arms in by_learning.items()}
    first = {name: next(iter(arms.values())) for name, arms in by_learning.items()}
    source = {name: one.source for name, one in first.items()}
    due = {name for name, lift in lifts.items() if lift.delivered >= trials and lift.held_out >= CONTROLS_MIN}
    proven = discoveries({name: e.p for name in due if (e := lifts[name].attempts)}, FALSE_DISCOVERY_RATE)
    judged = [
        Judged(
            lift=lift,
            content=first[name].content,
            source=source[name],
            retired=first[name].retired,
            due=name in due,
            proven=name in proven,
        )
        for name, lift in lifts.items()
    ]
    every = list(by_learning.values())
    groups = {kind: [arms for name, arms in by_learning.items() if source[name] is kind] for kind in LearningSource}
    return LiftReport(
        false_discovery_rate=FALSE_DISCOVERY_RATE,
        false_discoveries=FALSE_DISCOVERY_RATE * len(proven),
        totals=[lift_of(arm, every, arm) for arm in (TrialArm.PACKET, TrialArm.PROMPT, TrialArm.PLACEBO)],
        sources=[lift_of(kind, arms, TrialArm.PACKET) for kind, arms in groups.items() if arms],
        learnings=sorted(judged, key=lambda one: (not one.due, -(one.lift.saved or -math.inf), one.lift.name)),
    )


def lift_of(name: str, learnings: Sequence[Mapping[TrialArm, TrialSums]], arm: TrialArm) -> Lift:
    """Return the effect of an arm, of one learning or as the weighted mean of several."""
    pairs = [(arms.get(arm), arms.get(TrialArm.HELD_OUT)) for arms in learnings]
    both = [(one, other) for one, other in pairs if one and other]
    found = {measure: _pooled([_of_means(one, other, measure) for one, other in both]) for measure in MEASURES}
    return Lift(
        name=name,
        arm=arm,
        delivered=sum(one.trials for one, _ in pairs if one),
        held_out=sum(other.trials for _, other in pairs if other),
        green=_of_shares([one for one, _ in both], [other for _, other in both]),
        **found,
    )


def discoveries(p_values: Mapping[str, float], rate: float) -> set[str]:
    """Return the names whose null hypotheses are rejected at this false discovery rate (Benjamini and Hochberg)."""
    ordered = sorted(p_values, key=lambda name: p_values[name])
    last = max((k for k, name in enumerate(ordered, 1) if p_values[name] <= rate * k / len(ordered)), default=0)
    return set(ordered[:last])


# --- statistics -----------------------------------------------------------------------------------------------------


class _Difference(msgspec.Struct, frozen=True, kw_only=True):
    delivered: float
    held_out: float
    weight: float
    variance: float
    freedom: float


def _of_means(one: TrialSums, other: TrialSums, measure: str) -> _Difference | None:
    if min(one.trials, other.trials) < 2:
        return None
    (mean, var), (mean_held, var_held) = _moments(one, measure), _moments(other, measure)
    variance = var / one.trials + var_held / other.trials
    parts = [(var / one.trials) ** 2 / (one.trials - 1), (var_held / other.trials) ** 2 / (other.trials - 1)]
    return _Difference(
        delivered=mean,
        held_out=mean_held,
        weight=one.trials * other.trials / (one.trials + other.trials),
        variance=variance,
        freedom=variance**2 / sum(parts) if sum(parts) else math.inf,
    )


def _moments(sums: TrialSums, measure: str) -> tuple[float, float]:
    mean = sums.sums[measure] / sums.trials
    return mean, max(0.0, sums.squares[measure] - sums.trials * mean * mean) / (sums.trials - 1)


def _pooled(differences: Sequence[_Difference | None]) -> Effect | None:
    """Return the weighted mean of independent differences; of one, that itself."""
    found = [one for one in differences if one]
    total = sum(one.weight for one in found)
    if not total:
        return None
    shares = [one.weight / total for one in found]
    delivered = sum(share * one.delivered for share, one in zip(shares, found, strict=True))
    held_out = sum(share * one.held_out for share, one in zip(shares, found, strict=True))
    parts = [share**2 * one.variance for share, one in zip(shares, found, strict=True)]
    spread = sum(part**2 / one.freedom for part, one in zip(parts, found, strict=True))
    error, freedom = math.sqrt(sum(parts)), sum(parts) ** 2 / spread if spread else math.inf
    difference = delivered - held_out
    reach = _student_quantile((1 + _CONFIDENCE) / 2, freedom) * error
    p = _student_below(difference / error, freedom) if error else 0.0 if difference < 0 else 1.0
    return Effect(
        delivered=delivered,
        held_out=held_out,
        difference=difference,
        low=difference - reach,
        high=difference + reach,
        p=p,
    )


def _student_below(t: float, freedom: float) -> float:
    """Return P(T <= t), by Wallace's approximation: off by less than 0.001 from 5 degrees of freedom on."""
    if math.isinf(freedom):
        return _NORMAL.cdf(t)
    z = (8 * freedom + 1) / (8 * freedom + 3) * math.sqrt(freedom * math.log1p(t * t / freedom))
    return _NORMAL.cdf(math.copysign(z, t))


def _student_quantile(share: float, freedom: float) -> float:
    """Invert `_student_below`."""
    z = _NORMAL.inv_cdf(share)
    if math.isinf(freedom):
        return z
    stretched = z * (8 * freedom + 3) / (8 * freedom + 1)
    return math.copysign(math.sqrt(freedom * math.expm1(min(700.0, stretched * stretched / freedom))), z)


def _of_shares(delivered: Sequence[TrialSums], held_out: Sequence[TrialSums]) -> Effect | None:
    """Compare the shares of failures that turned green, with Newcombe's interval from Wilson's."""
    n, m = sum(one.trials for one in delivered), sum(one.trials for one in held_out)
    if not n or not m:
        return None
    weighted = [(one.trials * two.trials / (one.trials + two.trials), one, two)
                for one, two in zip(delivered, held_out, strict=True)]  # fmt: skip
    total = sum(weight for weight, _, _ in weighted)
    p = sum(weight * one.green / one.trials for weight, one, _ in weighted) / total
    q = sum(weight * two.green / two.trials for weight, _, two in weighted) / total
    (low_p, high_p), (low_q, high_q) = _wilson(p, n), _wilson(q, m)
    pooled = (p * n + q * m) / (n + m)
    error = math.sqrt(pooled * (1 - pooled) * (1 / n + 1 / m))
    return Effect(
        delivered=p,
        held_out=q,
        difference=p - q,
        low=p - q - math.hypot(p - low_p, high_q - q),
        high=p - q + math.hypot(high_p - p, q - low_q),
        p=_NORMAL.cdf((q - p) / error) if error else 1.0,
    )


def _wilson(share: float, n: int) -> tuple[float, float]:
    z = _NORMAL.inv_cdf((1 + _CONFIDENCE) / 2)
    centre = (share + z * z / (2 * n)) / (1 + z * z / n)
    reach = z / (1 + z * z / n) * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    return centre - reach, centre + reach
