"""Every test of a document has an identity of its own."""

from __future__ import annotations

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ratchet.checks.formats import junit
from ratchet.checks.formats.junit.identities import Identities


@given(st.lists(st.lists(st.text("ab", max_size=2), max_size=3), max_size=4))
def test_tests_are_distinct_if_no_two_of_all_are_alike(batches: list[list[str]]) -> None:
    identities = Identities()
    for batch in batches:
        identities.add(batch)
    ids = [each for batch in batches for each in batch]
    assert identities.are_distinct() == (len(set(ids)) == len(ids))


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
