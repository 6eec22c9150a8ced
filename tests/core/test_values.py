"""Small values that others depend on: usage and prices, learnings as text, prompts, schemas and comparisons."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ratchet.core import prompts
from ratchet.core.compare import Delta, with_comparison
from ratchet.core.gates import Gate
from ratchet.core.learning import CONTENT_MAX_CHARS, Learning, LearningKind, delivered_text, learning_error, learning_id
from ratchet.core.locks import DEPTH_MAX, NAME_MAX_CHARS, PATHS_MAX, normalise, normalise_all
from ratchet.core.prices import PRICES, price_of
from ratchet.core.queue import ClaimLimits
from ratchet.core.receipt import USAGE_MAX, Artifact, Price, Receipt, Usage, format_cost, receipt_digest
from ratchet.core.report import Report, ReportStatus
from ratchet.core.schemas import all_schemas, clean_descriptions

SCHEMAS = Path(__file__).parents[2] / "schemas" / "v1"
NUMBERS = st.floats(allow_nan=True, allow_infinity=True)


# --- usage and prices -----------------------------------------------------------------------------------------------


@given(NUMBERS, NUMBERS)
def test_no_reported_usage_makes_room_in_a_budget(cost: float, seconds: float) -> None:
    found = Usage(tokens_in=-5, tokens_out=7, cost_usd=cost, seconds=seconds).sane
    assert (found.tokens_in, found.tokens_out) == (0, 7)
    for value, given_value in ((found.cost_usd, cost), (found.seconds, seconds)):
        assert 0 <= value <= USAGE_MAX
        assert value == given_value or math.isnan(given_value) or given_value < 0 or given_value > USAGE_MAX


def test_usage_is_added_exactly() -> None:
    one = Usage(tokens_in=1, tokens_out=2, cost_usd=0.1, seconds=0.1)
    other = Usage(tokens_in=10, tokens_out=20, cost_usd=0.2, seconds=0.2004)
    assert one + other == Usage(tokens_in=11, tokens_out=22, cost_usd=0.3, seconds=0.3)


def test_a_price_is_for_a_million_tokens() -> None:
    price = Price(in_usd=2.0, out_usd=8.0)
    assert price.of(Usage(tokens_in=1_000_000, tokens_out=500_000)) == 6.0
    assert price.of(Usage(tokens_in=1, cost_usd=9.0)) == 0.000002


def test_an_unknown_price_is_never_shown_as_nothing() -> None:
    assert format_cost(Usage(cost_usd=1.25), priced=True) == "1.2500 USD"
    assert format_cost(Usage(tokens_in=1_234, tokens_out=5), priced=False) == "unknown (1,234 tokens in, 5 out)"
    assert format_cost(Usage(cost_usd=0.5), priced=False).endswith("out, 0.5000 USD of it known)")


@pytest.mark.parametrize(
    ("model", "name"),
    [
        ("gpt-5", "gpt-5"),
        ("openai/GPT-5", "gpt-5"),
        ("gpt-5-2025-08-07", "gpt-5"),
        ("claude-sonnet-4-5-20250929", "claude-sonnet-4-5"),
        ("openrouter/anthropic/claude-opus-4.5", "claude-opus-4-5"),
        ("claude-sonnet-4.5", "claude-sonnet-4-5"),
        ("claude-haiku-4.5", "claude-haiku-4-5"),
    ],
)
def test_a_model_is_found_in_the_table_with_a_provider_before_and_a_date_behind_it(model: str, name: str) -> None:
    assert price_of(model, {}) == PRICES[name]


@pytest.mark.parametrize("model", ["", "mine", "gpt-5-20x", "-2025", "gpt-5-turbo-2025-01-01"])
def test_the_price_of_another_model_is_not_known(model: str) -> None:
    assert price_of(model, {}) is None


def test_a_configured_price_comes_first() -> None:
    mine = Price(in_usd=1.0)
    assert price_of("gpt-5", {"gpt-5": mine}) == price_of("mine", {"mine": mine}) == mine


def receipt(**fields: Any) -> Receipt:
    usual: dict[str, Any] = {
        "run": "r", "item": "i", "step": 1, "action": "a", "key": "k", "outcome": "o", "snapshot_before": "b",
        "snapshot_after": "c", "command_id": "d", "artifacts": [Artifact(path="p", sha256="0", size=1)], "events": [1],
        "usage": Usage(), "created_at": "t",
    }  # fmt: skip
    return Receipt(**usual | fields)


def test_a_receipt_has_another_digest_as_soon_as_anything_in_it_is_changed() -> None:
    digests = {receipt_digest(receipt()), receipt_digest(receipt(step=2)), receipt_digest(receipt(outcome="p"))}
    assert len(digests) == 3 and receipt_digest(receipt()) in digests
    assert all(len(digest) == 64 for digest in digests)


# --- learnings and prompts ------------------------------------------------------------------------------------------


def learning(content: str = "The ledger rounds.", **fields: Any) -> Learning:
    return Learning(**{"id": learning_id("/r", content), "repo": "/r", "content": content, "created_at": "t"} | fields)


def test_an_agent_reads_of_what_kind_a_learning_is() -> None:
    assert delivered_text(learning(" one\ntwo\n")) == "one\n  two"
    assert delivered_text(learning("one", kind=LearningKind.DEAD_END)) == "Dead end: one"
    assert delivered_text(learning("one", kind=LearningKind.CANDIDATE)) == "Unconfirmed: one"


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"content": " \n"}, "the content is empty"),
        ({"content": "x" * (CONTENT_MAX_CHARS + 1)}, f"more than {CONTENT_MAX_CHARS:,}"),
        ({"content": "ab\x1bc"}, "the content has a control character (U+001B at 2)"),
        ({"repo": "/r\0"}, "the repository has a NUL character"),
        ({"seq": -1}, "-1 is no number"),
        ({"seq": 2**63}, f"{2**63} is no number"),
        ({"id": "a\0"}, "the id has a control character (U+0000 at 1)"),
        ({"spec": "\0"}, "the spec has"),
        ({"run": "\0"}, "the run has"),
        ({"commit": "\0"}, "the commit has"),
        ({"created_at": "\0"}, "the time has"),
        ({"tags": ["fine", "a\0"]}, "the tag has"),
    ],
)
def test_a_learning_that_cannot_be_stored_is_refused_with_the_reason(fields: dict[str, Any], why: str) -> None:
    assert why in learning_error(learning(**fields))


def test_a_learning_may_be_as_long_as_the_limit_and_have_lines() -> None:
    assert learning_error(learning("x" * CONTENT_MAX_CHARS, seq=2**63 - 1, tags=["a"])) == ""
    assert learning_error(learning("a\n\tb", repo="/r\x1b", seq=0)) == ""


@given(st.integers(0, 999), st.sampled_from(["auditor", "fixer"]), st.text().map(str.strip))
def test_an_answer_is_read_back_from_the_history(step: int, role: str, text: str) -> None:
    assert prompts.answer_of(prompts.history_entry(step, role, text)) == (text or "(no answer)")


def test_a_prompt_that_is_too_long_loses_its_history_first_and_its_spec_never() -> None:
    template = "# History\n$history\n\n# Diff\n$diff\n\n# Spec\n$spec\n"
    facts = {"history": "h" * 400, "diff": "d" * 400, "spec": "s" * 400}
    assert prompts.fit_to_tokens(template, facts, 1_000) == facts
    less = prompts.fit_to_tokens(template, facts, 250)
    assert less["diff"] == facts["diff"] and less["history"].endswith("(shortened)")
    assert 0 < len(prompts.render(template, less)) <= 1_000
    least = prompts.fit_to_tokens(template, facts, 10)
    assert (least["history"], least["diff"], least["spec"]) == ("", "", facts["spec"])
    assert facts["history"] == "h" * 400, "the given facts stay as they are"


def test_a_finding_is_written_as_json() -> None:
    assert json.loads(prompts.finding_text(Gate(name="lint")))["name"] == "lint"


# --- schemas, comparisons, limits -----------------------------------------------------------------------------------


def test_the_committed_schemas_are_those_of_the_types() -> None:
    made = all_schemas()
    assert {f"{name}.schema.json" for name in made} <= {path.name for path in SCHEMAS.iterdir()}
    for name, text in made.items():
        assert (SCHEMAS / f"{name}.schema.json").read_text() == text, "run `make docs`"


def test_descriptions_lose_their_indentation_and_nothing_else_does() -> None:
    text = "One.\n\n    Two\n      three\n    "
    schema = {
        "description": text,
        "default": text,
        "anyOf": [{"description": text}, 1],
        "properties": {"a": {"description": text}},
    }
    clean = "One.\n\nTwo\n  three"
    assert clean_descriptions(schema) == {
        "description": clean, "default": text, "anyOf": [{"description": clean}, 1],
        "properties": {"a": {"description": clean}},
    }  # fmt: skip


def test_a_compared_report_has_all_of_the_report() -> None:
    report = Report(runner="r", status=ReportStatus.PASSED, notes=["n"], exit_code=0, output="o")
    delta = Delta(new_failures=["a"], still_failing=[], fixed=[], added=[], missing=[], silenced=[], broken=[])
    made = with_comparison(report, delta, ["k"], ["f"])
    assert (made.delta, made.known, made.flaky) == (delta, ["k"], ["f"])
    assert msgspec.to_builtins(made) == msgspec.to_builtins(report) | {
        "delta": msgspec.to_builtins(delta), "known": ["k"], "flaky": ["f"],
    }  # fmt: skip
    assert with_comparison(report, None, [], []).delta is None


def test_limits_are_set_as_soon_as_one_is() -> None:
    assert not ClaimLimits().any and ClaimLimits(per_repo=1).any and ClaimLimits(cooldown_s=1).any


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("", "invalid"), ("a\\b", "invalid"), ("a\nb", "invalid"), ("a\x7f", "invalid"),
        ("/a", "absolute"), ("~/a", "absolute"), ("C:/a", "absolute"), ("../a", "outside"), ("a/../../b", "outside"),
        ("a/" + "n" * (NAME_MAX_CHARS + 1), f"more than {NAME_MAX_CHARS}"),
        ("/".join("a" * (DEPTH_MAX + 1)), f"more than {DEPTH_MAX} folders"),
    ],
)  # fmt: skip
def test_a_path_that_cannot_be_locked_is_refused_with_the_reason(path: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        normalise(path)


def test_a_path_may_reach_every_limit_and_a_folder_is_all_below_it() -> None:
    for path in ("n" * NAME_MAX_CHARS, "/".join("a" * DEPTH_MAX), "a b", "é"):
        assert normalise(path) == path
    assert [normalise(path) for path in ("./src/../src//a.py", "docs/", ".", "a/..")] == [
        "src/a.py", "docs/**", "**", "**",
    ]  # fmt: skip


def test_there_is_a_limit_to_the_paths_of_one_claim() -> None:
    paths = [f"f{n}" for n in range(PATHS_MAX)]
    assert len(normalise_all(paths)) == PATHS_MAX
    with pytest.raises(ValueError, match=f"{PATHS_MAX + 1} paths exceed"):
        normalise_all([*paths, "more"])
