"""Windows and groupings of figures are parsed as people write them, and what is no window is refused."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ratchet.core.figures import GROUPINGS, SLOT_MINUTES, Tally
from ratchet.core.metrics import GROUPINGS_MAX, Figures, parse_groupings, parse_since, parse_until, window

NOW = datetime(2026, 3, 10, 15, 30, tzinfo=UTC)


def midnight(moment: datetime) -> datetime:
    return moment.astimezone().replace(hour=0, minute=0, second=0, microsecond=0)


@pytest.mark.parametrize(
    ("text", "before"),
    [("90m", timedelta(minutes=90)), ("24h", timedelta(hours=24)), ("0h", timedelta()), ("1m", timedelta(minutes=1))],
)
def test_minutes_and_hours_are_counted_back_from_now(text: str, before: timedelta) -> None:
    assert parse_since(text, NOW) == NOW - before


@pytest.mark.parametrize(("text", "days"), [("1d", 0), ("0d", 0), ("2d", 1), ("7d", 6), ("1w", 6), ("2w", 13)])
def test_days_and_weeks_include_today_and_begin_at_local_midnight(text: str, days: int) -> None:
    assert parse_since(text, NOW).date() == (NOW.astimezone() - timedelta(days=days)).date()
    assert parse_since(text, NOW) == midnight(parse_since(text, NOW))


def test_without_a_start_the_window_is_today() -> None:
    assert parse_since("", NOW) == midnight(NOW) == parse_since("1d", NOW)


def test_a_date_or_a_time_is_taken_as_it_is_written() -> None:
    assert parse_since("2026-03-01", NOW) == datetime(2026, 3, 1).astimezone()
    assert parse_since("2026-03-01T12:00:00+00:00", NOW) == datetime(2026, 3, 1, 12, tzinfo=UTC)
    assert parse_until("2026-03-02T01:00:00+02:00", NOW) == datetime(2026, 3, 1, 23, tzinfo=UTC)


def test_without_an_end_the_slot_in_progress_is_included() -> None:
    assert parse_until("", NOW) == NOW + timedelta(minutes=SLOT_MINUTES)


@pytest.mark.parametrize("text", ["yesterday", "7", "d", "-1d", "123456d", "7y", "2026-13-01", "7d ", "1d2h"])
def test_what_is_no_window_is_refused_with_examples(text: str) -> None:
    with pytest.raises(ValueError, match="use 7d, 24h"):
        window(text, "", NOW)


def test_a_window_is_two_timestamps_in_utc_and_ends_after_it_begins() -> None:
    assert window("1h", "", NOW) == ("2026-03-10T14:30:00.000000Z", "2026-03-10T15:45:00.000000Z")
    began, ended = "2026-03-01T00:00:00.000000Z", "2026-03-01T00:01:00.000000Z"
    assert window(began, ended, NOW) == (began, ended)
    for until in ("2026-03-01T00:00Z", "2026-02-01T00:00Z"):
        with pytest.raises(ValueError, match="ends before it begins"):
            window("2026-03-01T00:00Z", until, NOW)


def test_a_window_that_begins_before_the_calendar_is_refused() -> None:
    for text in ("99999w", "99999d"):
        with pytest.raises(ValueError, match="too long ago"):
            window(text, "", datetime(100, 1, 2, tzinfo=UTC))


def test_groupings_are_split_and_each_is_taken_once() -> None:
    first, second, *_ = GROUPINGS
    assert parse_groupings("") == parse_groupings(" , ") == []
    assert parse_groupings(f" {second},{first}, {second} ,") == [second, first]


def test_an_unknown_grouping_is_named_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match=f"'colour'.*{GROUPINGS[0]}, {GROUPINGS[1]}"):
        parse_groupings(f"{GROUPINGS[0]},colour")


def test_there_is_a_limit_to_groupings() -> None:
    assert len(parse_groupings(",".join(list(GROUPINGS)[:GROUPINGS_MAX]))) == GROUPINGS_MAX
    with pytest.raises(ValueError, match=str(GROUPINGS_MAX)):
        parse_groupings(",".join(list(GROUPINGS)[: GROUPINGS_MAX + 1]))


def test_a_ratio_is_unknown_until_there_is_something_to_divide_by() -> None:
    figures = Figures.of(Tally())
    assert (figures.success_rate, figures.average_completion_s, figures.reverts_per_commit) == (None, None, None)
    assert (figures.attempts_to_green, figures.workspace_create_s, figures.cost_per_accepted_usd) == (None, None, None)
    assert (figures.accepted, figures.cost_usd) == (0, 0.0)


def test_figures_are_ratios_in_plain_units() -> None:
    figures = Figures.of(
        Tally(
            runs=5, completed=3, failed=1, aborted=1, completion_ms=6_000, commits=4, undone=2, reverts=8, greens=2,
            green_attempts=3, calls=2, cost_microusd=5_000_000, agent_ms=1_500, step_ms=2_500, workspaces=4,
            workspace_ms=1_000, quota_ms=250,
        )
    )  # fmt: skip
    assert (figures.success_rate, figures.average_completion_s) == (0.75, 2.0)
    assert (figures.accepted, figures.reverts_per_commit, figures.attempts_to_green) == (2, 2.0, 1.5)
    assert (figures.cost_usd, figures.cost_per_accepted_usd) == (5.0, 2.5)
    assert (figures.agent_s, figures.step_s, figures.workspace_create_s, figures.quota_s) == (1.5, 2.5, 0.25, 0.25)


@given(st.integers(1, 9), st.integers(0, 9), st.integers(0, 9_000_000))
def test_a_cost_is_unknown_if_no_call_has_a_price_and_per_change_if_one_has_none(
    calls: int, unpriced: int, cost: int
) -> None:
    unpriced = min(calls, unpriced)
    figures = Figures.of(Tally(calls=calls, unpriced_calls=unpriced, cost_microusd=cost, commits=1))
    assert figures.cost_usd == (None if unpriced == calls else cost / 1e6)
    assert figures.cost_per_accepted_usd == (None if unpriced else cost / 1e6)


def test_more_undone_than_kept_in_a_window_is_no_negative_number() -> None:
    assert Figures.of(Tally(commits=1, undone=3)).accepted == 0
