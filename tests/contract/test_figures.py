"""Figures on every backend: counted as the ledgers grow, they equal a full recount."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta

import pytest

from ratchet.core import events as ev
from ratchet.core.figures import EVER, FOREVER, GROUPINGS, Tally, recount
from ratchet.core.lease import Lease
from ratchet.core.metrics import FiguresQuery
from ratchet.core.timestamps import format_timestamp
from ratchet.errors import NotFound
from ratchet.store.protocols import Store
from tests.contract.servers import World
from tests.contract.test_queue import finish, named, take
from tests.core.random_runs import ledger

Groups = dict[tuple[str, ...], Tally]
Recorded = dict[str, list[tuple[str, object]]]


def figures(store: Store, by: Sequence[str], since: str = EVER, until: str = FOREVER, repo: str = "") -> Groups:
    found = store.figures(FiguresQuery(since=since, until=until, by=list(by), repo=repo))
    return {tuple(one.group[name] for name in by): one.tally for one in found}


def recounted(store: Store, runs: Iterable[str], by: Sequence[str]) -> Groups:
    """Group what the pure fold counts in the whole ledgers."""
    found: Groups = {}
    for run in runs:
        events = [(entry.at, ev.decode(entry.kind, entry.data)) for entry in store.entries(run)]
        for key, tally in recount(events).items():
            at = datetime.fromisoformat(key.slot).replace(tzinfo=UTC).astimezone()
            values = {**key._asdict(), "run": run, "day": f"{at:%Y-%m-%d}", "hour": f"{at:%Y-%m-%d %H}:00"}
            group = tuple(str(values[name]) for name in by)
            found[group] = found.get(group, Tally()) + tally
    return found


def append_random(store: Store, lease: Lease, chance: random.Random) -> list[ev.Event]:
    """Append the ledger of a random run in pieces. Returns what is left: its last piece, which may end it."""
    events = [event for _, event in ledger(chance)]
    # An event that ends the lease comes last, or nothing more could be written.
    left = [event for event in events if not isinstance(event, ev.RunParked | ev.RunReturned | ev.RunAborted)]
    left = left[1:] if store.run(lease.run).length else left  # a run starts once, and may be claimed again
    while len(left) > 3:
        size = chance.randrange(1, 4)
        piece, left = left[:size], left[size:]
        if any(isinstance(event, ev.RunCompleted | ev.RunFailed) for event in piece):
            return piece
        store.append(lease, piece)
    return left


def write_runs(world: World, store: Store, seeds: Iterable[int], *, read: Sequence[str] | None = None) -> list[str]:
    """Write random runs, interleaved; figures are read in between."""
    chance, runs = random.Random(7), []
    for seed in seeds:
        store.add(named(f"i{seed}"))
        lease = take(store, f"{seed}")
        runs.append(lease.run)
        store.append(lease, append_random(store, lease, random.Random(seed)))
        world.pass_time(chance.randrange(3_000))
        if read is not None and chance.random() < 0.3:
            figures(store, read)
    return [*dict.fromkeys(runs)]  # an unfinished run is claimed again after its lease


@pytest.mark.parametrize("by", [(), ("repo", "workflow"), ("agent", "model", "role"), ("day",), ("hour", "worker")])
def test_figures_equal_a_recount_of_the_ledgers(world: World, store: Store, by: tuple[str, ...]) -> None:
    runs = write_runs(world, store, range(12), read=by)
    assert figures(store, by) == (recounted(store, runs, by) or {(): Tally()})


@pytest.mark.certify
@pytest.mark.timeout(3_600)
def test_figures_equal_a_recount_after_ten_thousand_random_runs(world: World, store: Store) -> None:
    if world.backend != "sqlite":
        pytest.skip("one store is enough: the others run the same code, and the test above")
    runs = write_runs(world, store, range(10_000), read=())
    for by in ((), ("repo", "workflow"), ("agent", "model", "role"), ("day",), ("run",), ("worker", "iteration")):
        assert figures(store, by) == recounted(store, runs, by)


def test_every_grouping_adds_up_to_the_same_total(world: World, store: Store) -> None:
    write_runs(world, store, range(6))
    (total,) = figures(store, ()).values()
    assert total.calls
    for name in GROUPINGS:
        assert sum(figures(store, (name,)).values(), Tally()) == total, name


def test_readers_that_count_at_the_same_time_count_everything_once(world: World, store: Store) -> None:
    runs = write_runs(world, store, range(8))
    others = [world.open() for _ in range(3)]
    readers = [threading.Thread(target=figures, args=(one, ("run",))) for one in [store, *others] * 2]
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join()
    assert figures(store, ("run",)) == recounted(store, runs, ("run",))


def test_a_window_holds_what_happened_in_it(world: World, store: Store) -> None:
    store.add_all([named("a"), named("b")])
    finish(store, take(store, "1"))
    between = world.now + timedelta(hours=1)
    world.pass_time(7_200)
    finish(store, take(store, "2"))
    at = format_timestamp(between)
    (before,), (after,) = figures(store, (), until=at).values(), figures(store, (), since=at).values()
    assert (before.completed, after.completed) == (1, 1)
    assert figures(store, ("run",), since=at, until=at) == {}


def test_figures_of_one_repository_are_its_own(world: World, store: Store) -> None:
    write_runs(world, store, range(8))
    by_repo = figures(store, ("repo",))
    assert len(by_repo) > 1
    for (repo,), tally in by_repo.items():
        assert figures(store, (), repo=repo) == {(): tally}


def test_the_figures_of_a_removed_run_stay(world: World, store: Store) -> None:
    """Also when nobody read them before."""
    store.add_all([named("a"), named("b")])
    first = take(store, "1")
    store.append(first, [ev.UsageMetered(step=1, role="r", agent="a", cost_usd=0.5)])
    finish(store, first)
    finish(store, take(store, "2"))
    before = recounted(store, [first.run], ("run",))
    store.forget_run(first.run)
    with pytest.raises(NotFound):
        store.run(first.run)
    assert figures(store, ("run",))[(first.run,)] == before[(first.run,)]


def test_figures_that_older_code_counted_are_counted_again(
    world: World, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    if world.backend == "remote":
        pytest.skip("its server counts")
    runs = write_runs(world, store, range(3))
    before = figures(store, ("run",))
    monkeypatch.setattr("ratchet.store.metrics.VERSION", 99)
    assert figures(store, ("run",)) == before == recounted(store, runs, ("run",))
