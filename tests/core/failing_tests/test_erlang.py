"""Failing bodies for EUnit: functions by their name, without parameters."""

from __future__ import annotations

from time import process_time

import pytest

from ratchet.core.failing_tests import with_failing_tests

MARK = " andalso error("


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("adds_test() ->| ok.\n", ["adds_test", "adds_test#2"]),
        ('x() -> $". % "\nadds_test() ->| ok.\n', ["adds_test"]),
        ('x() -> "\nother_test() -> \\" ".\ny() -> \'a"\'.\nadds_test() ->| ok.\n', ["adds_test"]),
    ],
)
def test_a_failure_is_put_first_into_the_body(text: str, names: list[str]) -> None:
    before, after = text.split("|")
    found = with_failing_tests("test/a_tests.erl", before + after)
    assert found
    changed, tests = found
    assert changed.startswith(before) and changed.endswith(after) and changed.count(MARK) == 1
    for name in names:
        assert tests.must_fail([], f"a_tests:{name}") and not tests.must_fail([], f"a_tests:other_{name}")


@pytest.mark.parametrize(
    "text",
    [
        "adds() -> ok.\n",
        "adds_test(X) -> X.\n",
        "adds_test_() -> [?_assert(true)].\n",
        "% adds_test() -> ok.\n",
        'adds_test() -> ok.\nx() -> ".\n',
    ],
)
def test_what_is_no_test_or_unclear_is_left_alone(text: str) -> None:
    assert with_failing_tests("test/a_tests.erl", text) is None


@pytest.mark.parametrize("piece", ['"', "'", "$", "%", "\\", "a_test(", '"\\', "'\\"])
def test_text_made_to_stall_its_reader_takes_time_by_length_only(piece: str) -> None:
    start = process_time()
    with_failing_tests("a_tests.erl", piece * (250_000 // len(piece)))
    assert process_time() - start < 10
