"""Workers of other hosts, each with a home, clones and state of its own; they share a server and a remote."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tarfile
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import pytest

from ratchet.app.retention import collect_garbage
from ratchet.app.run_view import RunReader
from ratchet.app.runs import RunService
from ratchet.config import Config, RetentionConfig
from ratchet.core import events as ev
from ratchet.core.item import Item, ItemStatus
from ratchet.engine.sealed_vault import KEY_VARIABLE
from ratchet.store.protocols import Store, open_store
from ratchet.workspace.git import repository
from tests.app import flood
from tests.interfaces.http.serving import TOKEN, Served, serving
from tests.support import RATCHET, git, make_repository, quick_environment, ratchet


class Hosts:
    """A server with its store, a bare repository that all hosts reach, and hosts by name."""

    def __init__(self, folder: Path, served: Served) -> None:
        self.folder, self.served = folder, served
        self.token = folder / "token"
        self.token.write_text(TOKEN)
        self.token.chmod(0o600)
        source = make_repository(folder / "source", flood.FILES)
        self.origin = folder / "origin.git"
        git("clone", "-q", "--bare", str(source), str(self.origin), cwd=folder)
        self.source, self.running = source, list[subprocess.Popen[bytes]]()

    def add(self, name: str, *, delay_s: float = 0.0, require_labels: Sequence[str] = (), branch: str = "") -> Item:
        made = flood.item(self.source, name, "", delay_s=delay_s)
        settings = [word for word in made.settings if not word.startswith("workspace.root")]
        made = msgspec.structs.replace(made, repo=f"file://{self.origin}", settings=settings, branch=branch)
        return self.served.store.add(msgspec.structs.replace(made, require_labels=list(require_labels)))

    def worker(self, host: str, *words: str, before: Sequence[str] = (), key: str = "") -> subprocess.Popen[bytes]:
        home = self.folder / host
        (home / "empty").mkdir(parents=True, exist_ok=True)
        env = quick_environment() | {
            "HOME": str(home), "XDG_STATE_HOME": str(home / "state"), "XDG_CACHE_HOME": str(home / "cache")
        } | ({KEY_VARIABLE: key} if key else {})  # fmt: skip
        server = ["--server", self.served.url, "--token-file", str(self.token)]
        argv = [*before, *RATCHET, "worker", *server, "--set", "lease_s=5", *words]
        with (self.folder / f"{host}.log").open("ab") as log:
            self.running.append(subprocess.Popen(argv, cwd=home / "empty", env=env, stdout=log, stderr=log))
        return self.running[-1]

    def ask(self, host: str, *words: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
        """Run `ratchet WORDS` on a host that knows only the server's address and token."""
        home = self.folder / host
        home.mkdir(exist_ok=True)
        server = {"RATCHET_SERVER": self.served.url, "RATCHET_TOKEN": TOKEN}
        return ratchet(*words, cwd=cwd or home, HOME=str(home), XDG_STATE_HOME=str(home / "state"), **server)

    def log(self) -> str:
        return "\n".join(path.read_text(errors="replace") for path in self.folder.glob("*.log"))

    def events(self, item: Item) -> list[ev.AnyEvent | ev.UnknownEvent]:
        run = self.served.store.item_row(item.id).run
        return [ev.decode(entry.kind, entry.data) for entry in self.served.store.entries(run)] if run else []

    def branch(self, item: Item) -> list[str]:
        return git("log", "--format=%s", f"main..ratchet/{item.slug}", cwd=self.origin).splitlines()


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[Hosts]:
    store: Store = open_store(tmp_path / "server.db")
    with serving(store, lease_s=5.0) as served:
        made = Hosts(tmp_path, served)
        yield made
        for worker in made.running:
            if worker.poll() is None:
                worker.kill()
                worker.wait()
    store.close()


def until(seen: Callable[[], object], within_s: float = 120.0, reported: Callable[[], str] = str) -> None:
    deadline = time.monotonic() + within_s
    while not seen():
        assert time.monotonic() < deadline, f"it did not happen in time: {reported()}"
        time.sleep(0.02)


def test_a_worker_with_only_a_servers_address_finishes_an_item_and_its_branch_is_on_the_remote(hosts: Hosts) -> None:
    item = hosts.add("thing")
    assert hosts.worker("one", "--once").wait(120) == 0
    assert hosts.served.store.item_row(item.id).status is ItemStatus.COMPLETED, hosts.log()
    assert hosts.branch(item) == ["Do thing"]


