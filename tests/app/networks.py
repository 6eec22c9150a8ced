"""Hosts as network namespaces of this machine: each with a link to ours that can be cut, and processes of its own."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


def why_not() -> str:
    """Return why there can be no network namespaces here; empty if there can."""
    if not shutil.which("ip"):
        return "needs ip: install iproute2"
    made = subprocess.run(["ip", "netns", "add", f"probe{os.getpid()}"], capture_output=True, check=False)
    if made.returncode:
        return "needs network namespaces: run as root"
    subprocess.run(["ip", "netns", "del", f"probe{os.getpid()}"], check=True)
    return ""


@contextmanager
def common_address() -> Iterator[str]:
    """An address of ours that all hosts reach."""
    address = f"10.89.{os.getpid() % 200}.1"
    subprocess.run(["ip", "addr", "add", f"{address}/32", "dev", "lo"], check=True)
    try:
        yield address
    finally:
        subprocess.run(["ip", "addr", "del", f"{address}/32", "dev", "lo"], check=True)


class Network:
    """A host's namespace; `server` is our address as the host sees it, by which it reaches all others of ours."""

    def __init__(self, number: int) -> None:
        block = os.getpid() % 200
        self.space, self._link = f"ratchet{os.getpid()}-{number}", f"rth{os.getpid() % 100_000}{number}"
        self.server = f"10.{90 + number}.{block}.1"
        self._ip("netns", "add", self.space)
        self._ip("link", "add", self._link, "type", "veth", "peer", "name", "uplink", "netns", self.space)
        self._ip("addr", "add", f"{self.server}/30", "dev", self._link)
        self._ip("link", "set", self._link, "up")
        for words in (
            ("addr", "add", f"10.{90 + number}.{block}.2/30", "dev", "uplink"),
            ("link", "set", "uplink", "up"),
            ("link", "set", "lo", "up"),
            ("route", "add", "default", "via", self.server),
        ):
            self._ip("-n", self.space, *words)

    def cut(self) -> None:
        self._ip("link", "set", self._link, "down")

    def join(self) -> None:
        self._ip("link", "set", self._link, "up")

    def command(self, name: str) -> list[str]:
        """Return the words that start a program on the host: with process ids, as on a machine, of its own."""
        own = ["unshare", "--uts", "--pid", "--fork", "--kill-child", "--mount-proc"]
        return ["nsenter", f"--net=/run/netns/{self.space}", *own, "sh", "-c", f'hostname {name}; "$@"; exit', name]

    def freeze(self, how: signal.Signals = signal.SIGSTOP) -> None:
        """Stop all processes of the host, or let them go on."""
        for pid in self._pids():
            with suppress(ProcessLookupError):
                os.kill(pid, how)

    def processes(self) -> list[str]:
        """Return the command lines of what runs on the host."""
        return [line for pid in self._pids() if (line := _command_line(pid))]

    def _pids(self) -> list[int]:
        pids = subprocess.run(["ip", "netns", "pids", self.space], capture_output=True, text=True, check=True)
        return [int(pid) for pid in pids.stdout.split()]

    def remove(self) -> None:
        subprocess.run(["ip", "netns", "del", self.space], check=False)
        subprocess.run(["ip", "link", "del", self._link], capture_output=True, check=False)

    def _ip(self, *words: str) -> None:
        subprocess.run(["ip", *words], check=True)


def _command_line(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""
