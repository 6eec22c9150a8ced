"""The program that keeps an unprivileged overlay mounted, by staying in its user and mount namespace.

Run as `python -I -S namespace_holder.py READY GO TARGET LOWER UPPER WORK`, by `process.spawn` only. It creates the
namespaces, mounts, reports on READY, waits on GO until its parent has recorded its pid (without the record, no
process could end it after the parent's death), and becomes `sleep`, which uses almost no memory.
"""

import ctypes
import os
import sys

CLONE_NEWNS, CLONE_NEWUSER = 0x20000, 0x10000000
MS_REC, MS_PRIVATE = 0x4000, 0x40000


def main(argv: list[str]) -> int:
    ready, go = int(argv[1]), int(argv[2])
    target, lower, upper, work = argv[3:7]
    try:
        enter_namespaces()
        sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
        import syscalls  # type: ignore[import-not-found]  # beside us: the package itself would be slow to load

        syscalls.mount_overlay(target, lower=lower, upper=upper, work=work, unprivileged=True)
    except OSError as error:
        os.write(ready, f"error {error.errno} {error.strerror}".encode())
        return 1
    os.write(ready, b"ready")
    os.close(ready)
    if not os.read(go, 1):
        return 1
    os.close(go)
    return os.execvp("sleep", ["sleep", "infinity"])


def enter_namespaces() -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    uid, gid = os.getuid(), os.getgid()
    if libc.unshare(CLONE_NEWUSER | CLONE_NEWNS):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), "unshare")
    for name, content in (("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"), ("gid_map", f"{gid} {gid} 1")):
        with open(f"/proc/self/{name}", "w") as file:
            file.write(content)
    if libc.mount(b"none", b"/", None, MS_REC | MS_PRIVATE, None):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), "/")


if __name__ == "__main__":
    sys.exit(main(sys.argv))
