"""The client and the commands: the same answers from a server as from the store, through a server's death."""

from __future__ import annotations

import asyncio
import os
import select
import signal
import socket
import socketserver
import subprocess
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import msgspec
import pytest

from ratchet.core import api
from ratchet.core import events as ev
from ratchet.core.budget import Amount, BudgetScope, Cap, Caps, Reservation
from ratchet.core.lease import Holder, Lease
from ratchet.engine.run_ledger import RunLedger
from ratchet.engine.workflow_registry import open_workflow
from ratchet.errors import Conflict, EnvironmentCannot, LeaseLost, NotFound, UsageError
from ratchet.interfaces.cli import main
from ratchet.interfaces.http.client import HttpClient
from ratchet.interfaces.http.event_stream import START
from ratchet.interfaces.terminal.live_view import ignore_event
from ratchet.paths import user_state
from ratchet.store.protocols import open_store
from ratchet.store.remote.store import open_remote_store
from ratchet.store.run_directory import RunDirectory
from tests.interfaces.http.serving import TOKEN, Served, add, ending, repo_path, serving
from tests.support import RATCHET, quick_environment, ratchet

HOLDER = Holder(worker="w", machine="m", pid=1, born="1")
WORK = api.NewItem(repo="owner/name", spec="# Do it")


