"""A prompt fits its budget: what is least needed is shortened first, the spec never."""

from __future__ import annotations

from ratchet.core.prompts import PLACEHOLDERS, fit_to_tokens, render

TEMPLATE = "# Spec\n$spec\n\n# Failing\n$failures\n\n# Learnt\n$learnings\n\n# Said\n$history\n"


def facts(**more: str) -> dict[str, str]:
    return dict.fromkeys(PLACEHOLDERS, "") | {"spec": "s" * 2_000} | more


def test_history_goes_before_learnings_and_both_before_the_failures() -> None:
    reported = facts(history="h" * 4_000, learnings="l" * 4_000, failures="f" * 4_000)
    made = fit_to_tokens(TEMPLATE, reported, 2_000)
    assert not made["history"] and 0 < len(made["learnings"]) < 4_000 and made["failures"] == reported["failures"]
    assert len(render(TEMPLATE, made)) <= 8_000 and made["learnings"].endswith("(shortened)")


def test_what_fits_is_left_alone_and_the_spec_is_never_cut() -> None:
    reported = facts(history="short")
    assert fit_to_tokens(TEMPLATE, reported, 1_000) == reported
    assert fit_to_tokens(TEMPLATE, reported, 1)["spec"] == reported["spec"]
