"""Artifacts, on every backend."""

from __future__ import annotations

import hashlib

import pytest

from ratchet.errors import UsageError
from ratchet.store.protocols import ARTIFACT_MAX_BYTES, Store
from ratchet.store.run_directory import put_shared
from tests.contract.servers import World

CONTENT = b"what the agent was asked \x00\xff" * 100


def test_content_that_one_host_stored_is_read_by_another_under_its_digest(world: World, store: Store) -> None:
    digest = store.put_artifact("run-1", CONTENT)
    assert digest == hashlib.sha256(CONTENT).hexdigest()
    assert world.open().artifact("run-1", digest) == CONTENT


def test_the_same_content_stored_twice_is_stored_once(store: Store) -> None:
    digest = store.put_artifact("run-1", CONTENT)
    assert store.put_artifact("run-1", CONTENT) == digest
    assert store.forget_artifacts("run-1", [digest, digest]) == 1


def test_content_of_another_run_is_not_found(store: Store) -> None:
    assert store.artifact("run-2", store.put_artifact("run-1", CONTENT)) is None


def test_removing_leaves_what_was_not_named_and_what_other_runs_have(store: Store) -> None:
    prompt, report = store.put_artifact("run-1", b"prompt"), store.put_artifact("run-1", b"report")
    other = store.put_artifact("run-2", b"prompt")
    assert store.forget_artifacts("run-1", [prompt]) == 1
    assert store.artifact("run-1", prompt) is None
    assert store.artifact("run-1", report) == b"report"
    assert store.artifact("run-2", other) == b"prompt"


def test_content_above_the_limit_is_refused_before_anything_is_written(store: Store) -> None:
    with pytest.raises(ValueError, match="exceeds"):
        store.put_artifact("run-1", bytes(ARTIFACT_MAX_BYTES + 1))
    assert store.artifact("run-1", hashlib.sha256(bytes(ARTIFACT_MAX_BYTES + 1)).hexdigest()) is None


def test_the_largest_content_comes_back_whole(store: Store) -> None:
    largest = bytes(range(256)) * (ARTIFACT_MAX_BYTES // 256)
    assert store.artifact("run-1", store.put_artifact("run-1", largest)) == largest


def test_what_a_run_cannot_store_is_refused_as_an_error_that_no_repetition_mends(store: Store) -> None:
    with pytest.raises(UsageError, match="the run's change has 11,000,001 bytes"):
        put_shared(store, "run-1", bytes(ARTIFACT_MAX_BYTES + 1), what="the run's change")
