"""Who may: the server's token for its owner, a lease's token for its worker. No one gets in without one."""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import os
import re
import secrets
from collections.abc import Mapping
from pathlib import Path

from ratchet.errors import UsageError
from ratchet.files import make_private_dir, write_durably

TOKEN_MIN_CHARS = 16
VARIABLE = "RATCHET_TOKEN"
_TOKEN = re.compile(rf"[!-~]{{{TOKEN_MIN_CHARS},500}}")


def given_token(environ: Mapping[str, str], file: Path | None) -> str:
    """The token somebody chose: in a file they name, or in the environment. Raises UsageError."""
    if file:
        return _checked(_read(file), str(file))
    return _checked(environ[VARIABLE], VARIABLE) if VARIABLE in environ else ""


def kept_token(file: Path) -> str:
    """The token of this machine's user, made when there is none yet. Readable by its owner only."""
    if not file.exists():
        _make(file)
    return _checked(_read(file), str(file))


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


def same(one: bytes, other: bytes) -> bool:
    """In a time that tells neither where they differ nor how long they are."""
    return hmac.compare_digest(hashlib.sha256(one).digest(), hashlib.sha256(other).digest())


def bearer(headers: Mapping[bytes, bytes]) -> bytes:
    scheme, _, token = headers.get(b"authorization", b"").partition(b" ")
    return token.strip() if scheme.lower() == b"bearer" else b""


def _make(file: Path) -> None:
    """Two servers that start at once agree: a link is made once."""
    mine = make_private_dir(file.parent) / f".{file.name}.{secrets.token_hex(8)}"
    write_durably(mine, f"{secrets.token_urlsafe(32)}\n".encode())
    try:
        os.link(mine, file)
    except FileExistsError:
        pass
    finally:
        mine.unlink()


def _read(file: Path) -> str:
    try:
        if file.stat().st_mode & 0o077:
            raise UsageError(f"{file} can be read by others", hint=f"chmod 600 {file}")
        return file.read_text("ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"the token file {file} cannot be read: {error}", hint="check the path") from error


def _checked(token: str, where: str) -> str:
    if not _TOKEN.fullmatch(token):
        raise UsageError(
            f"the token in {where} is not {TOKEN_MIN_CHARS} to 500 printable characters without spaces",
            hint='python3 -c "import secrets; print(secrets.token_urlsafe(32))" makes a good one',
        )
    return token
