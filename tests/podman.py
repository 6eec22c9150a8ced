"""A Podman of the test's own: its service on a socket, and an image whose programs are those of this machine."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ratchet.errors import RatchetError
from ratchet.process.containers import ContainerEngine

IMAGE = "localhost/ratchet-test:latest"
USER = 1000
ROOT = Path(__file__).parents[1]
# Limits are given, as this machine may not raise its own.
_CONF = """
[containers]
default_ulimits = ["nofile=20000:20000", "nproc=4096:4096"]
[engine]
runtime = "runc"
"""
_PASSWD = f"root:x:0:0:root:/root:/bin/sh\nratchet:x:{USER}:{USER}::/tmp/home:/bin/sh\n"


class Podman:
    """A Podman service with storage of its own, which can be killed and started again."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.address = f"unix://{folder}/podman.sock"
        self.engine = ContainerEngine(self.address)
        (folder / "containers.conf").write_text(_CONF)
        self.start()

    def start(self) -> None:
        argv = ["podman", *self._storage(), "system", "service", "--time", "0", self.address]
        with (self.folder / "service.log").open("ab") as log:
            self.service = subprocess.Popen(
                argv, cwd=self.folder, env=self._env(), stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        deadline = time.monotonic() + 30
        while True:
            try:
                self.engine.ping()
            except RatchetError:
                if self.service.poll() is not None or time.monotonic() > deadline:
                    pytest.skip(f"podman does not serve here: {(self.folder / 'service.log').read_text()[-300:]}")
                time.sleep(0.02)
            else:
                return

    def kill(self) -> None:
        self.service.kill()
        self.service.wait()

    def close(self) -> None:
        for row in self.engine.containers("ratchet.owner") if self.service.poll() is None else ():
            self.engine.remove(row.id)
        self.kill()
        subprocess.run(
            ["podman", *self._storage(), "system", "reset", "--force"],
            env=self._env(),
            capture_output=True,
            check=False,
        )

    def _storage(self) -> list[str]:
        places = ["--root", f"{self.folder}/root", "--runroot", f"{self.folder}/run", "--tmpdir", f"{self.folder}/tmp"]
        return [*places, "--storage-driver", "overlay"]  # nothing is shared with others

    def _env(self) -> dict[str, str]:
        return dict(os.environ) | {"CONTAINERS_CONF": f"{self.folder}/containers.conf", "HOME": str(self.folder)}


@contextmanager
def podman() -> Iterator[Podman]:
    missing = [name for name in ("podman", "runc") if not shutil.which(name)]
    if missing or os.geteuid() != 0:
        pytest.skip(
            f"{' and '.join(missing)} not installed: scripts/engines" if missing else "Podman is run as root here"
        )
    folder = Path(tempfile.mkdtemp(prefix="ratchet-podman-"))  # a socket's path must be short
    started = Podman(folder)
    try:
        started.engine.import_image(_root_file_system(folder), IMAGE)
        yield started
    finally:
        started.close()
        shutil.rmtree(folder, ignore_errors=True)


def _root_file_system(folder: Path) -> Path:
    """A root of a few kilobytes: what is missing is mounted from this machine, see `mounts`."""
    top = folder / "rootfs"
    for name in ("etc", "usr", "proc", "sys", "dev", "tmp", "run", "var", "root"):
        (top / name).mkdir(parents=True)
    (top / "tmp").chmod(0o1777)
    for name in ("bin", "lib", "lib64", "sbin"):
        (top / name).symlink_to(f"usr/{name}")
    (top / "etc/passwd").write_text(_PASSWD)
    (top / "etc/group").write_text(f"root:x:0:\nratchet:x:{USER}:\n")
    archive = folder / "rootfs.tar"
    with tarfile.open(archive, "w") as tar:
        tar.add(top, arcname=".")
    return archive


def mounts() -> list[str]:
    """This machine's programs, Python and Ratchet, read-only."""
    return [f"{place}:{place}:ro" for place in dict.fromkeys(["/usr", sys.base_prefix, sys.prefix, str(ROOT)])]


def path() -> str:
    return f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin"
