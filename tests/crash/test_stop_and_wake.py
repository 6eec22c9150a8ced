"""A worker is stopped past its lease in every kind of step, another one takes over, and the first wakes up."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from ratchet.core import events as ev
from ratchet.core.item import ItemStatus
from tests.support import AUDIT, COMPLETE, IMPLEMENT, REVIEW, SMALL, git, make_repository, open_factory, write_script

SLOW = {"tests/test_slow.py": "import time\n\n\ndef test_slow():\n    time.sleep(0.6)\n"}
REFACTOR = {"say": "Say what it does", "append": {"calc.py": "\n\n# add and sub\n"}}
SCRIPT = {"audit": [AUDIT, COMPLETE], "implement": [IMPLEMENT], "refactor": [REFACTOR], "review": [REVIEW]}
ACTIONS = [
    "baseline",
    "audit",
    "verify_red",
    "implement",
    "judge",
    "verify",
    "refactor",
    "judge_refactor",
    "verify_refactor",
    "review",
    "final",
    "land",
]
SAMPLE = [("verify_red", "0.3"), ("judge", "announced"), ("judge", "0.3")]
ALL = [(action, when) for action in ACTIONS for when in ("announced", "0.05", "0.3") if (action, when) not in SAMPLE]
MOMENTS = [*SAMPLE, *(pytest.param(*moment, marks=pytest.mark.certify) for moment in ALL)]
WAIT_S = 120


class Project:
    """A small project, one item, and the workers at it."""

    def __init__(self, folder: Path) -> None:
        self.place = make_repository(folder / "project", SMALL | SLOW)
        write_script(self.place, SCRIPT)
        with open_factory(self.place) as service:
            self.item = service.add(self.place / "SPEC.md").id
        self.workers: list[subprocess.Popen[bytes]] = []

    def start(self, action: str, when: str, *more: str) -> subprocess.Popen[bytes]:
        words = [sys.executable, "-m", "tests.crash.stopped_worker", str(self.place), self.item, action, when, *more]
        self.workers.append(worker := subprocess.Popen(words, start_new_session=True))
        return worker

    def wait_until_claimable(self) -> bool:
        """Whether it is; False when the worker had completed the run before it stopped."""
        with open_factory(self.place) as service:
            deadline = time.monotonic() + WAIT_S
            while not service.store.expire():
                if service.store.item_row(self.item).status is ItemStatus.COMPLETED:
                    return False
                assert time.monotonic() < deadline
                time.sleep(0.05)
            return True


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    made = Project(tmp_path)
    yield made
    for worker in made.workers:
        with suppress(ProcessLookupError):
            os.kill(worker.pid, signal.SIGKILL)
        worker.wait()


def wait_until_stopped(worker: subprocess.Popen[bytes]) -> bool:
    """Whether it was stopped; False when it ended first."""
    found = os.waitid(os.P_PID, worker.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
    return found is not None and found.si_code == os.CLD_STOPPED


def wake(worker: subprocess.Popen[bytes]) -> None:
    os.kill(worker.pid, signal.SIGCONT)


def why_wrong(project: Project) -> list[str]:
    """Everything that is not as it would be without the stop."""
    with open_factory(project.place) as service:
        row, wrong = service.store.runs()[0], []
        history = service.history(row.run)
        directory = service.directory(row.run)
        if row.status != "completed" or len(history.state.commits) != 2:
            wrong.append(f"{row.status} with {len(history.state.commits)} commits: {history.state.detail}")
        wrong += [f"{event}" for event in history.events if isinstance(event, ev.StepReverted | ev.RedRefused)]
        steps = [receipt.step for receipt in history.receipts]
        if steps != sorted(set(steps)):
            wrong.append(f"receipts of steps {steps}")
        for artifact in [each for receipt in history.receipts for each in receipt.artifacts]:
            directory.get(artifact)
        if not service._verify_content(history).holds:
            wrong.append("a commit is not what was tested")
        wrong += [f"left: {record.slug}" for record in service.workspaces.records()]
    subjects = git("log", "--format=%s", f"main..{git('branch', '--list', 'ratchet/*', '--format=%(refname)', cwd=project.place)}", cwd=project.place)  # fmt: skip # noqa: E501
    return wrong if len(subjects.splitlines()) == 2 else [*wrong, subjects]


@pytest.mark.parametrize(("action", "when"), MOMENTS)
def test_a_worker_stopped_past_its_lease_is_ended_by_its_successor(project: Project, action: str, when: str) -> None:
    first = project.start(action, when)
    if wait_until_stopped(first) and project.wait_until_claimable():
        second = project.start("", "")
        assert second.wait(WAIT_S) == 0
        assert first.wait(WAIT_S) == -signal.SIGKILL
    else:
        wake(first)
        assert when != "announced" and first.wait() == 0, "the step was shorter than the pause before the stop"
    assert why_wrong(project) == []


@pytest.mark.parametrize(("action", "when"), MOMENTS)
def test_a_worker_that_cannot_be_ended_finds_itself_fenced_when_it_wakes(
    project: Project, action: str, when: str
) -> None:
    first = project.start(action, when)
    if wait_until_stopped(first) and project.wait_until_claimable():
        second = project.start("judge", "announced", "foreign")
        woken = False
        if wait_until_stopped(second):  # its workspace holds a change that is not judged yet
            wake(first)
            assert first.wait(WAIT_S) == 3
            woken = True
            wake(second)
        if second.wait(WAIT_S) == 3:  # its lease ran out as well while it was stopped
            assert project.start("", "", "foreign").wait(WAIT_S) == 0
        if not woken:
            wake(first)
            assert first.wait(WAIT_S) == 3
    else:
        wake(first)
        assert when != "announced" and first.wait() == 0, "the step was shorter than the pause before the stop"
    assert why_wrong(project) == []