@pytest.mark.parametrize("step", ["verify_red", "implement", "judge", "verify", "review"])
def test_a_run_begun_on_one_host_is_finished_on_another(hosts: Hosts, step: str) -> None:
    """The first host is gone for good, with its workspace, its trees and its clone."""
    item = hosts.add("thing", delay_s=0.3)
    first = hosts.worker("one", "--once")
    until(lambda: any(isinstance(event, ev.StepStarted) and event.action == step for event in hosts.events(item)))
    os.kill(first.pid, signal.SIGKILL)
    first.wait()
    (hosts.folder / "one").rename(hosts.folder / "gone")
    hosts.worker("two")
    until(lambda: hosts.served.store.item_row(item.id).status is ItemStatus.COMPLETED, reported=hosts.log)
    events = hosts.events(item)
    assert sum(isinstance(event, ev.StepCommitted) for event in events) == 1
    assert sum(isinstance(event, ev.RunClaimed) for event in events) == 2
    assert hosts.branch(item) == ["Do thing"]


def test_an_item_that_requires_a_label_waits_for_a_worker_that_has_it(hosts: Hosts) -> None:
    item = hosts.add("thing", require_labels=["gpu"])
    assert hosts.worker("one", "--once", "--label", "arm64").wait(60) == 0
    assert hosts.served.store.item_row(item.id).status is ItemStatus.QUEUED, hosts.log()
    assert hosts.worker("two", "--once", "--label", "arm64", "--label", "gpu").wait(120) == 0
    assert hosts.served.store.item_row(item.id).status is ItemStatus.COMPLETED, hosts.log()
    assert [worker.labels for worker in hosts.served.store.workers()] == [["arm64", "gpu"]]


@pytest.mark.parametrize("key", ["the same", ""])
def test_a_run_with_sealed_tests_is_finished_on_another_host_that_has_the_key(hosts: Hosts, key: str) -> None:
    item = hosts.add("thing", delay_s=0.5)
    script = Path(item.settings[0].partition(":")[2])
    asked = msgspec.json.decode(script.read_bytes())
    asked["audit"][0]["write"]["t/thing_sealed.t"] = flood.TEST.format(name="thing")
    script.write_bytes(msgspec.json.encode(asked))
    first = hosts.worker("one", "--once", key=key)
    until(
        lambda: any(isinstance(event, ev.StepStarted) and event.action == "implement" for event in hosts.events(item))
    )
    os.kill(first.pid, signal.SIGKILL)
    first.wait()
    assert any(isinstance(event, ev.TestWritten) and event.sealed for event in hosts.events(item)), "there are none"
    assert hosts.worker("two", "--once", "--wait", key=key).wait(120) == 0
    row = hosts.served.store.item_row(item.id)
    assert row.status is (ItemStatus.COMPLETED if key else ItemStatus.QUEUED), hosts.log()
    assert key or "it must be the same on every host" in row.detail
    assert ("is not set" in hosts.log()) == (not key)


@pytest.mark.skipif(not shutil.which("faketime"), reason="needs faketime: scripts/system-packages")
@pytest.mark.parametrize("skew", ["-26h", "+26h"])
def test_a_host_with_a_wrong_clock_neither_loses_its_lease_nor_takes_another(hosts: Hosts, skew: str) -> None:
    """Leases are judged by the server's clock only."""
    first = hosts.add("first", delay_s=1.0)
    right = hosts.worker("one", "--once")
    until(lambda: hosts.served.store.item_row(first.id).status is ItemStatus.IN_PROGRESS, reported=hosts.log)
    second = hosts.add("second", delay_s=1.0)
    wrong = hosts.worker("two", "--once", before=("faketime", "-f", skew))
    assert right.wait(120) == wrong.wait(120) == 0
    for item in (first, second):
        assert hosts.served.store.item_row(item.id).status is ItemStatus.COMPLETED, hosts.log()
        assert sum(isinstance(event, ev.RunClaimed) for event in hosts.events(item)) == 1


def test_once_exits_with_an_error_when_its_worker_dies(hosts: Hosts) -> None:
    item = hosts.add("thing", delay_s=60.0)
    worker = hosts.worker("one", "--once")
    until(lambda: hosts.served.store.workers(live=True), reported=hosts.log)
    until(lambda: hosts.served.store.item_row(item.id).status is ItemStatus.IN_PROGRESS, reported=hosts.log)
    [row] = hosts.served.store.runs()
    assert row.holder
    os.kill(row.holder.pid, signal.SIGKILL)
    assert worker.wait(60) == 137


