"""What a board shows of a run, kept in one short string that is brought up to date as events are appended."""

from __future__ import annotations

from functools import singledispatch

import msgspec

from ratchet.core import events as ev
from ratchet.core.picture import Lane, is_overfitted, lane_of

SHAPE_MAX = 120


class RunCard(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """`shape` has one character for each attempt: kept, reverted, sealed, now. `since` is when the status changed."""

    shape: str = ""
    phase: str = ""
    role: str = ""
    agent: str = ""
    iteration: int = 0
    attempts: int = 0
    kept: int = 0
    cost_usd: float = 0.0
    since: str = ""
    reason: str = ""
    doubts: int = 0


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(RunCard)


def encode_card(card: RunCard) -> str:
    return _encoder.encode(card).decode()


def decode_card(text: str) -> RunCard:
    return _decoder.decode(text) if text else RunCard()


def advance(card: RunCard, at: str, event: object) -> RunCard:
    """Return the card after the next event of its run."""
    return _advance(event, card, at)


@singledispatch
def _advance(_event: object, card: RunCard, _at: str) -> RunCard:
    return card


@_advance.register
def _(_event: ev.RunClaimed, card: RunCard, at: str) -> RunCard:
    return msgspec.structs.replace(card, since=at, reason="")


@_advance.register
def _(event: ev.RunParked, card: RunCard, at: str) -> RunCard:
    return msgspec.structs.replace(card, since=at, reason=str(event.reason))


@_advance.register
def _(event: ev.RunReturned, card: RunCard, at: str) -> RunCard:
    return msgspec.structs.replace(card, since=at, reason=str(event.reason))


@_advance.register(ev.RunCompleted)
@_advance.register(ev.RunFailed)
@_advance.register(ev.RunAborted)
def _(event: ev.RunCompleted | ev.RunFailed | ev.RunAborted, card: RunCard, at: str) -> RunCard:
    reason = str(event.reason) if isinstance(event, ev.RunFailed) else ""
    return msgspec.structs.replace(_drop(card), since=at, reason=reason, phase="")


@_advance.register
def _(event: ev.StepStarted, card: RunCard, _at: str) -> RunCard:
    changes = lane_of(event.action, event.role) is Lane.CHANGE
    shape = _cut(_drop(card).shape + "n") if changes else card.shape
    return msgspec.structs.replace(
        card, shape=shape, phase=event.action, role=event.role, attempts=card.attempts + changes
    )


@_advance.register
def _(event: ev.UsageMetered, card: RunCard, _at: str) -> RunCard:
    return msgspec.structs.replace(
        card, agent=event.agent or card.agent, cost_usd=round(card.cost_usd + event.cost_usd, 6)
    )


@_advance.register
def _(event: ev.SessionOpened, card: RunCard, _at: str) -> RunCard:
    return msgspec.structs.replace(card, agent=event.agent)


@_advance.register(ev.RedConfirmed)
@_advance.register(ev.TaskBegun)
@_advance.register(ev.FailuresAnalysed)
def _(_event: object, card: RunCard, _at: str) -> RunCard:
    return msgspec.structs.replace(card, iteration=card.iteration + 1, attempts=0)


@_advance.register
def _(_event: ev.SealedReplaced, card: RunCard, _at: str) -> RunCard:
    """The last change is judged again, against another sealed test: a further attempt."""
    return msgspec.structs.replace(card, shape=_cut(card.shape + "n"))


@_advance.register
def _(_event: ev.StepCommitted, card: RunCard, _at: str) -> RunCard:
    if not card.shape.endswith("n"):
        return card
    return msgspec.structs.replace(card, shape=f"{card.shape[:-1]}k", kept=card.kept + 1)


@_advance.register(ev.StepReverted)
@_advance.register(ev.RefactorReverted)
@_advance.register(ev.RevisionReverted)
def _(event: ev.StepReverted | ev.RefactorReverted | ev.RevisionReverted, card: RunCard, _at: str) -> RunCard:
    how = "s" if is_overfitted(event) else "r"
    if not event.commit:
        shape = f"{card.shape[:-1]}{how}" if card.shape.endswith("n") else card.shape
        return msgspec.structs.replace(card, shape=shape)
    before, mark, after = card.shape.rpartition("k")
    if not mark:
        return card
    return msgspec.structs.replace(card, shape=f"{before}{how}{after}", kept=card.kept - 1)


@_advance.register(ev.AttemptFailed)
@_advance.register(ev.RefactorFailed)
@_advance.register(ev.NothingChanged)
@_advance.register(ev.SpecUnchanged)
@_advance.register(ev.SpecRefused)
def _(_event: object, card: RunCard, _at: str) -> RunCard:
    return _drop(card)


@_advance.register(ev.StepVerified)
@_advance.register(ev.RevisionVerified)
def _(event: ev.StepVerified | ev.RevisionVerified, card: RunCard, _at: str) -> RunCard:
    return msgspec.structs.replace(card, doubts=card.doubts + len(event.warnings))


def _drop(card: RunCard) -> RunCard:
    """Forget an attempt that led to no judgement."""
    return msgspec.structs.replace(card, shape=card.shape[:-1]) if card.shape.endswith("n") else card


def _cut(shape: str) -> str:
    return shape[-SHAPE_MAX:]
