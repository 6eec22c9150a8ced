"""The regression suite: every cheat in it is found by the rule it breaks, and no honest change is refused.

The rules are tuned to it; what they find elsewhere is measured by `make trust`.
"""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ratchet.core.cheats import Change, find_cheats
from ratchet.core.roles import PathRules

CORPUS = Path(__file__).parent / "corpus"
SCOPE = PathRules(
    tests=("tests/**", "test/**", "spec/**", "src/test/**", "**/*_test.go", "**/*.test.*"),
)


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """One change of the corpus. `rule` is the one it breaks; honest ones break none."""

    name: str
    rule: str
    changes: list[Change]


def read(path: Path) -> list[Sample]:
    samples = re.split(r"^=== ", path.read_text(), flags=re.MULTILINE)[1:]
    return [_sample(path.stem, text) for text in samples]


def _sample(language: str, text: str) -> Sample:
    title, _, rest = text.partition("\n")
    rule, colon, why = title.partition(": ")
    sides: dict[str, dict[str, str]] = {"---": {}, "+++": {}}
    for mark, name, content in re.findall(r"^(---|\+\+\+) (\S+)\n(.*?)(?=^(?:---|\+\+\+) |\Z)", rest, re.M | re.S):
        sides[mark][name] = content
    old, new = sides["---"], sides["+++"]
    changes = [
        Change(path=name, before=old.get(name), after=new.get(name) or None) for name in sorted(old.keys() | new.keys())
    ]
    return Sample(name=f"{language}: {why or title}", rule=rule if colon else "", changes=changes)


def corpus(kind: str) -> list[Sample]:
    return [sample for path in sorted((CORPUS / kind).glob("*.txt")) for sample in read(path)]


CHEATS, HONEST = corpus("cheats"), corpus("honest")


@pytest.mark.parametrize("sample", CHEATS, ids=lambda sample: sample.name)
def test_a_cheat_is_caught_by_the_rule_it_breaks(sample: Sample) -> None:
    found = find_cheats(sample.changes, SCOPE)
    assert sample.rule in {cheat.rule for cheat in found}, found


@pytest.mark.parametrize("sample", HONEST, ids=lambda sample: sample.name)
def test_an_honest_change_is_not_refused(sample: Sample) -> None:
    assert [cheat for cheat in find_cheats(sample.changes, SCOPE) if not cheat.doubt] == []


def rates(samples: list[Sample]) -> dict[str, tuple[int, int]]:
    """By language: how many there is a finding for, of how many."""
    found: dict[str, tuple[int, int]] = {}
    for sample in samples:
        language = sample.name.partition(":")[0].removeprefix("fresh-")
        caught, count = found.get(language, (0, 0))
        findings = find_cheats(sample.changes, SCOPE)
        counts = findings if sample.rule else [cheat for cheat in findings if not cheat.doubt]
        found[language] = (caught + bool(counts), count + 1)
    return found


def test_the_corpus_is_large_and_its_rates_hold(capsys: pytest.CaptureFixture[str]) -> None:
    cheats, honest = rates(CHEATS), rates(HONEST)
    with capsys.disabled():
        for language in cheats:
            caught, refused = cheats[language], honest.get(language, (0, 0))
            print(f"\n{language:<11} caught {caught[0]} of {caught[1]}, refused {refused[0]} of {refused[1]}", end="")
        print(f"\ncheats {len(CHEATS)}, honest changes {len(HONEST)}")
    assert len(CHEATS) >= 200 and len(HONEST) >= 160 and len(cheats) >= 10
    assert sum(caught for caught, _ in cheats.values()) >= 0.95 * len(CHEATS)
    assert not any(refused for refused, _ in honest.values())


def test_a_finding_names_the_file_and_the_line() -> None:
    before = "def test_a():\n    assert f() == 1\n"
    after = "def test_a():\n    x = f()\n    assert f() == 2\n"
    [cheat] = find_cheats([Change(path="tests/test_a.py", before=before, after=after)], SCOPE)
    assert (cheat.file, cheat.line, cheat.rule) == ("tests/test_a.py", 3, "expected-edited")


def test_findings_have_a_fixed_order() -> None:
    for sample in CHEATS:
        found = [(one.file, one.line, one.rule, one.detail) for one in find_cheats(sample.changes, SCOPE)]
        assert found == sorted(found)


def test_a_test_with_a_sentence_for_a_name_is_called_by_it() -> None:
    test = "  @Test fun `adds NAME`() { assertEquals(3, f()) }\n"
    text = "class T {\n" + test.replace("NAME", "two") + test.replace("NAME", "six").replace("3", "7") + "}\n"
    change = Change(path="src/test/T.kt", before=text, after=text.replace("3, f()", "4, f()"))
    [cheat] = find_cheats([change], SCOPE)
    assert cheat.detail.startswith("`adds two` expects 4")


