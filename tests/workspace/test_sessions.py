"""Our own tests clean up after each other: also after a session that was killed in the middle."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LEAVES = """
import os
from tests.workspace.conftest import make

def test_leaves_mounts(plain, repo):
    for kind in ("overlay-ram", "overlay-disk"):
        make(plain, repo, kind, kind=kind)
    os.kill(os.getpid(), 9)
"""


def session(tmp_path: Path, *words: str) -> int:
    env = {**os.environ, "PYTEST_DEBUG_TEMPROOT": str(tmp_path), "PYTHONPATH": str(ROOT)}
    env.pop("PYTEST_DISABLE_PLUGIN_AUTOLOAD", None)
    argv = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--rootdir={ROOT}", *words]
    return subprocess.run(argv, cwd=ROOT, env=env, capture_output=True, check=False).returncode


def test_the_next_session_unmounts_what_a_killed_one_left(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("mounting needs root")
    killed = Path(__file__).with_name(f"test_killed_{os.getpid()}.py")
    killed.write_text(LEAVES)
    try:
        assert session(tmp_path, str(killed)) == -9
    finally:
        killed.unlink()
    assert str(tmp_path) in Path("/proc/self/mounts").read_text()
    assert session(tmp_path, str(Path(__file__).with_name("test_manifests.py"))) == 0
    assert str(tmp_path) not in Path("/proc/self/mounts").read_text()
