"""Finds which local user a loopback connection comes from: all users of a machine share its address."""

from __future__ import annotations

import ipaddress
import socket
import struct

Endpoint = tuple[str, int]
# Linux's sock_diag(7): one socket is looked up by its ends, which takes the same time however many there are.
_NETLINK_SOCK_DIAG, _BY_FAMILY, _REQUEST, _ANY = 4, 20, 1, 0xFFFFFFFF
_HEAD, _HEAD_BYTES, _UID_AT = "=IHHII", 16, 64  # of the message; the user in it
_ANSWER_S = 0.2


def source_of(client: Endpoint, server: tuple[str, int | None]) -> str:
    """Return where a connection comes from: the address, and for one of this machine its user, where that is known."""
    try:
        address = ipaddress.ip_address(client[0])
        user = _user_of(address, client, server) if address.is_loopback else ""
    except (OSError, ValueError, AttributeError, struct.error):  # no Linux, or a path in place of an address
        user = ""
    return f"{client[0]} {user}".rstrip()


def _user_of(
    address: ipaddress.IPv4Address | ipaddress.IPv6Address, client: Endpoint, server: tuple[str, int | None]
) -> str:
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    ends = [address.packed, ipaddress.ip_address(server[0]).packed]
    asked = struct.pack("=BBBBI", family, socket.IPPROTO_TCP, 0, 0, _ANY)
    asked += struct.pack("!HH16s16s", client[1], server[1], *ends) + struct.pack("=III", 0, _ANY, _ANY)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_SOCK_DIAG) as link:
        link.settimeout(_ANSWER_S)
        link.send(struct.pack(_HEAD, _HEAD_BYTES + len(asked), _BY_FAMILY, _REQUEST, 1, 0) + asked)
        answer = link.recv(4096)
    _, kind, *_ = struct.unpack_from(_HEAD, answer)
    return str(struct.unpack_from("=I", answer, _HEAD_BYTES + _UID_AT)[0]) if kind == _BY_FAMILY else ""
