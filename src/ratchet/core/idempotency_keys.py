"""Idempotency keys: the same work has the same key, different work never does."""

from __future__ import annotations

import hashlib
from typing import Any

import rfc8785


def idempotency_key(
    *, action: str, item: str, snapshot: str, inputs: dict[str, Any], expected_outputs: list[dict[str, Any]]
) -> str:
    """Clock, ids, deadlines and priority stay out; findings and the iteration are in `inputs`."""
    work: dict[str, Any] = {
        "action": action,
        "item": item,
        "snapshot": snapshot,
        "inputs": inputs,
        "expected_outputs": expected_outputs,
    }
    return "ik:" + hashlib.sha256(rfc8785.dumps(work)).hexdigest()
