"""A factory under load: a tiny repository, many small items, and what must be true when the queue is empty."""

from __future__ import annotations

import subprocess
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import msgspec

from ratchet.core import events as ev
from ratchet.core.budget import BudgetScope
from ratchet.core.item import Item, ItemStatus
from ratchet.core.state import RunStatus
from ratchet.process.spawn import is_gone
from ratchet.store.protocols import Store, open_store
from tests.support import APPROVED, RATCHET, git, make_repository, quick_environment

# A runner that starts in a millisecond: each test is a shell script, reported as TAP.
FILES = {
    "run.sh": 'mkdir -p "$PERL_TEST_HARNESS_DUMP_TAP/t"\nbad=0\nfor test in t/*.t; do\n'
    '  sh "$test" > "$PERL_TEST_HARNESS_DUMP_TAP/$test" || bad=1\ndone\nexit $bad\n',
    "t/base.t": "echo 1..1\necho ok 1 - base\n",
    "ratchet.toml": '[test]\ncommand = "sh run.sh"\nrunner = "prove"\npaths = ["t/**"]\n\n[sandbox]\nmode = "off"\n',
}
TEST = (
    'echo 1..1\nif [ "$(cat src/{name})" = done ]; then echo ok 1 - {name}; exit 0; fi\n'
    "echo not ok 1 - {name}\nexit 1\n"
)
COST_USD = 0.015625  # a power of two, so that sums are exact; all of a large flood is within the day's budget


def script(name: str, *, delay_s: float = 0.0) -> dict[str, list[dict[str, object]]]:
    usage = {"tokens_in": 100, "tokens_out": 10, "cost_usd": COST_USD}
    each: dict[str, object] = {"usage": usage, "delay_s": delay_s}
    return {
        "audit": [
            each | {"say": f"{name} is done", "write": {f"t/{name}.t": TEST.format(name=name)}},
            each | {"say": "REQUIREMENTS_COMPLETE"},
        ],
        "implement": [each | {"say": f"Do {name}", "write": {f"src/{name}": "done\n"}}],
        "review": [each | {"say": APPROVED}],
    }


def lay_out(folder: Path) -> Path:
    return make_repository(folder / "project", FILES)


def items(place: Path, count: int, *, delay_s: float = 0.0, footprints: bool = True) -> list[Item]:
    head = git("rev-parse", "HEAD", cwd=place)
    return [item(place, f"thing{number}", head, delay_s=delay_s, footprints=footprints) for number in range(count)]


def item(place: Path, name: str, head: str, *, delay_s: float = 0.0, footprints: bool = True) -> Item:
    path = place.parent / "scripts" / f"{name}.json"
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(msgspec.json.encode(script(name, delay_s=delay_s)))
    return Item(
        id=f"item-{name}",
        repo=str(place),
        spec=f"# {name}\n\nDo {name}.\n",
        title=name,
        base_commit=head,
        slug=f"{name}-{place.parent.name[-8:]}",
        settings=[f"agent=scripted:{path}", f"workspace.root={place.parent}/workspaces"],
        created_at="2026-01-01T00:00:00.000000Z",
        footprint=[f"src/{name}", f"t/{name}.t"] if footprints else [],
    )


def start_workers(place: Path, store: str, count: int, *args: str) -> subprocess.Popen[str]:
    argv = [*RATCHET, "worker", "--count", str(count), *args, "--set", f"store={store}", "--set", "lease_s=20"]
    log = (place.parent / "workers.log").open("a")
    env = quick_environment() | {"XDG_STATE_HOME": str(place.parent), "XDG_CACHE_HOME": str(place.parent / "cache")}
    with log:
        return subprocess.Popen(argv, cwd=place, env=env, stdout=log, stderr=log, text=True, process_group=0)


def open_world(store: str) -> Store:
    return open_store(store, is_dead=is_gone)


def check(store: Store, place: Path, expected: Iterable[Item]) -> None:
    """Every item completed exactly once, nothing held, and the money adds up."""
    expected = list(expected)
    for wanted in expected:
        row = store.item_row(wanted.id)
        assert row.status is ItemStatus.COMPLETED, (wanted.id, row)
        _check_run(store, wanted, row.run)
    rows = store.runs()
    assert len(rows) == len(expected) and all(row.holder is None for row in rows)
    assert store.locks(str(place)) == {} and store.workers(live=True) == []
    branches = git("for-each-ref", "--format=%(refname:short)", "refs/heads/ratchet", cwd=place).splitlines()
    assert sorted(branches) == sorted(f"ratchet/{wanted.slug}" for wanted in expected)
    assert store.used(BudgetScope.DAY) == store.spent(BudgetScope.DAY), "something is still reserved"


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """What a flood came to, counted from the ledgers."""

    backend: str
    disturbed: str
    items: int
    workers: int
    killed: int
    seconds: float
    claims: int
    returns: int
    resumed: int
    cost_usd: float
    spent_usd: float


def seen(store: Store, expected: Iterable[Item], *, disturbed: str, workers: int, killed: int, seconds: float) -> Seen:
    runs = [store.item_row(wanted.id).run for wanted in expected]
    events = [ev.decode(entry.kind, entry.data) for run in runs for entry in store.entries(run)]
    count = Counter(type(event) for event in events)
    return Seen(
        backend=type(store).__name__.removesuffix("Store").lower(),
        disturbed=disturbed,
        items=len(runs),
        workers=workers,
        killed=killed,
        seconds=seconds,
        claims=count[ev.RunClaimed],
        returns=count[ev.RunReturned],
        resumed=count[ev.StepResumed],
        cost_usd=sum(event.cost_usd for event in events if isinstance(event, ev.UsageMetered)),
        spent_usd=store.spent(BudgetScope.DAY).cost_usd,
    )


def _check_run(store: Store, wanted: Item, run: str) -> None:
    events = [ev.decode(entry.kind, entry.data) for entry in store.entries(run)]
    assert sum(isinstance(event, ev.RunCompleted) for event in events) == 1
    assert sum(isinstance(event, ev.StepCommitted) for event in events) == 1
    assert store.run(run).status is RunStatus.COMPLETED
    metered = [event for event in events if isinstance(event, ev.UsageMetered)]
    spent = store.spent(BudgetScope.RUN, run)
    assert spent.cost_usd == round(sum(event.cost_usd for event in metered), 6)
    assert spent.tokens == sum(event.tokens_in + event.tokens_out for event in metered)
    assert spent.seconds == round(sum(event.seconds for event in metered), 3)
    assert spent.iterations == 2, "one that made the change and one that found nothing left to do"
