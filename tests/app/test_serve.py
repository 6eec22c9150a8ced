"""`ratchet serve` as a person starts it: the interface and the workers, in one command."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from ratchet.core import api
from ratchet.core.failure import Reason
from ratchet.core.item import ItemStatus
from ratchet.core.lease import Holder
from ratchet.core.queue import NoWorkReason
from ratchet.core.retry import RetryAction
from ratchet.interfaces.http.client import HttpClient
from tests.app import flood
from tests.support import RATCHET, git, quick_environment

TOKEN = "a-token-of-our-choice"


@contextmanager
def serving(place: Path, *args: str, open_files: tuple[int, ...] = ()) -> Iterator[tuple[subprocess.Popen[str], str]]:
    env = quick_environment() | {
        "RATCHET_TOKEN": TOKEN,
        "XDG_STATE_HOME": str(place.parent),
        "XDG_CACHE_HOME": str(place.parent / "cache"),
    }
    argv = [*RATCHET, "serve", "--json", "--port", "0", *args, "--set", f"store={place.parent}/ratchet.db"]
    with subprocess.Popen(argv, cwd=place, env=env, stdout=subprocess.PIPE, text=True, pass_fds=open_files) as server:
        assert server.stdout
        lines: list[str] = []
        while not (lines and lines[-1].startswith("}")):
            line = server.stdout.readline()
            assert line, "the server ended"
            lines.append(line)
        try:
            yield server, json.loads("".join(lines))["server"]
        finally:
            server.kill()


def work(place: Path, name: str) -> api.NewItem:
    made = flood.item(place, name, git("rev-parse", "HEAD", cwd=place))
    return api.NewItem(repo=str(place), spec=made.spec, settings=made.settings)


def until(address: str, item: str, wanted: ItemStatus) -> None:
    """Hears of every event: the one that ends the run is the one that moves the item."""
    with asking(address) as client, asking(address) as listening, closing(listening.events()) as events:
        for _received in events:
            if client.get(item).status is wanted:
                return


def asking(address: str) -> closing[HttpClient]:
    return closing(HttpClient(address, token=TOKEN))


def test_what_is_added_to_a_server_is_done_by_its_own_workers(tmp_path: Path) -> None:
    place = flood.lay_out(tmp_path)
    with serving(place, "--workers", "1") as (server, address):
        with asking(address) as client:
            item = client.add(work(place, "thing")).row.item
        until(address, item.id, ItemStatus.COMPLETED)
        server.send_signal(signal.SIGTERM)
        assert server.wait(60) == 0
    assert f"ratchet/{item.slug}" in git("branch", "--list", "ratchet/*", cwd=place)


def test_a_server_killed_in_the_middle_loses_nothing_when_it_is_started_again(tmp_path: Path) -> None:
    place = flood.lay_out(tmp_path)
    with serving(place, "--workers", "1") as (server, address):
        with asking(address) as client:
            items = [client.add(work(place, name)).row.item.id for name in ("one", "two")]
            with closing(client.events()) as events:
                next(events)
        os.kill(server.pid, signal.SIGKILL)
    with serving(place, "--workers", "1") as (_, address):
        for item in items:
            until(address, item, ItemStatus.COMPLETED)


def test_limits_of_a_server_apply_to_remote_workers(tmp_path: Path) -> None:
    place = flood.lay_out(tmp_path)
    holder = Holder(worker="w", machine="m", pid=1, born="1")
    with serving(place, "--workers", "0", "--set", "limits.workers=1") as (_, address), asking(address) as client:
        for name in ("one", "two"):
            client.add(work(place, name))
        assert client.register(holder).assignment
        refused = client.register(holder)
        assert refused.assignment is None and refused.why == NoWorkReason.WORKERS
        assert client.status().uptime_s > 0


def test_retry_delays_of_a_server_apply_to_remote_workers(tmp_path: Path) -> None:
    place = flood.lay_out(tmp_path)
    holder = Holder(worker="w", machine="m", pid=1, born="1")
    with (
        serving(place, "--workers", "0", "--set", "worker.retry_s=[7]") as (_, address),
        asking(address) as client,
    ):
        item = client.add(work(place, "one")).row.item.id
        given = client.register(holder).assignment
        assert given
        again = client.worker(given).fail(Reason.AGENT_CRASHED, "boom").retry
        assert again and (again.after, again.delay_s) == (RetryAction.RETRY, 7)
        assert client.requeue(item).attempts == 0
        given = client.register(holder).assignment
        assert given
        mine = client.worker(given)
        assert mine.stuck("?").retry is None
        again = mine.stuck("?").retry
        assert again and (again.after, again.delay_s) == (RetryAction.RETRY, 7)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_server_passes_on_nothing_that_its_parent_left_open(tmp_path: Path) -> None:
    place = flood.lay_out(tmp_path)
    folder = os.open(place, os.O_RDONLY)
    try:
        with serving(place, "--workers", "0", open_files=(folder,)) as (server, _):
            known = Path(f"/proc/{server.pid}/fdinfo/{folder}").read_text()
    finally:
        os.close(folder)
    flags = int(known.partition("flags:")[2].split()[0], 8)
    assert flags & os.O_CLOEXEC
