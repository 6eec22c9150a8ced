"""What may not be committed, asked of the two trees of a step."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from ratchet.core.redact import Redactor
from ratchet.engine.steps import refused_content as place
from ratchet.engine.steps.refused_content import refused_content

VALUE = "hunter2-hunter2-and-more-of-it"


def context(after: dict[str, bytes], before: dict[str, bytes]) -> Any:
    trees = {"before": before, "after": after}
    workspace = SimpleNamespace(
        links=lambda _before, _after: set(),
        read_all=lambda tree, paths: {path: trees[tree].get(path) for path in paths},
    )
    return SimpleNamespace(
        workspace=workspace, redact=Redactor([VALUE]), config=SimpleNamespace(example_keys=["examples/**"])
    )


def refused(after: dict[str, bytes], **before: bytes) -> list[str]:
    return sorted(refused_content(context(after, before), "before", "after", list(after)))


def test_a_secret_behind_the_searched_part_of_a_large_file_is_found() -> None:
    filler = b"\0" * (place._SCANNED_BYTES - 5)
    assert refused({"large": filler + VALUE.encode(), "honest": filler + b"no secret at all"}) == ["large"]


def test_a_secret_in_a_name_is_refused_and_one_that_was_there_before_is_not() -> None:
    assert refused({f"notes/{VALUE}.txt": b"x", "plain.txt": b"x"}) == [f"notes/{VALUE}.txt"]
    assert refused({VALUE: b"y"}, **{VALUE: b"x"}) == []
