"""Bearer tokens: the server's token for its owner, a lease token for each worker."""

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
    """Return the token from the file or the environment; empty if neither is given. Raises UsageError."""
    if file:
        return _checked(_read(file), str(file))
    return _checked(environ[VARIABLE], VARIABLE) if VARIABLE in environ else ""


def kept_token(file: Path) -> str:
    """Read the user's token file; create it if missing. Only its owner can read it."""
    if not file.exists():
        _make(file)
    return _checked(_read(file), str(file))


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


def is_same_token(one: bytes, other: bytes) -> bool:
    """Compare in constant time, independent of content and length."""
    return hmac.compare_digest(hashlib.sha256(one).digest(), hashlib.sha256(other).digest())


def bearer_token(headers: Mapping[str, str]) -> bytes:
    scheme, _, token = headers.get("authorization", "").partition(" ")
    return token.strip().encode("latin-1") if scheme.lower() == "bearer" else b""


def _make(file: Path) -> None:
    """Create the token file atomically with a hard link, so that servers starting together use the same token."""
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
            raise UsageError(f"{file} is readable by other users", hint=f"chmod 600 {file}")
        return file.read_text("ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read the token file {file}: {error}", hint="check the path") from error


def _checked(token: str, where: str) -> str:
    if not _TOKEN.fullmatch(token):
        raise UsageError(
            f"the token in {where} must be {TOKEN_MIN_CHARS} to 500 printable characters without spaces",
            hint='generate one: python3 -c "import secrets; print(secrets.token_urlsafe(32))"',
        )
    return token
