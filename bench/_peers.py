"""Other queues doing the same: jobs that do nothing, each claimed, run and marked as done. Prints how many a second.

Run by `bench.store` with the interpreter of `.venv-bench` (`scripts/bench-peers`). Every peer with its own worker, the
way its manual says, as many at once as ours; durable where it has a choice; queued before the clock starts.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import multiprocessing
import os
import subprocess
import sys
import threading
import time

PROCESSES = 4


def pgqueuer(address, count, *, batch=1, processes=PROCESSES):
    import asyncpg
    from pgqueuer.db import AsyncpgDriver
    from pgqueuer.queries import Queries

    async def fill():
        db = await asyncpg.connect(address)
        queries = Queries(AsyncpgDriver(db))
        await queries.install()
        for start in range(0, count, 1000):
            size = min(1000, count - start)
            await queries.enqueue(["noop"] * size, [b""] * size, [0] * size)
        await db.close()

    asyncio.run(fill())
    return _processes(functools.partial(_pgqueuer_worker, batch), address, count, number=processes)


def pgqueuer_in_tens(address, count):
    return pgqueuer(address, count, batch=10, processes=1)


def pgqueuer_in_tens_by_four(address, count):
    return pgqueuer(address, count, batch=10)


def _pgqueuer_worker(batch, address):
    import asyncpg
    from pgqueuer.db import AsyncpgDriver
    from pgqueuer.qm import QueueManager
    from pgqueuer.queries import Queries
    from pgqueuer.types import QueueExecutionMode

    async def work():
        db = await asyncpg.connect(address)
        manager = QueueManager(Queries(AsyncpgDriver(db)))

        @manager.entrypoint("noop")
        async def noop(_job):
            pass

        await manager.run(batch_size=batch, mode=QueueExecutionMode.drain)
        await db.close()

    asyncio.run(work())


def procrastinate(address, count):
    from procrastinate import App, PsycopgConnector

    async def fill():
        app = App(connector=PsycopgConnector(conninfo=address))
        async with app.open_async():
            await app.schema_manager.apply_schema_async()
            noop = app.task(name="noop")(_nothing)
            for start in range(0, count, 1000):
                await noop.batch_defer_async(*[{} for _ in range(min(1000, count - start))])

    asyncio.run(fill())
    return _processes(_procrastinate_worker, address, count)


async def _nothing():
    pass


def _procrastinate_worker(address):
    from procrastinate import App, PsycopgConnector

    async def work():
        app = App(connector=PsycopgConnector(conninfo=address))
        app.task(name="noop")(_nothing)
        async with app.open_async():
            await app.run_worker_async(wait=False, concurrency=4, install_signal_handlers=False, listen_notify=False)

    asyncio.run(work())


def dbos(address, count):
    from dbos import DBOS, DBOSClient

    def launch():
        DBOS(config={"name": "bench", "system_database_url": address, "run_admin_server": False, "log_level": "ERROR",
                     "application_version": "1"})  # fmt: skip
        DBOS.workflow(name="noop")(_same)
        DBOS.launch()
        DBOS.register_queue("bench", worker_concurrency=64, polling_interval_sec=0.01)

    launch()
    DBOS.destroy(destroy_registry=True)
    client = DBOSClient(system_database_url=address)
    options = {"queue_name": "bench", "workflow_name": "noop", "app_version": "1"}
    handles = [client.enqueue(options, n) for n in range(count)]
    launch()
    began = time.perf_counter()
    while client.list_queued_workflows(queue_name="bench", limit=1):
        time.sleep(0.02)
    handles[-1].get_result()
    rate = count / (time.perf_counter() - began)
    DBOS.destroy()
    return rate


def _same(n):
    return n


def celery(address, count):
    import redis

    port = int(address)
    server = redis.Redis(port=port)
    app = _celery_app(port)
    with app.connection_for_write() as connection, app.amqp.producer_pool.acquire(block=True) as _:
        for _n in range(count):
            app.send_task("noop", connection=connection)
    here = os.path.dirname(os.path.abspath(__file__))
    argv = [sys.executable, "-m", "celery", "-A", "_peers:worker_app", "worker", "-c", str(PROCESSES), "-l", "ERROR"]
    argv += ["--without-gossip", "--without-mingle", "--without-heartbeat"]
    worker = subprocess.Popen(argv, cwd=here, env=os.environ | {"BENCH_REDIS": address}, stdout=subprocess.DEVNULL,
                              stderr=subprocess.DEVNULL)  # fmt: skip

    def left():
        return server.llen("celery") + server.hlen("unacked")

    while left() >= count - 50:
        time.sleep(0.002)
    began, there = time.perf_counter(), left()
    while left():
        time.sleep(0.002)
    rate = there / (time.perf_counter() - began)
    worker.terminate()
    worker.wait()
    return rate


def _celery_app(port):
    from celery import Celery

    app = Celery("bench", broker=f"redis://127.0.0.1:{port}/0")
    app.conf.update(task_acks_late=True, task_ignore_result=True, worker_prefetch_multiplier=64)
    app.task(name="noop")(_one)
    return app


def huey(path, count):
    from huey import SqliteHuey

    queue = SqliteHuey("bench", filename=path, fsync=True, journal_mode="wal", timeout=30)
    noop = queue.task()(_one)
    with queue.storage.db(commit=True) as db:
        message = queue.serialize_task(noop.s())
        db.executemany("insert into task (queue, data, priority) values (?, ?, 0)", [(queue.name, message)] * count)

    def work():
        while task := queue.dequeue():
            queue.execute(task)

    return _threads(work, count)


def _one():
    return 1


def persistqueue(path, count):
    import persistqueue as library

    queue = library.SQLiteAckQueue(path, multithreading=True, auto_commit=True)
    queue._conn.execute("PRAGMA synchronous=FULL")
    for connection in (queue._putter, queue._getter):
        connection.execute("PRAGMA synchronous=FULL")
    for n in range(count):
        queue.put(n)

    def work():
        with contextlib.suppress(library.exceptions.Empty):
            while True:
                queue.ack(queue.get(block=False))

    return _threads(work, count)


def _threads(work, count, number=32):
    threads = [threading.Thread(target=work) for _ in range(number)]
    began = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return count / (time.perf_counter() - began)


def _processes(worker, address, count, *, number=PROCESSES):
    """The start of an interpreter is not counted: all wait at the gate until all are there."""
    context = multiprocessing.get_context("fork")
    gate = context.Barrier(number + 1)
    workers = [context.Process(target=_gated, args=(worker, address, gate)) for _ in range(number)]
    for one in workers:
        one.start()
    gate.wait()
    began = time.perf_counter()
    for one in workers:
        one.join()
    assert all(one.exitcode == 0 for one in workers), "a worker of the peer failed: nothing was measured"
    return count / (time.perf_counter() - began)


def _gated(worker, address, gate):
    gate.wait()
    worker(address)


if os.environ.get("BENCH_REDIS"):
    worker_app = _celery_app(int(os.environ["BENCH_REDIS"]))

if __name__ == "__main__":
    name, where, number = sys.argv[1:4]
    print(globals()[name](where, int(number)))
