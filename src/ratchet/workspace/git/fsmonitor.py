"""The fsmonitor hook of overlay workspaces: reports to git, from the layer, which files may have changed.

Run by git as `python -I -S -E fsmonitor.py 2 TOKEN` in the workspace (`githooks(5)`, fsmonitor-watchman, version 2). It
never omits a change: it reports everything uncertain as changed, and fails when it cannot see the layer, so that git
checks every file.

A token records the layer's content when git last wrote its index: a removed file of the layer leaves no trace in it.
"""

import binascii
import os
import sys
import time
import zlib

FRESH = b"fresh"  # the base's own index: contains nothing from the layer
EVERYTHING = b"/"
TOKEN_MAX = 60_000  # it is passed back as an argument, whose size is limited
_RACY_NS = 50_000_000  # two changes within one clock tick have the same time
Held = dict[bytes, int]  # path, and for a folder of layer and base together (with a slash) its mtime


def main(argv: list[str]) -> int:
    if len(argv) != 3 or argv[1] != "2":
        return 1
    try:
        words = answer(os.fsencode(os.getcwd()), os.fsencode(argv[2]))
    except OSError:
        return 1
    sys.stdout.buffer.write(b"".join(word + b"\0" for word in words))
    return 0


def answer(top: bytes, token: bytes) -> list[bytes]:
    """Return the new token, then every path that may differ from the index."""
    upper, lower = find_layers(top)
    now = held_by(upper, top)
    before = decode(upper, token)
    paths = {EVERYTHING} if before is None else changed(now, before, lower)
    return [encode(upper, now), *sorted(paths)]


def find_layers(top: bytes) -> tuple[bytes, bytes]:
    """Return layer and base of the overlay mounted at `top`, from /proc/self/mountinfo."""
    options = b""
    with open("/proc/self/mountinfo", "rb") as mounts:
        for line in mounts:
            words = line.split()
            kind = words.index(b"-") + 1
            if _plain(words[4]) == top:
                options = words[kind + 2] if words[kind] == b"overlay" else b""
    return _option(options, b"upperdir="), _option(options, b"lowerdir=")


def _option(options: bytes, name: bytes) -> bytes:
    for option in options.replace(b"\\,", b"\0").split(b","):
        if option.startswith(name):
            return _plain(option.removeprefix(name).replace(b"\0", b",")).replace(b"\\:", b":")
    raise FileNotFoundError(name)


def _plain(path: bytes) -> bytes:
    for escaped, byte in ((b"\\040", b" "), (b"\\011", b"\t"), (b"\\012", b"\n"), (b"\\134", b"\\")):
        path = path.replace(escaped, byte)
    return path


def held_by(upper: bytes, top: bytes) -> Held:
    """Return the content of the layer. A folder that exists only in the layer, or is opaque, stands for its content."""
    held: Held = {}
    queue = [b""]
    while queue:
        folder = queue.pop()
        place = os.path.join(upper, folder)
        held[folder + b"/"] = os.stat(place).st_mtime_ns
        for entry in os.scandir(place):
            path = os.path.join(folder, entry.name)
            if path == b".git":
                continue
            if entry.is_dir(follow_symlinks=False) and _is_shared(entry, os.path.join(top, path)):
                queue.append(path)
            else:
                held[path] = 0
    return held


def _is_shared(entry: os.DirEntry[bytes], seen: bytes) -> bool:
    """A folder of layer and base together has one link, says the kernel; one that is the layer's has its own count."""
    try:
        return entry.stat(follow_symlinks=False).st_nlink > 1 and os.lstat(seen).st_nlink == 1
    except OSError:
        return False


def changed(now: Held, before: Held, lower: bytes) -> set[bytes]:
    paths = {path for path in (*now, *before) if not path.endswith(b"/")}
    for folder, mtime in now.items():
        # Something came or went there; what came and went since git wrote its index has no name any more.
        if folder.endswith(b"/") and mtime != (before[folder] if folder in before else _below(lower, folder)):
            paths.add(folder.removesuffix(b"/"))
    # Both ways: a file may have become a folder, and a folder a file.
    return {EVERYTHING} if b"" in paths else paths | {path + b"/" for path in paths}


def _below(lower: bytes, folder: bytes) -> int:
    """A folder that came into the layer took the base's time along, and keeps it until something comes or goes."""
    return os.stat(os.path.join(lower, folder.removesuffix(b"/"))).st_mtime_ns


def encode(upper: bytes, held: Held) -> bytes:
    settled = time.time_ns() - _RACY_NS
    rows = [b"%d %s" % (mtime if mtime < settled else 0, path) for path, mtime in held.items()]
    whole = b"\0".join([b"%d" % os.stat(upper).st_ino, *rows])
    token = binascii.b2a_base64(zlib.compress(whole, 1), newline=False)
    return token if len(token) <= TOKEN_MAX else b"large"


def decode(upper: bytes, token: bytes) -> Held | None:
    """Decode a token; None when it belongs to another layer."""
    if token == FRESH:
        return {}
    try:
        layer, *rows = zlib.decompress(binascii.a2b_base64(token)).split(b"\0")
        if int(layer) != os.stat(upper).st_ino:
            return None
        return {path: int(mtime) for mtime, path in (row.split(b" ", 1) for row in rows)}
    except (ValueError, zlib.error):
        return None


if __name__ == "__main__":
    sys.exit(main(sys.argv))
