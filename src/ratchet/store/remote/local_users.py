"""Finds which user of this machine has the other end of a connection: all users share its addresses and ports.

A server limits each user by it; a client sends its token to nobody else. Known on Linux only.
"""

from __future__ import annotations

import ipaddress
import os
import pwd
import socket
import struct
import time
from collections.abc import Sequence
from typing import NamedTuple

from ratchet.errors import EnvironmentCannot

Endpoint = tuple[str, int]
VARIABLE = "RATCHET_SERVER_USER"
ANYBODY = "any"
UNKNOWN = "this machine"
# Linux's sock_diag(7): one socket is looked up by its ends, which takes the same time however many there are.
_NETLINK_SOCK_DIAG, _BY_FAMILY, _REQUEST, _ANY = 4, 20, 1, 0xFFFFFFFF
_HEAD, _HEAD_BYTES, _UID_AT = "=IHHII", 16, 64  # of the message; the user and the inode in it
_ANSWER_S, _ACCEPT_S, _PAUSE_S = 0.2, 5.0, 0.0005


class SocketOwner(NamedTuple):
    """`inode` is 0 while no process has accepted the connection, or none has it any more: then `user` says nothing."""

    user: int
    inode: int


class ForeignServer(EnvironmentCannot):
    """Another user of this machine listens where the server was expected. Nothing was sent."""


def source_of(client: Endpoint, server: Endpoint) -> str:
    """Return where a connection comes from: a user of this machine, whatever address it uses; or a network address."""
    try:
        if user := local_user(client, server):
            return user
        address = ipaddress.ip_address(client[0])
    except ValueError:  # a path in place of an address
        return client[0]
    # A host of the network has a whole /64 of addresses.
    return str(address if address.version == 4 else ipaddress.ip_network((address, 64), strict=False))


def local_user(client: Endpoint, server: Endpoint) -> str:
    """Return which user of this machine has the client's end; UNKNOWN if that cannot be told, empty for other hosts."""
    owner = _owner(client, server)
    if owner and owner.inode:
        return f"user {owner.user}"
    return UNKNOWN if owner or _is_here(client[0], server[0]) else ""


def own_user() -> str:
    return f"user {os.geteuid()}"


def check_server(link: socket.socket, trusted: str = "") -> None:
    """Raise ForeignServer unless a process of this user, of root or of `trusted` has accepted this connection.

    A connection to another machine passes, and any where the kernel does not tell. Raises TimeoutError when nobody
    accepts: who listens says nothing about who will, and the kernel counts what is not accepted as root's.
    """
    ours, theirs = link.getsockname()[:2], link.getpeername()[:2]
    if trusted == ANYBODY or not _is_here(theirs[0], ours[0]) or not _owner(ours, theirs):
        return
    owner, end = None, time.monotonic() + _ACCEPT_S
    while not (owner := _owner(theirs, ours)) or not owner.inode:
        if time.monotonic() > end:
            raise TimeoutError(f"nobody accepts the connection (if the kernel forwards it: {VARIABLE}={ANYBODY})")
        time.sleep(_PAUSE_S)
    if owner.user not in {os.geteuid(), 0, *_ids(trusted)}:
        name = _name_of(owner.user)
        raise ForeignServer(
            f"{theirs[0]} port {theirs[1]} belongs to {name}, another user of this machine: the token was not sent",
            hint=f"start your server on another port; or, if {name} runs it for you, set {VARIABLE}={name}",
        )


def _is_here(one: str, other: str) -> bool:
    """Whether a connection between these addresses stays on this machine."""
    return one == other or ipaddress.ip_address(one).is_loopback


def _owner(end: Endpoint, other: Endpoint) -> SocketOwner | None:
    """Return who has the socket with these ends; None if there is no such socket here, or the kernel does not tell."""
    try:
        return _ask_kernel([_plain(end[0]), _plain(other[0])], [end[1], other[1]])
    except (OSError, ValueError, AttributeError, TypeError, struct.error):  # no Linux; a path in place of an address
        return None


def _plain(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    address = ipaddress.ip_address(text)
    return getattr(address, "ipv4_mapped", None) or address


def _ask_kernel(
    addresses: Sequence[ipaddress.IPv4Address | ipaddress.IPv6Address], ports: Sequence[int]
) -> SocketOwner | None:
    family = socket.AF_INET if addresses[0].version == 4 else socket.AF_INET6
    asked = struct.pack("=BBBBI", family, socket.IPPROTO_TCP, 0, 0, _ANY)
    asked += struct.pack("!HH16s16s", *ports, *(address.packed for address in addresses))
    asked += struct.pack("=III", 0, _ANY, _ANY)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_SOCK_DIAG) as link:
        link.settimeout(_ANSWER_S)
        link.send(struct.pack(_HEAD, _HEAD_BYTES + len(asked), _BY_FAMILY, _REQUEST, 1, 0) + asked)
        answer = link.recv(4096)
    _, kind, *_ = struct.unpack_from(_HEAD, answer)
    return SocketOwner(*struct.unpack_from("=II", answer, _HEAD_BYTES + _UID_AT)) if kind == _BY_FAMILY else None


def _ids(name: str) -> list[int]:
    if name.isdecimal():
        return [int(name)]
    try:
        return [pwd.getpwnam(name).pw_uid] if name else []
    except KeyError as error:
        raise EnvironmentCannot(
            f"{VARIABLE} names no user of this machine: {name}", hint=f"unset {VARIABLE}"
        ) from error


def _name_of(user: int) -> str:
    try:
        return pwd.getpwuid(user).pw_name
    except KeyError:
        return str(user)
