"""Idempotency keys."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from ratchet.core.idempotency_keys import idempotency_key
from ratchet.core.state import RunState
from ratchet.core.workflows.tdd import TDD, TddPhase

json = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53) + 1, 2**53 - 1) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner, max_size=4),
    max_leaves=12,
)


def key(inputs: dict[str, Any], *, action: str = "audit", snapshot: str = "s") -> str:
    return idempotency_key(action=action, item="item-1", snapshot=snapshot, inputs=inputs, expected_outputs=[])


@given(st.dictionaries(st.text(max_size=10), json, max_size=5))
def test_the_same_work_has_the_same_key_in_whatever_order_it_is_written(inputs: dict[str, Any]) -> None:
    assert key(inputs) == key(dict(reversed(inputs.items())))


def test_a_key_is_a_prefixed_sha256() -> None:
    made = key({})
    assert made.startswith("ik:") and len(made) == 67 and int(made[3:], 16) >= 0


def test_another_action_snapshot_or_input_is_another_key() -> None:
    assert len({key({}), key({}, action="judge"), key({}, snapshot="t"), key({"iteration": 1})}) == 4


def test_a_second_review_of_the_same_item_has_another_key_and_a_repeat_has_the_same() -> None:
    first = RunState(run="run-1", phase=TddPhase.REVIEW, head="c1")
    second = replace(first, review_rounds=1)
    keys = [key(TDD.plan(state).inputs, action="review") for state in (first, first, second)]
    assert keys[0] == keys[1] != keys[2]
