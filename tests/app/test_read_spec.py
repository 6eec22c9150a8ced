"""Reading a spec from a file that is not what it seems."""

from __future__ import annotations

from pathlib import Path

import pytest

from ratchet.app.runs import read_spec
from ratchet.core.item import SPEC_MAX_CHARS
from ratchet.errors import UsageError


def test_a_spec_without_end_is_refused(tmp_path: Path) -> None:
    (tmp_path / "spec.md").symlink_to("/dev/zero")
    with pytest.raises(UsageError, match="more than"):
        read_spec(tmp_path / "spec.md")


def test_a_spec_of_long_characters_may_be_as_long_as_others(tmp_path: Path) -> None:
    spec = "# " + "\U0001f600" * (SPEC_MAX_CHARS - 2)
    (tmp_path / "spec.md").write_text(spec)
    assert read_spec(tmp_path / "spec.md") == spec
