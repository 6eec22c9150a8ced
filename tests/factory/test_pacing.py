"""Places among those who ask one provider: given, given back, halved, and never lost with a process."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec

from ratchet.agents import Answered, Failed, Finished
from ratchet.config import QuotaConfig
from ratchet.core.failure import Reason
from ratchet.core.lease import Holder
from ratchet.core.pace import Pace
from ratchet.pacing import Book, Paces, provider_of
from ratchet.process import this_process

LIMITED = Failed(reason=Reason.RATE_LIMITED, detail="429")


def book(folder: Path) -> Book:
    return msgspec.json.decode((folder / "claude.json").read_bytes(), type=Book)


async def asked(paces: Paces, outcome: Answered) -> None:
    async with paces.asking("claude:opus") as told:
        told(outcome)


def test_a_refusal_halves_and_success_does_not(tmp_path: Path) -> None:
    paces = Paces(tmp_path, QuotaConfig(concurrency=8))
    asyncio.run(asked(paces, Finished(text="")))
    assert book(tmp_path).pace.limit == 8
    asyncio.run(asked(paces, LIMITED))
    assert book(tmp_path).pace.limit == 4 and book(tmp_path).holders == []


def test_who_finds_no_place_waits_for_one_and_a_dead_holders_is_free(tmp_path: Path) -> None:
    async def two() -> list[str]:
        paces, order = Paces(tmp_path, QuotaConfig(concurrency=1)), list[str]()
        entered = asyncio.Event()

        async def first() -> None:
            async with paces.asking("claude"):
                entered.set()
                await asyncio.sleep(0)
                order.append("first")

        async def second() -> None:
            await entered.wait()
            async with paces.asking("claude"):
                order.append("second")

        await asyncio.gather(first(), second())
        return order

    me = this_process()
    dead = Holder(worker="w", machine=me.machine, pid=2**22 - 3, born="1")
    tmp_path.joinpath("claude.json").write_bytes(msgspec.json.encode(Book(pace=Pace(limit=1, at=4e9), holders=[dead])))
    assert asyncio.run(two()) == ["first", "second"]


def test_cancelled_while_asking_gives_the_place_back(tmp_path: Path) -> None:
    async def cut() -> None:
        paces, entered = Paces(tmp_path, QuotaConfig(concurrency=2)), asyncio.Event()

        async def asking() -> None:
            async with paces.asking("claude"):
                entered.set()
                await asyncio.Event().wait()

        task = asyncio.ensure_future(asking())
        await entered.wait()
        assert len(book(tmp_path).holders) == 1
        task.cancel()
        await asyncio.wait({task})

    asyncio.run(cut())
    assert book(tmp_path).holders == []


def test_models_of_one_program_share_a_provider_and_a_script_has_none() -> None:
    assert provider_of("claude:opus") == provider_of("claude") == "claude"
    assert provider_of("acp:goose acp") == "acp-goose" and provider_of("scripted:x.json") == ""
