"""Lift: found where it was planted, and not where it was not, in simulated runs of agents of known skill."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterable
from statistics import mean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ratchet.core import events as ev
from ratchet.core.learning import MEASURES, LearningSource, LearningTrial, Matched, TrialArm, TrialSums, assign_arm
from ratchet.core.learning_lift import CONTROLS_MIN, Lift, LiftReport, discoveries, lift_of, lift_report
from ratchet.core.learning_sources import derive
from tests.core.playing import REPORT, started

SHARES = {"held_out": 0.2, "placebo": 0.1, "prompt": 0.1}
ATTEMPTS_MAX = 4
TRIALS = 100


def simulated_run(
    chance: random.Random, run: str, learnings: list[str], skill: dict[str, float]
) -> list[LearningTrial]:
    """A run with one failure, by an agent that succeeds more often where a learning in its packet helps."""
    arms = {one: assign_arm(run, "f", one, **SHARES) for one in learnings}
    helps = sum(skill.get(one, 0.0) for one, arm in arms.items() if arm is TrialArm.PACKET)
    success = min(0.95, 0.35 + helps)
    events: list[ev.Event] = [
        started(),
        ev.RedConfirmed(step=1, tests=["t"], fingerprint="f", report=REPORT, failures=["f"]),
    ]
    for attempt in range(ATTEMPTS_MAX):
        events += [
            ev.StepStarted(step=attempt, action="implement", role="implementer", key="k", tree="t", snapshot="s"),
            ev.UsageMetered(step=attempt, role="implementer", agent="a", cost_usd=chance.uniform(0.1, 0.5)),
            *(
                ev.LearningDelivered(step=attempt, learning=one, arm=arm, matched=Matched.FINGERPRINT, fingerprint="f")
                for one, arm in arms.items()
            ),
            ev.ChangeProposed(step=attempt, paths=["a.py"], tree=f"t{attempt}", summary="s"),
        ]
        if chance.random() < success:
            kept = ev.StepCommitted(
                step=attempt, commit="c", parent="p", subject="s", tests=["t"], report=REPORT, tree="g"
            )
            events += [kept, ev.StepVerified(step=attempt, gates=[], warnings=[])]
            break
        events.append(ev.StepReverted(step=attempt, why="still red", paths=["a.py"], tree="t", failures=["f"]))
    else:
        events.append(ev.TestAbandoned(why="no attempts left"))
    return derive(run, [(seq, "2026", event) for seq, event in enumerate(events, 1)]).trials


def summed(trials: Iterable[LearningTrial]) -> list[TrialSums]:
    rows: dict[tuple[str, TrialArm], list[LearningTrial]] = defaultdict(list)
    for trial in trials:
        rows[trial.learning, trial.arm].append(trial)
    return [
        TrialSums(
            learning=learning,
            source=LearningSource.FACTORY,
            content=learning,
            arm=arm,
            retired=False,
            trials=len(found),
            green=sum(one.green for one in found),
            sums={name: sum(getattr(one, name) for one in found) for name in MEASURES},
            squares={name: sum(getattr(one, name) ** 2 for one in found) for name in MEASURES},
        )
        for (learning, arm), found in rows.items()
    ]


def simulated(seed: int, *, planted: int, learnings: int = 20, runs: int = 2_000) -> LiftReport:
    chance = random.Random(seed)
    names = [f"l{n:02}" for n in range(learnings)]
    skill = dict.fromkeys(names[:planted], 0.3)
    trials = [
        trial for n in range(runs) for trial in simulated_run(chance, f"run-{seed}-{n}", chance.sample(names, 2), skill)
    ]
    return lift_report(summed(trials), trials=TRIALS)


def proven(report: LiftReport) -> set[str]:
    return {one.lift.name for one in report.learnings if one.proven}


def test_lift_is_found_where_it_was_planted_and_not_where_it_was_not() -> None:
    power, rates = [], []
    for seed in range(16):
        found, planted = proven(simulated(seed, planted=5)), {f"l{n:02}" for n in range(5)}
        power.append(len(found & planted) / len(planted))
        rates.append(len(found - planted) / max(1, len(found)))
    print(f"found {mean(power):.0%} of what was planted, false discovery rate {mean(rates):.1%}")
    assert mean(power) > 0.8 and mean(rates) <= 0.05


def test_nothing_is_found_where_nothing_was_planted() -> None:
    wrong = [bool(proven(simulated(seed, planted=0))) for seed in range(100, 112)]
    assert mean(wrong) <= 0.1


def test_totals_separate_packet_prompt_and_placebo() -> None:
    report = simulated(1, planted=20)
    packet, prompt, placebo = report.totals
    assert [packet.arm, prompt.arm, placebo.arm] == [TrialArm.PACKET, TrialArm.PROMPT, TrialArm.PLACEBO]
    assert packet.attempts and packet.attempts.high < 0 and packet.saved and packet.saved > 0.05
    for none in (prompt, placebo):
        assert none.attempts and none.attempts.low < 0 < none.attempts.high
    assert packet.reverts and packet.repeats and packet.cost_usd and packet.green
    assert max(packet.reverts.high, packet.repeats.high, packet.cost_usd.high) < 0 < packet.green.low
    (source,) = report.sources
    assert (source.name, source.attempts) == ("factory", packet.attempts)


def test_a_learning_is_not_judged_before_it_has_enough_deliveries_and_controls() -> None:
    rows = summed(
        [LearningTrial(learning="l", run=f"r{n}", seq=1, arm=TrialArm.PACKET, attempts=1) for n in range(500)]
    )
    (alone,) = lift_report(rows, trials=10).learnings
    assert not alone.due and not alone.proven and alone.lift.attempts is None and alone.lift.delivered == 500


@pytest.mark.parametrize(("n", "m", "shift"), [(40, 12, 0.0), (40, 12, 1.0), (200, 60, 0.3)])
def test_an_interval_covers_the_true_difference_as_often_as_it_says(n: int, m: int, shift: float) -> None:
    chance, covered = random.Random(f"{n}{shift}"), []
    for _ in range(400):
        trials = [
            LearningTrial(
                learning="l", run=f"{arm}{at}", seq=1, arm=arm, attempts=1, cost_usd=chance.gauss(5 + more, 1 + more)
            )
            for arm, count, more in ((TrialArm.PACKET, n, shift), (TrialArm.HELD_OUT, m, 0.0))
            for at in range(count)
        ]
        effect = lift_of("l", [{one.arm: one for one in summed(trials)}], TrialArm.PACKET).cost_usd
        assert effect
        covered.append(effect.low <= shift <= effect.high)
    assert 0.92 <= mean(covered) <= 0.98


@given(st.dictionaries(st.text(min_size=1, max_size=3), st.floats(0, 1)), st.floats(0.01, 0.5))
def test_a_smaller_p_value_is_never_rejected_while_a_larger_one_is_kept(p: dict[str, float], rate: float) -> None:
    found = discoveries(p, rate)
    assert all(p[kept] >= p[name] for name in found for kept in p.keys() - found)
    assert all(p[name] <= rate for name in found)


def test_arms_follow_the_shares_and_are_the_same_each_time() -> None:
    drawn = [assign_arm(f"run-{n}", "f", "l", **SHARES) for n in range(5_000)]
    assert drawn == [assign_arm(f"run-{n}", "f", "l", **SHARES) for n in range(5_000)]
    for arm, share in [
        (TrialArm.PACKET, 0.6),
        (TrialArm.HELD_OUT, 0.2),
        (TrialArm.PLACEBO, 0.1),
        (TrialArm.PROMPT, 0.1),
    ]:
        assert abs(drawn.count(arm) / len(drawn) - share) < 0.02
    everything = {assign_arm(f"r{n}", "f", "l", held_out=0, placebo=0, prompt=0) for n in range(50)}
    assert everything == {TrialArm.PACKET}


def sums(values: list[float], arm: TrialArm, *, green: int = 0, name: str = "l", retired: bool = False) -> TrialSums:
    return TrialSums(
        learning=name,
        source=LearningSource.FACTORY,
        content=f"content of {name}",
        arm=arm,
        retired=retired,
        trials=len(values),
        green=green,
        sums=dict.fromkeys(MEASURES, sum(values)),
        squares=dict.fromkeys(MEASURES, sum(value**2 for value in values)),
    )


def lift(delivered: list[float], held_out: list[float], **green: int) -> Lift:
    one = sums(delivered, TrialArm.PACKET, green=green.get("green", 0))
    other = sums(held_out, TrialArm.HELD_OUT, green=green.get("held_out_green", 0))
    return lift_of("l", [{TrialArm.PACKET: one, TrialArm.HELD_OUT: other}], TrialArm.PACKET)


def test_a_difference_of_means_has_welchs_interval() -> None:
    first, second = [3.0, 4.0, 5.0, 4.0, 4.0, 4.0], [6.0, 8.0, 7.0, 5.0, 9.0, 7.0]
    found = lift(first, second)
    effect = found.attempts
    # By the books: error sqrt(0.4/6 + 2/6) = 0.63246, 6.9 degrees of freedom, whose quantile is 2.371.
    assert effect and (effect.delivered, effect.held_out, effect.difference) == (4.0, 7.0, -3.0)
    assert (effect.low, effect.high) == pytest.approx((-4.4998, -1.5002), abs=0.01)
    assert effect.p == pytest.approx(0.0010, abs=0.0005)
    assert (found.delivered, found.held_out) == (6, 6) and found.saved == pytest.approx(3 / 7)
    worse = lift(second, first).attempts
    assert worse and worse.difference == 3.0 and worse.p == pytest.approx(1 - effect.p)


def test_equal_means_are_as_likely_better_as_worse() -> None:
    effect = lift([1.0, 2.0, 3.0], [1.0, 2.0, 3.0]).attempts
    assert effect and effect.p == pytest.approx(0.5) and effect.low == pytest.approx(-effect.high)


@pytest.mark.parametrize(("delivered", "p"), [(1.0, 0.0), (2.0, 1.0), (3.0, 1.0)])
def test_without_any_spread_a_difference_is_certain(delivered: float, p: float) -> None:
    effect = lift([delivered] * 3, [2.0] * 3).attempts
    assert effect and (effect.low, effect.high, effect.p) == (delivered - 2.0, delivered - 2.0, p)


def test_a_mean_of_one_trial_has_no_interval() -> None:
    assert lift([1.0], [2.0, 3.0]).attempts is None
    assert lift([2.0, 3.0], [1.0]).attempts is None
    assert lift([1.0, 1.0], [2.0, 3.0]).attempts


def test_a_difference_of_shares_has_newcombes_interval() -> None:
    green = lift([0.0] * 70, [0.0] * 80, green=56, held_out_green=48).green  # the example of his paper
    assert green and (green.delivered, green.held_out) == (0.8, 0.6)
    assert (green.difference, green.low, green.high) == pytest.approx((0.2, 0.0524, 0.3339), abs=1e-4)
    assert green.p == pytest.approx(0.00408, abs=1e-4)  # z = 0.2 / sqrt(0.6933 * 0.3067 * (1/70 + 1/80))
    alike = lift([0.0] * 5, [0.0] * 5).green
    assert alike and (alike.difference, alike.p) == (0.0, 1.0) and alike.low == -alike.high


def test_learnings_are_pooled_by_the_weight_of_their_trials() -> None:
    def arms(delivered: list[float], held_out: list[float], *green: int) -> dict[TrialArm, TrialSums]:
        one, other = sums(delivered, TrialArm.PACKET, green=green[0]), sums(held_out, TrialArm.HELD_OUT, green=green[1])
        return {TrialArm.PACKET: one, TrialArm.HELD_OUT: other}

    small, large = arms([1.0, 3.0], [5.0, 7.0], 1, 2), arms([3.0, 5.0] * 3, [4.0, 6.0] * 3, 3, 6)
    alone = {TrialArm.PACKET: sums([9.0, 9.0], TrialArm.PACKET)}
    found = lift_of("all", [small, large, alone], TrialArm.PACKET)
    assert (found.delivered, found.held_out) == (10, 8)
    effect = found.attempts  # weights 1 and 3
    assert effect and (effect.delivered, effect.held_out) == pytest.approx((3.5, 5.25))
    # Variances 2/2 + 2/2 and 1.2/6 + 1.2/6: error sqrt(0.0625 * 2 + 0.5625 * 0.4) = 0.5916.
    assert effect.high - effect.low == pytest.approx(2 * 0.5916 * 2.36, abs=0.15)
    assert found.green and (found.green.delivered, found.green.held_out) == pytest.approx((0.5, 1.0))


def test_each_arm_is_compared_with_what_was_held_out() -> None:
    held = sums([4.0, 6.0], TrialArm.HELD_OUT)
    rows = [held, sums([1.0, 3.0], TrialArm.PACKET), sums([5.0, 7.0], TrialArm.PLACEBO)]
    packet, prompt, placebo = lift_report(rows, trials=1).totals
    assert packet.attempts and packet.attempts.difference == -3 and packet.name == TrialArm.PACKET
    assert placebo.attempts and placebo.attempts.difference == 1
    assert (prompt.delivered, prompt.held_out, prompt.attempts) == (0, 2, None)


def test_a_learning_is_due_at_the_limit_of_deliveries_and_controls() -> None:
    def due(delivered: int, held_out: int) -> bool:
        rows = [sums([1.0] * delivered, TrialArm.PACKET), sums([2.0] * held_out, TrialArm.HELD_OUT)]
        return lift_report(rows, trials=20).learnings[0].due

    assert due(20, CONTROLS_MIN) and not due(19, CONTROLS_MIN) and not due(20, CONTROLS_MIN - 1)


def test_the_report_lists_due_learnings_first_and_those_that_save_most() -> None:
    def rows(name: str, mean: float, count: int = 20, **more: bool) -> list[TrialSums]:
        one = sums([mean - 1, mean + 1] * (count // 2), TrialArm.PACKET, name=name, **more)
        return [one, sums([4.0, 6.0] * 10, TrialArm.HELD_OUT, name=name, **more)]

    every = [
        *rows("few", 1.0, count=10),
        *rows("none", 5.0),
        *rows("most", 2.0),
        *rows("some", 3.0),
        *rows("old", 2.0, retired=True),
    ]
    found = lift_report(every, trials=20)
    assert [(one.lift.name, one.verdict) for one in found.learnings] == [
        ("most", "helps"),
        ("old", "retired"),
        ("some", "helps"),
        ("none", "no effect"),
        ("few", "too few trials"),
    ]
    assert found.learnings[0].content == "content of most"
    assert found.false_discovery_rate == 0.05 and found.false_discoveries == pytest.approx(0.05 * 3)


def test_discoveries_are_those_of_benjamini_and_hochberg() -> None:
    p = {"a": 0.01, "b": 0.04, "c": 0.03, "d": 0.2, "e": 0.025}
    assert discoveries(p, 0.05) == {"a", "b", "c", "e"}  # 0.04 <= 0.05 * 4/5, which takes 0.025 and 0.03 along
    assert discoveries(p, 0.04) == set()  # the smallest would have to be at most 0.008
    assert discoveries({"a": 0.05}, 0.05) == {"a"} and discoveries({}, 0.05) == set()
