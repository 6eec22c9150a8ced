"""A run in a workspace of the kind `container`: its agent and its tests see the image, and the commit lands outside."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from ratchet.process.container_step import LABEL
from ratchet.process.containers import unused_ids
from tests import podman as engines
from tests.podman import IMAGE, Podman
from tests.support import git, make_repository, ratchet

pytestmark = pytest.mark.engines
SETTINGS = f"""
[workspace]
kind = "container"
[containers]
image = "{IMAGE}"
mounts = ["/usr:/usr:ro"]
[[gates]]
name = "judge"
on = false
"""
TEST = (
    "import unittest\nfrom calc import add\n\n\nclass TestAdd(unittest.TestCase):\n    def test_adds(self):\n        "
)
AGENT = "command:sh -c 'echo $(id -u) on $(hostname); sed -i s/a.-.b/a+b/ calc.py'"


@pytest.fixture(scope="module")
def podman() -> Iterator[Podman]:
    with engines.podman() as started:
        yield started


def test_a_run_is_done_in_containers_and_its_commit_lands_in_the_repository(podman: Podman, tmp_path: Path) -> None:
    files = {
        "calc.py": "def add(a, b):\n    return a - b\n",
        "test_calc.py": f"{TEST}self.assertEqual(add(2, 3), 5)\n",
        "ratchet.toml": SETTINGS,
        ".gitignore": "__pycache__/\n",
    }
    repo = make_repository(tmp_path / "repo", files)
    env = {"DOCKER_HOST": podman.address, "HOME": str(tmp_path / "home"), "PATH": os.environ["PATH"]}
    done = ratchet("fix", "--agent", AGENT, cwd=repo, **env)
    assert done.returncode == 0, done.stdout + done.stderr
    branch = git("branch", "--list", "ratchet/*", "--format=%(refname:short)", cwd=repo)
    assert git("show", f"{branch}:calc.py", cwd=repo).endswith("return a+b")
    assert f"{unused_ids()[0]} on ratchet-step-" in done.stdout
    verified = ratchet("verify", "last", cwd=repo, **env)
    assert verified.returncode == 0 and "green at the commit: 1 of 1 tests pass" in verified.stdout
    assert podman.engine.containers(LABEL) == []
