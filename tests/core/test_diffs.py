"""Diffs of hostile content: no line of a file is taken for a header, and lines end at line feeds only."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from ratchet.core.diffs import read_diff
from ratchet.core.gates import changed_lines, is_large, whole_if_hidden
from ratchet.core.lines import split_lines
from tests.support import git, make_repository

SOURCE = Path(__file__).parents[2] / "src/ratchet"


def new_file(*lines: str) -> str:
    body = "".join(f"+{line}\n" for line in lines)
    return f"diff --git a/m.py b/m.py\n--- /dev/null\n+++ b/m.py\n@@ -0,0 +1,{len(lines)} @@\n{body}"


@pytest.mark.parametrize("end", ["\f", "\v", "\x1c", "\x1d", "\x1e", "\x85", "\u2028", "\u2029", "\r"])
@pytest.mark.parametrize("forged", ["+++ ", "+++ b/other.py", f"@@ -1 +{'9' * 5000} @@", "diff --git a/x b/x"])
def test_a_forged_header_in_a_line_hides_no_other_line(end: str, forged: str) -> None:
    found = changed_lines(new_file(f"#{end}{forged}", *["y = 1"] * 150))
    assert found == {"m.py": set(range(1, 152))} and is_large(found, [])


def test_lines_that_look_like_headers_are_lines() -> None:
    diff = new_file("++ b/x.py", "@@ -1 +7 @@", "").replace("+@@", "-@@").replace("-0,0 +1,3", "-1 +1,2")
    assert changed_lines(f"{diff}\\ No newline at end of file\n") == {"m.py": {1, 2}}
    removed = "--- a/m.py\n+++ b/m.py\n@@ -1,2 +1 @@\n--- a/n.py\n-+++ b/n.py\n+x\n"
    assert [(file.path, file.added()) for file in read_diff(removed)] == [("m.py", {1})]


def test_gits_own_diff_of_hostile_names_and_content_is_read_to_the_letter(tmp_path: Path) -> None:
    names = [
        "plain.py",
        "with space.py",
        "t\tab.py",
        'quo"te.py',
        "back\\slash.py",
        "ümlaut.py",
        "line\nfeed.py",
        "b/a/x.py",
    ]
    place = make_repository(tmp_path / "repo", {"old.py": "1\n2\n3\n"})
    for name in names:
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_text("#\f+++ b/old.py\n+++ x\n\n--- y")
    (place / "old.py").write_text("1\n3\n4\n")
    git("add", "-A", cwd=place)
    shown = git("diff", "--cached", cwd=place)
    assert changed_lines(shown) == {name: {1, 2, 3, 4} for name in names} | {"old.py": {3}}


@pytest.mark.parametrize("cut", [0, 1, 20, 60, 90, 100])
def test_a_diff_that_was_cut_is_read_as_far_as_it_goes(cut: int) -> None:
    text = new_file("one", "two", "three")[:cut]
    assert changed_lines(f"{text}\n… 99 more bytes\n").keys() <= {"m.py"}


def test_a_file_whose_changed_lines_git_does_not_know_counts_whole() -> None:
    assert whole_if_hidden("a.py", "x = 1\ry = 2\r", is_shown=True) == {1, 2, 3}
    assert whole_if_hidden("a.js", "// x\u2028y()\n", is_shown=True)
    assert whole_if_hidden("a.js", "// \0\n", is_shown=False)
    assert not whole_if_hidden("a.png", "\0\r\n\r", is_shown=False)
    assert not whole_if_hidden("a.py", "x = 1\r\n\f\n", is_shown=True)


def test_lines_end_at_line_feeds_only() -> None:
    assert split_lines("a\r\nb\x0bc\u2028d\n\n") == ["a", "b\x0bc\u2028d", ""]
    assert split_lines("") == [] and split_lines("\n") == [""]


@pytest.mark.parametrize("package", ["core", "engine", "workspace", "store", "checks/select", "interfaces/web"])
def test_where_lines_have_an_identity_nothing_splits_at_what_no_tool_counts_as_a_line(package: str) -> None:
    allowed = SOURCE / "core/lines.py"
    bare = [
        f"{file.relative_to(SOURCE)}:{node.lineno}"
        for file in (SOURCE / package).rglob("*.py")
        for node in ast.walk(ast.parse(file.read_bytes()))
        if isinstance(node, ast.Attribute) and node.attr == "splitlines" and file != allowed
    ]
    assert bare == []
