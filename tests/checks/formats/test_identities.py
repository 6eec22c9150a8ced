"""Every test of a document has an identity of its own; classes are compared one by one only where that is enough."""

from __future__ import annotations

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ratchet.checks.formats import junit
from ratchet.checks.formats.junit.identities import Identities

Cases = list[tuple[str, str]]
# Few letters, so that heads begin with each other and names with the rest of a head.
CASES = st.lists(
    st.tuples(st.sampled_from(["", "a", "a#a", "b"]), st.sampled_from(["a", "b", "a#a", "#a"])), min_size=1, max_size=5
)


def gathered(batches: list[Cases]) -> tuple[Identities, list[str]]:
    identities, ids = Identities(), []
    for batch in batches:
        heads = {group: f"{group}#" if group else "" for group, _ in batch}
        ids += [heads[group] + name for group, name in batch]
        identities.add(ids[len(ids) - len(batch) :], [group for group, _ in batch], heads)
    return identities, ids


@given(st.lists(CASES, max_size=5))
def test_tests_are_distinct_if_no_two_of_all_are_alike(batches: list[Cases]) -> None:
    identities, ids = gathered(batches)
    assert identities.are_distinct() == (len(set(ids)) == len(ids))


def test_classes_that_come_one_after_the_other_are_compared_one_by_one() -> None:
    halves = [[("a", "1"), ("a", "2")], [("a", "3")], [("a", "4"), ("b", "1"), ("c", "1")], [("c", "2"), ("d", "1")]]
    assert gathered(halves)[0].is_sure


@pytest.mark.parametrize(
    "batches",
    [
        [[("a", "1"), ("a", "1")]],
        [[("a", "1")], [("a", "1")]],
        [[("a", "1"), ("b", "1")], [("a", "1")]],
        [[("a", "1"), ("b", "1")], [("b", "2"), ("a", "1"), ("b", "1")]],
        [[("a", "1"), ("b", "1")], [("c", "1"), ("b", "1")]],
        [[("a", "1")], [("a", "2")], [("a", "2")]],
        [[("a", "b#1"), ("a#b", "1")]],
        [[("", "a#1")], [("a", "1")]],
    ],
)
def test_a_test_that_comes_twice_is_found(batches: list[Cases]) -> None:
    assert not gathered(batches)[0].are_distinct()


@pytest.mark.parametrize("again", [1, 7, 199])
def test_the_second_test_of_a_name_gets_its_own_also_far_behind_the_first(again: int) -> None:
    case = '<testcase name="does_{}" classname="a.b.C{}Test" time="1"/>\n'
    suites = [
        f'<testsuite name="{n}">{"".join(case.format(m, n) for m in range(50))}</testsuite>\n' for n in range(200)
    ]
    document = f"<testsuites>{''.join([*suites, suites[again]])}</testsuites>".encode()
    found = junit.parse(io.BytesIO(document)).tests
    assert [test.id for test in found[-2:]] == [f"a.b.C{again}Test#does_48 #2", f"a.b.C{again}Test#does_49 #2"]
    assert len({test.id for test in found}) == 201 * 50
