"""Encrypts sealed files, so that artifacts, exports and the API hold nothing that a reader could use.

The key is in the user's state folder, hidden from every sandbox; `RATCHET_SEALING_KEY` gives several machines the same.
The cipher is the SHAKE-256 key stream with an HMAC over the plain text, which is also the nonce: the same files always
give the same artifact, and a changed artifact is refused.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets

import msgspec

from ratchet.core.receipt import Artifact
from ratchet.errors import EnvironmentCannot
from ratchet.files import make_private_dir, write_durably
from ratchet.paths import sealing_key_file
from ratchet.store.run_directory import RunDirectory

KEY_VARIABLE = "RATCHET_SEALING_KEY"
_TAG = 32


def seal(directory: RunDirectory, name: str, files: dict[str, bytes]) -> Artifact:
    """Store the files encrypted, as one artifact."""
    plain = msgspec.json.encode(dict(sorted(files.items())))
    return directory.put(f"sealed/{name}.bin", encrypt(plain, _key()))


def unseal(directory: RunDirectory, artifact: Artifact) -> dict[str, bytes]:
    return msgspec.json.decode(decrypt(directory.get(artifact), _key()), type=dict[str, bytes])


def encrypt(plain: bytes, key: bytes) -> bytes:
    tag = hmac.digest(key, b"tag" + plain, "sha256")
    return tag + _xor(plain, key, tag)


def decrypt(sealed: bytes, key: bytes) -> bytes:
    tag, text = sealed[:_TAG], sealed[_TAG:]
    plain = _xor(text, key, tag)
    if not hmac.compare_digest(tag, hmac.digest(key, b"tag" + plain, "sha256")):
        raise EnvironmentCannot(
            f"the sealed tests of this run were written with another {KEY_VARIABLE}: it must be the same on every host",
            hint=f"set {KEY_VARIABLE} to the same value on every host, or continue the run where it began",
        )
    return plain


def _xor(text: bytes, key: bytes, nonce: bytes) -> bytes:
    stream = hashlib.shake_256(b"stream" + key + nonce).digest(len(text))
    return (int.from_bytes(text) ^ int.from_bytes(stream)).to_bytes(len(text))


def key_for_other_hosts() -> str:
    """Return the value of `RATCHET_SEALING_KEY` with which another host has the key of this one."""
    return os.environ.get(KEY_VARIABLE) or f"{_WHOLE_KEY}{_key().hex()}"


_WHOLE_KEY = "key:"  # before the key itself, in hexadecimal digits; anything else is hashed


def _key() -> bytes:
    if given := os.environ.get(KEY_VARIABLE):
        if given.startswith(_WHOLE_KEY):
            return bytes.fromhex(given.removeprefix(_WHOLE_KEY))
        return hashlib.sha256(given.encode()).digest()
    path = sealing_key_file()
    if not path.is_file():
        make_private_dir(path.parent)
        mine = path.with_name(f"{path.name}.{os.getpid()}")
        write_durably(mine, secrets.token_bytes(32))
        try:
            os.link(mine, path)  # of several that make one at the same time, the first wins
        except FileExistsError:
            pass
        finally:
            mine.unlink()
    return path.read_bytes()
