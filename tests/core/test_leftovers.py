"""Which new files a change needs, and which an agent left by accident."""

from __future__ import annotations

import pytest

from ratchet.core.leftovers import is_referred_to, is_suspicious
from ratchet.core.prices import PRICES, price_of
from ratchet.core.receipt import Price, Usage, format_cost


@pytest.mark.parametrize("path", ["build.log", "a/nohup.out", "calc.py.orig", "core.123", "tmp.py", "x~", "debug2.txt"])
def test_logs_output_and_backups_are_suspicious(path: str) -> None:
    assert is_suspicious(path)


@pytest.mark.parametrize(
    "path", ["calc.py", "README.md", "src/logs.ts", "Makefile", "core/state.py", "output/render.py"]
)
def test_sources_and_documents_are_not(path: str) -> None:
    assert not is_suspicious(path)


def test_a_file_is_referred_to_by_its_name_and_not_by_a_part_of_another() -> None:
    assert is_referred_to("data/x.out", ["open('data/x.out')"])
    assert is_referred_to("scratch.py", ["from scratch import f"])
    assert not is_referred_to("x.out", ["open('max.out')", "x.output"])


def test_a_price_is_the_configured_one_then_that_of_the_table_then_unknown() -> None:
    own = Price(in_usd=1, out_usd=2)
    assert price_of("gpt-5", {"gpt-5": own}) is own
    assert price_of("anthropic/claude-sonnet-4.5", {}) == PRICES["claude-sonnet-4-5"]
    assert price_of("claude-haiku-4-5-20251001", {}) == price_of("claude-haiku-4-5", {})
    assert price_of("qwen-of-my-own", {}) is None and price_of("", {}) is None


def test_an_unknown_cost_is_never_zero() -> None:
    usage = Usage(tokens_in=184_064, tokens_out=12)
    assert format_cost(usage, priced=False) == "unknown (184,064 tokens in, 12 out)"
    assert format_cost(usage, priced=True) == "0.0000 USD"
