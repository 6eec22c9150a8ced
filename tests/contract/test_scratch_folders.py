"""What an agent leaves in its scratch folder, beside the logs of a run."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from ratchet.agents.drivers.cli_stream import make_scratch_dir
from ratchet.core.redact import Redactor
from ratchet.store.run_directory import RunDirectory
from ratchet.tree_files import remove_inside
from tests.agents.support import make_ask

DEPTH = 3_000
SECRET = "s3cr3t-value-of-a-variable"


@pytest.fixture(autouse=True)
def emptied(tmp_path: Path) -> Iterator[None]:
    """Leave nothing that pytest itself could not remove."""
    yield
    for entry in tmp_path.iterdir():
        remove_inside(tmp_path, entry.name)


def nest(folder: Path, depth: int) -> None:
    at = os.open(folder, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir("folder", dir_fd=at)
        below = os.open("folder", os.O_RDONLY, dir_fd=at)
        os.close(at)
        at = below
    os.close(at)


@pytest.mark.parametrize("withheld", [False, True])
def test_folders_without_end_and_pipes_do_not_keep_logs_from_being_redacted(tmp_path: Path, withheld: bool) -> None:
    directory = RunDirectory(tmp_path, "run", redact=Redactor([SECRET]))
    log = directory.log_path("step-1-agent.log")
    (scratch := log.with_suffix(".d") / "a").mkdir(parents=True)
    for file in (log, scratch / "notes"):
        file.write_text(f"it is {SECRET}\n")
    os.mkfifo(scratch / "pipe")
    nest(scratch, DEPTH)
    directory.withhold(log.name, "why") if withheld else directory.clean(log.name)
    assert SECRET not in log.read_text() + (scratch / "notes").read_text()


def test_a_turn_begins_with_an_empty_scratch_folder_whatever_the_last_one_left(tmp_path: Path) -> None:
    request = make_ask(tmp_path, log=tmp_path / "turn.log")
    nest(make_scratch_dir(request), DEPTH)
    assert not list(make_scratch_dir(request).iterdir())
