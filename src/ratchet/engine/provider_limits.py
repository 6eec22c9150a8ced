"""Limits how many agents of one provider and key work at once, over all hosts of the store.

A slot is held under the run's lease, so that those of dead hosts become free with their leases. A worker that finds no
free slot waits.
"""

from __future__ import annotations

import asyncio
import hashlib
import random
import re
import secrets
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager

from ratchet.agents.protocol import Agent, TurnFailed, TurnResult
from ratchet.config import QuotaConfig
from ratchet.core.failure import Reason
from ratchet.core.lease import Lease
from ratchet.engine.blocking import run_blocking
from ratchet.store.protocols import ProviderSlots

LIMITED = (Reason.RATE_LIMITED, Reason.OVERLOADED)
POLL_S = 0.5
_KEYS = ("_KEY", "_TOKEN")  # endings of the variables that hold one


class ProviderLimits:
    """The slots that one run takes."""

    def __init__(self, store: ProviderSlots, lease: Lease, quota: QuotaConfig) -> None:
        self._store, self._lease, self._quota = store, lease, quota

    @asynccontextmanager
    async def slot(self, agent: Agent, env: Mapping[str, str]) -> AsyncIterator[Callable[[TurnResult], None]]:
        """Hold a slot of the agent's provider. Call the yielded function with the result of the turn."""
        provider = account_of(agent, env)
        if not (self._quota.concurrency and provider):
            yield lambda _outcome: None
            return
        slot, outcomes = f"slot-{secrets.token_hex(12)}", list[TurnResult]()
        try:
            while not await self._take(provider, slot):  # noqa: ASYNC110 — other processes hold the slots
                await asyncio.sleep(POLL_S * random.uniform(0.5, 1.5))  # noqa: S311 — nothing secret
            yield outcomes.append
        finally:
            refused = any(map(is_limit, outcomes))
            await run_blocking(self._store.free_slot, provider, slot, refused=refused)

    async def _take(self, provider: str, slot: str) -> bool:
        quota = self._quota
        return await run_blocking(
            self._store.take_slot, self._lease, provider, slot, limit=quota.concurrency, quiet_s=quota.quiet_s
        )


def is_limit(outcome: TurnResult) -> bool:
    return isinstance(outcome, TurnFailed) and outcome.reason in LIMITED


def account_of(agent: Agent, env: Mapping[str, str]) -> str:
    """Return the agent's provider with a fingerprint of the keys that it gets: other keys have limits of their own."""
    provider = provider_of(agent.name)
    names: tuple[str, ...] = getattr(getattr(agent, "program", None), "variables", ())
    keys = [f"{name}={env[name]}" for name in sorted(names) if name.endswith(_KEYS) and env.get(name)]
    mark = hashlib.sha256("\n".join(keys).encode()).hexdigest()[:12] if keys else ""
    return f"{provider}:{mark}" if provider and mark else provider


def provider_of(agent: str) -> str:
    """Return the provider of an agent, guessed from its program: `claude:opus` and `claude` share one.

    A scripted agent has none.
    """
    kind, _, rest = agent.partition(":")
    if kind == "scripted":
        return ""
    name = f"{kind}-{rest.split(' ')[0]}" if kind in ("acp", "command", "line") else kind
    return re.sub(r"[^\w.-]", "_", name)[:100]