@contextmanager
def real_server(folder: Path, port: int = 0) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """`ratchet serve` itself, in a process of its own."""
    child = subprocess.Popen(
        [*RATCHET, "serve", "--json", "--workers", "0", "--port", str(port)],
        cwd=folder,
        env=quick_environment() | {"RATCHET_TOKEN": TOKEN, "XDG_STATE_HOME": str(folder / "state")},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert child.stdout
    try:
        assert select.select([child.stdout], [], [], 30)[0], "it did not start"
        reported = ""
        while not reported.rstrip().endswith("}"):
            reported += child.stdout.readline()
        yield child, int(msgspec.json.decode(reported)["server"].rpartition(":")[2])
    finally:
        child.kill()
        child.wait()
        child.stdout.close()


def test_a_server_that_is_killed_and_started_again_loses_nothing_and_doubles_nothing(tmp_path: Path) -> None:
    """Clients with open requests wait for it; each request counts once, whether its response arrived or not."""
    added: list[str] = []
    with real_server(tmp_path) as (first, port), HttpClient(f"http://127.0.0.1:{port}", token=TOKEN) as client:
        client.add(WORK)
        worker = client.worker(client.register(HOLDER).assignment or pytest.fail("no work"))
        worker.append([{"kind": "run_claimed", "worker": "w"}], after=0)
        hearing = client.events(START)
        assert next(hearing).entry.seq == 1

        def keep_adding() -> None:
            with HttpClient(f"http://127.0.0.1:{port}", token=TOKEN) as own:
                added.extend(own.add(WORK).row.item.id for _ in range(30))

        adding = [threading.Thread(target=keep_adding) for _ in range(3)]
        for thread in adding:
            thread.start()
        os.kill(first.pid, signal.SIGKILL)
        first.wait()
        with real_server(tmp_path, port):
            worker.append([{"kind": "run_claimed", "worker": "w"}], after=1)
            assert worker.heartbeat().stop == ""
            assert next(hearing).entry.seq == 2
            hearing.close()
            worker.append(ending(), after=2)
            assert worker.complete(commits=1, head="h").changed
            for thread in adding:
                thread.join()
            rows = client.queue(api.QueueQuery(limit=500)).rows
    assert len(added) == 90 and len(set(added)) == 90
    assert {row.item.id for row in rows} == {*added, worker.assignment.item.id}


def test_sigterm_ends_the_server_with_zero_and_streams_with_it(tmp_path: Path) -> None:
    with real_server(tmp_path) as (child, port), HttpClient(f"http://127.0.0.1:{port}", token=TOKEN) as client:
        client.add(WORK)
        worker = client.worker(client.register(HOLDER).assignment or pytest.fail("no work"))
        worker.append([{"kind": "run_claimed", "worker": "w"}], after=0)
        hearing = client.events(START)
        next(hearing)
        child.terminate()
        assert child.wait(20) == 0
        hearing.close()


def test_a_port_in_use_is_reported_with_a_hint(served: Served, tmp_path: Path) -> None:
    done = ratchet("serve", "--workers", "0", "--port", str(served.port), cwd=tmp_path, RATCHET_TOKEN=TOKEN)
    assert done.returncode == 3 and "cannot listen" in done.stderr and "--port" in done.stderr


def test_patience_ends(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentCannot, match="cannot reach"):
        HttpClient("http://127.0.0.1:9", token=TOKEN, patience_s=0.1).status()
    with pytest.raises(UsageError):
        HttpClient("localhost:8484", token=TOKEN)


def test_only_what_may_come_again_is_sent_again(served: Served) -> None:
    """[22]: an error whose text held a 4 was never retried. Here the status decides, and codes become our errors."""
    with served.client() as client:
        with pytest.raises(NotFound):
            client.get("item-404")
        mine = client.worker(_assigned(client))
        with pytest.raises(Conflict):
            client.requeue(mine.assignment.item.id)
        client.kill(mine.assignment.worker, api.Requester(by="me"))
        with pytest.raises(LeaseLost):
            mine.heartbeat()
        with pytest.raises(UsageError):
            client.run("../../etc")


def _assigned(client: HttpClient) -> api.Assignment:
    client.add(WORK)
    return client.register(HOLDER).assignment or pytest.fail("no work")


def test_the_client_knows_every_answer(served: Served, tmp_path: Path) -> None:
    with served.client() as client:
        mine = client.worker(_assigned(client))
        assert client.queue(api.QueueQuery(status=None)).rows[0].item.id == mine.assignment.item.id
        assert client.status().workers == 1 and client.health().store
        assert mine.lock(["a"]).paths == ["a"] and mine.unlock().paths == []
        assert mine.stuck("?").retry is None
        assert client.logs(mine.assignment.worker).worker.status == "stuck"
        assert mine.release().changed
        assert client.workers(api.WorkersQuery(live=True)).workers == []
        assert client.runs(api.RunsQuery()).runs[0].run == client.run(mine.assignment.run).row.run
        assert client.diff(mine.assignment.run).diff == ""
        assert client.ledger(mine.assignment.run, api.LedgerQuery()).entries == []
        assert client.nudge(mine.assignment.item.id, api.Nudge(message="use Decimal")).run == mine.assignment.run
        assert client.inbox().entries == []
        assert client.cancel(mine.assignment.item.id, api.Requester(by="me")).cancelled == "done"
        assert client.metrics().completed_today == 0
        assert client.register(HOLDER) == api.RegisterResponse(why="empty")


def test_commands_answer_the_same_from_a_server_and_from_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    place = Path(repo_path(tmp_path))
    monkeypatch.chdir(place)
    monkeypatch.setenv("RATCHET_TOKEN", TOKEN)
    store = open_store(user_state() / "ratchet.db")
    with serving(store) as served:
        name = add(served, priority="high")["item"]["id"]
        add(served, priority="low")

        add(served, repo="o/n", spec="# Do it", source="github", source_ref="1")

        def output(*words: str) -> tuple[int, list[str], str]:
            code = main(words)
            out, err = capsys.readouterr()
            return code, _ageless(out), err

        for words in (
            ["queue"],
            ["queue", "--limit", "1"],
            ["queue", "--limit", "1", "--json"],
            ["queue", "--limit", "1", "--all", "--priority", "low"],
            ["queue", "--after", "completed@1:x"],
            ["add", "-d", "Do it", "--key", "no key"],
            ["add", "-d", "Do it", "--key", "a\nb"],
            ["add", "-d", "Do it", "--to", "o/n", "--source", "github", "--source-ref", "1", "--key", "same"],
            ["queue", "--json", "--all"],
            ["queue", "--status", "queued", "--priority", "low"],
            ["workers"],
            ["workers", "--all", "--json"],
            ["requeue", name],
            ["cancel", "item-none"],
            ["kill", "worker-none"],
            ["metrics", "--since", "7d", "--by", "repo"],
        ):
            assert output(*words, "--server", served.url) == output(*words), words
        assert output("cancel", name, "--server", served.url)[1] == [name, "cancelled"]
        assert output("cancel", name)[1] == [name, "has", "already", "finished"]
    store.close()


def test_every_open_item_is_on_a_page_and_the_next_page_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(repo_path(tmp_path))
    for name in ("one", "two", "three", "four"):
        assert main(["add", "-d", name, "--to", "o/n"]) == 0
    one = capsys.readouterr().out.split()[0]
    assert main(["add", "-d", "five", "--title", "five", "--to", "o/n", "--needs", one]) == 0
    assert main(["cancel", one]) == 0
    capsys.readouterr()
    for limit, pages in ((3, [["two", "three", "four"], ["five"]]), (2, [["two", "three"], ["four", "five"]])):
        words = ["queue", "--to", "o/n", "--limit", f"{limit}"]
        for titles in pages:
            assert main(words) == 0
            output = capsys.readouterr().out
            _, *rows = output.partition("\n\n")[0].splitlines()
            assert [row.split()[4] for row in rows] == titles
            assert (f"More: ratchet queue --to o/n --limit {limit} --after " in output) is (titles is pages[0])
            words = output.splitlines()[-1].split()[2:]


@pytest.mark.parametrize(
    "words",
    [
        ["queue", "--limit", "0"],
        ["queue", "--limit", "501"],
        ["workers", "--limit", "-1"],
        ["worker", "--count", "0"],
        ["worker", "--count", "-2"],
        ["serve", "--workers", "-1"],
        ["serve", "--port", "99999"],
        ["top", "--every", "-1"],
        ["top", "--every", "nan"],
        ["top", "--every", "0"],
    ],
)
def test_a_number_out_of_range_is_rejected(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 2 and "is not a number from" in capsys.readouterr().err


def _ageless(text: str) -> list[str]:
    return [word for word in text.split() if not (word.endswith("s") and word[:-1].isdigit())]


def test_top_shows_the_factory_once_and_as_lines(tmp_path: Path) -> None:
    place = Path(repo_path(tmp_path))
    assert ratchet("add", "-d", "Do \x1b[31mit", cwd=place).returncode == 0
    once = ratchet("top", "--once", cwd=place).stdout
    assert "local store" in once and "1 waiting" in once and "Do  [31mit" in once and "No worker" in once
    child = subprocess.Popen([*RATCHET, "top", "--every", "0.05"], cwd=place, stdout=subprocess.PIPE, text=True)
    assert child.stdout
    assert "queued=1" in child.stdout.readline() and "queued=1" in child.stdout.readline()
    child.terminate()
    child.wait(20)
    child.stdout.close()


def test_an_invalid_add_is_rejected_before_anything_is_queued(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(repo_path(tmp_path))
    for words in (["add"], ["add", "x.md", "-d", "both"]):
        assert main(words) == 2
    for wrong in ("0", "-1", "201"):
        assert main(["add", "-d", "x", "--max-iterations", wrong]) == 2
    assert main(["add", "-d", "x", "--to", "ext::sh -c id"]) == 2
    capsys.readouterr()
    assert main(["queue"]) == 0
    assert "The queue is empty" in capsys.readouterr().out


def test_how_long_low_priority_waits_is_configured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(repo_path(tmp_path))
    for aging, first in (("0", "high"), ("0.000001", "low")):
        assert main(["add", "-d", f"low {aging}", "--priority", "low", "--set", f"aging_s={aging}"]) == 0
        assert main(["add", "-d", f"high {aging}", "--priority", "high", "--set", f"aging_s={aging}"]) == 0
        capsys.readouterr()
        assert main(["queue"]) == 0
        rows = [row for row in capsys.readouterr().out.splitlines() if row.endswith(f" {aging}")]
        assert first in rows[0], rows


class _LosesResponses(socketserver.ThreadingTCPServer):
    """A proxy that closes the connection of the first request for each of `paths` after the server has answered it."""

    daemon_threads, block_on_close = True, False

    def __init__(self, server: tuple[str, int], *paths: bytes) -> None:
        super().__init__(("127.0.0.1", 0), _Connection)
        self.onward, self.paths, self.lost = server, [*paths], list[bytes]()


class _Connection(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        proxy = self.server
        assert isinstance(proxy, _LosesResponses)
        seen = b""
        with socket.create_connection(proxy.onward) as onward:
            while True:
                for end in select.select([self.request, onward], [], [])[0]:
                    if not (data := end.recv(65_536)):
                        return
                    if end is self.request:
                        seen += data
                        onward.sendall(data)
                    elif lost := [path for path in proxy.paths if path in seen]:
                        proxy.paths.remove(lost[0])
                        proxy.lost.append(lost[0])
                        return
                    else:
                        seen = b""
                        self.request.sendall(data)


@contextmanager
def losing_responses(served: Served, *paths: bytes) -> Iterator[tuple[str, list[bytes]]]:
    """Yield the address of a proxy that loses a response to each path, and the paths of which it has."""
    proxy = _LosesResponses(("127.0.0.1", served.port), *paths)
    threading.Thread(target=proxy.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{proxy.server_address[1]}", proxy.lost
    finally:
        proxy.shutdown()
        proxy.server_close()


def add_two(served: Served) -> list[str]:
    with served.client() as direct:
        return [direct.add(msgspec.structs.replace(WORK, spec=f"# {name}")).row.item.id for name in ("one", "two")]


def test_requests_whose_response_is_lost_are_executed_once(served: Served) -> None:
    add_two(served)
    with losing_responses(served, b"/register", b"/stuck", b"/events") as (url, lost):
        with HttpClient(url, token=TOKEN) as client:
            mine = client.worker(client.register(HOLDER).assignment or pytest.fail("no work"))
            assert mine.stuck("no progress").retry is None
            assert [entry.seq for entry in mine.append([{"kind": "step_resumed", "step": 1}], after=0).entries] == [1]
            assert len(client.workers(api.WorkersQuery(live=True)).workers) == 1
            assert client.ledger(mine.assignment.run, api.LedgerQuery()).length == 1
        assert lost == [b"/register", b"/stuck", b"/events"]


def test_verbs_of_a_remote_store_whose_response_is_lost_are_executed_once(served: Served, tmp_path: Path) -> None:
    first, second = add_two(served)
    verbs = [f"/api/store/{name}".encode() for name in ("claim ", "claim_next", "append", "reserve", "report_stuck")]
    with losing_responses(served, *verbs) as (url, lost), closing(open_remote_store(url, token=TOKEN)) as store:
        lease = store.claim(first, run="run-1", holder=HOLDER, ttl_s=60)
        other = store.claim_next(HOLDER, run="run-2", ttl_s=60)
        assert isinstance(other, Lease) and (other.item, other.epoch) == (second, 1)
        item, directory = store.item(first), RunDirectory(tmp_path, lease.run)
        ledger = RunLedger(store, lease, item, open_workflow(item.workflow), directory, on_event=ignore_event)
        asyncio.run(ledger.append([ev.RunClaimed(worker="w")]))
        served.store.append(lease, [ev.StepResumed(step=1)])  # by somebody else meanwhile
        asyncio.run(ledger.append([ev.RunClaimed(worker="x")]))
        written = [entry.kind for entry in store.entries(lease.run)]
        assert written == ["run_claimed", "step_resumed", "run_claimed"]
        assert (ledger.length, ledger.state.resumes, ledger.state.worker) == (3, 1, "x")
        reserved = store.reserve(lease, Amount(tokens=5), caps=Caps(item=Cap(tokens=9)))
        assert isinstance(reserved, Reservation) and store.used(BudgetScope.RUN, lease.run).tokens == 5
        assert store.report_stuck(lease, "no progress") is None
        assert lost == verbs


def test_events_that_the_workflow_does_not_allow_are_rejected_and_the_run_stays_readable(served: Served) -> None:
    with served.client() as client:
        client.add(WORK)
        mine = client.worker(client.register(HOLDER).assignment or pytest.fail("no work"))
        claimed = {"kind": "run_claimed", "worker": "w"}
        mine.append([claimed], after=0)
        with pytest.raises(UsageError, match="cannot follow entry 1"):
            mine.append([claimed, {"kind": "step_verified", "step": 1, "gates": [], "warnings": []}], after=1)
        assert client.ledger(mine.assignment.run, api.LedgerQuery()).length == 1
        assert client.run(mine.assignment.run).state.worker == "w"
