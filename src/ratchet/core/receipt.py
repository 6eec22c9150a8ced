"""Receipts: durable records of finished steps, never overwritten."""

from __future__ import annotations

import hashlib

import msgspec

USAGE_MAX = 10**12


class Artifact(msgspec.Struct, frozen=True, kw_only=True):
    """A file outside of the ledger: its path in the run directory and the digest of its content."""

    path: str
    sha256: str
    size: int


class Usage(msgspec.Struct, frozen=True, kw_only=True):
    tokens_in: int = 0
    tokens_out: int = 0
    cost_usd: float = 0.0
    seconds: float = 0.0

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            tokens_in=self.tokens_in + other.tokens_in,
            tokens_out=self.tokens_out + other.tokens_out,
            cost_usd=round(self.cost_usd + other.cost_usd, 6),
            seconds=round(self.seconds + other.seconds, 3),
        )

    @property
    def sane(self) -> Usage:
        """The usage without what cannot be: agents report it, and a negative number would make room in a budget."""
        return Usage(
            tokens_in=int(_sane(self.tokens_in)),
            tokens_out=int(_sane(self.tokens_out)),
            cost_usd=_sane(self.cost_usd),
            seconds=_sane(self.seconds),
        )


def _sane(value: float) -> float:
    return min(value, USAGE_MAX) if value > 0 else 0.0  # NaN is not greater than 0


def format_cost(usage: Usage, *, priced: bool) -> str:
    """Return what was paid; an unknown price is unknown, never 0."""
    if priced:
        return f"{usage.cost_usd:.4f} USD"
    known = f", {usage.cost_usd:.4f} USD of it known" if usage.cost_usd else ""
    return f"unknown ({usage.tokens_in:,} tokens in, {usage.tokens_out:,} out{known})"


class Price(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The price of a million tokens of a model, for agents that report tokens but no cost."""

    in_usd: float = 0.0
    out_usd: float = 0.0

    def of(self, usage: Usage) -> float:
        return round((usage.tokens_in * self.in_usd + usage.tokens_out * self.out_usd) / 1e6, 6)


def receipt_digest(receipt: Receipt) -> str:
    return hashlib.sha256(msgspec.json.encode(receipt)).hexdigest()


class Receipt(msgspec.Struct, frozen=True, kw_only=True):
    run: str
    item: str
    step: int
    action: str
    key: str
    outcome: str
    snapshot_before: str
    snapshot_after: str
    command_id: str
    artifacts: list[Artifact]
    events: list[int]
    usage: Usage
    created_at: str
