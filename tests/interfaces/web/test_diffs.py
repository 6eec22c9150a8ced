"""Diffs on pages: the lines as git numbers them, and highlighting that ends in time whatever a file is called."""

from __future__ import annotations

import time

import pytest

from ratchet.interfaces.web import diffs


def new_file(name: str, lines: list[str]) -> str:
    body = "".join(f"+{line}\n" for line in lines)
    return f"diff --git a/{name} b/{name}\n--- /dev/null\n+++ b/{name}\n@@ -0,0 +1,{len(lines)} @@\n{body}"


def test_rows_have_the_numbers_of_the_new_file() -> None:
    text = "diff --git a/a.py b/a.py\n--- a/a.py\n+++ b/a.py\n@@ -3,3 +3,3 @@ f\n if x:\n---- y\n+++ y\n z\n"
    [file] = diffs.parse(text)
    assert (file.path, file.added, file.removed) == ("a.py", 1, 1)
    assert [(row.kind, row.number) for row in file.lines] == [
        ("hunk", ""), ("", "3"), ("del", ""), ("add", "4"), ("", "5"),
    ]  # fmt: skip
    assert '<i class="k">if</i>' in file.lines[1].code


def test_a_line_with_a_forged_header_is_one_line() -> None:
    [file] = diffs.parse(new_file("x.txt", [f"a\u2028@@ -1 +{'9' * 5000} @@", "\f+++ b/y"]))
    assert (file.path, [row.number for row in file.lines]) == ("x.txt", ["", "1", "2"])


@pytest.mark.parametrize(("name", "part"), [("x.ts", "a."), ("x.java", "a "), ("x.tsx", "a."), ("x.ezt", "\t")])
def test_highlighting_ends_in_time(name: str, part: str) -> None:
    text = "".join(new_file(f"{number}{name}", [(part * 300)[:199]] * 700) for number in range(2))
    begun = time.process_time()
    assert sum(len(file.lines) for file in diffs.parse(text)) == 1_402
    assert time.process_time() - begun < 3.0
