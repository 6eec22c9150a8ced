"""The program that makes a machine around a command: run as `python -I -S machine.py JSON COMMAND…`.

It unshares namespaces, mounts, changes user and restricts itself, then becomes the command. Nothing of it outlives the
command, and nothing of the host changes: every mount is in a private mount namespace, and the limit of user namespaces
is set in a user namespace of its own. An ordinary user who runs it is root in a user namespace first.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

UID = 64123
CLONE_NEWNS, CLONE_NEWUSER = 0x20000, 0x10000000
MS_BIND, MS_REC, MS_PRIVATE = 0x1000, 0x4000, 0x40000
PR_CAPBSET_DROP, PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 24, 22, 2
# The capabilities that container engines leave to root, by number: chown, dac_override, fowner, fsetid, kill, setgid,
# setuid, setpcap, net_bind_service, net_raw, sys_chroot, mknod, audit_write, setfcap.
CONTAINER_CAPABILITIES = {0, 1, 3, 4, 5, 6, 7, 8, 10, 13, 18, 27, 29, 31}
# Numbers of system calls: x86-64, arm64.
AUDIT_ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
MOUNTS = {
    "x86_64": (165, 166, 155, 428, 429, 430, 432, 442),  # mount, umount2, pivot_root, open_tree, move_mount, fsopen …
    "aarch64": (40, 39, 41, 428, 429, 430, 432, 442),
}
UNSHARES = {"x86_64": (56, 272), "aarch64": (220, 97)}  # clone, unshare
CLONE3 = 435
DEVICES = ("null", "zero", "full", "random", "urandom", "tty")

_libc = ctypes.CDLL(None, use_errno=True)


def main(argv: list[str]) -> int:
    machine, command = json.loads(argv[1]), argv[2:]
    folder = Path.cwd()
    if machine["namespaces"]:
        _own_namespaces(limited=machine["no_user_namespaces"])
        _mount_all(machine)
        _become_user(machine)
    os.umask(machine["umask"])
    os.chdir(folder)  # through the mounts that were made since
    os.execvpe(command[0], command, machine["env"])
    return 1


# --- namespaces ---------------------------------------------------------------------------------------------------


def _own_namespaces(*, limited: bool) -> None:
    uid, gid = os.getuid(), os.getgid()
    if uid:
        _unshare(CLONE_NEWUSER | CLONE_NEWNS)
        _map(os.getpid(), f"0 {uid} 1", f"0 {gid} 1", setgroups="deny")
    elif limited:
        _with_helper(lambda pid: _map(pid, "0 0 4294967295", "0 0 4294967295"), CLONE_NEWUSER)
        _unshare(CLONE_NEWNS)
    else:
        _unshare(CLONE_NEWNS)
    if limited and not uid:
        Path("/proc/sys/user/max_user_namespaces").write_text("0")
    _check(_libc.mount(b"none", b"/", None, MS_REC | MS_PRIVATE, None))


def _become_user(machine: dict) -> None:  # type: ignore[type-arg]
    for number in range(41) if machine["few_capabilities"] else []:
        if number not in CONTAINER_CAPABILITIES:
            _libc.prctl(PR_CAPBSET_DROP, number, 0, 0, 0)  # a kernel without this one has nothing to drop
    ordinary = machine["user"] != "root"
    nested = Path("/proc/self/uid_map").read_text().split()[2] == "1"  # an ordinary user made our namespace
    if ordinary and nested:
        _unshare(CLONE_NEWUSER)
        _map(os.getpid(), f"{UID} 0 1", f"{UID} 0 1", setgroups="deny")
        if machine["no_user_namespaces"]:
            Path("/proc/sys/user/max_user_namespaces").write_text("0")
    if machine["seccomp"]:  # while we have CAP_SYS_ADMIN, and nothing more to unshare
        _filter_system_calls(machine["seccomp"])
    if ordinary and not nested:
        os.setgroups([])
        os.setresgid(UID, UID, UID)
        os.setresuid(UID, UID, UID)


def _with_helper(act: Callable[[int], None], flags: int) -> None:
    """Unshare, and let a process outside of the new namespace act on us: only that one may map every user."""
    pid, (ready, write_ready), (done, write_done) = os.getpid(), os.pipe(), os.pipe()
    helper = os.fork()
    if not helper:
        os.close(write_ready)
        os.read(ready, 1)
        act(pid)
        os._exit(0)
    os.close(write_done)
    _unshare(flags)
    os.close(write_ready)
    os.read(done, 1)
    if os.waitpid(helper, 0)[1]:
        raise OSError(errno.EPERM, "the user namespace could not be mapped")
    os.close(ready)
    os.close(done)


def _map(pid: int, users: str, groups: str, *, setgroups: str = "") -> None:
    if setgroups:
        Path(f"/proc/{pid}/setgroups").write_text(setgroups)
    Path(f"/proc/{pid}/uid_map").write_text(users)
    Path(f"/proc/{pid}/gid_map").write_text(groups)


def _unshare(flags: int) -> None:
    _check(_libc.unshare(flags))


def _check(result: int) -> None:
    if result:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


# --- mounts -------------------------------------------------------------------------------------------------------


def _mount_all(machine: dict) -> None:  # type: ignore[type-arg]
    own = Path(machine["folder"])
    empty, users = own / "empty", own / "passwd"
    empty.touch(mode=0o644)
    for path in machine["hidden"]:
        _mount("--bind", str(empty), path)
    if machine["shm_mb"]:
        _mount("-t", "tmpfs", "-o", f"size={machine['shm_mb']}m,mode=1777", "tmpfs", "/dev/shm")
    if machine["bare_dev"]:
        _bare_dev(own / "dev")
    if machine["user"] != "root":
        users.write_text(
            f"{Path('/etc/passwd').read_text()}machine:x:{UID}:{UID}::{machine['env'].get('HOME', '/')}:/bin/sh\n"
        )
        users.chmod(0o644)
        _mount("--bind", str(users), "/etc/passwd")
        _expose(machine["needed"], own)
    if machine["noexec_tmp"]:
        _noexec_tmp([str(own), *machine["needed"]])


def _noexec_tmp(used: list[str]) -> None:
    """Mount a new /tmp, open to everybody whatever the host's is like, with what is used of the old one in it.

    These paths are in /tmp only because the tests run there, so programs may be started from them.
    """
    kept = {path: os.open(path, os.O_PATH) for path in used if path.startswith("/tmp/")}
    _mount("-t", "tmpfs", "-o", "noexec,mode=1777", "tmpfs", "/tmp")
    for path, opened in kept.items():
        Path(path).mkdir(parents=True, exist_ok=True)
        # Not by the program mount: it would resolve the link to a path that is covered now.
        _check(_libc.mount(f"/proc/self/fd/{opened}".encode(), path.encode(), None, MS_BIND | MS_REC, None))
        os.close(opened)


def _bare_dev(new: Path) -> None:
    """A /dev with the nodes that container engines make, and no others."""
    new.mkdir(exist_ok=True)
    _mount("-t", "tmpfs", "-o", "mode=755", "tmpfs", str(new))
    for name in DEVICES:
        (new / name).touch()
        _mount("--bind", f"/dev/{name}", f"{new}/{name}")
    for name in ("shm", "pts"):
        (new / name).mkdir()
        _mount("--rbind", f"/dev/{name}", f"{new}/{name}")
    for name, target in {"fd": "", "stdin": "/0", "stdout": "/1", "stderr": "/2"}.items():
        (new / name).symlink_to(f"/proc/self/fd{target}")
    (new / "ptmx").symlink_to("pts/ptmx")
    _mount("--rbind", str(new), "/dev")


def _expose(paths: list[str], own: Path) -> None:
    """Make paths reachable for the ordinary user although a folder above is closed: an interpreter in /root, a tree in
    a home that only its owner may enter. All are bound aside first, because paths may share that folder."""
    closed = {path: [each for each in Path(path).parents if not each.stat().st_mode & 0o001] for path in paths}
    asides = {path: own / f"needed-{number}" for number, path in enumerate(paths) if closed[path]}
    for path, aside in asides.items():
        aside.mkdir(exist_ok=True)
        _mount("--rbind", path, str(aside))
    for folder in {str(closed[path][-1]) for path in asides}:
        _mount("-t", "tmpfs", "-o", "mode=755", "tmpfs", folder)
    for path, aside in asides.items():
        Path(path).mkdir(parents=True, exist_ok=True)
        _mount("--rbind", str(aside), path)


def _mount(*words: str) -> None:
    subprocess.run(["mount", *words], check=True)


# --- system calls -------------------------------------------------------------------------------------------------


def _filter_system_calls(kind: str) -> None:
    """`apparmor`: user namespaces can be made, but nothing can be mounted in them, as Ubuntu restricts them.
    `container`: neither, as the default profiles of container engines have it."""
    arch = os.uname().machine
    denied = errno.EACCES if kind == "apparmor" else errno.EPERM
    load, equal, masked, leave = 0x20, 0x15, 0x45, 0x06
    program = [(load, 0, 0, 4), (equal, 1, 0, AUDIT_ARCH[arch]), (leave, 0, 0, 0x7FFF0000), (load, 0, 0, 0)]
    for number in MOUNTS[arch]:
        program += [(equal, 0, 1, number), (leave, 0, 0, 0x50000 | denied)]
    if kind == "container":
        program += [(equal, 0, 1, CLONE3), (leave, 0, 0, 0x50000 | errno.ENOSYS)]  # its flags cannot be seen from here
        for number in UNSHARES[arch]:
            # The first argument holds the flags: any of the CLONE_NEW… is denied, threads and children are not.
            program += [(equal, 0, 4, number), (load, 0, 0, 16), (masked, 0, 1, 0x7E020000)]
            program += [(leave, 0, 0, 0x50000 | denied), (load, 0, 0, 0)]
    program.append((leave, 0, 0, 0x7FFF0000))
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *each) for each in program))

    class Program(ctypes.Structure):
        _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_void_p))

    given = Program(len(program), ctypes.addressof(code))
    _check(_libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.byref(given), 0, 0))


if __name__ == "__main__":
    sys.exit(main(sys.argv))
