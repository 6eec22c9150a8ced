"""Receipts: the durable record of a finished step. Never overwritten."""

from __future__ import annotations

import hashlib

import msgspec


class Artifact(msgspec.Struct, frozen=True, kw_only=True):
    """A file too large for the ledger, named by path in the run directory and by its content."""

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


class Price(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a million tokens of a model cost, for agents that count tokens and not money."""

    in_usd: float = 0.0
    out_usd: float = 0.0

    def of(self, usage: Usage) -> float:
        return round((usage.tokens_in * self.in_usd + usage.tokens_out * self.out_usd) / 1e6, 6)


def digest(receipt: Receipt) -> str:
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
