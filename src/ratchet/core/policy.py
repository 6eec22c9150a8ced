"""Every bound of a run, with its default. Nothing is unbounded."""

from __future__ import annotations

from typing import Annotated

import msgspec

Count = Annotated[int, msgspec.Meta(ge=1, le=200)]


class Policy(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Counts. How long to wait for one answer is in the configuration: it does not decide what the run does next.

    `attempts` is for one test, task or failure; `idle` is after how many iterations without a finished task a loop is
    stuck; `parallel` is the size of a swarm. `cents` and `agent_s` are what all agents together may cost and take;
    `steps` holds also for a workflow that counts nothing itself. `disclosures` is how often agents may learn
    a verdict of people's sealed tests.
    """

    iterations: Count = 15
    attempts: Count = 3
    audit_tries: Count = 3
    refactor_interval: Annotated[int, msgspec.Meta(ge=0, le=200)] = 3
    review_rounds: Count = 3
    review_tries: Count = 3
    spec_tries: Count = 2
    idle: Count = 3
    disclosures: Count = 10
    parallel: Annotated[int, msgspec.Meta(ge=1, le=64)] = 4
    resumes: Count = 25
    steps: Annotated[int, msgspec.Meta(ge=1)] = 2_000
    cents: Annotated[int, msgspec.Meta(ge=1)] = 5_000
    agent_s: Annotated[int, msgspec.Meta(ge=1)] = 6 * 3600
