"""List prices of models in US dollars for a million tokens, for agents that report tokens but no cost. Pure data.

Providers change prices: `PRICES_AT` is when these were looked up, and `prices` in the configuration overrides each.
Cached input costs less than this with most providers, so a computed cost is an upper bound.
"""

from __future__ import annotations

from collections.abc import Mapping

from ratchet.core.receipt import Price

PRICES_AT = "2025-12-01"
_PER_MILLION = {
    "claude-opus-4-5": (5.0, 25.0),
    "claude-opus-4-1": (15.0, 75.0),
    "claude-opus-4": (15.0, 75.0),
    "claude-sonnet-4-5": (3.0, 15.0),
    "claude-sonnet-4": (3.0, 15.0),
    "claude-haiku-4-5": (1.0, 5.0),
    "claude-3-5-haiku": (0.8, 4.0),
    "gpt-5.1": (1.25, 10.0),
    "gpt-5.1-codex": (1.25, 10.0),
    "gpt-5.1-codex-mini": (0.25, 2.0),
    "gpt-5": (1.25, 10.0),
    "gpt-5-codex": (1.25, 10.0),
    "gpt-5-mini": (0.25, 2.0),
    "gpt-5-nano": (0.05, 0.4),
    "gpt-4.1": (2.0, 8.0),
    "gpt-4.1-mini": (0.4, 1.6),
    "gpt-4o": (2.5, 10.0),
    "gpt-4o-mini": (0.15, 0.6),
    "o3": (2.0, 8.0),
    "o4-mini": (1.1, 4.4),
    "gemini-3-pro-preview": (2.0, 12.0),
    "gemini-2.5-pro": (1.25, 10.0),
    "gemini-2.5-flash": (0.3, 2.5),
    "gemini-2.5-flash-lite": (0.1, 0.4),
}
PRICES = {model: Price(in_usd=taken_in, out_usd=out) for model, (taken_in, out) in _PER_MILLION.items()}


def price_of(model: str, configured: Mapping[str, Price]) -> Price | None:
    """Return the price of a model: as configured, else from the table; None if it is not known.

    A provider before the name (`anthropic/…`) and a date behind it (`…-20250929`, `…-2025-08-07`) are ignored.
    """
    if not model:
        return None
    if model in configured:
        return configured[model]
    name = model.rpartition("/")[2].lower().replace("claude-opus-4.", "claude-opus-4-")
    name = name.replace("claude-sonnet-4.", "claude-sonnet-4-").replace("claude-haiku-4.", "claude-haiku-4-")
    return PRICES.get(name) or PRICES.get(_without_date(name))


def _without_date(name: str) -> str:
    head, _, date = name.rpartition("-20")
    return head if head and date.replace("-", "").isdecimal() else ""
