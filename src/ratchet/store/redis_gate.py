"""A gate in Redis, in front of the database: turns callers away that the database would refuse, before they ask it.

It decides nothing: what it admits, the database still refuses or grants. So a Redis that is down, was emptied or holds
old content costs requests to the database, never a limit. What it holds expires by itself.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any, Protocol

from ratchet.errors import EnvironmentCannot

SLOT_MS = 120_000  # of a host that died
ROOM_MS = 1_000  # how long a refusal of the database is believed
TIMEOUT_S = 0.25
PAUSE_S = 5.0  # without Redis, after a request that failed
REFUSED_MAX_S = 30.0

# A place in the set is a slot that is held or being asked for; its score is when it is forgotten.
_ADMIT = """
local now = redis.call('TIME')
now = now[1] * 1000 + math.floor(now[2] / 1000)
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now)
local limit = math.min(tonumber(ARGV[2]), tonumber(redis.call('GET', KEYS[2]) or ARGV[2]))
if not redis.call('ZSCORE', KEYS[1], ARGV[1]) and redis.call('ZCARD', KEYS[1]) >= limit then return 0 end
redis.call('ZADD', KEYS[1], now + ARGV[3], ARGV[1])
redis.call('PEXPIRE', KEYS[1], ARGV[3])
return 1
"""
_LEAVE = """
redis.call('ZREM', KEYS[1], ARGV[1])
if ARGV[2] ~= '' then redis.call('SET', KEYS[2], ARGV[2], 'PX', ARGV[3]) end
"""


class AdmissionGate(Protocol):
    """Turns callers away that the database would refuse. May always admit."""

    def admit(self, provider: str, slot: str, limit: int) -> bool:
        """Whether to ask the database for this slot."""
        ...

    def leave(self, provider: str, slot: str, *, room: int | None = None) -> None:
        """The slot is free again, or was refused by the database, where `room` slots are held."""
        ...

    def refusal(self, claims: str) -> str:
        """Return why no claim of this kind can succeed now, as `refuse` recorded it; empty if that is not known."""
        ...

    def refuse(self, claims: str, why: str, seconds: float) -> None:
        """Record that no claim of this kind can succeed for `seconds`: a cooldown or a daily limit."""
        ...


class _NoGate:
    def admit(self, provider: str, slot: str, limit: int) -> bool:  # noqa: ARG002
        return True

    def leave(self, provider: str, slot: str, *, room: int | None = None) -> None:
        pass

    def refusal(self, claims: str) -> str:  # noqa: ARG002
        return ""

    def refuse(self, claims: str, why: str, seconds: float) -> None:
        pass


NO_GATE: AdmissionGate = _NoGate()


class RedisGate:
    """The gate of one store: `name` keeps the stores that share a Redis apart."""

    def __init__(self, url: str, name: str) -> None:
        redis = _import_redis()
        self._redis = redis.Redis.from_url(
            url, socket_timeout=TIMEOUT_S, socket_connect_timeout=TIMEOUT_S, retry=None, decode_responses=True
        )
        self._error = redis.RedisError
        self._admit, self._leave = self._redis.register_script(_ADMIT), self._redis.register_script(_LEAVE)
        self._name, self._down_until, self._lock = f"ratchet:{name}", 0.0, threading.Lock()

    def admit(self, provider: str, slot: str, limit: int) -> bool:
        keys = self._keys(provider)
        return bool(self._ask(lambda: self._admit(keys=keys, args=[slot, limit, SLOT_MS]), otherwise=1))

    def leave(self, provider: str, slot: str, *, room: int | None = None) -> None:
        keys, seen = self._keys(provider), "" if room is None else str(room)
        self._ask(lambda: self._leave(keys=keys, args=[slot, seen, ROOM_MS]))

    def refusal(self, claims: str) -> str:
        return str(self._ask(lambda: self._redis.get(f"{self._name}:claims:{claims}")) or "")

    def refuse(self, claims: str, why: str, seconds: float) -> None:
        if (ms := int(min(seconds, REFUSED_MAX_S) * 1000)) > 0:
            self._ask(lambda: self._redis.set(f"{self._name}:claims:{claims}", why, px=ms))

    def _keys(self, provider: str) -> list[str]:
        return [f"{self._name}:slots:{provider}", f"{self._name}:room:{provider}"]

    def _ask(self, request: Callable[[], Any], *, otherwise: object = None) -> Any:
        """Call Redis, except for `PAUSE_S` after a failure: no caller waits for a Redis that is down."""
        with self._lock:
            if time.monotonic() < self._down_until:
                return otherwise
        try:
            return request()
        except self._error:
            with self._lock:
                self._down_until = time.monotonic() + PAUSE_S
            return otherwise


def open_gate(url: str, name: str) -> AdmissionGate:
    return RedisGate(url, name) if url else NO_GATE


def _import_redis() -> Any:
    try:
        import redis  # noqa: PLC0415 — optional
    except ImportError as error:
        raise EnvironmentCannot(
            f"`redis` needs its library: {error}", hint="pip install 'ratchet-factory[redis]'"
        ) from error
    return redis
