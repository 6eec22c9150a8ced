"""Every test gets a quiet environment of its own: no settings, no state and no git identity of whoever runs it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from ratchet.workspace.syscalls import unmount


@pytest.fixture(autouse=True)
def quiet(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in [name for name in os.environ if name.startswith(("RATCHET_", "GIT_", "PYTEST_ADDOPTS"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)


@pytest.fixture(scope="session", autouse=True)
def _nothing_stays_mounted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What a failed test left mounted would keep pytest from ever removing its folders."""
    yield
    base = str(tmp_path_factory.getbasetemp())
    for line in reversed(Path("/proc/self/mounts").read_text().splitlines()):
        target = line.split()[1]
        if target.startswith(base) and os.geteuid() == 0:
            unmount(target)
    for home in Path("/dev/shm").glob("ratchet-*/home"):
        if str(home.readlink()).startswith(base):
            shutil.rmtree(home.parent)
