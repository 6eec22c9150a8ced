"""A run in a repository with a submodule: its content is there to be used, and not there to be changed."""

from __future__ import annotations

from pathlib import Path

from ratchet.core.state import RunStatus
from tests.support import GOOD_SCRIPT, IMPLEMENT, carry, git, make_repository, open_factory, small_project


def test_what_an_agent_writes_in_a_submodule_is_undone_and_the_run_goes_on(tmp_path: Path) -> None:
    other = make_repository(tmp_path / "other", {"lib.py": "ONE = 1\n"})
    meddling = {**IMPLEMENT, "write": {"vendor/lib/lib.py": "ONE = 2\n", "vendor/lib/more.py": "x = 1\n"}}
    place = small_project(tmp_path, {**GOOD_SCRIPT, "implement": [meddling]})
    git("-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(other), "vendor/lib", cwd=place)
    git("commit", "-qm", "vendored", cwd=place)
    with open_factory(place, "sandbox.mode=off") as factory:
        state = carry(factory, place / "SPEC.md")
    assert state.status is RunStatus.COMPLETED
    started = state.started
    assert started
    assert "vendor/lib/**" in started.protected
    changed = git("diff", "--name-only", started.base_commit, started.branch, cwd=place)
    assert changed.split() == ["calc.py", "tests/test_sub.py"]
    assert git("ls-tree", started.branch, "vendor/lib", cwd=place).startswith("160000 commit")
