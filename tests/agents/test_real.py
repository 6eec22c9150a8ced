"""The real programs take an item from its spec to its branch, against a scripted model."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.agents.real import FILES, ITEM, SPOKEN_ITEM, needs, pointed_at
from tests.model_server import ModelServer
from tests.support import git, make_repository, ratchet

NATIVE = {
    "goose": "goose",
    "claude": "claude:claude-sonnet-4-5",
    "codex": "codex",
    "gemini": "gemini:gemini-2.5-pro",
    "opencode": "opencode:scripted/scripted-model",
    "mini": "mini:openai/scripted-model",
    "aider": "aider:openai/scripted-model",
}


@pytest.mark.agents
@pytest.mark.parametrize("name", NATIVE)
def test_a_real_agent_does_a_whole_item(tmp_path: Path, name: str) -> None:
    needs(name)
    project = make_repository(tmp_path / "project", FILES)
    with ModelServer(SPOKEN_ITEM if name == "aider" else ITEM) as server:
        env = pointed_at(server.address, tmp_path / "home")
        done = ratchet("run", "SPEC.md", "--agent", NATIVE[name], cwd=project, **env)
    assert done.returncode == 0, done.stdout + done.stderr
    branch = git("branch", "--list", "ratchet/*", "--format=%(refname:short)", cwd=project)
    assert "return a - b" in git("show", f"{branch}:calc.py", cwd=project)
    assert f"Ratchet-Agent: {name}" in git("log", "-1", "--format=%B", branch, cwd=project)