def test_a_run_is_shown_and_proven_on_a_host_that_has_only_the_servers_address(hosts: Hosts) -> None:
    item = hosts.add("thing")
    assert hosts.worker("one", "--once").wait(120) == 0
    run = hosts.served.store.item_row(item.id).run
    for words in (["show", run], ["logs", run], ["diff", run], ["verify", run], ["export", run], ["runs"]):
        done = hosts.ask("two", *words)
        assert done.returncode == 0, (words, done.stdout + done.stderr, hosts.log())
        assert run in done.stdout or words[0] in ("logs", "diff")
    assert "+done" in hosts.ask("two", "diff", run).stdout
    assert "1 commits name entries of this ledger" in hosts.ask("three", "verify", run).stdout


def test_the_last_run_of_a_checkout_is_also_one_of_its_origin(hosts: Hosts) -> None:
    item = hosts.add("thing")
    assert hosts.worker("one", "--once").wait(120) == 0
    run, checkout = hosts.served.store.item_row(item.id).run, hosts.folder / "checkout"
    git("clone", "-q", f"file://{hosts.origin}", str(checkout), cwd=hosts.folder)
    for words in (["show"], ["diff", "last"], ["verify"], ["runs"]):
        done = hosts.ask("two", *words, cwd=checkout)
        assert done.returncode == 0, (words, done.stdout + done.stderr)
        assert run in done.stdout or words[0] == "diff"


def test_the_server_shows_what_its_workers_asked_and_changed(hosts: Hosts) -> None:
    """Neither the run's folder nor its commits are on the server's machine."""
    item = hosts.add("thing")
    assert hosts.worker("one", "--once").wait(120) == 0
    run = hosts.served.store.item_row(item.id).run
    with hosts.served.client() as client:
        assert "+done" in client.diff(run).diff
    reader = RunReader(hosts.served.store)
    view = reader.view(run)
    asked = next(receipt for receipt in reader.receipts(run).values() if receipt.action == "implement")
    texts = [reader.text(view, artifact) for artifact in asked.artifacts]
    assert len(texts) >= 2 and not any("cannot be read" in text for text in texts)
    [commit] = git("rev-list", f"main..ratchet/{item.slug}", cwd=hosts.origin).splitlines()
    assert "+done" in reader.commit_diff(view, commit)
    assert reader.trailers(view, commit)["Ratchet-Run"] == run


def test_an_item_starts_from_the_branch_of_the_origin_that_it_names(hosts: Hosts) -> None:
    git("branch", "release", "main", cwd=hosts.source)
    git("checkout", "-q", "release", cwd=hosts.source)
    git("commit", "-q", "--allow-empty", "-m", "of the release", cwd=hosts.source)
    git("push", "-q", str(hosts.origin), "release", cwd=hosts.source)
    there = hosts.add("there", branch="release")
    absent = hosts.add("absent", branch="no-such-branch")
    hosts.worker("one", "--drain").wait(120)
    assert git("log", "-2", "--format=%s", f"ratchet/{there.slug}", cwd=hosts.origin) == "Do there\nof the release"
    row = hosts.served.store.item_row(absent.id)
    assert row.status is ItemStatus.FAILED and "no such branch" in row.detail, hosts.log()


def test_old_runs_of_an_origin_are_archived_whole_and_leave_the_store(hosts: Hosts) -> None:
    item = hosts.add("thing")
    assert hosts.worker("one", "--once").wait(120) == 0
    hosts.add("newer")  # the run with the newest event stays
    assert hosts.worker("one", "--once").wait(120) == 0
    store, checkout = hosts.served.store, hosts.folder / "checkout"
    git("clone", "-q", f"file://{hosts.origin}", str(checkout), cwd=hosts.folder)
    old = store.item_row(item.id).run
    artifacts = [artifact for receipt in store.receipts(old) for artifact in receipt.artifacts]
    service = RunService(
        repository.find_repository(checkout), Config(retention=RetentionConfig(archive_days=1)), store=store
    )
    done = collect_garbage(service, now=datetime.now(UTC) + timedelta(days=2))
    assert done.archived == [old]
    with tarfile.open(checkout / ".ratchet" / "archive" / f"{old}.tar.gz") as archive:
        assert {f"{old}/{artifact.path}" for artifact in artifacts} <= set(archive.getnames())
    assert [store.artifact(old, artifact.sha256) for artifact in artifacts] == [None] * len(artifacts)
