"""When two claims on paths touch the same file."""

from __future__ import annotations

import fnmatch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ratchet.core.locks import DEPTH_MAX, normalise, normalise_all, overlaps

NAMES = st.text("ab*?", min_size=1, max_size=4).filter(lambda name: "**" not in name)
FILES = st.text("ab", min_size=1, max_size=4)
PATTERNS = st.lists(NAMES | st.just("**"), min_size=1, max_size=3).map("/".join)


@pytest.mark.parametrize(
    ("one", "other", "meet"),
    [
        ("src/a.py", "src/a.py", True),
        ("src/a.py", "src/b.py", False),
        ("src/**", "src/x/y.py", True),
        ("src", "src/a.py", True),
        ("src", "srcs/a.py", False),
        ("src/*.py", "src/a.md", False),
        ("src/*.py", "src/a*", True),
        ("src/[ab].py", "src/a.py", True),
        ("**/x.py", "src/y.py", False),
        ("**/x.py", "src/x.py", True),
        ("**/*.md", "docs/**", True),
        ("docs/**/x.md", "docs/x.md", True),
        ("a/**/b", "c/**", False),
        ("**", "anything/at/all", True),
    ],
)
def test_claims_meet_where_some_file_belongs_to_both(one: str, other: str, meet: bool) -> None:
    assert overlaps(one, other) is meet and overlaps(other, one) is meet


@given(PATTERNS, PATTERNS)
def test_meeting_is_mutual_and_everything_meets_itself(one: str, other: str) -> None:
    assert overlaps(one, other) == overlaps(other, one) and overlaps(one, one)


@given(NAMES, NAMES, FILES)
def test_names_that_both_match_a_file_meet(one: str, other: str, file: str) -> None:
    if fnmatch.fnmatchcase(file, one) and fnmatch.fnmatchcase(file, other):
        assert overlaps(one, other)


@given(st.lists(st.sampled_from(["a", "./a", "a//", "b/../a", "/a", "b/c"])))
def test_one_claim_has_one_spelling_and_none_leaves_the_repository(paths: list[str]) -> None:
    try:
        found = normalise_all(paths)
    except ValueError:
        assert any(".." in path or path.startswith("/") for path in paths)
    else:
        assert found == sorted(set(found)) and [normalise(path) for path in found] == found


def test_a_claim_as_deep_and_as_wild_as_can_be_is_compared_like_any_other() -> None:
    deep, wild = "a/" * (DEPTH_MAX - 2), "*a" * 120
    assert overlaps(f"{deep}b", f"{deep}b") and not overlaps(f"{deep}b", f"{deep}c")
    assert overlaps(f"**/{deep}b", f"{deep}b") and not overlaps(f"{wild}b", f"{wild}c")


@pytest.mark.parametrize("path", ["src/a\n../../b", "src/\x1b[2J", "a\0", "a" * 256, "a/" * 129])
def test_a_name_that_no_file_of_a_repository_should_have_is_refused(path: str) -> None:
    """A footprint is kept as lines: a name of two lines would be two claims, the second of them never checked."""
    with pytest.raises(ValueError, match=r"invalid path|more than \d+"):
        normalise(path)


def test_the_same_path_is_written_in_one_way() -> None:
    spellings = {"./src//a.py": "src/a.py", "src/./a.py": "src/a.py", "docs/": "docs/**", ".": "**", "./": "**"}
    assert {path: normalise(path) for path in spellings} == spellings


def test_a_bracket_at_the_beginning_of_a_set_does_not_end_it() -> None:
    assert overlaps("src/[]a].py", "src/].py")
    assert not overlaps("src/[]a].py", "src/aa.py")
