"""Every test gets a quiet environment of its own: no settings, no state and no git identity of whoever runs it."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from ratchet.workspace import directories
from ratchet.workspace.capacity import RAM
from ratchet.workspace.syscalls import is_mounted, unmount

# No test is red because the machine was busy.
settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")


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
    """What a test left mounted would keep pytest from ever removing its folders; that of a killed session too."""
    base = tmp_path_factory.getbasetemp()
    for earlier in _dead_sessions(base):
        _unmount_below(f"{earlier}/")
    yield
    _unmount_below(f"{base}/")


@pytest.fixture(scope="session", autouse=True)
def _no_database_server_stays() -> Iterator[None]:
    yield
    if servers := sys.modules.get("tests.contract.servers"):
        servers.end_server()


def _dead_sessions(base: Path) -> list[Path]:
    """Folders of sessions that are over, by the process that pytest writes down in each."""
    root = next((folder for folder in base.parents if folder.name.startswith("pytest-of-")), None)
    return [folder for folder in root.glob("pytest-*") if not _is_alive(folder / ".lock")] if root else []


def _is_alive(lock: Path) -> bool:
    try:
        return Path(f"/proc/{int(lock.read_text())}").exists()
    except (OSError, ValueError):
        return lock.parent.is_symlink()  # `pytest-current` leads to one that has its own


def _unmount_below(base: str) -> None:
    for line in reversed(Path("/proc/self/mounts").read_text().splitlines()):
        target = line.split()[1]
        if target.startswith(base) and os.geteuid() == 0:
            unmount(target)
    for home, name in directories.list_on_ram(RAM):
        if name.startswith(base):
            if is_mounted(f"{home}/tree"):
                unmount(f"{home}/tree")
            shutil.rmtree(home, ignore_errors=True)
