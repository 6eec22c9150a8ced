"""What the scribe may change of a spec, for any spec."""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from ratchet.core.spec_sections import OWN, rejection

SPEC = "# Title\n\nDo this.\n\n## Requirements\n- one\n- two\n\n## Status\nnothing yet\n\n## Notes\nkeep\n"
plain = st.text(st.characters(codec="utf-8", exclude_characters="#=-`~<>\r\n"), max_size=30)
body = st.lists(plain, max_size=4).map(lambda rows: "".join(f"{row}\n" for row in rows))
titles = st.sampled_from(["Requirements", "Notes", "Scope", "Statuses", "T001: build"])
other = st.tuples(titles, body).map(lambda part: f"## {part[0]}\n{part[1]}")
own = st.tuples(st.sampled_from(OWN), body).map(lambda part: f"## {part[0].title()}\n{part[1]}")


@given(st.lists(other, min_size=1, max_size=4), st.lists(own, max_size=3), st.lists(own, max_size=3))
def test_whatever_is_written_in_its_own_sections_is_allowed(
    others: list[str], before: list[str], after: list[str]
) -> None:
    rest = "# Title\n" + "".join(others)
    assert rejection(rest + "".join(before), rest + "".join(after)) == ""


@given(st.lists(other, min_size=1, max_size=4), own, st.data())
def test_a_changed_byte_anywhere_else_is_refused(others: list[str], mine: str, data: st.DataObject) -> None:
    rest = "# Title\n" + "".join(others)
    at = data.draw(st.integers(0, len(rest) - 2))
    changed = rest[:at] + ("X" if rest[at] != "X" else "Y") + rest[at + 1 :]
    assert rejection(rest + mine, changed + mine) != "" and rejection(rest + mine, changed) != ""


@given(st.lists(other, min_size=2, max_size=4), own)
def test_a_section_that_is_taken_away_or_moved_is_refused(others: list[str], mine: str) -> None:
    assume(others[0] != others[1] and others[0].strip() and others[-1].split("\n", 1)[1].strip())
    whole = "".join(others)
    assert rejection(whole + mine, "".join(others[:-1]) + mine) != ""
    assert rejection(whole + mine, others[1] + others[0] + "".join(others[2:]) + mine) != ""


@pytest.mark.parametrize(
    "status",
    [
        "## Status\nall done\n\n### Details\nof it\n\n",
        "## Status\n```\n## Requirements\n```\n\n",
        "## Status\n<!-- seen -->\n\n",
        "Status\n------\nall done\n\n",
        "",
    ],
)
def test_ways_to_write_a_status(status: str) -> None:
    assert rejection(SPEC, SPEC.replace("## Status\nnothing yet\n\n", status)) == ""


@pytest.mark.parametrize(
    ("after", "how"),
    [
        (SPEC.replace("- two\n", ""), "a requirement taken away"),
        (SPEC.replace("nothing yet", "done\n\n## Requirements\n- none"), "a second section of requirements"),
        (SPEC.replace("nothing yet", "done\n\nRequirements\n===\n- none"), "the same, underlined"),
        (SPEC.replace("nothing yet", "```"), "a code block that swallows the rest"),
        (SPEC.replace("nothing yet", "<!-- "), "a comment that hides the rest"),
        (SPEC.replace("## Requirements\n", "## Requirements\n## Status\n"), "requirements made a status"),
        (SPEC.replace("## Notes", "### Notes"), "a section moved below the status"),
        ("", "everything taken away"),
    ],
)
def test_ways_to_get_around_it(after: str, how: str) -> None:
    assert rejection(SPEC, after), how
