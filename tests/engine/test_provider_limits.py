"""Slots of a provider as a run takes them: given back in any case, and waited for."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ratchet.agents.protocol import TurnFailed, TurnFinished, TurnResult
from ratchet.config import QuotaConfig
from ratchet.core.failure import Reason
from ratchet.core.lease import Lease
from ratchet.core.rate_limit import ProviderUse
from ratchet.engine.provider_limits import ProviderLimits, account_of, provider_of
from ratchet.process.spawn import this_process
from ratchet.store.protocols import Store, open_store
from tests.contract.test_store import item

LIMITED = TurnFailed(reason=Reason.RATE_LIMITED, detail="429")
CLAUDE: Any = SimpleNamespace(name="claude:opus", program=SimpleNamespace(variables=("ANTHROPIC_API_KEY", "HOST")))


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = open_store(tmp_path / "ratchet.db")
    yield opened
    opened.close()


@pytest.fixture
def lease(store: Store) -> Lease:
    store.add(item())
    return store.claim(item().id, run="run-1", holder=this_process(), ttl_s=600)


def uses(store: Store) -> ProviderUse:
    [found] = store.provider_uses()
    return found


async def ask(limits: ProviderLimits, outcome: TurnResult) -> None:
    async with limits.slot(CLAUDE, {}) as report:
        report(outcome)


def test_a_refusal_halves_and_success_does_not(store: Store, lease: Lease) -> None:
    limits = ProviderLimits(store, lease, QuotaConfig(concurrency=8))
    asyncio.run(ask(limits, TurnFinished(text="")))
    assert uses(store) == ProviderUse(provider="claude", limit=8, held=0)
    asyncio.run(ask(limits, LIMITED))
    assert uses(store) == ProviderUse(provider="claude", limit=4, held=0)


def test_an_agent_waits_for_a_slot(store: Store, lease: Lease) -> None:
    async def two() -> list[str]:
        limits, order = ProviderLimits(store, lease, QuotaConfig(concurrency=1)), list[str]()
        entered, asked = asyncio.Event(), asyncio.Event()

        async def first() -> None:
            async with limits.slot(CLAUDE, {}):
                entered.set()
                await asked.wait()
                order.append("first")

        async def second() -> None:
            await entered.wait()
            asyncio.get_running_loop().call_later(0.1, asked.set)
            async with limits.slot(CLAUDE, {}):
                order.append("second")

        await asyncio.gather(first(), second())
        return order

    assert asyncio.run(two()) == ["first", "second"]


def test_a_cancelled_call_gives_its_slot_back(store: Store, lease: Lease) -> None:
    async def cut() -> None:
        limits, entered = ProviderLimits(store, lease, QuotaConfig(concurrency=2)), asyncio.Event()

        async def asking() -> None:
            async with limits.slot(CLAUDE, {}):
                entered.set()
                await asyncio.Event().wait()

        task = asyncio.ensure_future(asking())
        await entered.wait()
        assert uses(store).held == 1
        task.cancel()
        await asyncio.wait({task})

    asyncio.run(cut())
    assert uses(store).held == 0


def test_models_of_one_program_share_a_provider_and_a_script_has_none() -> None:
    assert provider_of("claude:opus") == provider_of("claude") == "claude"
    assert provider_of("acp:goose acp") == "acp-goose" and provider_of("scripted:x.json") == ""


def test_another_key_is_another_account_and_the_store_does_not_see_it() -> None:
    one, two = (account_of(CLAUDE, {"ANTHROPIC_API_KEY": key, "HOST": "h"}) for key in ("sk-secret-1", "sk-secret-2"))
    assert one != two and one == account_of(CLAUDE, {"ANTHROPIC_API_KEY": "sk-secret-1"})
    assert one.startswith("claude:") and "secret" not in one
    assert account_of(CLAUDE, {"HOST": "h"}) == "claude"
