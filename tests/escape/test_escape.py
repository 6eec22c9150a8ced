"""Every attempt to get out of a sandbox, or to make the factory act for an agent, fails and leaves no trace.

Each attempt is made once in the normal suite, in places and kinds of workspace by turns; `make certify-escape` makes
all of them everywhere. Run as an ordinary user, the suite tries user namespaces (`make test-corners`).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from ratchet.errors import RatchetError
from ratchet.process.cgroups import ControlGroup, ResourceLimits
from tests.escape.attempts import ATTEMPTS, GIT_ATTEMPTS
from tests.escape.conftest import KINDS, PLACES, Machine, git

EVERYWHERE = [(name, kind, place) for name in ATTEMPTS for kind in KINDS for place in PLACES]
BY_TURNS = [
    (name, KINDS[number % len(KINDS)], PLACES[number // len(KINDS) % len(PLACES)])
    for number, name in enumerate(ATTEMPTS)
]
LEFT_BEHIND = ("/etc/escaped", "/dev/shm/ratchet-escaped", "/tmp/ratchet-escaped", "/var/tmp/ratchet-escaped")


def contained(machine: Machine, name: str) -> None:
    if name == "forks without end" and not processes_are_bounded():
        pytest.skip("no control group for pids: only the user's own limit of processes holds")
    before = machine.fingerprint()
    printed = machine.attempt(ATTEMPTS[name])
    assert "ESCAPED" not in printed, printed
    if name in GIT_ATTEMPTS:
        with suppress(RatchetError):  # it may refuse what it finds, but not act on it
            machine.commit()
    machine.factory_goes_on()
    after = machine.fingerprint()
    assert {path for path in before.keys() | after.keys() if before.get(path) != after.get(path)} == set()
    assert [path for path in LEFT_BEHIND if os.path.lexists(path)] == []


def processes_are_bounded() -> bool:
    group = ControlGroup(f"ratchet-test-forks-{os.getpid()}", ResourceLimits(processes=64))
    try:
        return bool(group.prefix()) and not group.missing
    finally:
        group.close()


@pytest.mark.timeout(90)
@pytest.mark.parametrize(("name", "kind", "place"), BY_TURNS)
def test_an_attempt_is_contained(machines: Callable[[str, str], Machine], name: str, kind: str, place: str) -> None:
    contained(machines(kind, place), name)


@pytest.mark.certify
@pytest.mark.timeout(120)
@pytest.mark.parametrize(("name", "kind", "place"), [each for each in EVERYWHERE if each not in BY_TURNS])
def test_an_attempt_is_contained_everywhere(
    machines: Callable[[str, str], Machine], name: str, kind: str, place: str
) -> None:
    contained(machines(kind, place), name)


def test_there_are_many_attempts() -> None:
    assert len(ATTEMPTS) >= 80


@pytest.mark.parametrize("kind", KINDS)
def test_the_projects_own_filter_works_on_what_an_agent_changed(
    machines: Callable[[str, str], Machine], kind: str, tmp_path: Path
) -> None:
    machine = machines(kind, "agent")
    machine.attempt(
        "echo 'import sys; sys.stdout.write(sys.stdin.read().upper())' > tools/strip.py; echo new > data.strip"
    )
    commit = machine.commit()
    assert git("show", f"{commit}:data.strip", cwd=machine.project) == "NEW"
    assert machine.workspace.differing_paths(commit, machine.workspace.checkpoint()) == []