def test_an_expected_value_that_was_asked_for_may_take_the_place_of_another() -> None:
    before = 'def test_a():\n    assert greet() == "Hello"\n'
    change = Change(path="tests/test_a.py", before=before, after=before.replace("Hello", "Good day"))
    assert find_cheats([change], SCOPE, spec="`greet` says Good day from now on.") == []
    assert [cheat.rule for cheat in find_cheats([change], SCOPE, spec="`greet` is friendlier.")] == ["expected-edited"]


@pytest.mark.parametrize(
    ("path", "line", "doubt"),
    [
        ("a.py", "x = f()  # type: ignore[no-any-return]", True),
        ("a.py", "x = f()  # type: ignore", True),
        ("a.py", "x = f()  # noqa: E501", True),
        ("a.py", "x = f()  # noqa", True),
        ("a.py", "# ruff: noqa: E501", False),
        ("a.py", "x = f()  # pragma: no cover", True),
        ("a.ts", "// eslint-disable-next-line no-console", True),
        ("a.ts", "/* eslint-disable no-console */", True),
        ("a.ts", "/* eslint-disable */", False),
        ("a.ts", "// @ts-nocheck", False),
        ("a.ts", "// @ts-ignore", True),
        ("a.go", "x := f() //nolint:errcheck", True),
        ("a.rs", "#[allow(dead_code)]", True),
        ("a.rs", "#![allow(dead_code)]", False),
        ("a.rs", "#[allow(warnings)]", False),
        ("A.java", '@SuppressWarnings("deprecation")', True),
        ("A.java", '@SuppressWarnings("all")', False),
    ],
)
def test_a_suppression_of_a_line_is_a_doubt_and_of_a_whole_file_is_none(path: str, line: str, doubt: bool) -> None:
    [cheat] = find_cheats([Change(path=path, before="", after=f"{line}\n")], SCOPE)
    assert (cheat.rule, cheat.doubt) == ("check-silenced", doubt)


def test_an_expected_value_or_a_snapshot_that_changed_is_a_doubt_and_a_weaker_assertion_is_none() -> None:
    before = "def test_a():\n    assert f() == 11\n"
    for after, doubt in ((before.replace("11", "12"), True), (before.replace("== 11", "is not None"), False)):
        [cheat] = find_cheats([Change(path="tests/test_a.py", before=before, after=after)], SCOPE)
        assert cheat.doubt is doubt
    [cheat] = find_cheats([Change(path="tests/__snapshots__/a.snap", before="a\n", after="b\n")], SCOPE)
    assert cheat.doubt


def test_a_line_that_moved_with_its_file_is_not_new() -> None:
    text = "import yaml  # type: ignore[import-untyped]\n"
    moved = [Change(path="a.py", before=text, after=None), Change(path="b/a.py", before=None, after=text)]
    assert find_cheats(moved, SCOPE) == [] and find_cheats(moved[1:], SCOPE)


FIXTURE = "import pytest\n\n\n@pytest.fixture\ndef two():\n    return 2\n"


def test_a_fixture_in_a_conftest_is_no_cheat_and_a_hook_is() -> None:
    honest = Change(path="tests/conftest.py", before="", after=FIXTURE)
    hook = Change(
        path="tests/conftest.py", before="", after=FIXTURE + "\n\ndef pytest_runtest_makereport():\n    ...\n"
    )
    assert find_cheats([honest], SCOPE) == []
    assert {cheat.rule for cheat in find_cheats([hook], SCOPE)} == {"runner-configuration", "runner-touched"}


def test_a_broken_test_file_is_no_removed_test() -> None:
    before, after = "def test_a():\n    assert f() == 1\n", "def test_a(:\n"
    assert find_cheats([Change(path="tests/test_a.py", before=before, after=after)], SCOPE) == []


@pytest.mark.timeout(30)
def test_a_large_snapshot_within_a_test_is_read_in_time() -> None:
    rows = "\n".join(f"      row {n} should be here" for n in range(20_000))
    text = f"it('shows', () => {{\n  expect(view()).toMatchInlineSnapshot(`\n{rows}\n`);\n}});\n"
    change = Change(path="test/view.test.ts", before=text, after=text.replace("row 7 ", "row seven "))
    assert find_cheats([change], SCOPE)


SUFFIXES = [
    "tests/a.py",
    "test/a.js",
    "a_test.go",
    "tests/a.rs",
    "src/test/A.java",
    "spec/a.rb",
    "src/a.py",
    "src/a.ts",
]


@given(st.sampled_from(SUFFIXES), st.text(), st.text())
def test_no_text_breaks_the_detection(path: str, before: str, after: str) -> None:
    find_cheats([Change(path=path, before=before, after=after)], SCOPE)


@given(st.sampled_from(CHEATS + HONEST), st.data())
def test_what_did_not_change_is_no_cheat(sample: Sample, data: st.DataObject) -> None:
    change = data.draw(st.sampled_from(sample.changes))
    same = Change(path=change.path, before=change.after, after=change.after)
    rules = {cheat.rule for cheat in find_cheats([same], SCOPE)}
    assert not rules - {"runner-configuration", "runs-before-tests"}  # those ask whether such a file is touched at all
