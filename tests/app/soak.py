"""A factory under disturbance for as long as one likes: `make soak MINUTES=30`, or `python -m tests.app.soak --help`.

Items are added in waves. Meanwhile workers are killed, or stopped past their lease and woken; all are restarted;
on PostgreSQL, connections are cut. In the end every item must have been completed exactly once, all sums must be equal,
and nothing may be left: no workspace, no process, no mount. Prints a line of figures for each wave.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from ratchet.core.item import Item
from ratchet.process.reaper import descendants
from ratchet.process.spawn import process_holder
from tests.app import flood
from tests.contract.servers import fresh_database
from tests.support import git

WAVE, WORKERS, LEASE_S = 10, 3, 4.0
STOPPED_S = 1.5 * LEASE_S
WAVE_MAX_S = 900.0


class Soak:
    def __init__(self, folder: Path, address: str, seed: int) -> None:
        self.place, self.store = flood.lay_out(folder), flood.open_world(address)
        self.folder, self.address, self.chance = folder, address, random.Random(seed)
        self.items: list[Item] = []
        self.count: Counter[str] = Counter()
        self.stopped: dict[int, float] = {}
        self.acts: list[Callable[[], None]] = [self.kill, self.kill, self.stop, self.stop, self.restart]
        if address.startswith("postgresql:"):
            self.acts.append(self.cut)
        self.running = self.start()

    def start(self) -> subprocess.Popen[str]:
        return flood.start_workers(self.place, self.address, WORKERS, "--set", f"lease_s={LEASE_S}")

    # --- disturbances ------------------------------------------------------------------------------------------

    def holder(self) -> int:
        at_work = [row.holder.pid for row in self.store.runs() if row.holder and row.holder.pid not in self.stopped]
        return self.chance.choice(at_work) if at_work else 0

    def send(self, pid: int, number: signal.Signals, what: str) -> None:
        if pid and self.running.pid in (pid, *_ancestors(pid)):
            with suppress(ProcessLookupError):
                os.kill(pid, number)
                self.count[what] += 1

    def kill(self) -> None:
        self.send(self.holder(), signal.SIGKILL, "kills")

    def stop(self) -> None:
        if pid := self.holder():
            self.send(pid, signal.SIGSTOP, "stops")
            self.stopped[pid] = time.monotonic() + STOPPED_S

    def wake(self, *, everyone: bool = False) -> None:
        for pid, due in list(self.stopped.items()):
            if everyone or time.monotonic() >= due:
                del self.stopped[pid]
                self.send(pid, signal.SIGCONT, "wakes")

    def restart(self) -> None:
        how = self.chance.choice([signal.SIGTERM, signal.SIGKILL])
        self.wake(everyone=True)
        self.running.send_signal(how)
        self.running.wait(120)
        self.count[f"restarts by {how.name}"] += 1
        self.running = self.start()

    def cut(self) -> None:
        import psycopg  # noqa: PLC0415 — only with PostgreSQL

        with psycopg.connect(self.address, autocommit=True) as connection:
            connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
        self.count["cuts"] += 1

    # --- waves -------------------------------------------------------------------------------------------------

    def wave(self) -> None:
        began, first = time.monotonic(), len(self.items)
        head = git("rev-parse", "HEAD", cwd=self.place)
        self.items += (new := [flood.item(self.place, f"thing{first + n}", head) for n in range(WAVE)])
        self.store.add_all(new)
        while not self.store.is_drained():
            if time.monotonic() > began + WAVE_MAX_S:
                raise AssertionError(f"a wave of {WAVE} items takes longer than {WAVE_MAX_S:.0f} s")
            self.chance.choice(self.acts)()
            pause = time.monotonic() + self.chance.uniform(0.5, 3.0)
            while time.monotonic() < pause and not self.store.is_drained():
                self.wake()
                time.sleep(0.05)
            if self.running.poll() is not None:
                raise AssertionError(f"the workers ended with {self.running.returncode}")
        self.report(time.monotonic() - began)

    def report(self, seconds: float) -> None:
        per_item = {name: _size_kb(path) / len(self.items) for name, path in self.places().items()}
        sizes = ", ".join(f"{name} {size:.0f}" for name, size in per_item.items())
        processes = len(descendants(self.running.pid))
        done = ", ".join(f"{count} {what}" for what, count in sorted(self.count.items()))
        print(f"{len(self.items)} items, last {WAVE} in {seconds:.0f} s; {done}; {processes} processes; "
              f"KB per item: {sizes}", flush=True)  # fmt: skip

    def places(self) -> dict[str, Path]:
        state = self.place / ".ratchet"
        found = {"runs": state / "runs", "trees": state / "trees.git", "git": self.place / ".git"}
        return found if self.address.startswith("postgresql:") else found | {"store": Path(self.address).parent}

    def finish(self) -> None:
        """End the workers and check that everything adds up and nothing is left."""
        self.wake(everyone=True)
        tree = [process_holder(pid) for pid in descendants(self.running.pid)]
        self.running.terminate()
        self.running.wait(120)
        flood.check(self.store, self.place, self.items)
        alive = [each.pid for each in tree if process_holder(each.pid).born == each.born and each.born]
        assert not alive, f"processes are left: {alive}"
        spaces = [path.name for path in (self.folder / "workspaces").glob("[!.]*")]
        assert not spaces, f"workspaces are left: {spaces}"
        mounts = [line for line in Path("/proc/self/mounts").read_text().splitlines() if str(self.folder) in line]
        assert not mounts, f"mounts are left: {mounts}"
        seen = flood.seen(self.store, self.items, disturbed="all", workers=WORKERS,
                          killed=self.count["kills"], seconds=0)  # fmt: skip
        assert seen.cost_usd == seen.spent_usd, f"{seen.cost_usd} in ledgers, {seen.spent_usd} in budgets"
        print(f"all {seen.items} items completed once, {seen.claims} claims, {seen.resumed} steps repeated, "
              f"${seen.cost_usd:.2f} in ledgers and budgets, nothing left", flush=True)  # fmt: skip


def _ancestors(pid: int) -> list[int]:
    found: list[int] = []
    while pid > 1:
        try:
            pid = int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])
        except OSError:
            break
        found.append(pid)
    return found


def _size_kb(folder: Path) -> float:
    return sum(path.lstat().st_blocks for path in folder.rglob("*")) / 2 if folder.exists() else 0.0


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="soak", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--store", choices=("sqlite", "postgres"), default="sqlite")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    options = parser.parse_args(argv)
    folder = Path(tempfile.mkdtemp(prefix="ratchet-soak-"))
    (folder / "store").mkdir()
    address = str(folder / "store" / "ratchet.db") if options.store == "sqlite" else fresh_database()
    print(f"soak of {options.minutes:g} minutes, {options.store}, seed {options.seed}, in {folder}", flush=True)
    soak = Soak(folder, address, options.seed)
    end = time.monotonic() + options.minutes * 60
    try:
        while time.monotonic() < end:
            soak.wave()
        soak.finish()
    except BaseException:
        print((folder / "workers.log").read_text()[-3000:], flush=True)
        raise
    finally:
        soak.running.kill()
        soak.running.wait()
        soak.store.close()
    shutil.rmtree(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
