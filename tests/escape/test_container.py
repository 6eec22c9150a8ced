"""Attempts to escape from a step in a container of a real engine fail and leave no trace: a sample here, all of them in
`make certify-escape`."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from ratchet.config import ContainersConfig
from tests import podman as engines
from tests.escape.attempts import ATTEMPTS
from tests.escape.conftest import PLACES, Machine
from tests.escape.test_escape import contained
from tests.podman import IMAGE, Podman

SHARED = "reads the user's keyring"  # Podman lets containers have it, Docker does not; see docs/containers.md
BY_TURNS = [(name, PLACES[number % len(PLACES)]) for number, name in enumerate(ATTEMPTS) if name != SHARED]
SAMPLE = BY_TURNS[::7]


@pytest.fixture(scope="module")
def podman() -> Iterator[Podman]:
    with engines.podman() as started:
        yield started


def contained_in_a_container(podman: Podman, machines: Callable[..., Machine], name: str, place: str) -> None:
    containers = ContainersConfig(
        engine=podman.address, image=IMAGE, mounts=["/usr:/usr:ro"], memory_mb=512, tmp_mb=32, max_processes=64
    )
    contained(machines("container", place, containers), name)


@pytest.mark.engines
@pytest.mark.timeout(120)
@pytest.mark.parametrize(("name", "place"), SAMPLE)
def test_an_attempt_is_contained(podman: Podman, machines: Callable[..., Machine], name: str, place: str) -> None:
    contained_in_a_container(podman, machines, name, place)


@pytest.mark.certify
@pytest.mark.timeout(120)
@pytest.mark.parametrize(("name", "place"), [each for each in BY_TURNS if each not in SAMPLE])
def test_every_attempt_is_contained(podman: Podman, machines: Callable[..., Machine], name: str, place: str) -> None:
    contained_in_a_container(podman, machines, name, place)
