"""A run in a repository with a submodule: its content is there to be used, and not there to be changed."""

from __future__ import annotations

import asyncio
from pathlib import Path

from ratchet.core.state import RunStatus
from tests.support import GOOD_SCRIPT, IMPLEMENT, carry, git, make_repository, open_factory, small_project, write_script


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


DEPENDS = {
    ".gitignore": "vendor/\n",
    "pyproject.toml": '[tool.pytest.ini_options]\npythonpath = [".", "vendor", "part/vendor"]\n',
    "calc.py": "def add(a, b):\n    return a + b\n",
    "part/composer.json": "{}",
    "tests/test_calc.py": "import inner, outer\nfrom calc import add\n\n\ndef test_add():\n    assert add(1, 2) == 3\n",
    "SPEC.md": "# Subtract\n\n`calc.sub(a, b)` subtracts.\n",
}


def test_a_proof_is_re_enacted_with_the_dependencies_that_the_run_had(tmp_path: Path) -> None:
    place = make_repository(tmp_path / "project", DEPENDS)
    write_script(place, GOOD_SCRIPT)
    for name in ("vendor/outer.py", "part/vendor/inner.py"):
        (place / name).parent.mkdir()
        (place / name).write_text("")
    with open_factory(place) as factory:
        state = carry(factory, place / "SPEC.md")
        found = asyncio.run(factory.verify(state.run))
    assert len(state.commits) == 1
    assert [claim for verification in found for claim in verification.claims if not claim.holds] == []
    assert len(git("worktree", "list", cwd=place).splitlines()) == 1
