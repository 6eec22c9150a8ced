"""Launchers: found by name, given the pool, and left to run it."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

from ratchet.core.item import ItemStatus
from ratchet.core.state import RunStatus
from tests.app.test_workers import World, until, world  # noqa: F401 — a fixture
from tests.support import RATCHET, quick_environment

LAUNCHER = """
def launch(post, *, count):
    print(f"{count} workers of {post.store}")
    return 7
"""


def test_a_launcher_of_another_package_runs_the_pool(tmp_path: Path) -> None:
    (tmp_path / "elsewhere.py").write_text(LAUNCHER)
    (tmp_path / "elsewhere-1.dist-info").mkdir()
    (tmp_path / "elsewhere-1.dist-info/entry_points.txt").write_text("[ratchet.launchers]\nfar = elsewhere:launch\n")
    words = ["worker", "--launcher", "far", "--count", "3", "--store", "here.db"]
    done = subprocess.run(
        [*RATCHET, *words], cwd=tmp_path, env=quick_environment() | {"PYTHONPATH": str(tmp_path)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (7, "3 workers of here.db\n"), done.stderr


def test_an_unknown_launcher_is_refused_with_the_known_ones(tmp_path: Path) -> None:
    for command in ("worker", "serve"):
        words = [*RATCHET, command, "--launcher", "nowhere"]
        done = subprocess.run(
            words, cwd=tmp_path, env=quick_environment() | {"XDG_STATE_HOME": str(tmp_path)},
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 2
        assert "there is no launcher nowhere" in done.stderr and "process" in done.stderr


def test_a_worker_that_takes_one_item_can_wait_for_it(world: World) -> None:  # noqa: F811
    worker = world.start("--once", "--wait")
    until(lambda: world.store.pools() or None)  # announced by a worker that found nothing and waits
    first, second = world.add("first"), world.add("second")
    assert worker.wait(60) == 0
    done = [item for item in (first, second) if world.store.item_row(item.id).status is ItemStatus.COMPLETED]
    assert len(done) == 1


def test_the_exit_code_shows_that_the_worker_of_one_item_was_killed(world: World) -> None:  # noqa: F811
    item = world.add("thing", delay_s=30.0)
    worker = world.start("--once")
    run = until(lambda: world.asking(item))
    assert run.holder and run.status is RunStatus.RUNNING
    os.kill(run.holder.pid, signal.SIGKILL)
    assert worker.wait(60) == 128 + signal.SIGKILL
