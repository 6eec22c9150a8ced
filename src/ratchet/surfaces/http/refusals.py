"""Every no: an error of ours, of the caller or of the machine as a status and a `Problem`. No stack trace goes out."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Mapping

import msgspec

from ratchet.core.api import Problem
from ratchet.errors import (
    Conflict,
    DiskFull,
    EnvironmentCannot,
    LeaseHeld,
    LeaseLost,
    NotFound,
    RatchetError,
    UsageError,
)

log = logging.getLogger("ratchet.http")

# The first that fits.
_STATUS: tuple[tuple[type[RatchetError], int, str], ...] = (
    (NotFound, 404, "not_found"),
    (Conflict, 409, "conflict"),
    (UsageError, 422, "invalid"),
    (LeaseLost, 409, "lease_lost"),
    (LeaseHeld, 409, "lease_held"),
    (EnvironmentCannot, 503, "unavailable"),
)


class Refusal(Exception):
    """A no that HTTP itself asks for."""

    def __init__(
        self, status: int, code: str, error: str, *, hint: str = "", headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(error)
        self.status, self.headers = status, dict(headers or {})
        self.problem = Problem(error=error, code=code, hint=hint)


def unauthorized(error: str, hint: str) -> Refusal:
    return Refusal(401, "unauthorized", error, hint=hint, headers={"www-authenticate": 'Bearer realm="ratchet"'})


def refusal_of(error: Exception) -> Refusal:
    if isinstance(error, Refusal):
        return error
    if isinstance(error, msgspec.ValidationError):
        return _invalid(error)
    if isinstance(error, msgspec.DecodeError):
        return Refusal(400, "bad_json", f"the body is no JSON: {error}", hint="send one JSON object, in UTF-8")
    if isinstance(error, RatchetError):
        return _ours(error)
    return Refusal(500, "internal", "something went wrong here", hint=_logged(error))


def _ours(error: RatchetError) -> Refusal:
    status, code = next(
        ((status, code) for kind, status, code in _STATUS if isinstance(error, kind)), (500, "internal")
    )
    if status >= 500:  # what is wrong with the machine is for its owner's log
        said = "no room is left" if isinstance(error, DiskFull) else "the store cannot be used now"
        return Refusal(status, code, said, hint=_logged(error), headers={"retry-after": "1"})
    made = Refusal(status, code, error.message, hint=error.hint)
    made.problem = msgspec.structs.replace(made.problem, details={key: str(value) for key, value in error.ids.items()})
    return made


def _logged(error: Exception) -> str:
    reference = secrets.token_hex(6)
    log.error("%s: a request failed", reference, exc_info=error)
    return f"the server's log tells more under {reference}"


def _invalid(error: msgspec.ValidationError) -> Refusal:
    what, _, where = str(error).partition(" - at `")
    made = Refusal(422, "invalid", what, hint="/openapi.json describes what is taken")
    if where:
        made.problem = msgspec.structs.replace(made.problem, details={"at": where.rstrip("`")})
    return made
