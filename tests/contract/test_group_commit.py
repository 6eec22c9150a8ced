"""Those who wait for a turn together: each is served once, and nobody waits for who does not wait any more."""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import threading
from contextlib import suppress
from pathlib import Path

import pytest

from ratchet.core.signal import Topic
from ratchet.store.database import Transaction
from ratchet.store.group_commit import GroupCommit, PendingCall
from ratchet.store.ledger import append_events
from ratchet.store.sqlite.store import SqliteStore, _PendingWrite
from tests.contract.test_store import CLAIMED, claim, item


class _Number(PendingCall):
    def __init__(self, number: int) -> None:
        super().__init__()
        self.number, self.answer = number, 0


class _Interrupted(BaseException):
    pass


class _Desk:
    """Executes no call until it is released, and records which calls were executed together."""

    def __init__(self, most: int = 64) -> None:
        self.begun, self.go_on = threading.Semaphore(0), threading.Semaphore(0)
        self.served: list[list[int]] = []
        self.together = GroupCommit(self._serve, limit=lambda: most)
        self.left: list[int] = []

    def _serve(self, asks: list[_Number]) -> None:
        self.begun.release()
        self.go_on.acquire()
        self.served.append([ask.number for ask in asks])
        for ask in asks:
            ask.answer = -ask.number

    def ask(self, number: int) -> threading.Thread:
        def wait() -> None:
            asked = _Number(number)
            try:
                self.together.submit(asked)
            except _Interrupted:
                self.left.append(number)
            else:
                assert asked.answer == -number

        thread = threading.Thread(target=wait)
        thread.start()
        return thread

    def crowd(self, *numbers: int) -> list[threading.Thread]:
        threads = []
        for number in numbers:
            threads.append(self.ask(number))
            _until_waiting(self, len(threads))
        return threads


def _until_waiting(desk: _Desk, number: int) -> None:
    while desk.together.waiting < number:
        os.sched_yield()


def _interrupt(thread: threading.Thread) -> None:
    assert thread.ident
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident), ctypes.py_object(_Interrupted))


def test_calls_that_arrive_during_a_write_are_executed_together() -> None:
    desk = _Desk()
    first = desk.ask(1)
    assert desk.begun.acquire(timeout=30)
    crowd = desk.crowd(2, 3, 4)
    desk.go_on.release(2)
    for thread in (first, *crowd):
        thread.join(30)
        assert not thread.is_alive()
    assert desk.served == [[1], [2, 3, 4]]


def test_calls_beyond_the_batch_limit_go_into_the_next_batch() -> None:
    desk = _Desk(most=2)
    first = desk.ask(1)
    assert desk.begun.acquire(timeout=30)
    crowd = desk.crowd(2, 3, 4)
    assert desk.together.pending == 4
    desk.go_on.release(3)
    for thread in (first, *crowd):
        thread.join(30)
    assert desk.served == [[1], [2, 3], [4]]
    assert desk.together.pending == 0


def test_a_leader_that_is_interrupted_still_wakes_the_next_call() -> None:
    """They are woken one by the other: 3 was to wake 4 and 4 was to wake 5."""
    desk = _Desk()
    first = desk.ask(1)
    assert desk.begun.acquire(timeout=30)
    crowd = desk.crowd(2, 3, 4, 5)
    desk.go_on.release()
    assert desk.begun.acquire(timeout=30)
    for thread in crowd[1:3]:
        _interrupt(thread)
    desk.go_on.release()
    for thread in (first, *crowd):
        thread.join(30)
        assert not thread.is_alive()
    assert desk.served == [[1], [2, 3, 4, 5]] and sorted(desk.left) == [3, 4]


def test_a_call_interrupted_before_its_answer_need_not_wake_the_next() -> None:
    """A signal ends the wait of the main thread at once, and the others are still to be served."""
    desk, main, gone = _Desk(), threading.main_thread(), threading.Event()
    first = desk.ask(1)
    assert desk.begun.acquire(timeout=30)
    crowd = desk.crowd(2)

    def interrupt() -> None:
        _until_waiting(desk, 2)
        crowd.append(desk.ask(4))
        _until_waiting(desk, 3)
        desk.go_on.release()
        assert desk.begun.acquire(timeout=30)
        assert main.ident
        signal.pthread_kill(main.ident, signal.SIGUSR1)
        assert gone.wait(30)
        desk.go_on.release()

    def leave(*_: object) -> None:
        raise _Interrupted

    before = signal.signal(signal.SIGUSR1, leave)
    interrupting = threading.Thread(target=interrupt)
    interrupting.start()
    with pytest.raises(_Interrupted):
        desk.together.submit(_Number(3))
    gone.set()
    interrupting.join(30)
    for thread in (first, *crowd):
        thread.join(30)
        assert not thread.is_alive()
    signal.signal(signal.SIGUSR1, before)
    assert desk.served == [[1], [2, 3, 4]]


def test_writes_are_executed_again_when_the_thread_that_executed_them_was_interrupted(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "db")
    store.add(item())
    lease = claim(store)
    begun, go_on, ends = threading.Event(), threading.Event(), list[str]()

    def slow(_: Transaction) -> None:
        begun.set()
        assert go_on.wait(30)

    def interrupted(db: Transaction) -> None:
        db.execute("UPDATE items SET detail = 'x'")
        raise _Interrupted

    def lead() -> None:
        with pytest.raises(_Interrupted):
            store._write(interrupted)
        ends.append("interrupted")

    def follow() -> None:
        store.complete(lease, commits=1, head="h")
        ends.append("completed")

    threads = [threading.Thread(target=store._write, args=(slow,))]
    threads[0].start()
    assert begun.wait(30)
    for number, target in enumerate((lead, follow), start=1):
        threads.append(threading.Thread(target=target))
        threads[-1].start()
        while store._writes.waiting < number:
            os.sched_yield()
    go_on.set()
    for thread in threads:
        thread.join(30)
    assert sorted(ends) == ["completed", "interrupted"]
    assert store.run("run-1").status == "completed" and store.item_row("item-1").detail == ""
    store.close()


def test_a_write_is_not_repeated_when_its_leader_was_interrupted_after_the_commit(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "db")
    store.add(item())
    lease = claim(store)
    done = _PendingWrite(lambda db: append_events(db, lease, [CLAIMED], at=db.began_at), "k", at="2026", durable=True)
    store._execute([done])
    again = done.again()
    store._execute([again])
    assert again.done and again.answer == done.answer and store.run("run-1").length == 1
    store.close()


def test_a_committed_write_has_not_failed_because_no_signal_could_be_sent(tmp_path: Path) -> None:
    """No file descriptor is left: the listeners' pipes cannot be listed."""
    store = SqliteStore(tmp_path / "db")
    store.add(item())
    held, (soft, hard) = list[int](), resource.getrlimit(resource.RLIMIT_NOFILE)
    with store.listen(Topic.WORK):
        store.runs()
        resource.setrlimit(resource.RLIMIT_NOFILE, (100, hard))
        try:
            with suppress(OSError):
                while True:
                    held.append(os.open("/dev/null", os.O_RDONLY))
            store.add(item("item-2"))
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
            for one in held:
                os.close(one)
    assert store.item_row("item-2").status == "queued"
    store.close()
