"""The protocol's inspector, a client that is not ours and not the library's, mends a failing project."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from functools import lru_cache
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.interfaces.mcp.clients import PATCH, broken_project

pytestmark = pytest.mark.toolchain
_WAIT_S = 240


@lru_cache(maxsize=1)
def why_not() -> str:
    if not shutil.which("npx"):
        return "there is no npx"
    tried = subprocess.run(
        ["npx", "--yes", "@modelcontextprotocol/inspector", "--cli", "--help"],
        capture_output=True,
        timeout=_WAIT_S,
        check=False,
    )
    text = (tried.stderr or tried.stdout).decode(errors="replace").strip()
    return "" if tried.returncode == 0 else f"the inspector cannot be had: {text[-200:]}"


def inspect(project: Path, *words: str) -> Any:
    server = [sys.executable, "-m", "ratchet", "mcp", "-C", str(project)]
    done = subprocess.run(
        ["npx", "--yes", "@modelcontextprotocol/inspector", "--cli", *server, *words],
        capture_output=True,
        timeout=_WAIT_S,
        check=False,
        env=dict(os.environ),
    )
    assert done.returncode == 0, done.stderr.decode()
    return msgspec.json.decode(done.stdout)


def use(project: Path, tool: str, **arguments: str) -> Any:
    words = [word for name, value in arguments.items() for word in ("--tool-arg", f"{name}={value}")]
    answer = inspect(project, "--method", "tools/call", "--tool-name", tool, *words)
    assert not answer.get("isError"), answer
    return msgspec.json.decode(answer["content"][0]["text"])


def test_the_inspector_mends_a_failing_project_through_the_tools_alone(tmp_path: Path) -> None:
    if reason := why_not():
        pytest.skip(reason)
    project = broken_project(tmp_path)
    assert len(inspect(project, "--method", "tools/list")["tools"]) == 17
    workspace = use(project, "create_workspace", path=str(project))["id"]
    assert use(project, "run_tests", workspace=workspace)["failing"] == ["test_app.py::test_add"]
    assert "a - b" in use(project, "exec", workspace=workspace, argv='["cat", "app.py"]')["stdout"]
    use(project, "apply_patch", workspace=workspace, patch=PATCH)
    green = use(project, "run_tests", workspace=workspace)
    assert (green["status"], green["fixed"]) == ("passed", ["test_app.py::test_add"])
    assert use(project, "report", workspace=workspace, summary="add subtracted")["changed"] == ["app.py"]
    assert use(project, "destroy_workspace", workspace=workspace) == {"changed": True}
