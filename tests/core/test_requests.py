"""Requests are checked where they are decoded."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from ratchet.core.api import METADATA_MAX_BYTES, NewItem, check_key
from ratchet.core.api.test_workspaces import ConcludeResponse, CreateRequest, ExecRequest, to_learning


def decoded(kind: type[Any], **fields: Any) -> Any:
    return msgspec.json.decode(msgspec.json.encode(fields), type=kind)


@pytest.mark.parametrize("kind", ["spec", "description"])
def test_an_item_has_a_spec_or_a_description(kind: str) -> None:
    assert getattr(decoded(NewItem, repo="/r", **{kind: "do it"}), kind) == "do it"


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({}, "exactly one of `spec`"),
        ({"spec": "a", "description": "b"}, "exactly one of `spec`"),
        ({"spec": "a", "repo": "ext::sh"}, "ext::sh"),
        ({"spec": "a", "branch": "-x"}, "invalid branch"),
        ({"spec": "a", "metadata": {"k": "x" * METADATA_MAX_BYTES}}, f"the limit is {METADATA_MAX_BYTES}"),
        ({"spec": "a", "metadata": {"k": "a\0"}}, "a NUL character"),
        ({"spec": "a", "colour": "red"}, "colour"),
    ],
)
def test_an_item_that_cannot_be_worked_on_is_refused_with_the_reason(fields: dict[str, Any], why: str) -> None:
    with pytest.raises(msgspec.ValidationError, match=why):
        decoded(NewItem, **{"repo": "/r"} | fields)


def test_metadata_may_reach_its_limit() -> None:
    room = METADATA_MAX_BYTES - len('{"k":""}')
    assert decoded(NewItem, repo="/r", spec="a", branch="main", metadata={"k": "x" * room})
    with pytest.raises(msgspec.ValidationError):
        decoded(NewItem, repo="/r", spec="a", metadata={"k": "x" * (room + 1)})


def test_a_key_is_empty_or_up_to_200_printable_characters() -> None:
    for key in ("", "a", "!~" * 100):
        assert check_key(key) == key
    for key in ("a b", "x" * 201, "é", "\n"):
        with pytest.raises(ValueError, match="1 to 200"):
            check_key(key)


@pytest.mark.parametrize("fields", [{"path": "/r"}, {"path": "/r", "with_changes": True}, {"repo": "a/b", "ref": "v1"}])
def test_a_workspace_is_made_of_a_path_or_a_repository(fields: dict[str, Any]) -> None:
    assert decoded(CreateRequest, **fields)


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({}, "exactly one of `path`"),
        ({"path": "/r", "repo": "a/b"}, "exactly one of `path`"),
        ({"repo": "a/b", "with_changes": True}, "`with_changes` goes with"),
        ({"path": "/r", "ref": "v1", "with_changes": True}, "`with_changes` goes with"),
    ],
)
def test_a_workspace_of_nothing_or_of_two_things_is_refused(fields: dict[str, Any], why: str) -> None:
    with pytest.raises(msgspec.ValidationError, match=why):
        decoded(CreateRequest, **fields)


def test_what_is_executed_is_a_command_or_a_patch() -> None:
    assert decoded(ExecRequest, argv=["ls"]) and decoded(ExecRequest, patch="diff")
    for fields in ({}, {"argv": ["ls"], "patch": "diff"}):
        with pytest.raises(msgspec.ValidationError, match="exactly one of `argv`"):
            decoded(ExecRequest, **fields)


def conclusion(**fields: Any) -> ConcludeResponse:
    usual: dict[str, Any] = {
        "workspace": "w", "repo": "/r", "commit": "c", "run": "", "summary": "", "changed": [], "fixed": [],
        "still_failing": [], "diff": "", "at": "", "artifact": "",
    }  # fmt: skip
    return ConcludeResponse(**usual | fields)


def test_a_conclusion_becomes_a_learning_with_what_changed_and_what_went_away() -> None:
    found = conclusion(
        summary="an off-by-one", changed=["a.py", "b.py"], fixed=["t::a"], still_failing=["t::b", "t::c"]
    )
    assert to_learning(found).split("\n") == [
        "an off-by-one", "Changed: a.py, b.py.", "Failures that went away: t::a.", "Still failing: t::b, t::c.",
    ]  # fmt: skip
    assert to_learning(conclusion()).split("\n")[1:] == ["Changed: nothing.", "Failures that went away: none."]


def test_a_learning_of_a_conclusion_is_bounded() -> None:
    names = [f"n{n:02}" for n in range(1, 30)]
    many = to_learning(conclusion(changed=names, fixed=names, still_failing=names))
    assert many.count("n20") == 3 and "n21" not in many
    assert len(to_learning(conclusion(summary="x" * 10_001))) == 10_000
