"""`GET /metrics`: held to Prometheus' own checker."""

from __future__ import annotations

import random
import shutil
import subprocess

import pytest

from ratchet.core import events as ev
from ratchet.core.item import Item
from ratchet.store.protocols import Store
from tests.contract.test_figures import append_random
from tests.contract.test_queue import take
from tests.interfaces.http.serving import Served

HOSTILE = 'a "model" \\ with\nlines'


@pytest.mark.engines
def test_promtool_finds_nothing_wrong(served: Served) -> None:
    if not (promtool := shutil.which("promtool")):
        pytest.skip("promtool is not here: scripts/engines prometheus")
    _fill(served.store)
    answer = served.ask("GET", "/metrics")
    checked = subprocess.run([promtool, "check", "metrics"], input=answer.body, capture_output=True, check=False)
    # It complains of names, too: `no help text`, counters without `_total`, units that are no base units.
    assert (checked.returncode, checked.stdout.decode() + checked.stderr.decode()) == (0, "")


def test_every_series_is_written_once_and_has_its_type(served: Served) -> None:
    _fill(served.store)
    lines = served.ask("GET", "/metrics").body.decode().splitlines()
    typed = {line.split()[2] for line in lines if line.startswith("# TYPE ")}
    series = [line.rpartition(" ")[0] for line in lines if line and not line.startswith("#")]
    assert {name.partition("{")[0] for name in series} <= typed
    assert len(series) == len(set(series))
    assert any("with\\nlines" in name for name in series), "hostile names are escaped"


def _fill(store: Store) -> None:
    for seed in range(4):
        unique = f"item-{seed}"
        store.add(
            Item(
                id=unique,
                repo="/r",
                spec="s",
                title="t",
                base_commit="c",
                slug=unique,
                created_at=f"2026-01-0{seed + 1}",
            )
        )
        lease = take(store, f"{seed}")
        store.append(lease, append_random(store, lease, random.Random(seed)))
        if seed == 3:
            store.add(
                Item(id="left", repo="/r", spec="s", title="t", base_commit="c", slug="l", created_at="2026-02-01")
            )
            other = take(store, "x")
            store.append(other, [ev.UsageMetered(step=1, role="r", agent="a", model=HOSTILE, tokens_in=5)])
