"""Specs of tasks: a commit's message and issues without traces of the answer."""

from __future__ import annotations

import pytest

from ratchet.core.backtest.task_spec import Issue, is_vague, linked_issues, without_traces, write_spec

MESSAGE = """Accept a trailing comma in inline tables (#218)

Fixes #12. It was tried in 0a1b2c3d4e and
https://github.com/o/p/commit/0a1b2c3d4e5f60718293a4b5c6d7e8f901234567 first.

- tables may span lines
- arrays are unchanged

    if src.startswith(",", pos): pos += 1

diff --git a/src/parser.py b/src/parser.py
index 0a1b2c3..1b2c3d4 100644
--- a/src/parser.py
+++ b/src/parser.py
@@ -1,2 +1,2 @@
-old
+new

After the diff.

```diff
+secret
```

Co-authored-by: A B <a@example.com>
Signed-off-by: A B <a@example.com>
"""


def test_a_spec_keeps_what_is_wanted_and_loses_what_gives_the_answer_away() -> None:
    spec = write_spec(MESSAGE, [], ['        if src.startswith(",", pos): pos += 1'])
    assert spec == (
        "# Accept a trailing comma in inline tables\n\nFixes #12. It was tried in (commit) and\n first.\n\n"
        "- tables may span lines\n- arrays are unchanged\n\nAfter the diff.\n"
    )


@pytest.mark.parametrize(
    "trace",
    [
        "This reverts commit 1234567890abcdef1234567890abcdef12345678.",
        "(cherry picked from commit 1234567890abcdef1234567890abcdef12345678)",
        "Merge pull request #12 from o/fix",
        "Reviewed-by: A",
        "Workstream-Session-Id: 019c0d1e-73be-7000-908b-0123456789ab",
        "@@ -1 +1 @@ def f",
    ],
)
def test_lines_that_lead_to_the_answer_are_removed(trace: str) -> None:
    assert without_traces(f"Before\n{trace}\n\nAfter", set()).split() == ["Before", "After"]


@pytest.mark.parametrize(
    "kept", ["decade 1234567 defaced facade", "fixes #12", "x = 1", "- a list item", "See deadbeefs"]
)
def test_ordinary_words_and_numbers_stay(kept: str) -> None:
    assert without_traces(kept, {"a longer line of the answer"}) == kept


def test_linked_issues_are_added_without_traces() -> None:
    issues = [Issue(number=12, title="No commas", body="As in 0a1b2c3d4e5f6"), Issue(number=13, title="Other")]
    linked = linked_issues("Fix it\n\nCloses #12", issues)
    assert [issue.number for issue in linked] == [12]
    assert write_spec("Fix the comma bug", linked, []).endswith("## Issue 12: No commas\n\nAs in (commit)\n")


@pytest.mark.parametrize("message", ["Bump version to the next one", "Release 1.2.3", "fix", "v1.2", "Fix bug again"])
def test_a_message_that_says_nothing_is_no_spec(message: str) -> None:
    assert is_vague(write_spec(message, [], []))


def test_a_message_that_says_something_is_a_spec() -> None:
    assert not is_vague(write_spec("Accept commas in inline tables", [], []))
