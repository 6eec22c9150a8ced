"""Maps exceptions to HTTP status codes and `Problem` bodies. Stack traces go to the log only."""

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

# The first matching class decides.
_STATUS: tuple[tuple[type[RatchetError], int, str], ...] = (
    (NotFound, 404, "not_found"),
    (Conflict, 409, "conflict"),
    (UsageError, 422, "invalid"),
    (LeaseLost, 409, "lease_lost"),
    (LeaseHeld, 409, "lease_held"),
    (EnvironmentCannot, 503, "unavailable"),
)


class HttpError(Exception):
    """An error response with its status, code and hint."""

    def __init__(
        self, status: int, code: str, error: str, *, hint: str = "", headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(error)
        self.status, self.headers = status, dict(headers or {})
        self.problem = Problem(error=error, code=code, hint=hint)


def unauthorized(error: str, hint: str) -> HttpError:
    return HttpError(401, "unauthorized", error, hint=hint, headers={"www-authenticate": 'Bearer realm="ratchet"'})


def http_error_of(error: Exception) -> HttpError:
    if isinstance(error, HttpError):
        return error
    if isinstance(error, msgspec.ValidationError):
        return _invalid(error)
    if isinstance(error, msgspec.DecodeError):
        return HttpError(400, "bad_json", f"invalid JSON: {error}", hint="send one JSON object in UTF-8")
    if isinstance(error, RatchetError):
        return _ours(error)
    return HttpError(500, "internal", "internal server error", hint=_logged(error))


def _ours(error: RatchetError) -> HttpError:
    status, code = next(
        ((status, code) for kind, status, code in _STATUS if isinstance(error, kind)), (500, "internal")
    )
    if status >= 500:  # details of server-side errors go to the log only
        text = "the disk is full" if isinstance(error, DiskFull) else "the store is not available"
        return HttpError(status, code, text, hint=_logged(error), headers={"retry-after": "1"})
    made = HttpError(status, code, error.message, hint=error.hint)
    made.problem = msgspec.structs.replace(made.problem, details={key: str(value) for key, value in error.ids.items()})
    return made


def _logged(error: Exception) -> str:
    reference = secrets.token_hex(6)
    log.error("request failed (%s)", reference, exc_info=error)
    return f"see {reference} in the server's log"


def _invalid(error: msgspec.ValidationError) -> HttpError:
    what, _, where = str(error).partition(" - at `")
    made = HttpError(422, "invalid", what, hint="/openapi.json describes the request")
    if where:
        made.problem = msgspec.structs.replace(made.problem, details={"at": where.rstrip("`")})
    return made
