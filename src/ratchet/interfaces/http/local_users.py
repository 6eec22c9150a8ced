"""Finds which local user a loopback connection comes from: all users of a machine share its address."""

from __future__ import annotations

import ipaddress
import socket
import sys
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

Client = tuple[str, int]
_TABLES = {socket.AF_INET: Path("/proc/net/tcp"), socket.AF_INET6: Path("/proc/net/tcp6")}
_LOCAL, _UID = 1, 7  # columns


def users_of(clients: Iterable[Client]) -> dict[Client, str]:
    """Return the user ids of clients on this machine, by Linux's tables of connections."""
    wanted = {row: client for client in clients if (row := _as_in_table(client))}
    found: dict[Client, str] = {}
    for table in _TABLES.values() if wanted else ():
        with suppress(OSError):
            for line in table.read_text("ascii").splitlines()[1:]:
                columns = line.split()
                if client := wanted.get(columns[_LOCAL]):
                    found[client] = columns[_UID]
    return found


def _as_in_table(client: Client) -> str:
    """Return a loopback address as the kernel prints it: words of the machine's own byte order. Empty for others."""
    try:
        address = ipaddress.ip_address(client[0])
    except ValueError:
        return ""
    if not address.is_loopback:
        return ""
    words = [address.packed[at : at + 4] for at in range(0, len(address.packed), 4)]
    shown = [word[::-1] if sys.byteorder == "little" else word for word in words]
    return f"{b''.join(shown).hex().upper()}:{client[1]:04X}"
