"""A seccomp filter for sandboxes: refuses calls that reach the kernel's state or hold terminals or files of others."""

from __future__ import annotations

import errno
import os
import struct
from functools import lru_cache
from pathlib import Path

from ratchet import paths
from ratchet.files import make_private_dir, write_whole

_TIOCSTI, _TIOCLINUX = 0x5412, 0x541C  # type characters into a terminal; both are refused
_X32 = 0x40000000  # system calls of x32 have this bit; the numbers below do not name them
_IOCTL, _REFUSED = 0, slice(1, None)
# By audit architecture: ioctl, then add_key, request_key, keyctl (the keyring of the real user), bpf, perf_event_open,
# userfaultfd, kexec_load, init_module, finit_module, delete_module, open_by_handle_at, kexec_file_load.
_CALLS = {
    0xC000003E: (16, 248, 249, 250, 321, 298, 323, 246, 175, 313, 176, 304, 320),  # x86_64
    0x40000003: (54, 286, 287, 288, 357, 336, 374, 283, 128, 350, 129, 342),  # i386
    0xC00000B7: (29, 217, 218, 219, 280, 241, 282, 104, 105, 273, 106, 265, 294),  # aarch64
}
# A lease on a file, also on one that is lent read-only, has everybody else wait who opens it.
_SETLEASE = 1024
_FCNTL = {0xC000003E: (72,), 0x40000003: (55, 221), 0xC00000B7: (25,)}
_LOAD, _EQUAL, _AT_LEAST, _RETURN = 0x20, 0x15, 0x35, 0x06  # BPF: ld [k], jeq, jge, ret
_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000
_NUMBER_AT, _ARCH_AT, _ARGUMENT_AT = 0, 4, 24  # in struct seccomp_data; the second argument's low half
MACHINES = ("x86_64", "aarch64")


def _instruction(code: int, value: int, jump_false: int = 0) -> bytes:
    return struct.pack("=HBBI", code, 0, jump_false, value)


def _refuse(number: int, why: int = errno.EPERM) -> bytes:
    return _instruction(_EQUAL, number, 1) + _instruction(_RETURN, _ERRNO | why)


def _refuse_argument(number: int, *values: int) -> bytes:
    """Refuse a call with one of these values as its second argument, and allow it with others."""
    looks = _instruction(_LOAD, _ARGUMENT_AT) + b"".join(map(_refuse, values)) + _instruction(_RETURN, _ALLOW)
    return _instruction(_EQUAL, number, len(looks) // 8) + looks


def _calls_of(arch: int, numbers: tuple[int, ...]) -> bytes:
    block = _instruction(_LOAD, _NUMBER_AT)
    block += _instruction(_AT_LEAST, _X32, 1) + _instruction(_RETURN, _ERRNO | errno.ENOSYS)
    block += b"".join(_refuse(number) for number in numbers[_REFUSED])
    block += b"".join(_refuse_argument(number, _SETLEASE) for number in _FCNTL[arch])
    block += _refuse_argument(numbers[_IOCTL], _TIOCSTI, _TIOCLINUX)
    block += _instruction(_RETURN, _ALLOW)
    return _instruction(_EQUAL, arch, len(block) // 8) + block


def program() -> bytes:
    """Return the filter in the kernel's own format. A foreign architecture has no system calls."""
    blocks = b"".join(_calls_of(arch, numbers) for arch, numbers in _CALLS.items())
    return _instruction(_LOAD, _ARCH_AT) + blocks + _instruction(_RETURN, _ERRNO | errno.ENOSYS)


@lru_cache(maxsize=1)
def filter_file() -> Path | None:
    """Return a file with the filter, which bubblewrap loads; None on a machine whose calls are not in the table."""
    if os.uname().machine not in MACHINES:
        return None
    file = make_private_dir(paths.cache_or_state() / "sandbox") / "filter.bpf"
    if not file.is_file() or file.read_bytes() != program():
        write_whole(file, program())
    return file
