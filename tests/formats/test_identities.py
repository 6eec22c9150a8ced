"""Identities are told apart class by class, and only where that is enough."""

from __future__ import annotations

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ratchet.checks.formats import junit
from ratchet.checks.formats.junit.identities import Identities

# Few letters, so that heads begin with each other and names with the rest of a head.
CASES = st.lists(
    st.tuples(st.sampled_from(["", "a", "a#a", "b"]), st.sampled_from(["a", "b", "a#a", "#a"])), max_size=5
)


def gathered(batches: list[list[tuple[str, str]]]) -> tuple[Identities, list[str]]:
    identities, ids = Identities(), []
    for batch in batches:
        heads = {group: f"{group}#" if group else "" for group, _ in batch}
        ids += [heads[group] + name for group, name in batch]
        identities.add(ids[len(ids) - len(batch) :], [group for group, _ in batch], heads)
    return identities, ids


@given(st.lists(CASES, max_size=5))
def test_tests_that_are_said_to_be_distinct_are(batches: list[list[tuple[str, str]]]) -> None:
    identities, ids = gathered([batch for batch in batches if batch])
    assert not identities.are_distinct() or len(set(ids)) == len(ids)


def test_classes_that_come_one_after_the_other_are_known_to_be_distinct() -> None:
    halves = [[("a", "1"), ("a", "2")], [("a", "3")], [("a", "4"), ("b", "1"), ("c", "1")], [("c", "2"), ("d", "1")]]
    assert gathered(halves)[0].are_distinct()


@pytest.mark.parametrize(
    "cases",
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
def test_a_test_that_comes_twice_is_found(cases: list[list[tuple[str, str]]]) -> None:
    assert not gathered(cases)[0].are_distinct()


def test_the_second_test_of_a_name_gets_its_own_also_far_behind_the_first() -> None:
    case = '<testcase name="does_{}" classname="a.b.C{}Test" time="1"/>\n'
    suites = [
        f'<testsuite name="{n}">{"".join(case.format(m, n) for m in range(50))}</testsuite>\n' for n in range(200)
    ]
    document = f"<testsuites>{''.join([*suites, suites[7]])}</testsuites>".encode()
    found = junit.parse(io.BytesIO(document)).tests
    assert [test.id for test in found[-2:]] == ["a.b.C7Test#does_48 #2", "a.b.C7Test#does_49 #2"]
    assert len({test.id for test in found}) == 201 * 50
