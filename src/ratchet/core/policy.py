"""Every bound of a run, with its default. Nothing is unbounded."""

from __future__ import annotations

from typing import Annotated

import msgspec

Count = Annotated[int, msgspec.Meta(ge=1, le=200)]


class Policy(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Counts. Times are in the configuration: they decide when to stop waiting, not what the run does next."""

    iterations: Count = 15
    attempts: Count = 3
    audit_tries: Count = 3
    refactor_interval: Annotated[int, msgspec.Meta(ge=0, le=200)] = 3
    review_rounds: Count = 3
    review_tries: Count = 3
    resumes: Count = 25
